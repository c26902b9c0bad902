//! Paths between two PCI functions of this host, according to the kernel's device tree.
//!
//! Links other than PCI, such as NVLink, are in `gpu_pairs`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::kernel_files::Tree;
use super::super::topology::Topology;
use super::pci::numa_node;

/// The farthest component on the path between two PCI functions, nearest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PciPath {
    /// No component, because both are functions of one device.
    Card,
    /// One PCIe switch.
    Switch,
    /// Several PCIe switches below one port of a processor.
    Switches,
    /// One host bridge of a processor.
    HostBridge,
    /// Two host bridges at one NUMA node.
    Node,
    /// Two NUMA nodes of one socket.
    Nodes,
    /// Two sockets.
    Sockets,
    /// The kernel does not report the path.
    #[default]
    Unknown,
}

impl PciPath {
    /// Returns the path as one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Switch => "switch",
            Self::Switches => "switches",
            Self::HostBridge => "bridge",
            Self::Node => "node",
            Self::Nodes => "nodes",
            Self::Sockets => "sockets",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the path in words that fit after "by".
    pub fn words(self) -> &'static str {
        match self {
            Self::Card => "the same card",
            Self::Switch => "one PCIe switch",
            Self::Switches => "several PCIe switches",
            Self::HostBridge => "one host bridge",
            Self::Node => "two host bridges of one NUMA node",
            Self::Nodes => "two NUMA nodes of one socket",
            Self::Sockets => "two sockets",
            Self::Unknown => "a path that the kernel does not report",
        }
    }
}

/// Returns the path between the functions with these addresses.
pub fn pci_path(tree: &Tree, topology: &Topology, one: &str, other: &str) -> PciPath {
    let place = |address: &str| {
        let path = Path::new("sys/bus/pci/devices").join(address.to_lowercase());
        tree.resolve(path).filter(|_| address.contains(':'))
    };
    match (place(one), place(other)) {
        (Some(one), Some(other)) => between(tree, topology, [&one, &other]),
        _ => PciPath::Unknown,
    }
}

/// Returns the path between two functions, given their places in the tree, such as
/// "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0". Each component below the host bridge is a bridge; the last one
/// is the function.
///
/// Above a host bridge there may be components of the firmware. On Hyper-V each function has its own host bridge:
/// "sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/GUID/pci0001:00/0001:00:00.0".
fn between(tree: &Tree, topology: &Topology, places: [&Path; 2]) -> PciPath {
    let [one, other] = places;
    let physical = |place: &Path| tree.resolve(place.join("physfn"));
    let owners = places.map(|place| physical(place).unwrap_or_else(|| place.to_owned()));
    let cards = [&owners[0], &owners[1]].map(|place| card(place));
    if cards[0].is_some() && cards[0] == cards[1] {
        return PciPath::Card;
    }
    let bridge = host_bridge(one);
    if bridge.is_none() || bridge != host_bridge(other) {
        return between_nodes(topology, places.map(|place| node(tree, topology, place)));
    }
    let parts = one.components().zip(other.components());
    let shared = parts.take_while(|(one, other)| one == other);
    let shared: PathBuf = shared.map(|(part, _)| part).collect();
    let depth = |place: &Path| place.components().count() - shared.components().count();
    match depth(one).max(depth(other)) {
        _ if bridge == Some(&shared) => PciPath::HostBridge,
        // Two components below the shared upstream port: a downstream port of the same switch, and the function.
        ..=2 => PciPath::Switch,
        _ => PciPath::Switches,
    }
}

fn between_nodes(topology: &Topology, nodes: [Option<u32>; 2]) -> PciPath {
    let [Some(one), Some(other)] = nodes else {
        return PciPath::Unknown;
    };
    if one == other {
        return PciPath::Node;
    }
    let socket = |node| {
        let cpu = topology.cpus_of_node(node).first();
        cpu.and_then(|&cpu| topology.socket_of_cpu(cpu))
    };
    match (socket(one), socket(other)) {
        (Some(one), Some(other)) if one == other => PciPath::Nodes,
        (Some(_), Some(_)) => PciPath::Sockets,
        _ => PciPath::Unknown,
    }
}

