//! The verdict on a matrix of pairs: which ranks send or receive slowly, and which individual pairs are slow.
//!
//! Rates are compared by their logarithms, so that half and twice the median rate are equally far from it. The center
//! is the median. The width is 1.4826 times the median absolute deviation (MAD), which equals the standard deviation if
//! deviations are normal. Center and width are robust as long as at most half of the pairs are slow. Pairs within a
//! host and pairs across hosts use different paths, so each kind has its own median. Slow ranks are marked one at a
//! time, slowest first. The rates of a marked rank no longer count when other ranks are judged. Each pair is judged by
//! its best turn: a slow link is slow in every turn, but other programs interfere only in some. Pairs that share a CPU
//! reveal nothing about the path, so they are not judged if they are slow as a group.

use serde::{Deserialize, Serialize};

use super::PairRate;

/// A rate is slow only if it is at least this factor below the median, even if the other rates are very close together.
const SLOW_FACTOR: f64 = 1.3;

/// A pair of a slow rank is slow individually only if it is at least this factor below that rank's level. The level is
/// the median of few short turns, and thus varies more than the median of all pairs.
const SLOW_AGAIN_FACTOR: f64 = 3.0;

/// A rate is slow only if it is this many widths below the median. Normal noise with a known width exceeds this once in
/// 3 million rates. If the width is only estimated, from about thirty pairs, noise exceeds this in a few of a thousand
/// matrices.
const SLOW_WIDTHS: f64 = 5.0;

/// Standard deviation of a normal distribution, divided by the distribution's MAD.
const MAD_SCALE: f64 = 1.4826;

/// A rank is slow if this fraction of its pairs is slow. A rank that is fast with some peers, such as those in its own
/// rack, is not slow itself.
const SLOW_PAIRS_FRACTION: f64 = 7.0 / 8.0;

/// If at least this fraction of pairs is far above the median, most pairs are slow, and the median is not the normal
/// rate.
const FAST_FRACTION: f64 = 0.1;

/// With fewer ranks, slow pairs cannot show that a rank is slow: each rank has at most two peers, and a median of two
/// rates is not robust.
const RANKS_MIN: u32 = 4;

/// Verdict on the pairs of a matrix.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MatrixVerdict {
    /// Pairs across hosts; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub across_hosts: Option<PairSpread>,
    /// Pairs of ranks that share a host; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_hosts: Option<PairSpread>,
    /// Ranks that send slowly to all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow_senders: Vec<SlowRank>,
    /// Ranks that receive slowly from all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow_receivers: Vec<SlowRank>,
    /// Pairs that are slow compared with the other pairs of their ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow_pairs: Vec<SlowPair>,
    /// Number of pairs that are not judged, because the two ranks of each pair share a CPU and these pairs are slow as
    /// a group.
    #[serde(default, skip_serializing_if = "is_none")]
    pub on_one_cpu: u32,
    /// Why slow ranks or pairs cannot be determined; absent if they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unclear: Option<Unclear>,
}

/// Center and width of the rates of pairs that use the same kind of path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairSpread {
    /// Median of the pairs' best rates.
    pub median_bytes_per_s: f64,
    /// Width of these rates as a fraction of the median: 1.4826 times the MAD of their logarithms.
    pub width_fraction: f64,
}

/// Why slow ranks or pairs cannot be determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Unclear {
    /// Too few ranks to distinguish a slow rank from slow pairs.
    FewRanks,
    /// The rates vary too much.
    WideRates,
    /// Most pairs are much slower than the rest.
    MostAreSlow,
}

impl MatrixVerdict {
    /// Returns whether a pair is slow, individually or because of one of its ranks. `reads` has the same meaning as in
    /// [`judge`].
    pub fn is_slow(&self, pair: &PairRate, reads: bool) -> bool {
        let (sender, receiver) = pair.direction(reads);
        let is = |slow: &[SlowRank], rank| slow_rank(slow, rank, pair.within_host).is_some();
        let mut pairs = self.slow_pairs.iter();
        is(&self.slow_senders, sender)
            || is(&self.slow_receivers, receiver)
            || pairs.any(|slow| (slow.sender, slow.receiver) == (sender, receiver))
    }

    /// Returns center and width of the pairs within hosts, or of the pairs across hosts.
    pub fn rate_spread(&self, within_host: bool) -> Option<PairSpread> {
        match within_host {
            true => self.within_hosts,
            false => self.across_hosts,
        }
    }
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

fn slow_rank(slow: &[SlowRank], rank: u32, within_host: bool) -> Option<&SlowRank> {
    let mut slow = slow.iter();
    slow.find(|one| (one.rank, one.within_host) == (rank, within_host))
}

/// A rank that is slow in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlowRank {
    /// The rank.
    pub rank: u32,
    /// Median of the rank's rates / median of all rates of the same kind of path.
    pub of_median: f64,
    /// True if the rank is slow with ranks on its own host, false if it is slow with ranks on other hosts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub within_host: bool,
}

