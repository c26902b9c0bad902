//! Sums of one direction of pairs that move bytes both ways.

use serde::{Deserialize, Serialize};
use tonnage_record::transfer::TrialDirection;
use tonnage_units::Reduce;

/// Sums of one direction of a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionTotals {
    /// Completed operations.
    pub operations: u64,
    /// Their payload.
    pub payload_bytes: u64,
    /// Latency samples.
    pub samples: u64,
    /// Those of operations that never ended.
    pub unfinished: u64,
    /// Sum of the samples.
    pub latency_ns_sum: u64,
}

impl DirectionTotals {
    /// Sums without those of the other direction.
    pub fn without(self, other: Self) -> Self {
        Self {
            operations: self.operations.saturating_sub(other.operations),
            payload_bytes: self.payload_bytes.saturating_sub(other.payload_bytes),
            samples: self.samples.saturating_sub(other.samples),
            unfinished: self.unfinished.saturating_sub(other.unfinished),
            latency_ns_sum: self.latency_ns_sum.saturating_sub(other.latency_ns_sum),
        }
    }

    /// One direction of a trial with this window, as the record shows it.
    pub fn trial(self, window_ns: u64) -> TrialDirection {
        TrialDirection {
            operations: self.operations,
            payload_bytes: self.payload_bytes,
            bandwidth_bytes_per_s: self.payload_bytes as f64 * 1e9 / window_ns.max(1) as f64,
        }
    }
}

/// Adds another worker's or rank's.
impl Reduce for DirectionTotals {
    fn merge(&mut self, other: Self) {
        self.operations += other.operations;
        self.payload_bytes += other.payload_bytes;
        self.samples += other.samples;
        self.unfinished += other.unfinished;
        self.latency_ns_sum = self.latency_ns_sum.saturating_add(other.latency_ns_sum);
    }
}
