//! The latencies of one worker, or of many together: a histogram of fixed size with exact extremes. Timed loops record
//! each operation, so [`LatencyHistogram::record`] is inlined there. The figures that records take from it are in
//! `tonnage_record`.

mod hdr_v2;

use std::fmt;

use hdrhistogram::Histogram;

use crate::{Error, Result};
pub use hdr_v2::BYTES_MAX as HDR_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// Encoded size of the exact figures, which precede the bins: count, minimum, maximum, sum, number of unfinished
/// operations and the shortest wait of one.
const EXACT_BYTES: usize = 8 + 8 + 8 + 16 + 8 + 8;

/// Maximum length of the output of [`LatencyHistogram::encode`]; [`LatencyHistogram::decode`] refuses longer input.
pub const ENCODED_BYTES_MAX: usize = EXACT_BYTES + hdr_v2::BYTES_MAX;

/// Which figures of a histogram are lower bounds, because some true latencies are longer than recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LowerBounds {
    /// Number of operations that were due and never ended. The latency of each is counted as its wait from its due time
    /// to the end of the trial. If there are any, the mean and the largest latency are lower bounds.
    pub unfinished: u64,
    /// Percentiles of at least this value are lower bounds. They either include unfinished operations, or exceed the
    /// histogram's range of 60 s.
    pub from_ns: u64,
}

impl LowerBounds {
    /// Returns whether a percentile is a lower bound.
    pub fn has_percentile(&self, latency_ns: u64) -> bool {
        latency_ns >= self.from_ns
    }

    /// Returns whether the mean and the largest latency are lower bounds.
    pub fn has_extremes(&self) -> bool {
        self.unfinished > 0
    }
}

/// Operations that were due at a steady rate and never ended. Their waits up to the end of the trial are evenly spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// Number of operations, at least 1.
    pub count: u64,
    /// Wait of the operation that was due last.
    pub shortest_ns: u64,
    /// Wait of the operation that was due first.
    pub longest_ns: u64,
}

impl Unfinished {
    /// Returns the number of operations that had waited for `ns` or less.
    fn up_to(&self, ns: u64) -> u64 {
        let steps = u128::from(self.count - 1);
        let span_ns = u128::from(self.longest_ns - self.shortest_ns);
        match ns.checked_sub(self.shortest_ns) {
            None => 0,
            Some(_) if ns >= self.longest_ns => self.count,
            Some(above_ns) => (u128::from(above_ns) * steps / span_ns) as u64 + 1,
        }
    }

    fn sum_ns(&self) -> u128 {
        let both_ns = u128::from(self.shortest_ns) + u128::from(self.longest_ns);
        u128::from(self.count) * both_ns / 2
    }
}

/// Latencies as counts of the bins of a [`LatencyHistogram`], with the exact figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BinnedLatencies {
    /// Count of each bin.
    pub bins: Vec<u64>,
    /// Number of latencies.
    pub samples: u64,
    /// The smallest latency.
    pub min_ns: u64,
    /// The largest latency.
    pub max_ns: u64,
    /// Sum of the latencies.
    pub sum_ns: u64,
}

impl BinnedLatencies {
    pub fn merge(&mut self, other: &Self) {
        if other.samples == 0 {
            return;
        }
        self.min_ns = match self.samples {
            0 => other.min_ns,
            _ => self.min_ns.min(other.min_ns),
        };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.samples += other.samples;
        self.sum_ns += other.sum_ns;
        self.bins.resize(self.bins.len().max(other.bins.len()), 0);
        let bins = self.bins.iter_mut().zip(&other.bins);
        bins.for_each(|(all, more)| *all += more);
    }
}

/// Latencies in nanoseconds: bins of three significant digits from 1 ns to 60 s, allocated once. Count, minimum,
/// maximum and sum are kept exactly, also for longer latencies.
#[derive(Clone)]
pub struct LatencyHistogram {
    bins: Histogram<u64>,
    exact: ExactFigures,
}

/// Prints only the exact figures, because the bins would fill many screens.
impl fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatencyHistogram")
            .field("exact", &self.exact)
            .finish_non_exhaustive()
    }
}

/// Exact figures that the bins would round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ExactFigures {
    count: u64,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
    /// Number of unfinished operations. Their samples are lower bounds.
    unfinished: u64,
    /// Shortest wait of an unfinished operation; `u64::MAX` if there are none.
    least_unfinished_ns: u64,
}

