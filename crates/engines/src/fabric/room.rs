//! How much a worker's endpoint is to hold, and what to say where the system gives less.

use tonnage_core::Error;
use tonnage_core::engine::WorkerConfig;
use tonnage_sys::libfabric::Sizes;

/// Operations in flight over all lanes, at most.
const OPERATIONS: std::ops::RangeInclusive<usize> = 256..=32_768;

/// Receives posted over all lanes, at most.
const RECEIVES: std::ops::RangeInclusive<usize> = 256..=32_768;

pub(super) fn sizes(config: &WorkerConfig) -> Sizes {
    let lanes = config.peers.len().max(1);
    let bounded = |wanted: usize, bounds: std::ops::RangeInclusive<usize>| {
        wanted.clamp(*bounds.start(), *bounds.end()) as u32
    };
    Sizes {
        operations: bounded(lanes.saturating_mul(config.depth as usize), OPERATIONS),
        receives: bounded(lanes.saturating_mul(2 * config.depth as usize), RECEIVES),
        peers: lanes,
    }
}

/// A refusal for want of memory is most often the limit on locked pages.
pub(super) fn not_registered(name: &str, bytes: usize, why: &str) -> Error {
    let advice = match tonnage_sys::process::locked_memory_limit() {
        Some(limit) if limit < bytes as u64 => format!(
            ": this process may lock {limit} bytes of memory; raise it with `ulimit -l unlimited`, or LimitMEMLOCK of the \
             service that starts it"
        ),
        _ => String::new(),
    };
    Error::Failed(format!(
        "{name} cannot register {bytes} bytes: {why}{advice}"
    ))
}
