//! Sums of the workers that move a background.

use serde::{Deserialize, Serialize};
use tonnage_record::transfer::Stall;
use tonnage_units::Reduce;

/// The longer of two stalls.
pub(super) fn longer(one: Option<Stall>, other: Option<Stall>) -> Option<Stall> {
    let both = one.into_iter().chain(other);
    both.max_by_key(|stall| stall.length_ns)
}

/// Sums of the background of one trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundTotals {
    /// Its start to its last completion; the longest.
    pub window_ns: u64,
    /// Completed operations.
    pub operations: u64,
    /// Their payload.
    pub payload_bytes: u64,
    /// Bytes that moved, were checked and found right.
    pub verified_bytes: u64,
    /// Its longest stall, where it has a rate.
    pub stall: Option<Stall>,
}

impl BackgroundTotals {
    /// The sum of nothing.
    pub const NONE: Self = Self {
        window_ns: 0,
        operations: 0,
        payload_bytes: 0,
        verified_bytes: 0,
        stall: None,
    };
}

impl Reduce for BackgroundTotals {
    fn merge(&mut self, other: Self) {
        self.window_ns = self.window_ns.max(other.window_ns);
        self.operations += other.operations;
        self.payload_bytes += other.payload_bytes;
        self.verified_bytes += other.verified_bytes;
        self.stall = longer(self.stall, other.stall);
    }
}
