//! The verdict on a matrix of pairs: which ranks send or receive slowly, and which pairs are slow by themselves.
//!
//! Rates are compared by their logarithms, so that half as fast is as far from the middle as twice as fast. The middle
//! is the median, and the width 1.4826 times the median of the absolute deviations from it (MAD), which is the standard
//! deviation where they are normal; neither moves while no more than half of the pairs are slow. Ranks are marked one
//! after the other, the slowest first, and what belongs to one that is marked says nothing about the others any more.
//! Of each pair its best turn counts: what slows a link is there in all of them, and what other programs do is not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pairs::PairRate;

/// Least part by which a rate is under the middle to be called slow: 1.3 times, however narrow the others are.
const SLOW_FACTOR: f64 = 1.3;

/// Least part by which a pair is under what its slow rank reaches to be called slow by itself: the middle of a slow
/// rank is that of few and short turns, which vary more than those of all.
const SLOW_AGAIN_FACTOR: f64 = 3.0;

/// Widths by which a rate is under the middle to be called slow. Of a width that is known, normal noise is that far
/// below once in 3 million; of one that is estimated from some thirty pairs, in a few matrices of a thousand.
const SLOW_WIDTHS: f64 = 5.0;

/// Standard deviation of what is normal / its MAD.
const MAD_SCALE: f64 = 1.4826;

/// Width of the rates above which slow ones are lost among the others: a third of the middle would have to be marked.
fn is_wide(width: f64) -> bool {
    SLOW_WIDTHS * width > 3f64.ln()
}

/// Part of all pairs that is far above the middle where this is no middle, but what most of them are slowed down to.
const FAST_FRACTION: f64 = 0.1;

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
    /// The reason why it cannot be told what is slow, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unclear: Option<Unclear>,
}

/// Reason why it cannot be told what is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unclear {
    /// A rank has too few others to be told from its pairs.
    FewRanks,
    /// The rates differ too much among themselves.
    WideRates,
    /// Most pairs are much slower than the others.
    MostAreSlow,
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
    // Where exactly half of them are slow, the others are the middle.
    let middle = upper_median(rates.iter().map(|rate| rate.log))?;
    let width = MAD_SCALE * -upper_median(rates.iter().map(|rate| -(rate.log - middle).abs()))?;
    let slow = -SLOW_FACTOR.ln().max(SLOW_WIDTHS * width);
    let fast = rates
        .iter()
        .filter(|rate| rate.log - middle > -slow)
        .count();
    let unclear = if ranks < RANKS_MIN {
        Some(Unclear::FewRanks)
    } else if is_wide(width) {
        Some(Unclear::WideRates)
    } else {
        let most = fast as f64 >= FAST_FRACTION * rates.len() as f64;
        most.then_some(Unclear::MostAreSlow)
    };
    let [slow_senders, slow_receivers] = match unclear {
        Some(Unclear::FewRanks) => [Vec::new(), Vec::new()],
        _ => slow_ranks(ranks, &rates, (middle, slow)),
    };
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
        unclear,
    })
}

/// Ends of a pair: its sender and its receiver.
const ENDS: [fn(&LogRate) -> u32; 2] = [|rate| rate.sender, |rate| rate.receiver];

/// Ranks that send, and ranks that receive, that far below the middle, each list in the order of ranks.
fn slow_ranks(ranks: u32, rates: &[LogRate], (middle, slow): (f64, f64)) -> [Vec<SlowRank>; 2] {
    let mut marked = [Vec::new(), Vec::new()];
    let mut open = rates.to_vec();
    while let Some((end, below, rank)) =
        slowest(ranks, &open, middle).filter(|(_, below, _)| *below < slow)
    {
        marked[end].push(SlowRank {
            rank,
            of_median: below.exp(),
        });
        open.retain(|rate| ENDS[end](rate) != rank);
    }
    for list in &mut marked {
        list.sort_by_key(|slow: &SlowRank| slow.rank);
    }
    marked
}

/// The rank and its end whose median is farthest below the middle.
fn slowest(ranks: u32, rates: &[LogRate], middle: f64) -> Option<(usize, f64, u32)> {
    let of_end = |end: usize| {
        let mut of_ranks: Vec<Vec<f64>> = vec![Vec::new(); ranks as usize];
        for rate in rates {
            if let Some(logs) = of_ranks.get_mut(ENDS[end](rate) as usize) {
                logs.push(rate.log);
            }
        }
        // One pair alone says nothing about its rank.
        let known = (0u32..).zip(of_ranks).filter(|(_, logs)| logs.len() > 1);
        known.filter_map(move |(rank, logs)| {
            let below = upper_median(logs.into_iter())? - middle;
            Some((end, below, rank))
        })
    };
    let all = of_end(0).chain(of_end(1));
    all.min_by(|one, other| one.1.total_cmp(&other.1))
}

/// The median, and of an even number of values the larger of the two in the middle.
fn upper_median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
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
            let both = judged(&|from, to| tenth(from == 2 || to == 2, from, to));
            assert_eq!(both, (vec![2], vec![2], vec![]), "{ranks}");
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

    /// Half of what a good rank sends goes to slow ones then, which are marked first.
    #[test]
    fn several_slow_ranks_are_marked_and_no_good_one() {
        for (ranks, slow) in [(5, 2), (7, 3), (6, 2), (16, 7)] {
            let receives = pairs(ranks, |from, to| {
                noisy(from, to) / if to < slow { 10.0 } else { 1.0 }
            });
            let verdict = judge(ranks, &receives, false).unwrap();
            let expected: Vec<u32> = (0..slow).collect();
            assert_eq!(
                marked(&verdict),
                (vec![], expected.clone(), vec![]),
                "{ranks}"
            );
            let verdict = judge(ranks, &receives, true).unwrap();
            assert_eq!(marked(&verdict), (expected, vec![], vec![]), "{ranks}");
            assert_eq!(verdict.unclear, None);
        }
    }

    #[test]
    fn where_most_is_slow_or_all_differs_nobody_can_tell() {
        // Two of six hosts both ways: 18 of 30 pairs.
        let most = pairs(6, |from, to| {
            noisy(from, to) / if from.min(to) < 2 { 10.0 } else { 1.0 }
        });
        let verdict = judge(6, &most, false).unwrap();
        assert_eq!(verdict.unclear, Some(Unclear::MostAreSlow));
        let all = pairs(6, |from, to| {
            1e9 / f64::from(1 << ((from * 5 + to * 3) % 7))
        });
        let verdict = judge(6, &all, false).unwrap();
        assert_eq!(verdict.unclear, Some(Unclear::WideRates));
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
        assert_eq!(verdict.unclear, Some(Unclear::FewRanks));
        assert_eq!(marked(&verdict), (vec![], vec![], vec![(0, 1), (0, 2)]));
        let verdict = judge(2, &pairs(2, |_, _| 1e9), false).unwrap();
        assert_eq!(marked(&verdict), (vec![], vec![], vec![]));
        assert_eq!(judge(2, &pairs(2, |_, _| 0.0), false), None);
    }

    proptest! {
        #[test]
        fn even_noise_marks_nothing(seed in proptest::collection::vec(-0.5f64..0.0, 36)) {
            // Up to 1.65 times apart, which would be slow among rates that are alike.
            let rates = pairs(6, |from, to| 1e9 * seed[(from * 6 + to) as usize].exp());
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
