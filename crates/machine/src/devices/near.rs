//! NICs nearest to a GPU, by their PCI path.

use serde::{Deserialize, Serialize};

use super::super::kernel_files::{Tree, natural};
use super::super::topology::Topology;
use super::network::NetworkInterface;
use super::pci::{PciFunction, function_of};
use super::pci_path::{PciPath, pci_path};
use super::rdma::RdmaDevice;

/// A NIC near a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearNic {
    /// The NIC's RDMA devices, or its network interfaces if it has none.
    pub names: Vec<String>,
    /// The NIC's PCI address.
    pub address: String,
    /// The PCI path to the NIC.
    pub way: PciPath,
}

/// The names of a NIC at one PCI address.
pub(super) struct NicAtAddress {
    names: Vec<String>,
    pci_address: String,
}

/// Returns the candidate NICs: RDMA devices, or network interfaces if there are no RDMA devices. Next to RDMA devices,
/// plain interfaces are left out, because most of them are for management.
pub(super) fn nics(networks: &[NetworkInterface], rdma: &[RdmaDevice]) -> Vec<NicAtAddress> {
    let devices = rdma.iter().map(|device| (&device.name, &device.pci));
    let interfaces = networks.iter().filter(|network| network.driver.is_some());
    let interfaces = interfaces.map(|network| (&network.name, &network.pci));
    let with_place =
        |(name, pci): (&'_ String, &'_ Option<PciFunction>)| Some((name.clone(), pci.clone()?));
    let mut all: Vec<_> = devices.filter_map(with_place).collect();
    if all.is_empty() {
        all = interfaces.filter_map(with_place).collect();
    }
    let mut nics: Vec<NicAtAddress> = Vec::new();
    for (name, pci) in all {
        match nics.iter_mut().find(|nic| nic.pci_address == pci.address) {
            Some(nic) => nic.names.push(name),
            None => nics.push(NicAtAddress {
                names: vec![name],
                pci_address: pci.address,
            }),
        }
    }
    nics.sort_by_cached_key(|nic| natural(&nic.pci_address));
    nics
}

/// Returns the NICs that are nearest to the GPU with this address; empty if the kernel reports no distances.
pub(super) fn nearest(
    tree: &Tree,
    topology: &Topology,
    gpu: &str,
    nics: &[NicAtAddress],
) -> Vec<NearNic> {
    let addresses: Vec<&str> = nics.iter().map(|nic| nic.pci_address.as_str()).collect();
    let near = nearest_of(tree, topology, gpu, &addresses);
    let known = near.filter(|(_, way)| *way != PciPath::Unknown);
    let (places, way) = known.unwrap_or_default();
    let places = places.into_iter().filter_map(|place| nics.get(place));
    let near = places.map(|nic| NearNic {
        names: nic.names.clone(),
        address: nic.pci_address.clone(),
        way,
    });
    near.collect()
}

/// Returns the indices of the addresses that are nearest to a GPU, and the path to them; `None` if `addresses` is
/// empty.
fn nearest_of(
    tree: &Tree,
    topology: &Topology,
    gpu: &str,
    addresses: &[&str],
) -> Option<(Vec<usize>, PciPath)> {
    let way = |address: &&str| pci_path(tree, topology, gpu, address);
    let ways: Vec<PciPath> = addresses.iter().map(way).collect();
    let way = *ways.iter().min()?;
    let places = ways.iter().enumerate().filter(|(_, other)| **other == way);
    Some((places.map(|(place, _)| place).collect(), way))
}

/// Returns the PCI address of the RDMA device with this name; `None` for a software device or an unknown name.
pub fn rdma_address(tree: &Tree, name: &str) -> Option<String> {
    let mut classes = ["infiniband", "cxi"].into_iter();
    let function = |class| function_of(tree, format!("sys/class/{class}/{name}/device"));
    classes.find_map(function).map(|function| function.address)
}

/// Chooses a NIC for a GPU, and returns the NIC's index in `addresses` and the path to it. GPUs with the same nearest
/// NICs are assigned to these NICs round-robin, in the order of `gpus`, the list of all GPUs of the machine. `None` if
/// the kernel reports no distances.
pub fn nic_of_gpu(
    tree: &Tree,
    topology: &Topology,
    (gpu, gpus): (&str, &[String]),
    addresses: &[&str],
) -> Option<(usize, PciPath)> {
    let near = |gpu: &str| nearest_of(tree, topology, gpu, addresses);
    let (places, way) = near(gpu).filter(|(_, way)| *way != PciPath::Unknown)?;
    let earlier = gpus.iter().take_while(|other| *other != gpu);
    let alike = earlier.filter(|other| near(other).is_some_and(|(other, _)| other == places));
    let turn = alike.count() % places.len();
    Some((*places.get(turn)?, way))
}

