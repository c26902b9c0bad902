//! Pairs that take turns: what each of them moved in all trials, as its initiator counts it.

use serde::{Deserialize, Serialize};

use super::totals::TrialTotals;
use crate::opening::description::WorkerPlaces;
use tonnage_engine::Verb;
use tonnage_plan::point::Traffic;
use tonnage_plan::roles::Roles;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{Alike, Hosts};
use tonnage_record::transfer::{PairRate, Summary, judge};

/// Sums of the pairs of one initiator, in the order of its targets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct PairSums {
    of_targets: Vec<PairSum>,
}

/// Sums of a pair over its turns.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct PairSum {
    payload_bytes: u64,
    window_ns: u64,
    samples: u64,
    unfinished: u64,
    latency_ns_sum: u64,
    /// Bytes per second in its best turn.
    best_bytes_per_s: f64,
}

impl PairSum {
    /// One turn.
    pub(super) fn of(totals: &TrialTotals) -> Self {
        Self {
            payload_bytes: totals.payload_bytes,
            window_ns: totals.window_ns,
            samples: totals.samples,
            unfinished: totals.unfinished,
            latency_ns_sum: totals.latency_ns_sum,
            best_bytes_per_s: per_second(totals.payload_bytes, totals.window_ns),
        }
    }

    fn rate(&self, (initiator, target): (u32, u32), hosts: &Hosts) -> PairRate {
        let host = hosts.host(initiator);
        PairRate {
            initiator,
            target,
            within_host: host.is_some() && host == hosts.host(target),
            shares_cpu: false,
            payload_bytes: self.payload_bytes,
            bandwidth_bytes_per_s: per_second(self.payload_bytes, self.window_ns),
            bandwidth_bytes_per_s_max: self.best_bytes_per_s,
            time_ns_alone: None,
            time_ns_together: None,
            latency_ns_mean: (self.samples > 0)
                .then(|| self.latency_ns_sum as f64 / self.samples as f64),
            unfinished: self.unfinished,
        }
    }
}

fn per_second(bytes: u64, ns: u64) -> f64 {
    bytes as f64 * 1e9 / ns.max(1) as f64
}

impl PairSums {
    /// Takes note of a turn beside those of the trials, of which only the best rate counts.
    pub(super) fn look_again(&mut self, place: usize, turn: PairSum) {
        if let Some(sum) = self.of_targets.get_mut(place) {
            sum.best_bytes_per_s = sum.best_bytes_per_s.max(turn.best_bytes_per_s);
        }
    }

    /// Adds a turn of the pair with the target at this place among the initiator's.
    pub(super) fn add(&mut self, place: usize, turn: PairSum) {
        if self.of_targets.len() <= place {
            self.of_targets.resize(place + 1, PairSum::default());
        }
        let sum = &mut self.of_targets[place];
        sum.payload_bytes += turn.payload_bytes;
        sum.window_ns += turn.window_ns;
        sum.samples += turn.samples;
        sum.unfinished += turn.unfinished;
        sum.latency_ns_sum = sum.latency_ns_sum.saturating_add(turn.latency_ns_sum);
        sum.best_bytes_per_s = sum.best_bytes_per_s.max(turn.best_bytes_per_s);
    }
}

/// The most pairs that a record has.
const PAIRS_RECORDED_MAX: usize = 1024;

/// Marks the pairs of which workers are on one CPU.
pub(super) fn mark_shared(pairs: &mut [PairRate], places: &Alike<WorkerPlaces>, hosts: &Hosts) {
    for pair in pairs {
        let (one, other) = (pair.initiator, pair.target);
        let cpus = |rank: u32| places.get(rank).map(|places| places.cpus.iter());
        let shared = cpus(one).zip(cpus(other)).is_some_and(|(one, other)| {
            let mut both = one.zip(other);
            both.any(|(one, other)| one.is_some() && one == other)
        });
        pair.shares_cpu = shared && hosts.share_machine(one, other);
    }
}

/// Adds the pairs to a summary, and the verdict on those of a matrix.
pub(super) fn add_to(summary: &mut Summary, point: &TransferPoint, rates: &[PairRate]) {
    if point.traffic == Traffic::Matrix {
        summary.matrix = judge(point.ranks, rates, point.op == Verb::Read);
    }
    if rates.len() <= PAIRS_RECORDED_MAX {
        summary.pairs = rates.to_vec();
    }
}

/// The rates of all pairs, by initiator and target, from the sums of all ranks.
pub(super) fn rates<'a>(
    roles: Roles,
    hosts: &Hosts,
    all: impl Iterator<Item = &'a PairSums>,
) -> Vec<PairRate> {
    let ranks = (0u32..).zip(all);
    let of_rank = |(rank, sums): (u32, &PairSums)| {
        let targets = roles.targets(rank);
        let pairs = targets.iter().zip(&sums.of_targets);
        pairs
            .map(|(&target, sum)| sum.rate((rank, target), hosts))
            .collect::<Vec<_>>()
    };
    ranks.flat_map(of_rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_of_a_pair_add_up() {
        let mut all = vec![PairSums::default(); 3];
        for (from, place, bytes) in [(0, 0, 100), (0, 1, 400), (0, 0, 300), (2, 1, 50)] {
            let totals = TrialTotals {
                payload_bytes: bytes,
                window_ns: 1_000_000_000,
                samples: 2,
                latency_ns_sum: bytes,
                ..TrialTotals::NONE
            };
            all[from].add(place, PairSum::of(&totals));
        }
        let rates = rates(Roles::new(Traffic::Matrix, 3), &Hosts::of(&[]), all.iter());
        let said = rates.iter().map(|rate| {
            let ends = (rate.initiator, rate.target);
            let rates = [rate.bandwidth_bytes_per_s, rate.bandwidth_bytes_per_s_max];
            (ends, rate.payload_bytes, rates, rate.latency_ns_mean)
        });
        let expected = [
            ((0, 1), 400, [200.0, 300.0], Some(100.0)),
            ((0, 2), 400, [400.0, 400.0], Some(200.0)),
            ((2, 0), 0, [0.0, 0.0], None),
            ((2, 1), 50, [50.0, 50.0], Some(25.0)),
        ];
        assert!(said.eq(expected), "{rates:?}");
    }
}