/// Returns the NUMA node of a function, or the host's only node.
fn node(tree: &Tree, topology: &Topology, place: &Path) -> Option<u32> {
    let said = numa_node(tree, place);
    match topology.nodes.as_slice() {
        [only] => said.or(Some(only.id)),
        _ => said,
    }
}

/// Identifies the device of a function: the path of its slot, and its address without the function number.
fn card(place: &Path) -> Option<(&Path, &str)> {
    Some((place.parent()?, name(place)?.rsplit_once('.')?.0))
}

fn name(place: &Path) -> Option<&str> {
    place.file_name()?.to_str()
}

/// Returns the nearest host bridge above a function.
fn host_bridge(place: &Path) -> Option<&Path> {
    // A host bridge has a name such as "pci0000:00".
    let is_one = |above: &&Path| {
        let rest = name(above).and_then(|name| name.strip_prefix("pci"));
        rest.is_some_and(|rest| rest.contains(':'))
    };
    place.ancestors().find(is_one)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::*;

    /// Creates a function or a bridge below "sys/devices". `ids` has its class, vendor and device number; a `node` of
    /// -1 means that the firmware reports no NUMA node.
    pub(in super::super) fn plug(machine: &Machine, place: &str, ids: &str, node: i32) -> String {
        let path = format!("sys/devices/{place}");
        let files = ["class", "vendor", "device"]
            .into_iter()
            .zip(ids.split(' '));
        machine.files(&path, &files.collect::<Vec<_>>());
        machine.file(&format!("{path}/numa_node"), &node.to_string());
        let address = place.rsplit('/').next().unwrap();
        machine.link(&format!("sys/bus/pci/devices/{address}"), &path);
        path
    }

    pub(in super::super) const GPU: &str = "0x030200 0x10de 0x2330";
    pub(in super::super) const NIC: &str = "0x020700 0x15b3 0x1021";

    /// Two sockets with two host bridges each. Below the first host bridge of each socket is a switch with two GPUs and
    /// two NICs; the second NIC has two functions. A downstream port of the first switch leads to another switch with a
    /// GPU.
    pub(in super::super) fn two_sockets() -> Machine {
        let machine = Machine::new();
        machine.processors(2, 4, 1);
        for (socket, (bus, down)) in [("00", "02"), ("80", "82")].into_iter().enumerate() {
            let node = socket as i32;
            let up = format!("pci0000:{bus}/0000:{bus}:01.0/0000:{bus}:1f.0");
            let next = u32::from_str_radix(down, 16).unwrap();
            for (port, ids) in [GPU, GPU, NIC, NIC].into_iter().enumerate() {
                let address = format!("0000:{:02x}:00.0", next + 1 + port as u32);
                let port = format!("{up}/0000:{down}:{port:02x}.0");
                plug(&machine, &format!("{port}/{address}"), ids, node);
            }
            let second = format!("{up}/0000:{down}:03.0/0000:{:02x}:00.1", next + 4);
            plug(&machine, &second, NIC, node);
            let other = format!("pci0000:{:02x}/0000:{:02x}:01.0", next + 0x20, next + 0x20);
            let address = format!("{other}/0000:{:02x}:00.0", next + 0x21);
            plug(&machine, &address, GPU, node);
        }
        let deep = "pci0000:00/0000:00:01.0/0000:00:1f.0/0000:02:04.0/0000:10:00.0/0000:11:00.0";
        plug(&machine, &format!("{deep}/0000:12:00.0"), GPU, 0);
        // This NIC is on the first host bridge, at a port of its own.
        plug(&machine, "pci0000:00/0000:00:03.0/0000:18:00.0", NIC, 0);
        machine
    }

    #[test]
    fn the_farthest_thing_that_is_crossed_is_the_way() {
        let machine = two_sockets();
        let tree = machine.tree();
        let topology = Topology::read_from(&tree, vec![]);
        for (one, other, expected) in [
            ("03:00.0", "04:00.0", PciPath::Switch),
            ("03:00.0", "05:00.0", PciPath::Switch),
            ("06:00.0", "06:00.1", PciPath::Card),
            ("03:00.0", "12:00.0", PciPath::Switches),
            ("03:00.0", "18:00.0", PciPath::HostBridge),
            ("03:00.0", "23:00.0", PciPath::Node),
            ("03:00.0", "83:00.0", PciPath::Sockets),
            ("83:00.0", "A3:00.0", PciPath::Node),
            ("03:00.0", "77:00.0", PciPath::Unknown),
        ] {
            let way = |one: &str, other: &str| {
                let [one, other] = [one, other].map(|address| format!("0000:{address}"));
                pci_path(&tree, &topology, &one, &other)
            };
            assert_eq!(way(one, other), expected, "{one} {other}");
            assert_eq!(way(other, one), expected, "{other} {one}");
        }
        assert!(PciPath::Switch < PciPath::HostBridge && PciPath::Sockets < PciPath::Unknown);
    }

    /// A Hyper-V guest with two sockets. Each socket has a GPU and a NIC, each on its own host bridge.
    pub(in super::super) fn hyper_v() -> Machine {
        let machine = Machine::new();
        machine.processors(2, 4, 1);
        let bus = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00";
        for (domain, ids, node) in [
            ("0001", GPU, 0),
            ("0002", GPU, 1),
            ("0101", NIC, 0),
            ("0102", NIC, 1),
        ] {
            let guid = format!("47505500-{domain}-0000-3130-444532304235");
            let place = format!("{bus}/{guid}/pci{domain}:00/{domain}:00:00.0");
            plug(&machine, &place, ids, node);
        }
        machine
    }

    #[test]
    fn firmware_nodes_above_host_bridges_are_not_switches() {
        let machine = hyper_v();
        let tree = machine.tree();
        let topology = Topology::read_from(&tree, vec![]);
        for (one, other, expected) in [
            ("0001", "0002", PciPath::Sockets),
            ("0001", "0101", PciPath::Node),
            ("0001", "0102", PciPath::Sockets),
            ("0002", "0102", PciPath::Node),
        ] {
            let [from, to] = [one, other].map(|domain| format!("{domain}:00:00.0"));
            let way = pci_path(&tree, &topology, &from, &to);
            assert_eq!(way, expected, "{one} {other}");
        }
    }

    /// Virtual functions of a device (SR-IOV) may continue on the next bus number, but belong to the same device.
    #[test]
    fn functions_of_a_card_for_guests_are_of_the_card() {
        let machine = two_sockets();
        let port = "pci0000:00/0000:00:05.0";
        let card = plug(&machine, &format!("{port}/0000:41:00.0"), NIC, 0);
        for address in ["0000:41:01.0", "0000:42:00.1"] {
            let one = plug(&machine, &format!("{port}/{address}"), NIC, 0);
            machine.link(&format!("{one}/physfn"), &card);
        }
        let tree = machine.tree();
        let topology = Topology::read_from(&tree, vec![]);
        for (one, other) in [("41:00.0", "41:01.0"), ("41:01.0", "42:00.1")] {
            let [one, other] = [one, other].map(|address| format!("0000:{address}"));
            assert_eq!(pci_path(&tree, &topology, &one, &other), PciPath::Card);
        }
    }

    #[test]
    fn host_bridges_are_distinguished_by_nodes_and_sockets() {
        let way = |machine: &Machine| {
            let topology = Topology::read_from(&machine.tree(), vec![]);
            pci_path(&machine.tree(), &topology, "0000:01:00.0", "0000:81:00.0")
        };
        let at = |nodes: [i32; 2], sockets: u32| {
            let machine = Machine::new();
            machine.processors(sockets, 2, 1);
            plug(&machine, "pci0000:00/0000:01:00.0", GPU, nodes[0]);
            plug(&machine, "pci0000:80/0000:81:00.0", GPU, nodes[1]);
            machine
        };
        assert_eq!(way(&at([0, 0], 2)), PciPath::Node);
        assert_eq!(way(&at([0, 1], 2)), PciPath::Sockets);
        // If the firmware reports no node, the path is unknown, unless the machine has a single node.
        assert_eq!(way(&at([-1, -1], 2)), PciPath::Unknown);
        assert_eq!(way(&at([-1, -1], 1)), PciPath::Node);
        // Now both nodes are on one socket.
        let machine = at([0, 1], 2);
        for cpu in 0..4 {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
            machine.file(&file, "0");
        }
        assert_eq!(way(&machine), PciPath::Nodes);
    }
}