/// A pair that is slow individually.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlowPair {
    /// The sending rank.
    pub sender: u32,
    /// The receiving rank.
    pub receiver: u32,
    /// The pair's rate / median of all rates of the same kind of path.
    pub of_median: f64,
}

/// Rate from one rank to another.
#[derive(Clone, Copy)]
struct LogRate {
    sender: u32,
    receiver: u32,
    within_host: bool,
    /// Logarithm of the rate / median of its kind of path; minus infinity if the pair moved nothing.
    below: f64,
    /// Threshold: the rate is slow if `below` is less than this.
    slow: f64,
}

impl LogRate {
    fn is_slow(&self) -> bool {
        self.below < self.slow
    }
}

/// Judges the pairs of a matrix of `ranks` ranks. If `reads`, bytes flow towards the initiator, so the initiator is the
/// receiver. `None` if no pair moved any bytes.
pub fn judge(ranks: u32, pairs: &[PairRate], reads: bool) -> Option<MatrixVerdict> {
    let mut rates = Vec::with_capacity(pairs.len());
    let mut unclear = (ranks < RANKS_MIN).then_some(Unclear::FewRanks);
    let mut on_one_cpu = 0;
    let mut kind = |within_host| {
        let of_kind = pairs.iter().filter(|pair| pair.within_host == within_host);
        let mut of_kind: Vec<&PairRate> = of_kind.collect();
        if are_slowed_by_cpus(&of_kind) {
            let all = of_kind.len();
            of_kind.retain(|pair| !pair.shares_cpu);
            on_one_cpu += (all - of_kind.len()) as u32;
        }
        let spread = spread_of_rates(&of_kind)?;
        let compared = compare(&of_kind, spread, reads);
        unclear = unclear.or_else(|| why_unclear(&compared, spread));
        rates.extend(compared);
        Some(spread)
    };
    let (across_hosts, within_hosts) = (kind(false), kind(true));
    across_hosts.or(within_hosts)?;
    let [slow_senders, slow_receivers] = match unclear {
        Some(Unclear::FewRanks) => [Vec::new(), Vec::new()],
        _ => slow_ranks(ranks, &rates),
    };
    Some(MatrixVerdict {
        across_hosts,
        within_hosts,
        slow_pairs: slow_pairs(&rates, &slow_senders, &slow_receivers),
        slow_senders,
        slow_receivers,
        on_one_cpu,
        unclear,
    })
}

/// Returns whether the pairs that share a CPU are slow as a group, compared with the other pairs of the same kind.
fn are_slowed_by_cpus(pairs: &[&PairRate]) -> bool {
    let median = |shares_cpu| {
        let pairs = pairs.iter().filter(|pair| pair.shares_cpu == shares_cpu);
        upper_median(pairs.map(|pair| pair.bandwidth_bytes_per_s_max))
    };
    let medians = median(true).zip(median(false));
    medians.is_some_and(|(shared, own)| SLOW_FACTOR * shared < own)
}

/// Returns center and width of the rates of one kind of path; `None` if the pairs moved nothing.
fn spread_of_rates(pairs: &[&PairRate]) -> Option<PairSpread> {
    let rates = pairs.iter().map(|pair| pair.bandwidth_bytes_per_s_max);
    let logs: Vec<f64> = rates.filter(|rate| *rate > 0.0).map(f64::ln).collect();
    // If exactly half of the pairs are slow, the upper median is a rate of the faster half.
    let median = upper_median(logs.iter().copied())?;
    let deviations = logs.iter().map(|log| -(log - median).abs());
    Some(PairSpread {
        median_bytes_per_s: median.exp(),
        width_fraction: MAD_SCALE * -upper_median(deviations)?,
    })
}

/// Returns the logarithm below which a rate, relative to the median, is slow.
fn slow_threshold(spread: PairSpread) -> f64 {
    -SLOW_FACTOR.ln().max(SLOW_WIDTHS * spread.width_fraction)
}

fn compare(pairs: &[&PairRate], spread: PairSpread, reads: bool) -> Vec<LogRate> {
    let rate = |pair: &&PairRate| {
        let (sender, receiver) = pair.direction(reads);
        LogRate {
            sender,
            receiver,
            within_host: pair.within_host,
            below: (pair.bandwidth_bytes_per_s_max / spread.median_bytes_per_s).ln(),
            slow: slow_threshold(spread),
        }
    };
    pairs.iter().map(rate).collect()
}

