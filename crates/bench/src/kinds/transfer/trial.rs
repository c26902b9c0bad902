//! One trial: what a worker is told before it, and what it reports after it.

use serde::{Deserialize, Serialize};
use tonnage_plan::transfer::TrialLength;

/// The number of a warm-up, which is no trial: engines may try things out in it.
pub const WARM_UP: u64 = 0;

/// Start and length of a trial.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// The aligned start on this host's clock.
    pub start_ns: u64,
    /// Time or iterations.
    pub length: TrialLength,
    /// The number that keys the trial's data; 0 is the warm-up.
    pub number: u64,
}

/// A worker's report about its own flows after driving them, for the targets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Issued {
    /// For each rank of `SliceLayout::out`: first and one past the last operation of this trial.
    pub ranges: Vec<(u64, u64)>,
}