impl ExactFigures {
    const EMPTY: Self = Self {
        count: 0,
        min_ns: u64::MAX,
        max_ns: 0,
        sum_ns: 0,
        unfinished: 0,
        least_unfinished_ns: u64::MAX,
    };

    /// Figures of `count` latencies with the same value.
    fn of_equal_values(value_ns: u64, count: u64) -> Self {
        Self {
            count,
            min_ns: value_ns,
            max_ns: value_ns,
            sum_ns: u128::from(value_ns) * u128::from(count),
            ..Self::EMPTY
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.unfinished = self.unfinished.saturating_add(other.unfinished);
        self.least_unfinished_ns = self.least_unfinished_ns.min(other.least_unfinished_ns);
    }

    fn to_bytes(self) -> [u8; EXACT_BYTES] {
        let mut bytes = [0; EXACT_BYTES];
        bytes[0..8].copy_from_slice(&self.count.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.min_ns.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.max_ns.to_be_bytes());
        bytes[24..40].copy_from_slice(&self.sum_ns.to_be_bytes());
        bytes[40..48].copy_from_slice(&self.unfinished.to_be_bytes());
        bytes[48..56].copy_from_slice(&self.least_unfinished_ns.to_be_bytes());
        bytes
    }

    /// Reads the figures from the front of a slice, and returns the rest of it. `None` if the slice is too short.
    fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (count, rest) = bytes.split_first_chunk()?;
        let (min_ns, rest) = rest.split_first_chunk()?;
        let (max_ns, rest) = rest.split_first_chunk()?;
        let (sum_ns, rest) = rest.split_first_chunk()?;
        let (unfinished, rest) = rest.split_first_chunk()?;
        let (least_unfinished_ns, rest) = rest.split_first_chunk()?;
        let exact = Self {
            count: u64::from_be_bytes(*count),
            min_ns: u64::from_be_bytes(*min_ns),
            max_ns: u64::from_be_bytes(*max_ns),
            sum_ns: u128::from_be_bytes(*sum_ns),
            unfinished: u64::from_be_bytes(*unfinished),
            least_unfinished_ns: u64::from_be_bytes(*least_unfinished_ns),
        };
        Some((exact, rest))
    }

