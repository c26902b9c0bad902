//! The verdict on a matrix of pairs: which ranks send or receive slowly, and which pairs are slow by themselves.
//!
//! Rates are compared by their logarithms, so that half as fast is as far from the middle as twice as fast. The middle
//! is the median, and the width 1.4826 times the median of the absolute deviations from it (MAD), which is the standard
//! deviation where they are normal; neither moves while less than half of the pairs are slow. Of each pair its best
//! turn counts: what slows a link is there in all of them, and what other programs do is not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pairs::PairRate;

/// Least part by which a rate is under the middle to be called slow: 1.3 times, however narrow the others are.
const SLOW_FACTOR: f64 = 1.3;

/// Least part by which a pair is under what its slow rank reaches to be called slow by itself: the middle of a slow
/// rank is that of few and short turns, which vary more than those of all.
const SLOW_AGAIN_FACTOR: f64 = 3.0;

/// Widths by which a rate is under the middle to be called slow. Normal noise is that far below once in 3 million.
const SLOW_WIDTHS: f64 = 5.0;

/// Standard deviation of what is normal / its MAD.
const MAD_SCALE: f64 = 1.4826;

/// Ranks below which a slow pair says nothing about the ranks: each row then has two others, whose median is no more
/// robust than their mean.
const RANKS_MIN: u32 = 4;

/// Verdict on the pairs of a matrix.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatrixVerdict {
    /// Median of the best rates of all pairs.
    pub median_bytes_per_s: f64,
    /// Width of these rates as a part of the median: 1.4826 times the MAD of their logarithms.
    pub width_fraction: f64,
    /// Ranks that send slowly to all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow_senders: Vec<SlowRank>,
    /// Ranks that receive slowly from all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow_receivers: Vec<SlowRank>,
    /// Pairs that are slower than their ranks are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow_pairs: Vec<SlowPair>,
    /// True where there are too few ranks to tell a slow rank from slow pairs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub too_few_ranks: bool,
}

impl MatrixVerdict {
    /// Returns whether what one rank sends to another is slow, by itself or with one of them.
    pub fn is_slow(&self, sender: u32, receiver: u32) -> bool {
        let is = |slow: &[SlowRank], rank| slow.iter().any(|one| one.rank == rank);
        let mut pairs = self.slow_pairs.iter();
        is(&self.slow_senders, sender)
            || is(&self.slow_receivers, receiver)
            || pairs.any(|slow| (slow.sender, slow.receiver) == (sender, receiver))
    }
}

/// A rank that is slow in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowRank {
    /// The rank.
    pub rank: u32,
    /// Median of its rates / that of all.
    pub of_median: f64,
}

/// A pair that is slow by itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowPair {
    /// The rank that sends.
    pub sender: u32,
    /// The rank that receives.
    pub receiver: u32,
    /// Its rate / the median of all.
    pub of_median: f64,
}

/// Logarithm of a rate, from one rank to another.
#[derive(Clone, Copy)]
struct LogRate {
    sender: u32,
    receiver: u32,
    log: f64,
}

/// Judges the pairs of a matrix among so many ranks. `reads`: bytes flow towards the initiator, which receives then.
/// `None` where nothing moved.
pub fn judge(ranks: u32, pairs: &[PairRate], reads: bool) -> Option<MatrixVerdict> {
    let rates: Vec<LogRate> = pairs
        .iter()
        .filter(|pair| pair.bandwidth_bytes_per_s_max > 0.0)
        .map(|pair| {
            let (sender, receiver) = match reads {
                true => (pair.target, pair.initiator),
                false => (pair.initiator, pair.target),
            };
            LogRate {
                sender,
                receiver,
                log: pair.bandwidth_bytes_per_s_max.ln(),
            }
        })
        .collect();
    let middle = median(rates.iter().map(|rate| rate.log))?;
    let width = MAD_SCALE * median(rates.iter().map(|rate| (rate.log - middle).abs()))?;
    let slow = -SLOW_FACTOR.ln().max(SLOW_WIDTHS * width);
    let too_few_ranks = ranks < RANKS_MIN;
    let slow_ranks = |end: fn(&LogRate) -> u32| match too_few_ranks {
        true => Vec::new(),
        false => slow_ranks(ranks, &rates, end, (middle, slow)),
    };
    let slow_senders = slow_ranks(|rate| rate.sender);
    let slow_receivers = slow_ranks(|rate| rate.receiver);
    let of = |slow: &[SlowRank], rank: u32| {
        let known = slow.iter().find(|known| known.rank == rank);
        known.map_or(0.0, |known| known.of_median.ln())
    };
    let slow_pairs = rates.iter().filter_map(|rate| {
        // As slow as the slower of its ranks is expected.
        let expected = of(&slow_senders, rate.sender).min(of(&slow_receivers, rate.receiver));
        let below = rate.log - middle;
        let enough = match expected < 0.0 {
            true => slow.min(-SLOW_AGAIN_FACTOR.ln()),
            false => slow,
        };
        (below - expected < enough).then_some(SlowPair {
            sender: rate.sender,
            receiver: rate.receiver,
            of_median: below.exp(),
        })
    });
    Some(MatrixVerdict {
        median_bytes_per_s: middle.exp(),
        width_fraction: width,
        slow_pairs: slow_pairs.collect(),
        slow_senders,
        slow_receivers,
        too_few_ranks,
    })
}

