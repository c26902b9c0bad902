//! Messages of ranks to rank 0 at the end of each interval.

use serde::{Deserialize, Serialize};

/// Progress of a rank in a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tick {
    /// Number of the trial.
    pub trial: u64,
    /// Whole intervals that have passed since the aligned start.
    pub passed: u64,
    /// Operations that have completed until then.
    pub operations: u64,
    /// Encoded latencies of what completed since the last tick, roughly; empty without any.
    pub latencies: Vec<u8>,
    /// True when all workers of the rank have done their part of the trial.
    pub is_driven: bool,
    /// True in the last tick of a trial, whose count is exact.
    pub is_last: bool,
}
