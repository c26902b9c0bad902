//! Factors between algorithm bandwidth and bus bandwidth, as defined by nccl-tests.

use crate::Collective;

/// The factor from algorithm bandwidth (size / time) to bus bandwidth: the bandwidth that the busiest link must have
/// carried, with any implementation. `None` if no link needs to carry anything.
///
/// The factors are those of nccl-tests. For all-reduce, reduce-scatter, all-gather, broadcast, reduce and all-to-all,
/// see doc/PERFORMANCE.md ("Summary"). For gather, scatter and send-recv, see `factor` in `GatherGetBw`
/// (src/gather.cu), `ScatterGetBw` (src/scatter.cu) and `SendRecvGetBw` (src/sendrecv.cu). nccl-tests measures
/// send-recv only as a ring. In pairs, each link in use has the same load as in a ring.
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
