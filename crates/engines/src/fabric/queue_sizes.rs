//! Queue sizes of a worker's endpoint, and the error for memory that cannot be registered.

use tonnage_engine::WorkerConfig;
use tonnage_sys::libfabric::QueueSizes;
use tonnage_units::Error;

use crate::registration::locked_memory_advice;

/// Bounds of the number of operations in flight over all lanes.
const OPERATIONS: std::ops::RangeInclusive<usize> = 256..=32_768;

/// Bounds of the number of receives posted over all lanes. All receives need room before anything arrives. The maximum
/// is enough for two thousand peers.
const RECEIVES: std::ops::RangeInclusive<usize> = 256..=1_048_576;

/// Receives that the loops post per operation in flight from a peer, and the smallest number of such operations that
/// they assume (`tonnage_bench::kinds::transfer::flow_driver`).
const RECEIVES_PER_OPERATION: usize = 2;
const OPERATIONS_MIN: usize = 8;

pub(super) fn sizes(config: &WorkerConfig) -> QueueSizes {
    let lanes = (config.peers_max as usize).max(1);
    let bounded = |wanted: usize, bounds: std::ops::RangeInclusive<usize>| {
        wanted.clamp(*bounds.start(), *bounds.end()) as u32
    };
    let receives = RECEIVES_PER_OPERATION * (config.depth as usize).max(OPERATIONS_MIN);
    QueueSizes {
        operations: bounded(lanes.saturating_mul(config.depth as usize), OPERATIONS),
        receives: bounded(lanes.saturating_mul(receives), RECEIVES),
        peers: lanes,
    }
}

pub(super) fn not_registered(name: &str, bytes: usize, why: &str) -> Error {
    let advice = locked_memory_advice(bytes);
    Error::Failed(format!(
        "{name} cannot register {bytes} bytes: {why}{advice}"
    ))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn there_is_room_for_the_receives_of_all_peers() {
        for peers in [1u32, 2, 40, 500, 2000] {
            for depth in [1, 8, 64, 4096] {
                let config = WorkerConfig::polling(peers, peers, depth);
                // The loops post at most 512 receives per peer.
                let posted = peers * (2 * depth.max(8)).min(512);
                let sizes = sizes(&config);
                assert!(sizes.receives >= posted, "{peers} peers, depth {depth}");
                assert!(sizes.operations >= 256);
            }
        }
    }
}
