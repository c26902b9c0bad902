//! XGMI links between AMD GPUs, as listed by the kernel's compute driver.

use super::super::kernel_files::Tree;
use super::gpu_pairs::GpuLinks;

const NODES: &str = "sys/class/kfd/kfd/topology/nodes";

/// The driver's number for links of this type.
const XGMI: u64 = 11;

/// The links from one GPU to another, with the PCI addresses of both.
pub(super) type XgmiLinks = (String, String, GpuLinks);

/// Returns all XGMI links between GPUs.
pub(super) fn links(tree: &Tree) -> Vec<XgmiLinks> {
    let mut found = Vec::new();
    for node in tree.names(NODES) {
        let directory = format!("{NODES}/{node}/io_links");
        for link in tree.names(&directory) {
            let Some(text) = tree.text(format!("{directory}/{link}/properties")) else {
                continue;
            };
            if property(&text, "type") != Some(XGMI) {
                continue;
            }
            let ends = ["node_from", "node_to"].map(|end| address(tree, property(&text, end)?));
            // Partitions of one GPU are separate nodes with the same address; links between them are left out.
            if let [Some(from), Some(to)] = ends
                && from != to
            {
                found.push((from, to, links_of(&text)));
            }
        }
    }
    found
}

/// Returns how many nodes of the driver's list belong to the GPU with this PCI address: one, or one for each partition.
pub(super) fn nodes_at(tree: &Tree, wanted: &str) -> usize {
    let nodes = tree.names(NODES);
    let numbers = nodes.iter().filter_map(|node| node.parse().ok());
    let is_wanted = |node: &u64| address(tree, *node).as_deref() == Some(wanted);
    numbers.filter(is_wanted).count()
}

/// Converts an entry, which stands for all links between two GPUs. The kernel reports the speed of one link and of all
/// together. Both speeds are zero if the path leads through other GPUs, and on all GPUs before gfx 9.4.2.
fn links_of(text: &str) -> GpuLinks {
    let speed = |name| property(text, name).filter(|&speed| speed > 0);
    let all = speed("max_bandwidth");
    let count = match (speed("min_bandwidth"), all) {
        (Some(one), Some(all)) => u32::try_from(all / one).ok().filter(|&count| count > 0),
        _ => None,
    };
    GpuLinks {
        kind: "XGMI".to_owned(),
        count,
        switched: false,
        bytes_per_s: all.map(|megabytes| megabytes.saturating_mul(1_000_000)),
    }
}

/// Returns the PCI address of a node of the driver's list; `None` for a processor's node.
fn address(tree: &Tree, node: u64) -> Option<String> {
    let text = tree.text(format!("{NODES}/{node}/properties"))?;
    let location = property(&text, "location_id").filter(|&location| location != 0)?;
    let domain = property(&text, "domain").unwrap_or(0);
    // The function is 0 for every GPU, but some kernels put the partition number into this field.
    let (bus, device) = (location >> 8 & 0xff, location >> 3 & 0x1f);
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
}

/// Returns the value of a line that consists of a name and a number.
fn property(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::*;

    #[test]
    fn links_are_named_by_the_addresses_of_their_ends() {
        let machine = Machine::new();
        let file = |at: &str, text: &str| {
            machine.file(&format!("{NODES}/{at}/properties"), text);
        };
        file("0", "cpu_cores_count 8\nlocation_id 0");
        file("1", "simd_count 304\nlocation_id 1280\ndomain 0");
        file("2", "simd_count 304\nlocation_id 33536\ndomain 1");
        for (at, kind, ends, bandwidth) in [
            ("1/io_links/0", 2, [1, 0], [0, 64000]),
            ("1/io_links/1", 11, [1, 2], [50000, 200_000]),
            ("2/io_links/0", 11, [2, 1], [0, 0]),
        ] {
            let ends = format!("node_from {}\nnode_to {}", ends[0], ends[1]);
            let speeds = format!(
                "min_bandwidth {}\nmax_bandwidth {}",
                bandwidth[0], bandwidth[1]
            );
            file(at, &format!("type {kind}\n{ends}\n{speeds}"));
        }
        let found = links(&machine.tree());
        assert_eq!(found.len(), 2, "{found:?}");
        let (from, to, links) = &found[0];
        assert_eq!((&**from, &**to), ("0000:05:00.0", "0001:83:00.0"));
        let all = Some(200_000_000_000);
        assert_eq!((links.count, links.bytes_per_s), (Some(4), all));
        // If the kernel reports no speed, the number of links is unknown too.
        assert_eq!((found[1].2.count, found[1].2.bytes_per_s), (None, None));
    }

    /// Two GPUs with two partitions each. The function field has the number of the partition.
    #[test]
    fn partitions_are_of_their_gpus() {
        let machine = Machine::new();
        for (node, location) in [(1, 1280), (2, 1281), (3, 33536), (4, 33537)] {
            let file = format!("{NODES}/{node}/properties");
            machine.file(&file, &format!("location_id {location}\ndomain 0"));
        }
        for (number, (from, to)) in [(1, 2), (1, 3), (1, 4), (4, 2)].into_iter().enumerate() {
            let file = format!("{NODES}/{from}/io_links/{number}/properties");
            machine.file(&file, &format!("type 11\nnode_from {from}\nnode_to {to}"));
        }
        let found = links(&machine.tree());
        let ends: Vec<_> = found
            .iter()
            .map(|(from, to, _)| (&from[5..], &to[5..]))
            .collect();
        let forward = ("05:00.0", "83:00.0");
        assert_eq!(ends, [forward, forward, (forward.1, forward.0)]);
    }
}