    /// Returns whether these figures are consistent with the counts of the bins.
    fn agrees_with(&self, pairs: &[(usize, u64)]) -> bool {
        let (Some((first, _)), Some((last, _))) = (pairs.first(), pairs.last()) else {
            return *self == Self::EMPTY;
        };
        let samples = u128::from(self.count);
        self.count == pairs.iter().map(|(_, count)| count).sum::<u64>()
            && hdr_v2::index_of(self.min_ns.min(hdr_v2::HIGH_NS)) == *first
            && hdr_v2::index_of(self.max_ns.min(hdr_v2::HIGH_NS)) == *last
            // If there are samples, these two conditions also imply that the minimum does not exceed the maximum.
            && samples * u128::from(self.min_ns) <= self.sum_ns
            && self.sum_ns <= samples * u128::from(self.max_ns)
            && match self.unfinished {
                0 => self.least_unfinished_ns == u64::MAX,
                unfinished => {
                    unfinished <= self.count
                        && (self.min_ns..=self.max_ns).contains(&self.least_unfinished_ns)
                }
            }
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl LatencyHistogram {
    /// An empty histogram with all its memory (216 KiB) allocated.
    pub fn new() -> Self {
        match Histogram::new_with_bounds(hdr_v2::LOW_NS, hdr_v2::HIGH_NS, hdr_v2::DIGITS) {
            Ok(bins) => Self {
                bins,
                exact: ExactFigures::EMPTY,
            },
            // `new_with_bounds` only refuses bounds that contradict each other; these constants do not.
            Err(_) => unreachable!(),
        }
    }

    /// Counts one latency, without allocating or failing. A latency above 60 s goes into the last bin; the exact
    /// figures include its true value.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.bins.saturating_record(latency_ns.min(hdr_v2::HIGH_NS));
        self.exact.count += 1;
        self.exact.min_ns = self.exact.min_ns.min(latency_ns);
        self.exact.max_ns = self.exact.max_ns.max(latency_ns);
        self.exact.sum_ns += u128::from(latency_ns);
    }

    /// Counts operations that never ended. The wait of each is a lower bound of its latency.
    pub fn record_unfinished(&mut self, waits: &Unfinished) {
        if waits.count == 0 {
            return;
        }
        let high_ns = |ns: u64| ns.min(hdr_v2::HIGH_NS);
        let bins = hdr_v2::index_of(high_ns(waits.shortest_ns))
            ..=hdr_v2::index_of(high_ns(waits.longest_ns));
        let (last, mut before) = (*bins.end(), 0);
        for index in bins {
            let up_to = match index == last {
                true => waits.count,
                false => waits.up_to(hdr_v2::value_of(index + 1) - 1),
            };
            if up_to > before {
                let value_ns = high_ns(hdr_v2::value_of(index));
                self.bins.saturating_record_n(value_ns, up_to - before);
            }
            before = up_to;
        }
        self.exact.merge(&ExactFigures {
            count: waits.count,
            min_ns: waits.shortest_ns,
            max_ns: waits.longest_ns,
            sum_ns: waits.sum_ns(),
            unfinished: waits.count,
            least_unfinished_ns: waits.shortest_ns,
        });
    }

    /// Returns which figures are lower bounds; `None` if none is.
    pub fn lower_bounds(&self) -> Option<LowerBounds> {
        let bin_ns = |ns: u64| self.bins.lowest_equivalent(ns.min(hdr_v2::HIGH_NS));
        let unfinished =
            (self.exact.unfinished > 0).then(|| bin_ns(self.exact.least_unfinished_ns));
        // Samples above 60 s share the last bin, so a percentile in that bin is a lower bound.
        let beyond = (self.exact.max_ns > hdr_v2::HIGH_NS).then(|| bin_ns(hdr_v2::HIGH_NS));
        Some(LowerBounds {
            unfinished: self.exact.unfinished,
            from_ns: unfinished.into_iter().chain(beyond).min()?,
        })
    }

    /// Number of latencies that are lower bounds.
    pub fn unfinished(&self) -> u64 {
        self.exact.unfinished
    }

    /// Number of latencies.
    pub fn count(&self) -> u64 {
        self.exact.count
    }

    /// The smallest latency, exact; `None` when empty.
    pub fn min_ns(&self) -> Option<u64> {
        (self.exact.count > 0).then_some(self.exact.min_ns)
    }

    /// The largest latency, exact; `None` when empty.
    pub fn max_ns(&self) -> Option<u64> {
        (self.exact.count > 0).then_some(self.exact.max_ns)
    }

    /// The mean latency, exact; `None` when empty.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.exact.count > 0).then(|| self.exact.sum_ns as f64 / self.exact.count as f64)
    }

