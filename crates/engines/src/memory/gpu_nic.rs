//! Finds the NIC nearest to the GPU of a rank's memory, for engines that choose a device.
//!
//! PCI distances are computed in `tonnage_machine::devices`.

use tonnage_engine::OpenRequest;
use tonnage_machine::Topology;
use tonnage_machine::devices::{gpu_addresses, gpu_function, nic_of_gpu};
use tonnage_machine::kernel_files::Tree;

use super::cuda_region::{library, number_of};
use super::vendor::GpuVendor;
use super::vendor::VENDORS;

/// The GPU that owns a rank's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuPlace {
    /// The GPU's name, such as "cuda:0".
    pub(crate) name: String,
    /// The GPU's PCI address, as its driver reports it.
    pub(crate) address: String,
}

impl GpuPlace {
    /// Returns the GPU of the requesting rank's memory; `None` for host memory. Also `None` if no driver reports the
    /// GPU; allocating its memory then fails with the reason.
    pub(crate) fn for_request(request: &OpenRequest<'_>) -> Option<Self> {
        VENDORS
            .iter()
            .find_map(|vendor| Self::if_from_vendor(vendor, request))
    }

    /// Returns the GPU if it is from this vendor.
    fn if_from_vendor(vendor: &GpuVendor, request: &OpenRequest<'_>) -> Option<Self> {
        let number = number_of(vendor, request.memories.0).ok()??;
        let memory = vendor.memory;
        let library = library(vendor, Some(request.libraries), &format!("memory {memory}")).ok()?;
        let devices = library.devices().ok()?;
        let device = devices.get(number as usize)?;
        Some(Self {
            name: format!("{memory}:{number}"),
            address: device.pci_address.clone(),
        })
    }

    /// Chooses the nearest of the devices with these PCI addresses, and returns its index and the reason. `None` if the
    /// kernel reports no distance to any of them.
    pub(crate) fn nearest(&self, addresses: &[Option<&str>]) -> Option<(usize, String)> {
        self.nearest_in(&Tree::host(), &Topology::read(), addresses)
    }

    /// Like [`Self::nearest`], on a machine described by a tree of kernel files.
    pub(crate) fn nearest_in(
        &self,
        tree: &Tree,
        topology: &Topology,
        addresses: &[Option<&str>],
    ) -> Option<(usize, String)> {
        let addresses: Vec<&str> = addresses.iter().map(|it| it.unwrap_or_default()).collect();
        let gpus = gpu_addresses(tree);
        let Self { name, address } = self;
        let function = gpu_function(tree, address);
        let (place, way) = nic_of_gpu(tree, topology, (&function, &gpus), &addresses)?;
        let why = format!(
            "the nearest to {name} ({address}), by {}; --devices chooses otherwise",
            way.words()
        );
        Some((place, why))
    }
}
