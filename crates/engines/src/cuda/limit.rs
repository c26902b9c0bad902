//! The upper bound of copies between the memories that a rank and its peers will have.

use tonnage_engine::{LimitKind, RankMemory};
use tonnage_machine::devices::nominal_link_bytes_per_s;
use tonnage_sys::cuda::CudaDevice;
use tonnage_units::Result;

use crate::memory::cuda_region::number_of;

/// A rank's end of its copies, for what they are set beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LimitedEnd {
    /// The GPU, or the host, by a name of its own: what goes over a link goes from one to the other.
    pub(super) name: String,
    /// The bound.
    pub(super) limit: LimitKind,
}

/// Describes a rank's end. What crosses PCIe is bounded by the link of the GPU, and what stays in a GPU by its own
/// copies. Between two GPUs there may be NVLink, which the driver's library does not describe: no bound is known there.
pub(super) fn end(
    (own, peers): (RankMemory<'_>, &[RankMemory<'_>]),
    devices: &[CudaDevice],
) -> Result<LimitedEnd> {
    let peers = peers.iter().map(|&peer| number_of(peer));
    let peers = peers.collect::<Result<Vec<_>>>()?;
    let device = |number: u32| devices.get(number as usize);
    let link = |number: Option<u32>| {
        let device = number.and_then(device)?;
        nominal_link_bytes_per_s(&device.pci_address)
    };
    let own = number_of(own)?;
    Ok(LimitedEnd {
        name: match own.map(|number| (number, device(number))) {
            None => "memory of the host".to_owned(),
            Some((number, None)) => format!("cuda:{number}"),
            Some((number, Some(device))) => format!("cuda:{number} ({})", device.pci_address),
        },
        limit: kind(own, &peers, link),
    })
}

fn kind(
    own: Option<u32>,
    peers: &[Option<u32>],
    link: impl Fn(Option<u32>) -> Option<u64>,
) -> LimitKind {
    let of_link = |bytes_per_s| LimitKind::Link { bytes_per_s };
    match own {
        // The host is no link; it has those of all GPUs that it copies to.
        None => {
            let links: Option<Vec<u64>> = peers.iter().map(|&peer| link(peer)).collect();
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
    use super::*;

    #[test]
    fn what_is_crossed_bounds_the_copies() {
        let link = |number: Option<u32>| (number? < 2).then(|| 10 + u64::from(number.unwrap_or(0)));
        let of = |own, peers: &[Option<u32>]| kind(own, peers, link);
        let speed = |bytes_per_s| LimitKind::Link { bytes_per_s };
        assert_eq!(of(None, &[Some(1)]), speed(11));
        assert_eq!(of(None, &[Some(0), Some(1)]), speed(21));
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
}
