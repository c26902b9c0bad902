//! Orders and reports of a worker: its identity, the schedule of each round, and the operations it issued.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonnage_plan::transfer::TrialLength;
use tonnage_ranks::Sleepers;

use super::background::WorkerRole;
use super::stalled::FlowNames;
use super::verify::AtomicDigest;
use tonnage_loops::batch::SharedBatches;
use tonnage_loops::pulse::Pulse;

/// Number of the warm-up, which is not a trial. Engines may try out alternatives in the warm-up.
pub const WARM_UP: u64 = 0;

/// The background runs ahead of the measured part for 1/5 of the trial, up to 100 ms, so that queues are full when
/// latencies start to count.
const LEAD_PART: u64 = 5;
const LEAD_NS_MAX: u64 = 100_000_000;

/// Identity and setup of a worker in the run.
#[derive(Debug, Clone)]
pub struct WorkerSetup {
    pub rank: u32,
    /// Index of the worker in its rank.
    pub worker: u32,
    /// Names of both ends of its flows, for messages.
    pub names: FlowNames,
    /// True if workers of this rank share CPUs.
    pub yielding: bool,
    /// How long operations may make no progress before that is an error.
    pub patience: Duration,
    /// The sleepers of this rank, for waking them.
    pub sleepers: Arc<Sleepers>,
    /// State of batches that this rank's workers share, if they do.
    pub shared: Option<Arc<SharedBatches>>,
    /// The pulse that this worker updates, if another thread reads it.
    pub pulse: Option<Arc<Pulse>>,
    /// The worker's role among the workers of the rank.
    pub role: WorkerRole,
}

/// Consecutive rounds, each flow in at most one of them: a trial, or extra turns outside the trials.
#[derive(Debug, Clone)]
pub struct RoundSequence {
    /// Number that keys the data; 0 is the warm-up.
    pub number: u64,
    /// Rounds of the traffic, in order.
    pub rounds: Vec<u32>,
    /// Time or iterations of each round.
    pub length: TrialLength,
    /// True for extra turns outside the trials.
    pub is_extra: bool,
    /// True if the background, where there is one, moves too.
    pub is_loaded: bool,
}

impl RoundSequence {
    /// The rounds of a trial, which count.
    pub fn trial(number: u64, rounds: impl IntoIterator<Item = u32>, length: TrialLength) -> Self {
        Self {
            number,
            rounds: rounds.into_iter().collect(),
            length,
            is_extra: false,
            is_loaded: true,
        }
    }

    /// Whether these rounds are one of the counted trials, not a warm-up or an extra trial.
    pub fn is_of_trial(&self) -> bool {
        self.number != WARM_UP && !self.is_extra
    }

    /// The half of a trial without the background.
    pub fn without_background(number: u64, length: TrialLength) -> Self {
        Self {
            is_loaded: false,
            ..Self::extra(number, [0], length)
        }
    }

    /// Extra turns outside the trials.
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
    /// Time or iterations.
    pub length: TrialLength,
    /// Number that keys the trial's data; 0 is the warm-up.
    pub number: u64,
    /// The round of the traffic.
    pub round: u32,
    /// True for an extra turn outside the trials. Its latencies do not count.
    pub is_extra: bool,
    /// True if the background, where there is one, moves too.
    pub is_loaded: bool,
    /// How long the background runs before the measured part begins.
    pub lead_ns: u64,
}

impl Schedule {
    /// How long the load runs ahead in a trial of this length.
    pub(super) fn lead_ns(length: TrialLength) -> u64 {
        match length {
            TrialLength::DurationNs(ns) => (ns / LEAD_PART).min(LEAD_NS_MAX),
            TrialLength::Iterations(_) => 0,
        }
    }

    /// The schedule of one worker. The load begins and ends with the trial; the measured part begins later.
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

/// A worker's report on its own flows after driving them, for their targets.
#[derive(Debug, Clone, Default)]
pub struct IssuedOperations {
    /// For each rank of `SliceLayout::out`: first and one past the last operation of this trial.
    pub ranges: Vec<(u64, u64)>,
    /// For each of these ranks, digest of the changes made by atomic operations; empty if they are not checked.
    pub digests: Vec<AtomicDigest>,
}

/// The part of [`IssuedOperations`] that one flow's target needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedOfFlow {
    /// First and one past the last operation of this trial.
    pub range: (u64, u64),
    /// Digest of the changes made by its atomic operations; the default if they are not checked.
    pub digest: AtomicDigest,
}

impl IssuedOperations {
    /// The part for the flow to the `place`-th rank of `SliceLayout::out`, if there is one.
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
