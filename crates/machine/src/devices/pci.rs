//! PCI functions, and the PCIe link that connects each.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::kernel_files::Tree;

/// AMD's PCI vendor ID.
pub(super) const AMD: u32 = 0x1002;

/// Location of a device on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciFunction {
    /// PCI address, such as "0000:41:00.0".
    pub address: String,
    /// NUMA node that the device is attached to; absent if the firmware does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// The link that connects the function; absent if the kernel does not report it, as for most virtual devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<PcieLink>,
}

/// A PCIe link: its current and its maximum state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcieLink {
    /// PCIe generation, 1 to 6.
    pub generation: u32,
    /// Number of lanes.
    pub lanes: u32,
    /// Speed in one direction after line encoding. Packet headers take another 5 to 20 % of it.
    pub bytes_per_s: u64,
    /// The highest generation that the device supports.
    pub generation_max: u32,
    /// Number of lanes that the device has.
    pub lanes_max: u32,
    /// True if the link runs slower or narrower than the device supports. An idle GPU lowers its link's generation on
    /// its own.
    pub below_maximum: bool,
}

/// Returns the PCI function of the device at `path` (a link in the tree, such as "sys/class/net/eth0/device"), or the
/// function that the device is attached to. `None` if the device is not on a PCI bus.
pub(super) fn function_of(tree: &Tree, path: impl AsRef<Path>) -> Option<PciFunction> {
    let real = tree.resolve(path)?;
    // A virtual device, such as a virtio device, is below its PCI function.
    let function = real.ancestors().find(|path| is_function(tree, path))?;
    Some(PciFunction {
        address: function.file_name()?.to_str()?.to_owned(),
        numa_node: numa_node(tree, function),
        link: link_of(tree, function),
    })
}

/// Returns the nominal speed of the PCIe link of the function with this address, in one direction, in bytes per second.
/// It is computed from the current lanes and the highest generation that both ends support, because an idle GPU lowers
/// its generation. `None` if the kernel does not report the link.
pub fn nominal_link_bytes_per_s(address: &str) -> Option<u64> {
    nominal(&Tree::host(), address)
}

/// Returns the PCI address of a GPU's function, given the address that its driver reports. HIP puts the partition
/// number into the function field, but partitions are not PCI functions.
pub fn gpu_function(tree: &Tree, address: &str) -> String {
    let of = |address: &str| format!("sys/bus/pci/devices/{address}");
    let is_amd = |card: &String| hexadecimal(tree, format!("{}/vendor", of(card))) == Some(AMD);
    let card = address
        .rsplit_once('.')
        .map(|(card, _)| format!("{card}.0"));
    let card = card.filter(|card| !tree.exists(of(address)) && is_amd(card));
    card.unwrap_or_else(|| address.to_owned())
}

/// Returns the NUMA node of a function; `None` if the kernel reports -1, which means that the node is unknown.
pub(super) fn numa_node(tree: &Tree, function: &Path) -> Option<u32> {
    let node = tree.number::<i64>(function.join("numa_node"))?;
    u32::try_from(node).ok()
}

fn nominal(tree: &Tree, address: &str) -> Option<u64> {
    let address = gpu_function(tree, &address.to_lowercase());
    let function = tree.resolve(Path::new("sys/bus/pci/devices").join(address))?;
    let link = link_of(tree, &function)?;
    let before = function.parent().map(|port| port.join("max_link_speed"));
    let before = before.and_then(|speed| generation_of(&tree.text(speed)?));
    let generation = before.map_or(link.generation_max, |most| most.min(link.generation_max));
    Some(u64::from(link.lanes) * lane_bytes_per_s(generation.max(link.generation)))
}

/// Returns all PCI functions, as paths in the tree.
pub(super) fn functions(tree: &Tree) -> Vec<PathBuf> {
    let root = Path::new("sys/bus/pci/devices");
    tree.names(root)
        .into_iter()
        .map(|name| root.join(name))
        .collect()
}

/// Reads a number in the form "0x15b3".
pub(super) fn hexadecimal(tree: &Tree, path: impl AsRef<Path>) -> Option<u32> {
    u32::from_str_radix(tree.text(path)?.strip_prefix("0x")?, 16).ok()
}

/// Returns the size of a function's resource (BAR) with this number; `None` if the function lacks it, or the kernel
/// does not report it.
pub(super) fn resource_bytes(tree: &Tree, function: &Path, number: usize) -> Option<u64> {
    let [first, last, _] = resource(tree, function, number)?;
    // A missing resource is all zeros.
    (last > first).then(|| last - first + 1)
}

/// Returns whether the resource with this number has 64-bit addresses. It then takes up the next number as well.
pub(super) fn resource_is_wide(tree: &Tree, function: &Path, number: usize) -> bool {
    const MEMORY_64: u64 = 0x0010_0000;
    resource(tree, function, number).is_some_and(|[_, _, flags]| flags & MEMORY_64 != 0)
}

/// Returns the first and last address of a resource, and the kernel's flags for it.
fn resource(tree: &Tree, function: &Path, number: usize) -> Option<[u64; 3]> {
    let text = tree.text(function.join("resource"))?;
    let mut words = text.lines().nth(number)?.split_whitespace();
    let mut word = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    Some([word()?, word()?, word()?])
}

