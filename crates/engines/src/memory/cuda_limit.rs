//! The upper bound of copies between the memories that a rank and its peers will have.

use std::collections::BTreeSet;

use tonnage_engine::{LimitKind, RankMemory};
use tonnage_machine::devices::{GpuLinks, LinkTable, gpu_links, nominal_link_bytes_per_s};
use tonnage_sys::cuda::CudaDevice;
use tonnage_units::Result;

use super::cuda_region::number_of;
use super::nvidia::NVIDIA;
use super::vendor::GpuVendor;

/// A rank's end of its copies, for what they are set beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitedEnd {
    /// The GPU, or the host with the GPUs that it copies to, and what bounds it: ends of one name share that.
    pub(crate) name: String,
    /// The bound.
    pub(crate) limit: LimitKind,
    /// The links whose speed it is, in words; `None` where it is none of links.
    pub(crate) links: Option<String>,
    /// Reason why links beside PCIe are not known of a GPU that takes part.
    pub(crate) links_unknown: Option<String>,
}

/// Describes a rank's end. What goes to the host is bounded by the GPU's link of PCIe, or by those beside it that the
/// driver's management library tells of; what goes to another GPU over NVLink by its links, which that library tells of
/// too; and what stays in a GPU by its own copies. No bound is known between two GPUs without NVLink, whose bytes may
/// cross several links of PCIe.
pub(crate) fn end(
    vendor: &GpuVendor,
    (own, peers): (RankMemory<'_>, &[RankMemory<'_>]),
    devices: &[CudaDevice],
) -> Result<LimitedEnd> {
    let peers = peers.iter().map(|&peer| number_of(vendor, peer));
    let peers = peers.collect::<Result<Vec<_>>>()?;
    let own = number_of(vendor, own)?;
    let table = links_beside_pcie(vendor, (own, &peers), devices);
    let link = |number: Option<u32>| {
        let address = &devices.get(number? as usize)?.pci_address;
        match table.to_host(address) {
            Some(links) => Some((links.bytes_per_s?, counted(links))),
            None => Some((nominal_link_bytes_per_s(address)?, "PCIe".to_owned())),
        }
    };
    let linked = |own: u32, peer: u32| {
        let [own, peer] = [own, peer].map(|number| devices.get(number as usize));
        table
            .between(&own?.pci_address, &peer?.pci_address)
            .cloned()
    };
    let (limit, links) = kind(own, &peers, link, linked);
    let name = name(vendor, own, (&peers, devices));
    Ok(LimitedEnd {
        name: match &links {
            Some(links) => format!("{name}, by {links}"),
            None => name,
        },
        limit,
        links,
        links_unknown: table.unknown,
    })
}

/// Links beside PCIe of the GPUs that take part, by one question to the management library; nobody is asked where none
/// could bound anything.
fn links_beside_pcie(
    vendor: &GpuVendor,
    (own, peers): (Option<u32>, &[Option<u32>]),
    devices: &[CudaDevice],
) -> LinkTable {
    if vendor.memory != NVIDIA.memory || peers.iter().all(|&peer| peer == own) {
        return LinkTable::default();
    }
    let numbers: BTreeSet<u32> = peers.iter().copied().chain([own]).flatten().collect();
    let gpus = numbers
        .into_iter()
        .filter_map(|number| devices.get(number as usize));
    gpu_links(gpus.map(|gpu| gpu.pci_address.clone()).collect())
}

/// Describes a rank's end where its peers may see other GPUs by the same numbers: only its own link is known.
pub(crate) fn own_end(
    vendor: &GpuVendor,
    (own, peers): (RankMemory<'_>, &[RankMemory<'_>]),
    devices: &[CudaDevice],
) -> Result<LimitedEnd> {
    let number = number_of(vendor, own)?;
    let unbounded = LimitedEnd {
        name: name(vendor, number, (&[], devices)),
        limit: LimitKind::None,
        links: None,
        links_unknown: None,
    };
    for &peer in peers {
        if number.is_none() || number_of(vendor, peer)?.is_some() {
            return Ok(unbounded);
        }
    }
    end(vendor, (own, peers), devices)
}

