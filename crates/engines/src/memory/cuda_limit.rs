//! The upper bound of copies between the memories that a rank and its peers will have.

use std::collections::BTreeSet;

use tonnage_engine::{LimitKind, RankMemory};
use tonnage_machine::devices::nominal_link_bytes_per_s;
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
}

/// Describes a rank's end. What crosses PCIe is bounded by the link of the GPU, and what stays in a GPU by its own
/// copies. Between two GPUs there may be NVLink or XGMI, which the driver's library does not describe: no bound is
/// known there.
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
    let own = number_of(vendor, own)?;
    Ok(LimitedEnd {
        name: name(vendor, own, (&peers, devices)),
        limit: kind(own, &peers, link),
    })
}

/// Describes a rank's end where its peers may see other GPUs by the same numbers: only its own link is known.
pub(crate) fn own_end(
    vendor: &GpuVendor,
    (own, peers): (RankMemory<'_>, &[RankMemory<'_>]),
    devices: &[CudaDevice],
) -> Result<LimitedEnd> {
    let both = end(vendor, (own, peers), devices)?;
    Ok(match number_of(vendor, own)? {
        None => LimitedEnd {
            name: name(vendor, None, (&[], devices)),
            limit: LimitKind::None,
        },
        Some(_) if both.limit == LimitKind::MemoryCopy => LimitedEnd {
            limit: LimitKind::None,
            ..both
        },
        Some(_) => both,
    })
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

fn kind(
    own: Option<u32>,
    peers: &[Option<u32>],
    link: impl Fn(Option<u32>) -> Option<u64>,
) -> LimitKind {
    let of_link = |bytes_per_s| LimitKind::Link { bytes_per_s };
    match own {
        // The host is no link; it has those of all GPUs that it copies to, each once.
        None => {
            let peers: BTreeSet<Option<u32>> = peers.iter().copied().collect();
            let links: Option<Vec<u64>> = peers.into_iter().map(link).collect();
            let links = links.filter(|links| !links.is_empty());
            links.map_or(LimitKind::None, |links| of_link(links.iter().sum()))
        }
        Some(_) if peers.iter().all(|&peer| peer == own) => LimitKind::MemoryCopy,
        Some(_) if peers.iter().all(Option::is_none) => link(own).map_or(LimitKind::None, of_link),
        Some(_) => LimitKind::None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::nvidia::NVIDIA;
    use super::*;

    #[test]
    fn what_is_crossed_bounds_the_copies() {
        let link = |number: Option<u32>| (number? < 2).then(|| 10 + u64::from(number.unwrap_or(0)));
        let of = |own, peers: &[Option<u32>]| kind(own, peers, link);
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
        ] {
            assert_eq!(of(own, peers), LimitKind::None);
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
        ] {
            assert_eq!(of(own, peer), LimitKind::None);
        }
    }
}
