//! Results of a point, before they are taken together.

use super::totals::TrialTotals;
use crate::drive::recorder::PhaseHistograms;
use tonnage_engine::Facts;
use tonnage_ranks::Alike;
use tonnage_record::histogram::LatencyHistogram;
use tonnage_record::transfer::{BrokenOff, InitiatorFigures, PairRate, Trial};
use tonnage_record::{Limit, WireProof};

/// Results of a point, the same on all ranks but for what describes them.
pub struct Measured {
    /// The trials.
    pub trials: Vec<Trial>,
    /// Their totals.
    pub totals: Vec<TrialTotals>,
    /// All latencies.
    pub histogram: LatencyHistogram,
    /// Those of the phases of batches.
    pub phases: Option<PhaseHistograms>,
    /// Latencies without the background, where there was one.
    pub idle: Option<LatencyHistogram>,
    /// Upper bound of the bandwidth.
    pub limit: Option<Limit>,
    /// The reason why it is not known, where one would look for it.
    pub why_no_limit: Option<String>,
    /// True when the interval became narrow enough, with `until_ci`.
    pub converged: Option<bool>,
    /// Choices that each rank's engine made by itself, at rank 0.
    pub chosen: Alike<Facts>,
    /// Counts of the devices that the payload had to cross.
    pub wire_proof: Option<WireProof>,
    /// Each pair, where they take turns.
    pub pairs: Vec<PairRate>,
    /// Each initiating rank, where that was asked for.
    pub initiators: Vec<InitiatorFigures>,
}

/// Figures of a point that are kept although it fails.
#[derive(Default)]
pub struct Kept {
    /// Trials that ended before.
    pub trials: Vec<Trial>,
    /// Intervals of the trial that did not end.
    pub broken_off: Option<BrokenOff>,
}