/// Ranks at one end whose median is that far below the middle.
fn slow_ranks(
    ranks: u32,
    rates: &[LogRate],
    end: fn(&LogRate) -> u32,
    (middle, slow): (f64, f64),
) -> Vec<SlowRank> {
    let mut of_ranks: Vec<Vec<f64>> = vec![Vec::new(); ranks as usize];
    for rate in rates {
        if let Some(logs) = of_ranks.get_mut(end(rate) as usize) {
            logs.push(rate.log);
        }
    }
    let medians = (0u32..).zip(of_ranks).filter_map(|(rank, logs)| {
        let below = median(logs.into_iter())? - middle;
        (below < slow).then_some(SlowRank {
            rank,
            of_median: below.exp(),
        })
    });
    medians.collect()
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let lower = values.get(values.len().checked_sub(1)? / 2)?;
    let upper = values.get(values.len() / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rates of all pairs among so many ranks.
    fn pairs(ranks: u32, rate: impl Fn(u32, u32) -> f64) -> Vec<PairRate> {
        let all = (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to)));
        let all = all.filter(|(from, to)| from != to);
        let pair = |(initiator, target)| PairRate {
            initiator,
            target,
            payload_bytes: 1,
            bandwidth_bytes_per_s: 1.0,
            bandwidth_bytes_per_s_max: rate(initiator, target),
            latency_ns_mean: None,
        };
        all.map(pair).collect()
    }

    /// Noise of a few percent that is not the same for two pairs.
    fn noisy(from: u32, to: u32) -> f64 {
        1e9 * (1.0 + 0.03 * f64::from((from * 7 + to * 13) % 11) / 11.0)
    }

    /// Slow senders, receivers and pairs.
    fn marked(verdict: &MatrixVerdict) -> (Vec<u32>, Vec<u32>, Vec<(u32, u32)>) {
        let ranks = |slow: &[SlowRank]| slow.iter().map(|one| one.rank).collect();
        let pairs = verdict.slow_pairs.iter();
        (
            ranks(&verdict.slow_senders),
            ranks(&verdict.slow_receivers),
            pairs.map(|pair| (pair.sender, pair.receiver)).collect(),
        )
    }

    #[test]
    fn a_rank_that_sends_at_a_tenth_is_a_row_and_one_that_receives_a_column() {
        for ranks in [4, 6, 13] {
            let tenth = |slow: bool, from, to| noisy(from, to) / if slow { 10.0 } else { 1.0 };
            let judged = |rate: &dyn Fn(u32, u32) -> f64| {
                marked(&judge(ranks, &pairs(ranks, rate), false).unwrap())
            };
            let sends = judged(&|from, to| tenth(from == 2, from, to));
            assert_eq!(sends, (vec![2], vec![], vec![]), "{ranks}");
            let receives = judged(&|from, to| tenth(to == 2, from, to));
            assert_eq!(receives, (vec![], vec![2], vec![]), "{ranks}");
            if ranks > 4 {
                let both = judged(&|from, to| tenth(from == 2 || to == 2, from, to));
                assert_eq!(both, (vec![2], vec![2], vec![]), "{ranks}");
            }
            let one = judged(&|from, to| tenth((from, to) == (1, 3), from, to));
            assert_eq!(one, (vec![], vec![], vec![(1, 3)]), "{ranks}");
        }
        // A slow pair of a slow sender is slower still.
        let rate = |from, to| match (from, to) {
            (2, 0) => 1e7,
            (2, _) => 1e8,
            _ => noisy(from, to),
        };
        let verdict = judge(6, &pairs(6, rate), false).unwrap();
        assert_eq!(marked(&verdict), (vec![2], vec![], vec![(2, 0)]));
        assert!((0.09..0.11).contains(&verdict.slow_senders[0].of_median));
        assert!((0.009..0.011).contains(&verdict.slow_pairs[0].of_median));
    }

    #[test]
    fn bytes_of_reads_flow_towards_the_initiator() {
        let rates = pairs(6, |from, to| {
            noisy(from, to) / if from == 2 { 10.0 } else { 1.0 }
        });
        let verdict = judge(6, &rates, true).unwrap();
        assert_eq!(marked(&verdict), (vec![], vec![2], vec![]));
    }

    #[test]
    fn few_ranks_have_slow_pairs_and_none_that_is_to_blame() {
        let verdict = judge(
            3,
            &pairs(3, |from, _| if from == 0 { 1e8 } else { 1e9 }),
            false,
        );
        let verdict = verdict.unwrap();
        assert!(verdict.too_few_ranks);
        assert_eq!(marked(&verdict), (vec![], vec![], vec![(0, 1), (0, 2)]));
        let verdict = judge(2, &pairs(2, |_, _| 1e9), false).unwrap();
        assert_eq!(marked(&verdict), (vec![], vec![], vec![]));
        assert_eq!(judge(2, &pairs(2, |_, _| 0.0), false), None);
    }

    proptest! {
        #[test]
        fn even_noise_marks_nothing(seed in proptest::collection::vec(0.8f64..1.0, 30)) {
            let rates = pairs(6, |from, to| 1e9 * seed[(from * 5 + to.min(4)) as usize % 30]);
            let verdict = judge(6, &rates, false).unwrap();
            prop_assert_eq!(marked(&verdict), (vec![], vec![], vec![]));
        }

        #[test]
        fn the_verdict_does_not_depend_on_the_unit(scale in 1e-3f64..1e3) {
            let rate = |from, to| noisy(from, to) / if to == 1 { 4.0 } else { 1.0 };
            let one = judge(6, &pairs(6, rate), false).unwrap();
            let other = judge(6, &pairs(6, |from, to| scale * rate(from, to)), false).unwrap();
            prop_assert_eq!(marked(&one), marked(&other));
        }
    }
}