fn is_function(tree: &Tree, path: &Path) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    name.contains(':') && tree.exists(path.join("class")) && tree.exists(path.join("vendor"))
}

fn link_of(tree: &Tree, function: &Path) -> Option<PcieLink> {
    let generation = |name: &str| generation_of(&tree.text(function.join(name))?);
    // The kernel writes 0 or 255 lanes for a link that is down or missing.
    let lanes = |name: &str| {
        tree.number(function.join(name))
            .filter(|lanes: &u32| (1..=32).contains(lanes))
    };
    let now = generation("current_link_speed")?;
    let lanes_now = lanes("current_link_width")?;
    let max = generation("max_link_speed").unwrap_or(now).max(now);
    let lanes_max = lanes("max_link_width").unwrap_or(lanes_now).max(lanes_now);
    Some(PcieLink {
        generation: now,
        lanes: lanes_now,
        bytes_per_s: u64::from(lanes_now) * lane_bytes_per_s(now),
        generation_max: max,
        lanes_max,
        below_maximum: now < max || lanes_now < lanes_max,
    })
}

/// Parses the generation from a speed such as "16.0 GT/s PCIe"; `None` for "Unknown".
fn generation_of(speed: &str) -> Option<u32> {
    let transfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
    let speeds = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];
    let mut generations = (1u32..).zip(speeds);
    let found = generations.find(|(_, speed)| (transfers - speed).abs() < 0.1)?;
    Some(found.0)
}

/// Returns the bytes per second of one lane in one direction after line encoding. That is 8 of 10 bits up to generation
/// 2, 128 of 130 up to 5, and 236 of each 256 bytes in generation 6.
fn lane_bytes_per_s(generation: u32) -> u64 {
    match generation {
        1 => 250_000_000,
        2 => 500_000_000,
        3 => 984_615_384,
        4 => 1_969_230_769,
        5 => 3_938_461_538,
        _ => 7_375_000_000,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::super::pci_path::tests::plug;
    use super::*;

    /// Creates a PCI function in sysfs. Its link has this current and maximum speed and width.
    pub(in super::super) fn invent(
        machine: &Machine,
        address: &str,
        ids: &str,
        link: Option<[&str; 4]>,
    ) -> String {
        let path = plug(machine, &format!("pci0000:00/{address}"), ids, 1);
        if let Some([speed, width, speed_max, width_max]) = link {
            machine.files(
                &path,
                &[
                    ("current_link_speed", speed),
                    ("current_link_width", width),
                    ("max_link_speed", speed_max),
                    ("max_link_width", width_max),
                ],
            );
        }
        path
    }

    const NIC: &str = "0x020000 0x15b3 0x101d";

    #[test]
    fn a_link_is_known_with_its_maximum_unless_it_is_down() {
        let found = |link: [&str; 4]| {
            let machine = Machine::new();
            let path = invent(&machine, "0000:41:00.0", NIC, Some(link));
            function_of(&machine.tree(), path).unwrap()
        };
        let below = found(["8.0 GT/s PCIe", "8", "16.0 GT/s PCIe", "16"]);
        assert_eq!(
            (&*below.address, below.numa_node),
            ("0000:41:00.0", Some(1))
        );
        let expected = PcieLink {
            generation: 3,
            lanes: 8,
            bytes_per_s: 8 * 984_615_384,
            generation_max: 4,
            lanes_max: 16,
            below_maximum: true,
        };
        assert_eq!(below.link, Some(expected));
        let whole = found(["32.0 GT/s PCIe", "16", "32.0 GT/s PCIe", "16"]);
        let link = whole.link.unwrap();
        assert!(!link.below_maximum);
        assert_eq!((link.generation, link.bytes_per_s / 1_000_000_000), (5, 63));
        assert_eq!(found(["Unknown", "0", "Unknown", "255"]).link, None);
    }

    #[test]
    fn a_device_below_its_function_is_traced_to_it() {
        let machine = Machine::new();
        let path = invent(&machine, "0000:00:03.0", "0x020000 0x1af4 0x1000", None);
        machine.file(&format!("{path}/virtio2/device"), "0x0001");
        machine.link("sys/class/net/eth0/device", &format!("{path}/virtio2"));
        let function = function_of(&machine.tree(), "sys/class/net/eth0/device").unwrap();
        assert_eq!((&*function.address, function.link), ("0000:00:03.0", None));
        let loopback = function_of(&machine.tree(), "sys/class/net/lo/device");
        assert_eq!(loopback, None);
    }

    #[test]
    fn resources_are_as_large_as_from_the_first_to_the_last_byte() {
        let machine = Machine::new();
        let path = invent(&machine, "0000:00:03.0", NIC, None);
        let bytes = |number| resource_bytes(&machine.tree(), Path::new(&path), number);
        assert_eq!(bytes(0), None);
        let lines = [
            "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200",
            "0x0000220000000000 0x000023ffffffffff 0x000000000014220c",
            "0x0000000000000000 0x0000000000000000 0x0000000000000000",
        ];
        machine.file(&format!("{path}/resource"), &lines.join("\n"));
        let found = [0, 1, 2, 3].map(bytes);
        assert_eq!(found, [Some(16 << 20), Some(2 << 40), None, None]);
    }
}
