//! Waiting of a rank for the others: until when, and how often it looks at the clock.

use std::time::{Duration, Instant};

use crate::deadlines::DEADLINES;
use tonnage_plan::transfer::{CqMode, TransferPoint, TrialLength};

/// Longest time that the end of a trial may be waited for.
pub(super) fn deadline_of(length: TrialLength) -> Duration {
    match length {
        // A paced trial may take as long again, and a large window takes its time to drain.
        TrialLength::DurationNs(ns) => Duration::from_nanos(ns.saturating_mul(3)) + DEADLINES.step,
        TrialLength::Iterations(_) => DEADLINES.operations,
    }
}

/// Rounds of a serving loop between two looks at the clock.
pub(super) fn look_rounds(point: &TransferPoint) -> u32 {
    match point.cq {
        CqMode::Busy => 1 << 16,
        CqMode::Event => 1,
    }
}

pub(super) fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
