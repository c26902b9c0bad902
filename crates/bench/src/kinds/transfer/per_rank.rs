//! Figures of each initiating rank over all trials.

use serde::{Deserialize, Serialize};

use super::totals::{OperationSums, TrialTotals};
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::Distinct;
use tonnage_record::transfer::InitiatorFigures;
use tonnage_units::Reduce;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankSums {
    sums: OperationSums,
    own_ns: u64,
    latency_ns_min: Option<u64>,
}

impl RankSums {
    /// Adds a trial of this rank's own workers, or a round of a trial.
    pub(super) fn add(&mut self, totals: &TrialTotals) {
        if totals.operations == 0 {
            // Rounds in which this rank moved nothing don't count for its time.
            return;
        }
        self.sums.merge(OperationSums::from_totals(totals));
        // Uses this rank's own time: the measured interval may end later, because sends of other ranks still arrive.
        self.own_ns += totals.own_ns;
        let smallest = self.latency_ns_min.into_iter().chain(totals.latency_ns_min);
        self.latency_ns_min = smallest.min();
    }

    fn figures(&self, rank: u32) -> InitiatorFigures {
        InitiatorFigures {
            rank,
            operations: self.sums.operations,
            payload_bytes: self.sums.payload_bytes,
            bandwidth_bytes_per_s: self.sums.bytes_per_s(self.own_ns),
            latency_ns_min: self.latency_ns_min,
            latency_ns_mean: self.sums.latency_ns_mean(),
            unfinished: self.sums.unfinished,
        }
    }
}

/// Returns the figures of all initiating ranks. `all` has the sums of all ranks.
pub(super) fn figures_by_initiator(
    point: &TransferPoint,
    all: &Distinct<RankSums>,
) -> Vec<InitiatorFigures> {
    let roles = point.roles;
    let ranks = (0u32..).zip(all.iter());
    let initiating = ranks.filter(|(rank, _)| roles.initiates(*rank));
    initiating.map(|(rank, sums)| sums.figures(rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_plan::transfer::Access;

    #[test]
    fn initiators_have_the_sums_of_their_own_trials() {
        let totals = |operations: u64, latency_ns: u64| TrialTotals {
            operations,
            payload_bytes: 8 * operations,
            window_ns: 7_000_000_000,
            own_ns: 1_000_000_000,
            samples: operations,
            latency_ns_sum: operations * latency_ns,
            latency_ns_min: Some(latency_ns),
            ..TrialTotals::default()
        };
        let mut sums = RankSums::default();
        for trial in [totals(100, 30), totals(300, 10), TrialTotals::default()] {
            sums.add(&trial);
        }
        let point = tonnage_plan::testing::slots_point(Access::Sequential, 4);
        let all = [sums, RankSums::default()].into_iter().collect();
        let figures = figures_by_initiator(&point, &all);
        let [one] = &figures[..] else {
            panic!("{figures:?}")
        };
        assert_eq!(
            (one.rank, one.operations, one.payload_bytes),
            (0, 400, 3200)
        );
        assert_eq!(one.bandwidth_bytes_per_s, 1600.0);
        assert_eq!(
            (one.latency_ns_min, one.latency_ns_mean),
            (Some(10), Some(15.0))
        );
        let silent = RankSums::default().figures(3);
        assert_eq!(
            (silent.latency_ns_min, silent.latency_ns_mean),
            (None, None)
        );
    }
}