#[cfg(test)]
mod tests {
    use super::super::pci_path::tests::two_sockets;
    use super::*;

    fn chosen(gpu: &str, nics: &[&str]) -> Option<(usize, PciPath)> {
        let machine = two_sockets();
        let tree = machine.tree();
        let topology = Topology::read_from(&tree, vec![]);
        let gpus = ["03", "04", "12", "23", "83", "84", "a3"].map(|bus| format!("0000:{bus}:00.0"));
        let whole = |nic: &&str| {
            if nic.is_empty() {
                String::new()
            } else {
                format!("0000:{nic}")
            }
        };
        let addresses: Vec<String> = nics.iter().map(whole).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        nic_of_gpu(
            &tree,
            &topology,
            (&format!("0000:{gpu}"), &gpus),
            &addresses,
        )
    }

    /// Two GPUs at a switch with two NICs must get one each; a single NIC must serve both.
    #[test]
    fn gpus_take_the_nics_that_are_equally_near_in_turn() {
        let all = [
            "05:00.0", "06:00.0", "06:00.1", "18:00.0", "85:00.0", "86:00.0",
        ];
        assert_eq!(chosen("03:00.0", &all), Some((0, PciPath::Switch)));
        assert_eq!(chosen("04:00.0", &all), Some((1, PciPath::Switch)));
        // The third GPU is behind another switch and gets the NIC on the same host bridge.
        assert_eq!(chosen("12:00.0", &all), Some((2, PciPath::Switches)));
        assert_eq!(chosen("83:00.0", &all), Some((4, PciPath::Switch)));
        assert_eq!(chosen("84:00.0", &all), Some((5, PciPath::Switch)));
        assert_eq!(chosen("a3:00.0", &all), Some((4, PciPath::Node)));
        let one = ["85:00.0"];
        assert_eq!(chosen("83:00.0", &one), Some((0, PciPath::Switch)));
        assert_eq!(chosen("84:00.0", &one), Some((0, PciPath::Switch)));
        assert_eq!(chosen("03:00.0", &one), Some((0, PciPath::Sockets)));
    }

    #[test]
    fn no_nic_is_listed_as_near_where_nothing_is_known() {
        let machine = two_sockets();
        let tree = machine.tree();
        let topology = Topology::read_from(&tree, vec![]);
        let nic = |address: &str| NicAtAddress {
            names: vec!["mlx5_0".to_owned()],
            pci_address: address.to_owned(),
        };
        let near = |nics: &[NicAtAddress]| nearest(&tree, &topology, "0000:03:00.0", nics);
        assert!(near(&[nic("0000:77:00.0")]).is_empty());
        assert_eq!(near(&[nic("0000:77:00.0"), nic("0000:85:00.0")]).len(), 1);
    }

    /// On a Hyper-V guest, each PCI function has its own host bridge.
    #[test]
    fn gpus_of_a_guest_take_the_nics_of_their_own_socket() {
        let machine = super::super::pci_path::tests::hyper_v();
        let tree = machine.tree();
        let topology = Topology::read_from(&tree, vec![]);
        let gpus = ["0001", "0002"].map(|domain| format!("{domain}:00:00.0"));
        let nics = ["0101:00:00.0", "0102:00:00.0"];
        let chosen = |gpu| nic_of_gpu(&tree, &topology, (gpu, &gpus), &nics);
        assert_eq!(chosen(&gpus[0]), Some((0, PciPath::Node)));
        assert_eq!(chosen(&gpus[1]), Some((1, PciPath::Node)));
    }

    #[test]
    fn nothing_is_chosen_where_nothing_is_known() {
        assert_eq!(chosen("03:00.0", &[]), None);
        assert_eq!(chosen("77:00.0", &["05:00.0"]), None);
        assert_eq!(chosen("03:00.0", &[""]), None);
        assert_eq!(chosen("03:00.0", &["77:00.0"]), None);
        // A NIC at a known distance is chosen before one at an unknown distance.
        let some = chosen("03:00.0", &["77:00.0", "85:00.0"]);
        assert_eq!(some, Some((1, PciPath::Sockets)));
    }
}
