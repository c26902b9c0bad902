//! Orders to a worker and its reports: its set-up, the schedule of each round, and the operations that it issued.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonnage_plan::transfer::TrialLength;
use tonnage_ranks::Sleepers;

use super::background::WorkerRole;
use super::stalled::FlowNames;
use super::verify::AtomicDigest;
use tonnage_loops::batch::SharedBatches;
use tonnage_loops::loop_progress::LoopProgress;

/// Number of the warm-up, which is not a trial. Engines may try out alternatives during the warm-up.
pub const WARM_UP: u64 = 0;

/// The background load begins before the measured part, so that queues are full when latencies begin to count. This
/// lead is 1/`LEAD_PART` of the trial, but at most 100 ms.
const LEAD_PART: u64 = 5;
const LEAD_NS_MAX: u64 = 100_000_000;

/// Identity and set-up of a worker.
#[derive(Debug, Clone)]
pub struct WorkerSetup {
    pub rank: u32,
    /// Index of the worker on its rank.
    pub worker: u32,
    /// Names of the peers and devices of its flows, for messages.
    pub names: FlowNames,
    /// True if workers of this rank share CPUs.
    pub yielding: bool,
    /// Time without progress after which operations count as stalled, which is an error.
    pub patience: Duration,
    /// The workers of this rank that may sleep, for waking them.
    pub sleepers: Arc<Sleepers>,
    /// State of the batches that this rank's workers share; `None` if they share no batches.
    pub shared: Option<Arc<SharedBatches>>,
    /// The progress that this worker updates; `None` if no thread reads it.
    pub loop_progress: Option<Arc<LoopProgress>>,
    /// The worker's role among the workers of its rank.
    pub role: WorkerRole,
}

/// Consecutive rounds, in which each flow is driven at most once. They are a trial, or extra turns outside the trials.
#[derive(Debug, Clone)]
pub struct RoundSequence {
    /// Number that is part of the key of the data; 0 is the warm-up.
    pub number: u64,
    /// Numbers of the rounds, in order.
    pub rounds: Vec<u32>,
    /// Duration or number of iterations of each round.
    pub length: TrialLength,
    /// True for extra turns outside the trials.
    pub is_extra: bool,
    /// True if the point's background load moves too. Has no effect on points without such a load.
    pub is_loaded: bool,
}

impl RoundSequence {
    /// Returns the rounds of a trial.
    pub fn trial(number: u64, rounds: impl IntoIterator<Item = u32>, length: TrialLength) -> Self {
        Self {
            number,
            rounds: rounds.into_iter().collect(),
            length,
            is_extra: false,
            is_loaded: true,
        }
    }

    /// Returns whether these rounds count as a trial. A warm-up and extra turns don't.
    pub fn is_of_trial(&self) -> bool {
        self.number != WARM_UP && !self.is_extra
    }

    /// Returns the half of a trial without load. It does not count as a trial.
    pub fn without_background(number: u64, length: TrialLength) -> Self {
        Self {
            is_loaded: false,
            ..Self::extra(number, [0], length)
        }
    }

    /// Returns extra turns outside the trials.
    pub fn extra(number: u64, rounds: impl IntoIterator<Item = u32>, length: TrialLength) -> Self {
        Self {
            is_extra: true,
            ..Self::trial(number, rounds, length)
        }
    }
}

/// Start and length of a round.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Aligned start on this host's clock.
    pub start_ns: u64,
    /// Duration or number of iterations.
    pub length: TrialLength,
    /// Number that is part of the key of the data; 0 is the warm-up.
    pub number: u64,
    /// Number of the round.
    pub round: u32,
    /// True for an extra turn outside the trials. Its latencies don't count.
    pub is_extra: bool,
    /// True if the point's background load moves too. Has no effect on points without such a load.
    pub is_loaded: bool,
    /// Time from the start of the background load to the start of the measured part.
    pub lead_ns: u64,
}

impl Schedule {
    /// Returns how long before the measured part the load begins, in a trial of this length.
    pub(super) fn lead_ns(length: TrialLength) -> u64 {
        match length {
            TrialLength::DurationNs(ns) => (ns / LEAD_PART).min(LEAD_NS_MAX),
            TrialLength::Iterations(_) => 0,
        }
    }

    /// Returns the schedule of one worker. The background load begins and ends with the trial, but the measured part
    /// begins later.
    pub(super) fn for_worker(&self, is_background: bool) -> Self {
        let length = match self.length {
            TrialLength::DurationNs(ns) if is_background => {
                TrialLength::DurationNs(ns.saturating_add(self.lead_ns))
            }
            length => length,
        };
        let waits_ns = if is_background { 0 } else { self.lead_ns };
        Self {
            start_ns: self.start_ns.saturating_add(waits_ns),
            length,
            lead_ns: 0,
            ..*self
        }
    }
}

/// A worker's report on its own flows after it has driven them. The flows' targets need it.
#[derive(Debug, Clone, Default)]
pub struct IssuedOperations {
    /// For each rank in `SliceLayout::out`: the first operation of this trial, and the number after its last one.
    pub ranges: Vec<(u64, u64)>,
    /// For each of these ranks: digest of the changes by atomic operations; empty if these are not checked.
    pub digests: Vec<AtomicDigest>,
}

/// The part of [`IssuedOperations`] that the target of one flow needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedOfFlow {
    /// The first operation of this trial, and the number after its last one.
    pub range: (u64, u64),
    /// Digest of the changes by the flow's atomic operations; the default value if these are not checked.
    pub digest: AtomicDigest,
}

impl IssuedOperations {
    /// Returns the part for the flow to the rank at index `place` of `SliceLayout::out`; `None` if there is no such
    /// flow.
    pub fn of_flow(&self, place: usize) -> Option<IssuedOfFlow> {
        Some(IssuedOfFlow {
            range: *self.ranges.get(place)?,
            digest: self.digests.get(place).copied().unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_starts_before_the_measured_part_and_ends_with_it() {
        let length = TrialLength::DurationNs(1_000_000_000);
        let schedule = Schedule {
            start_ns: 1000,
            length,
            number: 2,
            round: 0,
            is_extra: false,
            is_loaded: true,
            lead_ns: Schedule::lead_ns(length),
        };
        let (measures, loads) = (schedule.for_worker(false), schedule.for_worker(true));
        assert_eq!(measures.start_ns, 100_001_000);
        assert_eq!(measures.length, length);
        assert_eq!(loads.start_ns, 1000);
        assert_eq!(loads.length, TrialLength::DurationNs(1_100_000_000));
        assert_eq!(Schedule::lead_ns(TrialLength::DurationNs(50)), 10);
    }
}
