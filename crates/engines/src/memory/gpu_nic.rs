//! The NIC that is nearest to the GPU of a rank's memory, for engines that have devices to choose from.
//!
//! The distance of two places on PCI is in `tonnage_machine::devices`.

use tonnage_engine::OpenRequest;
use tonnage_machine::Topology;
use tonnage_machine::devices::{gpu_addresses, gpu_function, nic_of_gpu};
use tonnage_machine::kernel_files::Tree;

use super::cuda_region::{library, number_of};
use super::vendor::GpuVendor;
use super::vendor::VENDORS;

/// The GPU that a rank's memory is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuPlace {
    /// Its name, such as "cuda:0".
    pub(crate) name: String,
    /// Its PCI address, as its driver has it.
    pub(crate) address: String,
}

impl GpuPlace {
    /// The GPU of the memory of the rank that asks; `None` for memory of the host, and where no driver tells of the
    /// GPU: that is said when its memory is allocated.
    pub(crate) fn of(request: &OpenRequest<'_>) -> Option<Self> {
        VENDORS.iter().find_map(|vendor| Self::by(vendor, request))
    }

    /// The GPU, where it is of this maker.
    fn by(vendor: &GpuVendor, request: &OpenRequest<'_>) -> Option<Self> {
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

    /// The choice among devices with these PCI addresses: the place in the list, and the reason. `None` where the
    /// kernel tells of none how near it is.
    pub(crate) fn nearest(&self, addresses: &[Option<&str>]) -> Option<(usize, String)> {
        self.nearest_in(&Tree::host(), &Topology::read(), addresses)
    }

    /// Such a choice on a machine that is laid out in a tree.
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