    /// Returns the latency that a fraction `quantile` (0.0 to 1.0) of all samples does not exceed; `None` when empty.
    /// It has three digits and is never outside the exact extremes. If it is a lower bound, it is the lower end of its
    /// bin.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let mut value = self.bins.value_at_quantile(quantile);
        if self
            .lower_bounds()
            .is_some_and(|bounds| bounds.has_percentile(value))
        {
            value = self.bins.lowest_equivalent(value);
        }
        (self.exact.count > 0).then(|| value.clamp(self.exact.min_ns, self.exact.max_ns))
    }

    /// Adds all latencies of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.count() == 0 {
            // Empty histograms are common, because ranks that do not initiate operations have no latencies.
            return;
        }
        for (index, count) in other.index_counts() {
            self.bins
                .saturating_record_n(hdr_v2::value_of(index), count);
        }
        self.exact.merge(&other.exact);
    }

    /// Removes all latencies, but keeps the memory.
    pub fn clear(&mut self) {
        if self.count() > 0 {
            self.bins.reset();
        }
        self.exact = ExactFigures::EMPTY;
    }

    /// Returns the recorded latencies, to three digits, each with its number of samples, in ascending order.
    pub fn recorded_bins(&self) -> impl Iterator<Item = (u64, u64)> {
        let bins = self.bins.iter_recorded();
        bins.map(|bin| {
            let count = bin.count_since_last_iteration();
            (self.bins.median_equivalent(bin.value_iterated_to()), count)
        })
    }

    /// Encodes the histogram and its exact figures compactly for the control channel, in at most [`ENCODED_BYTES_MAX`]
    /// bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.exact.to_bytes().to_vec();
        bytes.append(&mut hdr_v2::encode(self.index_counts()));
        bytes
    }

    /// Decodes the output of [`encode`](Self::encode).
    ///
    /// # Errors
    ///   When the bytes are invalid: wrong length or header, or figures that contradict each other.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut histogram = Self::new();
        histogram.merge_encoded(bytes)?;
        Ok(histogram)
    }

    /// Adds all latencies of an encoded histogram, the output of [`encode`](Self::encode).
    ///
    /// # Errors
    /// As for [`decode`](Self::decode); nothing is added then.
    pub fn merge_encoded(&mut self, bytes: &[u8]) -> Result<()> {
        let invalid = |why: &str| Error::Failed(format!("an encoded latency histogram {why}"));
        let (exact, rest) =
            ExactFigures::from_bytes(bytes).ok_or_else(|| invalid("is cut short"))?;
        let pairs = hdr_v2::decode(rest)?;
        if !exact.agrees_with(&pairs) {
            return Err(invalid("contradicts its own count, extremes or sum"));
        }
        for (index, count) in pairs {
            self.bins
                .saturating_record_n(hdr_v2::value_of(index), count);
        }
        self.exact.merge(&exact);
        Ok(())
    }

    /// Adds latencies that were counted elsewhere in the same bins, with their exact figures.
    pub fn merge_binned(&mut self, binned: &BinnedLatencies) {
        if binned.samples == 0 {
            return;
        }
        for (index, &count) in binned
            .bins
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            let value_ns = hdr_v2::value_of(index).min(hdr_v2::HIGH_NS);
            self.bins.saturating_record_n(value_ns, count);
        }
        self.exact.merge(&ExactFigures {
            count: binned.samples,
            min_ns: binned.min_ns,
            max_ns: binned.max_ns,
            sum_ns: binned.sum_ns.into(),
            ..ExactFigures::EMPTY
        });
    }

    /// Adds the growth of the bins' counts since `earlier`. Minimum, maximum and mean are then known to three digits
    /// only.
    pub fn add_counts(&mut self, bins: &[u64], earlier: &[u64]) {
        let earlier = earlier.iter().copied().chain(std::iter::repeat(0));
        for (index, (&count, earlier)) in bins.iter().zip(earlier).enumerate() {
            let more = count.saturating_sub(earlier);
            if more > 0 {
                let median_ns = self.bins.median_equivalent(hdr_v2::value_of(index));
                self.add_equal_values(median_ns.min(hdr_v2::HIGH_NS), more);
            }
        }
    }

    /// Adds `count` latencies of the same value, which must not exceed 60 s.
    fn add_equal_values(&mut self, value_ns: u64, count: u64) {
        self.bins.saturating_record_n(value_ns, count);
        self.exact
            .merge(&ExactFigures::of_equal_values(value_ns, count));
    }

    /// The bins in the standard HdrHistogram V2 encoding: any HDR library can read and merge them.
    pub fn to_hdr(&self) -> Vec<u8> {
        hdr_v2::encode(self.index_counts())
    }

    /// Decodes a histogram with the same bins from the HdrHistogram V2 encoding. Minimum, maximum and mean are then
    /// known to three digits only.
    ///
    /// # Errors
    /// If the encoding has other bins or is damaged.
    pub fn from_hdr(bytes: &[u8]) -> Result<Self> {
        let mut histogram = Self::new();
        for (index, count) in hdr_v2::decode(bytes)? {
            let median_ns = histogram.bins.median_equivalent(hdr_v2::value_of(index));
            histogram.add_equal_values(median_ns.min(hdr_v2::HIGH_NS), count);
        }
        Ok(histogram)
    }

    /// Returns (bin, count) of every bin that is not empty, in ascending order.
    fn index_counts(&self) -> impl Iterator<Item = (usize, u64)> {
        self.bins.iter_recorded().map(|bin| {
            (
                hdr_v2::index_of(bin.value_iterated_to()),
                bin.count_since_last_iteration(),
            )
        })
    }
}

/// Merges two encoded histograms into `left`, for reductions along the tree of ranks. An empty `left` takes `right` as
/// it is.
///
/// # Errors
/// When either is not an encoded histogram; `left` is then unchanged.
pub fn merge_encoded(left: &mut Vec<u8>, right: &[u8]) -> Result<()> {
    let mut sum = LatencyHistogram::decode(right)?;
    if !left.is_empty() {
        sum.merge(&LatencyHistogram::decode(left)?);
    }
    *left = sum.encode();
    Ok(())
}

#[cfg(test)]
mod tests;