fn name(
    vendor: &GpuVendor,
    own: Option<u32>,
    (peers, devices): (&[Option<u32>], &[CudaDevice]),
) -> String {
    let memory = vendor.memory;
    let gpu = |number: u32| match devices.get(number as usize) {
        None => format!("{memory}:{number}"),
        Some(device) => format!("{memory}:{number} ({})", device.pci_address),
    };
    let host = "memory of the host";
    match own {
        Some(number) => gpu(number),
        None => {
            let peers: BTreeSet<u32> = peers.iter().copied().flatten().collect();
            let peers: Vec<String> = peers.into_iter().map(gpu).collect();
            match peers.is_empty() {
                true => host.to_owned(),
                // The same links as of those GPUs, and of no others.
                false => format!("{host}, to {}", peers.join(" and ")),
            }
        }
    }
}

/// The bound of an end, and the links whose speed it is. `link` tells speed and kind of what leads to the host.
fn kind(
    own: Option<u32>,
    peers: &[Option<u32>],
    link: impl Fn(Option<u32>) -> Option<(u64, String)>,
    linked: impl Fn(u32, u32) -> Option<GpuLinks>,
) -> (LimitKind, Option<String>) {
    let peers: BTreeSet<Option<u32>> = peers.iter().copied().collect();
    let of_links = |speed: Option<u64>, words: String| match speed.filter(|&speed| speed > 0) {
        Some(bytes_per_s) => (LimitKind::Link { bytes_per_s }, Some(words)),
        None => (LimitKind::None, None),
    };
    match own {
        _ if peers.is_empty() => (LimitKind::None, None),
        // The host is no link; it has those of all GPUs that it copies to, each once.
        None => {
            let count = peers.len();
            let links: Option<Vec<(u64, String)>> = peers.into_iter().map(link).collect();
            let links = links.unwrap_or_default();
            let kinds: BTreeSet<&str> = links.iter().map(|(_, kind)| kind.as_str()).collect();
            let kinds: Vec<&str> = kinds.into_iter().collect();
            let words = match count {
                1 => kinds.join(""),
                count => format!("{}, of {count} GPUs", kinds.join(" and ")),
            };
            of_links(Some(links.iter().map(|(speed, _)| speed).sum()), words)
        }
        Some(_) if peers.iter().all(|&peer| peer == own) => (LimitKind::MemoryCopy, None),
        Some(_) if peers.iter().all(Option::is_none) => {
            let (speed, words) = link(own).unwrap_or_default();
            of_links(Some(speed), words)
        }
        Some(own) => {
            let links = peers.into_iter().map(|peer| {
                let peer = peer.filter(|&peer| peer != own)?;
                Some((peer, linked(own, peer)?))
            });
            let links: Option<Vec<(u32, GpuLinks)>> = links.collect();
            let (speed, words) = links.map(|links| together(&links)).unwrap_or_default();
            of_links(speed, words)
        }
    }
}

/// The speed of a GPU's links to some others, and in words which they are: all that lead to switches are one and the
/// same. Those that lead to a GPU are others for each, so that there is one bound only with a single peer: with several
/// it depends on how many of them are written to at once.
fn together(links: &[(u32, GpuLinks)]) -> (Option<u64>, String) {
    match links {
        [(peer, links)] if !links.switched => {
            let words = format!("{} to {}:{peer}", counted(links), NVIDIA.memory);
            (links.bytes_per_s, words)
        }
        all if all.iter().all(|(_, links)| links.switched) => {
            let widest = all.iter().map(|(_, links)| links);
            let widest = widest.max_by_key(|links| links.bytes_per_s);
            let speed = widest.and_then(|links| links.bytes_per_s);
            let words = widest.map_or_else(String::new, counted);
            (speed, format!("{words} to switches"))
        }
        _ => (None, String::new()),
    }
}