/// Returns why the rates of one kind of path don't identify slow ranks or pairs; `None` if they do.
fn why_unclear(rates: &[LogRate], spread: PairSpread) -> Option<Unclear> {
    // If only rates below a third of the median would count as slow, slow pairs cannot be distinguished from noise.
    if -slow_threshold(spread) > 3f64.ln() {
        return Some(Unclear::WideRates);
    }
    let fast = rates.iter().filter(|rate| rate.below > -rate.slow).count();
    let most = fast as f64 >= FAST_FRACTION * rates.len() as f64;
    most.then_some(Unclear::MostAreSlow)
}

fn slow_pairs(rates: &[LogRate], senders: &[SlowRank], receivers: &[SlowRank]) -> Vec<SlowPair> {
    let slow = rates.iter().filter(|rate| {
        let of = |slow: &[SlowRank], rank| {
            let known = slow_rank(slow, rank, rate.within_host);
            known.map_or(0.0, |known| known.of_median.ln())
        };
        // If one rank of the pair is slow, the pair is expected to be as slow as that rank. If both are slow, it is
        // expected to be as slow as the slower one.
        let expected = of(senders, rate.sender).min(of(receivers, rate.receiver));
        let enough = match expected < 0.0 {
            true => rate.slow.min(-SLOW_AGAIN_FACTOR.ln()),
            false => rate.slow,
        };
        rate.below - expected < enough
    });
    let pairs = slow.map(|rate| SlowPair {
        sender: rate.sender,
        receiver: rate.receiver,
        of_median: rate.below.exp(),
    });
    pairs.collect()
}

/// Functions that return the two ends of a rate: the sender and the receiver.
const ENDS: [fn(&LogRate) -> u32; 2] = [|rate| rate.sender, |rate| rate.receiver];

/// Summary of one rank's rates as sender or as receiver, with ranks either on its own host or on other hosts.
#[derive(Default, Clone)]
struct RankRates {
    median_below: f64,
    all: u32,
    slow: u32,
}

impl RankRates {
    fn are_slow(&self) -> bool {
        // A single pair is not evidence about its rank.
        self.all > 1 && f64::from(self.slow) >= SLOW_PAIRS_FRACTION * f64::from(self.all)
    }
}

/// Returns the slow senders and the slow receivers, each in the order of ranks.
fn slow_ranks(ranks: u32, rates: &[LogRate]) -> [Vec<SlowRank>; 2] {
    let mut marked = [Vec::new(), Vec::new()];
    for within_host in [false, true] {
        let of_kind = rates.iter().filter(|rate| rate.within_host == within_host);
        let mut open: Vec<LogRate> = of_kind.copied().collect();
        let mut known = ENDS.map(|end| rates_of_ranks(ranks, &open, end));
        while let Some((at, rank)) = slowest(&known) {
            marked[at].push(SlowRank {
                rank,
                of_median: known[at][rank as usize].median_below.exp(),
                within_host,
            });
            let (its, others) = open.into_iter().partition(|rate| ENDS[at](rate) == rank);
            open = others;
            exclude_rank(&its, &mut known);
        }
    }
    for list in &mut marked {
        list.sort_by_key(|slow: &SlowRank| slow.rank);
    }
    marked
}

fn rates_of_ranks(ranks: u32, rates: &[LogRate], end: fn(&LogRate) -> u32) -> Vec<RankRates> {
    let mut of_ranks: Vec<Vec<&LogRate>> = vec![Vec::new(); ranks as usize];
    for rate in rates {
        if let Some(its) = of_ranks.get_mut(end(rate) as usize) {
            its.push(rate);
        }
    }
    let known = of_ranks.iter().map(|rates| RankRates {
        median_below: upper_median(rates.iter().map(|rate| rate.below)).unwrap_or(0.0),
        all: rates.len() as u32,
        slow: rates.iter().filter(|rate| rate.is_slow()).count() as u32,
    });
    known.collect()
}

/// Returns the end (sender or receiver) and the number of the slowest rank that is slow.
fn slowest(known: &[Vec<RankRates>; 2]) -> Option<(usize, u32)> {
    let ends = known.iter().enumerate();
    let all = ends.flat_map(|(at, ranks)| (0u32..).zip(ranks).map(move |known| (at, known)));
    let slow = all.filter(|(_, (_, rates))| rates.are_slow());
    let below = |rates: &RankRates| rates.median_below;
    let found = slow.min_by(|(_, (_, one)), (_, (_, other))| below(one).total_cmp(&below(other)));
    found.map(|(at, (rank, _))| (at, rank))
}

/// Removes the rates of a marked rank from the counts of all senders and all receivers.
fn exclude_rank(rates: &[LogRate], known: &mut [Vec<RankRates>; 2]) {
    for rate in rates {
        for (known, end) in known.iter_mut().zip(ENDS) {
            if let Some(rank) = known.get_mut(end(rate) as usize) {
                rank.all -= 1;
                rank.slow -= u32::from(rate.is_slow());
            }
        }
    }
}

/// Returns the median; for an even number of values the larger of the two in the middle.
fn upper_median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests;
