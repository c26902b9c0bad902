//! Waiting of a rank for the others: until when, and whether its device needs no help meanwhile.

use std::time::{Duration, Instant};

use super::driven::compares_each;
use super::layout::SliceLayout;
use crate::deadlines::DEADLINES;
use tonnage_engine::Caps;
use tonnage_plan::transfer::{CqMode, TransferPoint, TrialLength};

/// Longest time that the end of a trial may be waited for.
pub(super) fn deadline_of(length: TrialLength) -> Duration {
    match length {
        // A paced trial may take as long again, and a large window takes its time to drain.
        TrialLength::DurationNs(ns) => Duration::from_nanos(ns.saturating_mul(3)) + DEADLINES.step,
        TrialLength::Iterations(_) => DEADLINES.operations,
    }
}

/// Returns whether the device does everything that peers ask of a worker, which has nothing to do itself.
pub(super) fn is_served(point: &TransferPoint, caps: &Caps, layout: &SliceLayout) -> bool {
    let compares = compares_each(point);
    let is_silent = caps.passive_target && !point.op.notifies_target() && !compares;
    is_silent && layout.out.is_empty() && point.cq == CqMode::Busy
}

pub(super) fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
