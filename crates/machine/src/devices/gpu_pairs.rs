//! Pairs of GPUs: what bytes between them go over, and whether one reaches the other's memory.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::kernel_files::Tree;
use super::super::topology::Topology;
use super::pci_way::{PciWay, pci_way};

/// One GPU and another one whose memory it would reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPair {
    /// PCI address of the GPU that reaches.
    pub from: String,
    /// PCI address of the other one.
    pub to: String,
    /// The way between them on PCI.
    pub pci: PciWay,
    /// Links beside PCI; absent where there are none, or nobody tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<GpuLinks>,
    /// Access, as the driver tells it; absent where no driver was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<PeerAccess>,
}

/// Links between two GPUs that are not PCI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuLinks {
    /// "NVLink" or "XGMI".
    pub kind: String,
    /// Number of them; absent where nobody tells, as of GPUs between which other GPUs are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// True where they lead to switches, by which all GPUs there share them.
    pub switched: bool,
    /// Speed of all of them together in one direction, as the driver has it; absent where nobody tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
}

/// Access of one GPU to the memory of another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerAccess {
    /// True when it reaches that memory without the host.
    pub granted: bool,
    /// True when atomics on that memory are those of the GPU itself.
    pub native_atomics: bool,
    /// The driver's order of such ways: 0 is the fastest of the machine.
    pub performance_rank: u32,
    /// The driver's reason against it; absent where it is granted, or the driver names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// Each ordered pair of the GPUs with these addresses, with the way between them on PCI.
pub(super) fn pairs(tree: &Tree, topology: &Topology, addresses: &[String]) -> Vec<GpuPair> {
    let distinct: BTreeSet<&String> = addresses.iter().collect();
    let distinct: Vec<&String> = distinct.into_iter().collect();
    let mut pairs = Vec::new();
    for from in &distinct {
        for to in distinct.iter().filter(|to| *to != from) {
            pairs.push(GpuPair {
                from: (*from).clone(),
                to: (*to).clone(),
                pci: pci_way(tree, topology, from, to),
                links: None,
                access: None,
            });
        }
    }
    pairs
}

/// Adds links to the pairs that have them: addresses of both GPUs, and the links from the first.
pub(super) fn add_links(pairs: &mut [GpuPair], links: Vec<(String, String, GpuLinks)>) {
    for (from, to, links) in links {
        let same = |pair: &&mut GpuPair| (&pair.from, &pair.to) == (&from, &to);
        if let Some(pair) = pairs.iter_mut().find(same) {
            // Of two partitions of a GPU each has an entry.
            pair.links.get_or_insert(links);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pci_way::tests::two_sockets;
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
        let (near, far) = (PciWay::Switch, PciWay::Sockets);
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
