//! Orders and reports of a worker: its place in the run, each trial before it, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonnage_plan::transfer::TrialLength;
use tonnage_ranks::Sleepers;

use super::background::WorkerPart;
use super::stalled::FlowNames;
use super::verify::Ascents;
use tonnage_loops::batch::SharedBatches;
use tonnage_loops::pulse::Pulse;

/// The number of a warm-up, which is no trial: engines may try things out in it.
pub const WARM_UP: u64 = 0;

/// Part of a trial for which a background runs before the latency beside it counts, and its most: queues are full
/// then.
const LEAD_PART: u64 = 5;
const LEAD_NS_MAX: u64 = 100_000_000;

/// The place of a worker in the run.
#[derive(Debug, Clone)]
pub struct Station {
    pub rank: u32,
    /// Index of the worker in the rank.
    pub worker: u32,
    /// Names of its flows' ends.
    pub names: FlowNames,
    /// True where workers of its rank share CPUs.
    pub yielding: bool,
    /// Time without progress of its operations that is forgiven.
    pub patience: Duration,
    /// Those of this rank that may sleep.
    pub sleepers: Arc<Sleepers>,
    /// Batches that this rank's workers share, where they do.
    pub shared: Option<Arc<SharedBatches>>,
    /// Pulse that it keeps, where somebody feels it.
    pub pulse: Option<Arc<Pulse>>,
    /// Its part beside the rank's other workers.
    pub part: WorkerPart,
}

/// Rounds that follow each other, each flow in one of them at most: a trial, or turns beside the trials.
#[derive(Debug, Clone)]
pub struct RoundStretch {
    /// The number that keys its data; 0 is the warm-up.
    pub number: u64,
    /// The rounds of the traffic.
    pub rounds: Vec<u32>,
    /// Time or iterations of each round.
    pub length: TrialLength,
    /// True beside the trials.
    pub again: bool,
    /// True where the background moves too, if there is one.
    pub is_loaded: bool,
}

impl RoundStretch {
    /// One that counts.
    pub fn trial(number: u64, rounds: impl IntoIterator<Item = u32>, length: TrialLength) -> Self {
        Self {
            number,
            rounds: rounds.into_iter().collect(),
            length,
            again: false,
            is_loaded: true,
        }
    }

    /// Returns whether it is part of a trial.
    pub fn counts(&self) -> bool {
        self.number != WARM_UP && !self.again
    }

    /// The half of a trial without the background.
    pub fn quiet(number: u64, length: TrialLength) -> Self {
        Self {
            is_loaded: false,
            ..Self::beside(number, [0], length)
        }
    }

    /// One beside the trials.
    pub fn beside(number: u64, rounds: impl IntoIterator<Item = u32>, length: TrialLength) -> Self {
        Self {
            again: true,
            ..Self::trial(number, rounds, length)
        }
    }
}

/// Start and length of a round.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// The aligned start on this host's clock.
    pub start_ns: u64,
    /// Time or iterations.
    pub length: TrialLength,
    /// The number that keys the trial's data; 0 is the warm-up.
    pub number: u64,
    /// The round of the traffic.
    pub round: u32,
    /// True for a turn beside those of the trials, whose latencies do not count.
    pub again: bool,
    /// True where the background moves too, if there is one.
    pub is_loaded: bool,
    /// Time for which the background runs before anything is measured.
    pub lead_ns: u64,
}

impl Schedule {
    /// Time for which the load runs alone, of a trial of this length.
    pub(super) fn lead_ns(length: TrialLength) -> u64 {
        match length {
            TrialLength::DurationNs(ns) => (ns / LEAD_PART).min(LEAD_NS_MAX),
            TrialLength::Iterations(_) => 0,
        }
    }

    /// The part of a worker: the load begins with the trial and ends with it, what is measured begins later.
    pub(super) fn of_worker(&self, is_background: bool) -> Self {
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

/// A worker's report about its own flows after driving them, for the targets.
#[derive(Debug, Clone, Default)]
pub struct Issued {
    /// For each rank of `SliceLayout::out`: first and one past the last operation of this trial.
    pub ranges: Vec<(u64, u64)>,
    /// For each of them what its atomic operations changed, where that is going to be checked.
    pub ascents: Vec<Ascents>,
}

/// The part of such a report that is about one flow: all that its target needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowIssued {
    /// First and one past the last operation of this trial.
    pub range: (u64, u64),
    /// Changes by its atomic operations; none where they are not checked.
    pub ascents: Ascents,
}

impl Issued {
    /// The part about the flow to the rank at a place of `SliceLayout::out`; `None` where there is none.
    pub fn of_flow(&self, place: usize) -> Option<FlowIssued> {
        Some(FlowIssued {
            range: *self.ranges.get(place)?,
            ascents: self.ascents.get(place).copied().unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_there_before_and_until_the_end() {
        let length = TrialLength::DurationNs(1_000_000_000);
        let schedule = Schedule {
            start_ns: 1000,
            length,
            number: 2,
            round: 0,
            again: false,
            is_loaded: true,
            lead_ns: Schedule::lead_ns(length),
        };
        let (measures, loads) = (schedule.of_worker(false), schedule.of_worker(true));
        assert_eq!(measures.start_ns, 100_001_000);
        assert_eq!(measures.length, length);
        assert_eq!(loads.start_ns, 1000);
        assert_eq!(loads.length, TrialLength::DurationNs(1_100_000_000));
        assert_eq!(Schedule::lead_ns(TrialLength::DurationNs(50)), 10);
    }
}
