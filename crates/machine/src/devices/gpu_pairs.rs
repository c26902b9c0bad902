//! Pairs of GPUs: the connection between the two, and whether one can access the other's memory.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::kernel_files::Tree;
use super::super::topology::Topology;
use super::pci_path::{PciPath, pci_path};

/// An ordered pair of GPUs: the first one accesses the second one's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPair {
    /// PCI address of the accessing GPU.
    pub from: String,
    /// PCI address of the GPU that owns the memory.
    pub to: String,
    /// The PCI path between them.
    pub pci: PciPath,
    /// Links other than PCI; absent if there are none, or if they are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<GpuLinks>,
    /// Access, as reported by the driver; absent if no driver was queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<PeerAccess>,
}

/// Links between two GPUs other than PCI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuLinks {
    /// "NVLink" or "XGMI".
    pub kind: String,
    /// Number of links; absent if unknown, for example because the path leads through other GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// True if the links lead to switches, so that all GPUs at these switches share them.
    pub switched: bool,
    /// Combined speed in one direction, as reported by the driver; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
}

/// Access of one GPU to the memory of another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerAccess {
    /// True if the GPU accesses the memory without going through the host.
    pub granted: bool,
    /// True if atomics on this memory are executed natively.
    pub native_atomics: bool,
    /// The driver's ranking of this path, where 0 is the fastest path of the machine.
    pub performance_rank: u32,
    /// The driver's reason for refusing access; absent if access is granted, or the driver gives no reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// Returns each ordered pair of these GPUs, with the PCI path between the two.
pub(super) fn pairs(tree: &Tree, topology: &Topology, addresses: &[String]) -> Vec<GpuPair> {
    let distinct: BTreeSet<&String> = addresses.iter().collect();
    let distinct: Vec<&String> = distinct.into_iter().collect();
    let mut pairs = Vec::new();
    for from in &distinct {
        for to in distinct.iter().filter(|to| *to != from) {
            pairs.push(GpuPair {
                from: (*from).clone(),
                to: (*to).clone(),
                pci: pci_path(tree, topology, from, to),
                links: None,
                access: None,
            });
        }
    }
    pairs
}

/// Adds `links`, each with the addresses of both GPUs, to the matching pairs.
pub(super) fn add_links(pairs: &mut [GpuPair], links: Vec<(String, String, GpuLinks)>) {
    for (from, to, links) in links {
        let same = |pair: &&mut GpuPair| (&pair.from, &pair.to) == (&from, &to);
        if let Some(pair) = pairs.iter_mut().find(same) {
            // Each partition of a GPU has an entry for the same pair of addresses. The first entry is kept.
            pair.links.get_or_insert(links);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pci_path::tests::two_sockets;
    use super::*;

    #[test]
    fn each_ordered_pair_is_there_once() {
        let machine = two_sockets();
        let tree = machine.tree();
        let topology = Topology::read_from(&tree, vec![]);
        let addresses = ["83", "03", "04", "03"].map(|bus| format!("0000:{bus}:00.0"));
        let found = pairs(&tree, &topology, &addresses);
        let short = |pair: &GpuPair| (pair.from[5..7].into(), pair.to[5..7].into(), pair.pci);
        let found: Vec<(String, String, _)> = found.iter().map(short).collect();
        let (near, far) = (PciPath::Switch, PciPath::Sockets);
        let expected = [
            ("03", "04", near),
            ("03", "83", far),
            ("04", "03", near),
            ("04", "83", far),
            ("83", "03", far),
            ("83", "04", far),
        ];
        let expected = expected.map(|(from, to, way)| (from.to_owned(), to.to_owned(), way));
        assert_eq!(found, expected);
    }
}
