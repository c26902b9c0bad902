//! PCI functions, and the PCIe link in front of one.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::kernel_files::Tree;

/// Number of AMD as a maker of PCI devices.
pub(super) const AMD: u32 = 0x1002;

/// Place of a device on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciFunction {
    /// PCI address, such as "0000:41:00.0".
    pub address: String,
    /// NUMA node that it is attached to; absent where the firmware does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// The link in front of it; absent where the kernel does not say, as for most virtual devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<PcieLink>,
}

/// A PCIe link as it runs now, and at best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcieLink {
    /// PCIe generation, 1 to 6.
    pub generation: u32,
    /// Lanes.
    pub lanes: u32,
    /// One direction, after line encoding and before packet headers, which take 5 to 20 % more.
    pub bytes_per_s: u64,
    /// The generation that the device can do.
    pub generation_max: u32,
    /// The lanes that the device has.
    pub lanes_max: u32,
    /// True when it runs slower or narrower than the device can. An idle GPU lowers the generation by itself.
    pub below_maximum: bool,
}

/// The PCI function that the device at `path` (a link in the tree, such as "sys/class/net/eth0/device") is or hangs
/// from; `None` for a device that is on no PCI bus.
pub(super) fn function_of(tree: &Tree, path: impl AsRef<Path>) -> Option<PciFunction> {
    let real = tree.resolve(path)?;
    // A virtual device such as virtio's hangs below its PCI function.
    let function = real.ancestors().find(|path| is_function(tree, path))?;
    Some(PciFunction {
        address: function.file_name()?.to_str()?.to_owned(),
        numa_node: numa_node(tree, function),
        link: link_of(tree, function),
    })
}

/// The nominal speed of the PCIe link of the function with this address, one direction, bytes per second: the lanes
/// that it has now, at the best generation that both of its ends can do, because an idle GPU lowers that by itself.
/// `None` where the kernel does not say.
pub fn nominal_link_bytes_per_s(address: &str) -> Option<u64> {
    nominal(&Tree::host(), address)
}

/// The PCI address of the function that a GPU is, by the one that its driver names. HIP has the number of a GPU's part
/// in the place of the function's, and the parts are no functions of their own.
pub fn gpu_function(tree: &Tree, address: &str) -> String {
    let of = |address: &str| format!("sys/bus/pci/devices/{address}");
    let is_amd = |card: &String| hexadecimal(tree, format!("{}/vendor", of(card))) == Some(AMD);
    let card = address
        .rsplit_once('.')
        .map(|(card, _)| format!("{card}.0"));
    let card = card.filter(|card| !tree.exists(of(address)) && is_amd(card));
    card.unwrap_or_else(|| address.to_owned())
}

/// The NUMA node of a function; the kernel writes -1 for none.
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

/// All PCI functions, as paths in the tree.
pub(super) fn functions(tree: &Tree) -> Vec<PathBuf> {
    let root = Path::new("sys/bus/pci/devices");
    tree.names(root)
        .into_iter()
        .map(|name| root.join(name))
        .collect()
}

/// A number that the kernel writes as "0x15b3".
pub(super) fn hexadecimal(tree: &Tree, path: impl AsRef<Path>) -> Option<u32> {
    u32::from_str_radix(tree.text(path)?.strip_prefix("0x")?, 16).ok()
}

/// Bytes of a function's resource with this number (BAR); `None` where it has none, or the kernel does not say.
pub(super) fn resource_bytes(tree: &Tree, function: &Path, number: usize) -> Option<u64> {
    let [first, last, _] = resource(tree, function, number)?;
    // One that is not there is all zeros.
    (last > first).then(|| last - first + 1)
}

/// True where the resource with this number has addresses of 64 bits, and takes the place of the next number as well.
pub(super) fn resource_is_wide(tree: &Tree, function: &Path, number: usize) -> bool {
    const MEMORY_64: u64 = 0x0010_0000;
    resource(tree, function, number).is_some_and(|[_, _, flags]| flags & MEMORY_64 != 0)
}

/// First and last address of a resource, and the kernel's flags of it.
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
    // The kernel writes 0 or 255 lanes for a link that is down or not there.
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

/// The generation of a speed that the kernel writes as "16.0 GT/s PCIe"; `None` for "Unknown".
fn generation_of(speed: &str) -> Option<u32> {
    let transfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
    let speeds = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];
    let mut generations = (1u32..).zip(speeds);
    let found = generations.find(|(_, speed)| (transfers - speed).abs() < 0.1)?;
    Some(found.0)
}

/// Bytes per second of one lane in one direction after line encoding: 8 of 10 bits up to generation 2, 128 of 130 up to
/// 5, and 236 of each 256 bytes in generation 6.
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
    use super::super::pci_way::tests::plug;
    use super::*;

    /// A PCI function with a link of this speed and width, now and at most, as sysfs lays it out.
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
