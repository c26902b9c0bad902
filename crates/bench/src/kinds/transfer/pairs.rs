//! Pairs that take turns: what each of them moved in all trials.

use super::totals::TrialTotals;
use tonnage_record::transfer::PairRate;

/// Sums of each pair.
#[derive(Debug, Default)]
pub(super) struct PairSums {
    all: Vec<PairSum>,
}

#[derive(Debug)]
struct PairSum {
    pair: (u32, u32),
    payload_bytes: u64,
    window_ns: u64,
    samples: u64,
    latency_ns_sum: u64,
}

impl PairSums {
    /// Adds a round of one pair; rounds come in their order.
    pub(super) fn add(&mut self, round: u32, pair: (u32, u32), totals: &TrialTotals) {
        let at = round as usize;
        if at == self.all.len() {
            self.all.push(PairSum {
                pair,
                payload_bytes: 0,
                window_ns: 0,
                samples: 0,
                latency_ns_sum: 0,
            });
        }
        let Some(sum) = self.all.get_mut(at) else {
            return;
        };
        sum.payload_bytes += totals.payload_bytes;
        sum.window_ns += totals.window_ns;
        sum.samples += totals.samples;
        sum.latency_ns_sum = sum.latency_ns_sum.saturating_add(totals.latency_ns_sum);
    }

    /// The rates of all pairs, in the order of their first turns.
    pub(super) fn rates(&self) -> Vec<PairRate> {
        let rate = |sum: &PairSum| PairRate {
            initiator: sum.pair.0,
            target: sum.pair.1,
            bandwidth_bytes_per_s: sum.payload_bytes as f64 * 1e9 / sum.window_ns.max(1) as f64,
            latency_ns_mean: (sum.samples > 0)
                .then(|| sum.latency_ns_sum as f64 / sum.samples as f64),
        };
        self.all.iter().map(rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_a_pair_add_up() {
        let mut sums = PairSums::default();
        for (target, bytes) in [(1, 100), (2, 400), (1, 300)] {
            let totals = TrialTotals {
                payload_bytes: bytes,
                window_ns: 1_000_000_000,
                samples: 2,
                latency_ns_sum: bytes,
                ..TrialTotals::NONE
            };
            sums.add(target - 1, (0, target), &totals);
        }
        let said = sums.rates().into_iter().map(|rate| {
            (
                rate.target,
                rate.bandwidth_bytes_per_s,
                rate.latency_ns_mean,
            )
        });
        assert!(said.eq([(1, 200.0, Some(100.0)), (2, 400.0, Some(200.0))]));
    }
}
