//! Results of batches: the phases of their latency, and the number of operations after merging.

use super::totals::TrialTotals;
use tonnage_loops::recorder::PhaseHistograms;
use tonnage_plan::transfer::{BatchMerge, TransferPoint};
use tonnage_record::transfer::{BatchPhase, BatchPhases};
use tonnage_units::histogram::LatencyHistogram;

/// Returns the phases of the batches; `None` if no batch was recorded.
pub(super) fn batch_phases(phases: &PhaseHistograms) -> Option<BatchPhases> {
    let of = |histogram: &LatencyHistogram| {
        Some(BatchPhase {
            time_ns_mean: histogram.mean_ns()?,
            time_ns_p50: histogram.quantile_ns(0.5)?,
            time_ns_p99: histogram.quantile_ns(0.99)?,
        })
    };
    Some(BatchPhases {
        prepare: of(&phases.prepare)?,
        post: of(&phases.post)?,
        complete: of(&phases.complete)?,
    })
}

/// Returns the number of operations that were posted after adjacent ones were merged. `None` if merging is off.
pub(super) fn merged_operations(point: &TransferPoint, trials: &[TrialTotals]) -> Option<u64> {
    let handed_over = trials.iter().map(|totals| totals.handed_over);
    (point.batching.merge == BatchMerge::On).then(|| handed_over.sum())
}
