//! Finds the GPU of a rank's memory, and the GPU's link to the host, before the memory is allocated.
//!
//! `cuda_bound` derives bounds from the GPUs of a rank and its peers. `tonnage_machine::devices` reads the links
//! themselves.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tonnage_engine::memory::{BusDevice, BusLink, Request};
use tonnage_machine::devices::{GpuLinks, LinkTable, gpu_links, nominal_link_bytes_per_s};

use super::cuda::driver;
use super::nvidia::NVIDIA;
use super::vendor::GpuVendor;

/// Links of GPUs to the host by PCI address, or the reason why they are unknown. The links of a GPU are queried only
/// once, because they do not change. A query can take long, because the library may start the driver or not answer.
static TO_HOST: Mutex<BTreeMap<String, LinkTable>> = Mutex::new(BTreeMap::new());

/// Returns the GPU of a request as its driver describes it; `None` if the driver reports nothing. The later allocation
/// then fails with the reason.
pub(super) fn bus_device(vendor: &'static GpuVendor, request: &Request<'_>) -> Option<BusDevice> {
    let number = driver::number(vendor, request.variant, request.gpu).ok()?;
    let library = driver::library(
        vendor,
        request.libraries,
        &format!("memory {}", vendor.memory),
    )
    .ok()?;
    let device = library.describe(number).ok()?;
    let address = device.pci_address;
    // Only NVIDIA GPUs have links to the host other than PCIe. Only they serve processes one after the other.
    let is_nvidias = vendor.memory == NVIDIA.memory;
    let table = match is_nvidias {
        true => query_once(&TO_HOST, &address, || gpu_links(vec![address.clone()])),
        false => LinkTable::default(),
    };
    Some(BusDevice {
        name: format!("{}:{number}", vendor.memory),
        link: link_to_host(&table, &address, nominal_link_bytes_per_s),
        pci_address: address,
        uuid: device.uuid,
        links_unknown: table.unknown,
        memory_bytes_per_s: device.memory_bytes_per_s,
        shared_by: is_nvidias.then(|| "NVIDIA's MPS".to_owned()),
    })
}

/// Returns the links of a GPU, and queries them only once. Other threads wait during the query.
fn query_once(
    known: &Mutex<BTreeMap<String, LinkTable>>,
    address: &str,
    ask: impl FnOnce() -> LinkTable,
) -> LinkTable {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(address.to_owned()).or_insert_with(ask).clone()
}

/// Returns the GPU's links to the host that are not PCIe, or else PCIe with its nominal speed. If it is unknown whether
/// there are such links, returns `None`: bytes may then take a path that is faster than PCIe.
fn link_to_host(
    table: &LinkTable,
    address: &str,
    pcie_bytes_per_s: impl FnOnce(&str) -> Option<u64>,
) -> Option<BusLink> {
    match table.to_host(address) {
        Some(links) => Some(BusLink {
            kind: counted(links),
            bytes_per_s: links.bytes_per_s?,
        }),
        None if table.unknown.is_some() => None,
        None => Some(BusLink {
            kind: "PCIe".to_owned(),
            bytes_per_s: pcie_bytes_per_s(address)?,
        }),
    }
}

/// Describes links by their kind and number.
pub(super) fn counted(links: &GpuLinks) -> String {
    match links.count {
        Some(1) => format!("{}, 1 link", links.kind),
        Some(count) => format!("{}, {count} links", links.kind),
        None => links.kind.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "0000:1b:00.0";

    fn unknown_links() -> LinkTable {
        let mut table = LinkTable::default();
        table.unknown = Some("NVML: no library".to_owned());
        table
    }

    #[test]
    fn pcie_is_the_bound_if_it_is_known_to_be_the_path() {
        let of = |table: &LinkTable, speed| {
            let link = link_to_host(table, ADDRESS, |_| speed);
            link.map(|link| (link.kind, link.bytes_per_s))
        };
        let known = LinkTable::default();
        assert_eq!(of(&known, Some(63)), Some(("PCIe".to_owned(), 63)));
        assert_eq!(of(&known, None), None);
        assert_eq!(of(&unknown_links(), Some(63)), None);
    }

    #[test]
    fn the_links_of_a_gpu_are_queried_once() {
        let known = Mutex::default();
        let mut asked = 0;
        for address in [ADDRESS, ADDRESS, "0000:1c:00.0", ADDRESS] {
            let table = query_once(&known, address, || {
                asked += 1;
                unknown_links()
            });
            assert!(table.unknown.is_some());
        }
        assert_eq!(asked, 2);
    }
}
