//! The upper bound of copies between the memories that a rank and its peers will have.

use std::collections::BTreeSet;

use tonnage_engine::{LimitKind, RankMemory};
use tonnage_machine::devices::{GpuLinks, gpu_links, nominal_link_bytes_per_s};
use tonnage_sys::cuda::CudaDevice;
use tonnage_units::Result;

use super::cuda_region::number_of;
use super::vendor::GpuVendor;

/// A rank's end of its copies, for what they are set beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitedEnd {
    /// The GPU, or the host with the GPUs that it copies to: ends of one name share what bounds them.
    pub(crate) name: String,
    /// The bound.
    pub(crate) limit: LimitKind,
    /// The links whose speed it is, in words; `None` where it is none of links.
    pub(crate) links: Option<String>,
}

/// Describes a rank's end. What crosses PCIe is bounded by the link of the GPU, what goes to another GPU over NVLink by
/// its links, which the driver's management library describes, and what stays in a GPU by its own copies. No bound is
/// known between two GPUs without NVLink, whose bytes may cross several links of PCIe.
pub(crate) fn end(
    vendor: &GpuVendor,
    (own, peers): (RankMemory<'_>, &[RankMemory<'_>]),
    devices: &[CudaDevice],
) -> Result<LimitedEnd> {
    let peers = peers.iter().map(|&peer| number_of(vendor, peer));
    let peers = peers.collect::<Result<Vec<_>>>()?;
    let link = |number: Option<u32>| {
        let device = devices.get(number? as usize)?;
        nominal_link_bytes_per_s(&device.pci_address)
    };
    let linked = |own: u32, peer: u32| {
        let [own, peer] = [own, peer].map(|number| devices.get(number as usize));
        gpu_links(&own?.pci_address, &peer?.pci_address)
    };
    let own = number_of(vendor, own)?;
    let (limit, links) = kind(own, &peers, link, linked);
    Ok(LimitedEnd {
        name: name(vendor, own, (&peers, devices)),
        limit,
        links,
    })
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

/// The bound of an end, and the links whose speed it is.
fn kind(
    own: Option<u32>,
    peers: &[Option<u32>],
    link: impl Fn(Option<u32>) -> Option<u64>,
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
            let links: Option<Vec<u64>> = peers.into_iter().map(link).collect();
            let speed = links.map(|links| links.iter().sum());
            of_links(speed, format!("PCIe, of {count} GPUs"))
        }
        Some(_) if peers.iter().all(|&peer| peer == own) => (LimitKind::MemoryCopy, None),
        Some(_) if peers.iter().all(Option::is_none) => of_links(link(own), "PCIe".to_owned()),
        Some(own) => {
            let links = peers
                .into_iter()
                .map(|peer| linked(own, peer.filter(|&peer| peer != own)?));
            let links: Option<Vec<GpuLinks>> = links.collect();
            let (speed, words) = links.map(|links| together(&links)).unwrap_or_default();
            of_links(speed, words)
        }
    }
}

/// The speed of a GPU's links to some others: all that lead to switches are one and the same, and those that lead to
/// GPUs are others for each.
fn together(links: &[GpuLinks]) -> (Option<u64>, String) {
    let speeds: Option<Vec<u64>> = links.iter().map(|links| links.bytes_per_s).collect();
    let counts = links.iter().map(|links| links.count);
    let (speed, count, to) = if links.iter().all(|links| links.switched) {
        let most = speeds.and_then(|speeds| speeds.into_iter().max());
        (most, counts.max(), " to switches")
    } else if links.iter().any(|links| links.switched) {
        (None, None, "")
    } else {
        (
            speeds.map(|speeds| speeds.iter().sum()),
            Some(counts.sum()),
            "",
        )
    };
    let kind = links.first().map_or("", |links| &links.kind);
    (speed, format!("{kind}, {} links{to}", count.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::super::nvidia::NVIDIA;
    use super::*;

    #[test]
    fn what_is_crossed_bounds_the_copies() {
        let link = |number: Option<u32>| (number? < 2).then(|| 10 + u64::from(number.unwrap_or(0)));
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
                count,
                switched,
                bytes_per_s: Some(u64::from(count) * 10),
            })
        };
        let of = |peers: &[u32]| {
            let peers: Vec<Option<u32>> = peers.iter().copied().map(Some).collect();
            let (limit, words) = kind(Some(0), &peers, |_| Some(7), linked);
            match limit {
                LimitKind::Link { bytes_per_s } => (bytes_per_s, words.unwrap_or_default()),
                other => (0, format!("{other:?}")),
            }
        };
        let switched = (180, "NVLink, 18 links to switches".to_owned());
        assert_eq!(of(&[1]), switched);
        // The same links, however many GPUs are behind the switches.
        assert_eq!(of(&[1, 2, 3, 3]), switched);
        assert_eq!(of(&[4, 5]), (90, "NVLink, 9 links".to_owned()));
        assert_eq!(of(&[0]), (0, "MemoryCopy".to_owned()));
        for unknown in [&[1, 4][..], &[6], &[1, 6], &[0, 1]] {
            assert_eq!(of(unknown), (0, "None".to_owned()), "{unknown:?}");
        }
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
