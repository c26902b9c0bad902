//! Waiting of a rank for the others: until when.

use std::time::{Duration, Instant};

use crate::deadlines::DEADLINES;
use tonnage_plan::transfer::TrialLength;

/// Longest time that the end of a trial may be waited for.
pub(super) fn deadline_of(length: TrialLength) -> Duration {
    match length {
        // A paced trial may take as long again, and a large window takes its time to drain.
        TrialLength::DurationNs(ns) => Duration::from_nanos(ns.saturating_mul(3)) + DEADLINES.step,
        TrialLength::Iterations(_) => DEADLINES.operations,
    }
}

pub(super) fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
