//! Sums of each initiating rank by itself, over all trials.

use serde::{Deserialize, Serialize};

use super::totals::TrialTotals;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::Alike;
use tonnage_record::transfer::InitiatorFigures;

/// Sums of one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankSums {
    operations: u64,
    payload_bytes: u64,
    own_ns: u64,
    samples: u64,
    unfinished: u64,
    latency_ns_sum: u64,
    latency_ns_min: Option<u64>,
}

impl RankSums {
    /// Adds a trial, or a round of one, of the rank's own workers.
    pub(super) fn add(&mut self, totals: &TrialTotals) {
        if totals.operations == 0 {
            // In the turn of others its time does not count.
            return;
        }
        self.operations += totals.operations;
        self.payload_bytes += totals.payload_bytes;
        // What others send to this rank may arrive later.
        self.own_ns += totals.own_ns;
        self.samples += totals.samples;
        self.unfinished += totals.unfinished;
        self.latency_ns_sum = self.latency_ns_sum.saturating_add(totals.latency_ns_sum);
        let smallest = (totals.samples > 0).then_some(totals.latency_ns_min);
        self.latency_ns_min = self.latency_ns_min.into_iter().chain(smallest).min();
    }

    fn figures(&self, rank: u32) -> InitiatorFigures {
        InitiatorFigures {
            rank,
            operations: self.operations,
            payload_bytes: self.payload_bytes,
            bandwidth_bytes_per_s: self.payload_bytes as f64 * 1e9 / self.own_ns.max(1) as f64,
            latency_ns_min: self.latency_ns_min,
            latency_ns_mean: (self.samples > 0)
                .then(|| self.latency_ns_sum as f64 / self.samples as f64),
            unfinished: self.unfinished,
        }
    }
}

/// Figures of all ranks that initiate, from the sums of all ranks.
pub(super) fn initiators(point: &TransferPoint, all: &Alike<RankSums>) -> Vec<InitiatorFigures> {
    let roles = point.roles();
    let ranks = (0u32..).zip(all.iter());
    let initiating = ranks.filter(|(rank, _)| roles.initiates(*rank));
    initiating.map(|(rank, sums)| sums.figures(rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_plan::transfer::Addresses;

    #[test]
    fn initiators_have_the_sums_of_their_own_trials() {
        let totals = |operations: u64, latency_ns: u64| TrialTotals {
            operations,
            payload_bytes: 8 * operations,
            window_ns: 7_000_000_000,
            own_ns: 1_000_000_000,
            samples: operations,
            latency_ns_sum: operations * latency_ns,
            latency_ns_min: latency_ns,
            ..TrialTotals::NONE
        };
        let mut sums = RankSums::default();
        for trial in [totals(100, 30), totals(300, 10), TrialTotals::NONE] {
            sums.add(&trial);
        }
        let point = crate::drive::walk::tests::point(Addresses::Sequential, 4);
        let all = [sums, RankSums::default()].into_iter().collect();
        let said = initiators(&point, &all);
        let [one] = &said[..] else { panic!("{said:?}") };
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
