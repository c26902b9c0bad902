//! Factors between algorithm bandwidth and bus bandwidth, as defined by nccl-tests.

use crate::Collective;

/// The factor by which size / time of an operation among `ranks` ranks is multiplied to get the bandwidth that its
/// busiest link must have carried, with any implementation. `None` if no link needs to carry anything.
///
/// From nccl-tests: doc/PERFORMANCE.md ("Summary") for all-reduce, reduce-scatter, all-gather, broadcast, reduce and
/// all-to-all. That page has none for gather, scatter and send-recv: theirs are the `factor` of `GatherGetBw` in
/// src/gather.cu, `ScatterGetBw` in src/scatter.cu and `SendRecvGetBw` in src/sendrecv.cu. The last one is for a ring;
/// nccl-tests does not have pairs, which load each link in use equally.
pub fn bus_factor(op: Collective, ranks: u32) -> Option<f64> {
    if ranks < 2 {
        return None;
    }
    let n = f64::from(ranks);
    match op {
        Collective::AllReduce => Some(2.0 * (n - 1.0) / n),
        Collective::ReduceScatter
        | Collective::AllGather
        | Collective::AllToAll
        | Collective::Gather
        | Collective::Scatter => Some((n - 1.0) / n),
        Collective::Broadcast
        | Collective::Reduce
        | Collective::SendRecvPairs
        | Collective::SendRecvRing => Some(1.0),
        Collective::Barrier => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_agree_with_the_methodology() {
        assert_eq!(bus_factor(Collective::AllReduce, 4), Some(1.5));
        assert_eq!(bus_factor(Collective::AllGather, 4), Some(0.75));
        assert_eq!(bus_factor(Collective::Broadcast, 4), Some(1.0));
        assert_eq!(bus_factor(Collective::SendRecvRing, 3), Some(1.0));
        let none = |op| bus_factor(op, 1).or(bus_factor(Collective::Barrier, 8));
        assert!(Collective::ALL.into_iter().all(|op| none(op).is_none()));
    }
}