/// The kind of links, and their number.
fn counted(links: &GpuLinks) -> String {
    match links.count {
        Some(1) => format!("{}, 1 link", links.kind),
        Some(count) => format!("{}, {count} links", links.kind),
        None => links.kind.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_crossed_bounds_the_copies() {
        let link = |number: Option<u32>| {
            let number = number.filter(|&number| number < 2)?;
            Some((10 + u64::from(number), "PCIe".to_owned()))
        };
        let of = |own, peers: &[Option<u32>]| kind(own, peers, link, |_, _| None).0;
        let speed = |bytes_per_s| LimitKind::Link { bytes_per_s };
        assert_eq!(of(None, &[Some(1)]), speed(11));
        assert_eq!(of(None, &[Some(0), Some(1)]), speed(21));
        // Two peers that share a GPU share its link.
        assert_eq!(of(None, &[Some(1), Some(1)]), speed(11));
        assert_eq!(of(Some(1), &[None]), speed(11));
        assert_eq!(of(Some(1), &[Some(1)]), LimitKind::MemoryCopy);
        // NVLink may be there or not, the kernel does not tell the link, or nobody is at the other end.
        for (own, peers) in [
            (Some(0), &[Some(1)][..]),
            (Some(7), &[None]),
            (None, &[Some(7)]),
            (None, &[None]),
            (None, &[]),
            (Some(0), &[]),
        ] {
            assert_eq!(of(own, peers), LimitKind::None);
        }
    }

    /// GPUs 1 to 3 are behind switches with GPU 0, 4 and 5 are linked to it directly, and nobody tells of others.
    #[test]
    fn links_between_gpus_bound_what_goes_over_them() {
        let linked = |own, peer| {
            let (count, switched) = match (own, peer) {
                (0, 1..=3) => (18, true),
                (0, 4 | 5) => (peer, false),
                _ => return None,
            };
            Some(GpuLinks {
                kind: "NVLink".to_owned(),
                count: Some(count),
                switched,
                bytes_per_s: Some(u64::from(count) * 10),
            })
        };
        let of = |peers: &[u32]| {
            let peers: Vec<Option<u32>> = peers.iter().copied().map(Some).collect();
            let c2c = |_| Some((7, "NVLink-C2C, 10 links".to_owned()));
            let (limit, words) = kind(Some(0), &peers, c2c, linked);
            match limit {
                LimitKind::Link { bytes_per_s } => (bytes_per_s, words.unwrap_or_default()),
                other => (0, format!("{other:?}")),
            }
        };
        let switched = (180, "NVLink, 18 links to switches".to_owned());
        assert_eq!(of(&[1]), switched);
        // The same links, however many GPUs are behind the switches.
        assert_eq!(of(&[1, 2, 3, 3]), switched);
        // Others towards each GPU: what bounds all of them depends on which are written to at once.
        assert_eq!(of(&[4]), (40, "NVLink, 4 links to cuda:4".to_owned()));
        assert_eq!(of(&[5, 5]), (50, "NVLink, 5 links to cuda:5".to_owned()));
        assert_eq!(of(&[0]), (0, "MemoryCopy".to_owned()));
        for unknown in [&[4, 5][..], &[1, 4], &[6], &[1, 6], &[0, 1]] {
            assert_eq!(of(unknown), (0, "None".to_owned()), "{unknown:?}");
        }
    }

    /// The host's memory is behind links beside PCIe, where the library tells of them.
    #[test]
    fn what_leads_to_the_host_bounds_by_its_own_speed() {
        let link = |number: Option<u32>| {
            let links = [(447, "NVLink-C2C, 10 links"), (63, "PCIe")];
            let (speed, words) = links.get(number? as usize)?;
            Some((*speed, (*words).to_owned()))
        };
        let of = |own, peers: &[Option<u32>]| {
            let (limit, words) = kind(own, peers, link, |_, _| None);
            (limit, words.unwrap_or_default())
        };
        let bound = |bytes_per_s, words: &str| (LimitKind::Link { bytes_per_s }, words.to_owned());
        assert_eq!(of(Some(0), &[None]), bound(447, "NVLink-C2C, 10 links"));
        assert_eq!(of(None, &[Some(1), Some(1)]), bound(63, "PCIe"));
        let both = bound(510, "NVLink-C2C, 10 links and PCIe, of 2 GPUs");
        assert_eq!(of(None, &[Some(0), Some(1)]), both);
    }

    /// Ends of one name are counted once, so that hosts of different GPUs have to have different names.
    #[test]
    fn the_host_is_named_by_the_gpus_that_it_copies_to() {
        let of = |own, peers: &[Option<u32>]| name(NVIDIA, own, (peers, &[]));
        assert_eq!(of(Some(3), &[None]), "cuda:3");
        assert_eq!(of(None, &[Some(1)]), "memory of the host, to cuda:1");
        let several = of(None, &[Some(1), Some(0), Some(1)]);
        assert_eq!(several, "memory of the host, to cuda:0 and cuda:1");
        assert_eq!(of(None, &[None]), "memory of the host");
    }

    #[test]
    fn numbers_of_other_processes_bound_nothing() {
        let rank = |name| RankMemory { name, gpu: None };
        let of = |own, peer| {
            let both = (rank(own), &[rank(peer)][..]);
            own_end(NVIDIA, both, &[]).unwrap().limit
        };
        for (own, peer) in [
            ("cuda", "cuda"),
            ("cuda-pinned", "cuda"),
            ("cuda", "cuda:1"),
            ("cuda:1", "cuda"),
            ("cuda", "host"),
        ] {
            assert_eq!(of(own, peer), LimitKind::None);
        }
    }
}
