//! Bytes over time in bounded memory. When a time lies beyond the last interval, adjacent intervals are merged and
//! every interval becomes twice as long. Adding costs a shift and an addition.

use serde::{Deserialize, Serialize};

/// Number of intervals.
pub const INTERVALS: usize = 512;

/// Intervals are initially 2^20 ns long, about a millisecond.
const SHIFT_FIRST: u32 = 20;

/// Bytes of finished transfers per interval since a common start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    shift: u32,
    bytes: Vec<u64>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            shift: SHIFT_FIRST,
            bytes: vec![0; INTERVALS],
        }
    }
}

impl Timeline {
    /// Adds the bytes of a transfer that ended `since_start_ns` after the common start.
    #[inline]
    pub fn add(&mut self, since_start_ns: u64, bytes: u64) {
        let mut at = since_start_ns >> self.shift;
        while at >= INTERVALS as u64 {
            self.coarsen();
            at = since_start_ns >> self.shift;
        }
        self.bytes[at as usize] += bytes;
    }

    #[cold]
    fn coarsen(&mut self) {
        for at in 0..INTERVALS / 2 {
            self.bytes[at] = self.bytes[2 * at] + self.bytes[2 * at + 1];
        }
        self.bytes[INTERVALS / 2..].fill(0);
        self.shift += 1;
    }

    /// Adds the timeline of another thread or rank.
    pub fn merge(&mut self, mut other: Self) {
        while self.shift < other.shift {
            self.coarsen();
        }
        while other.shift < self.shift {
            other.coarsen();
        }
        for (mine, theirs) in self.bytes.iter_mut().zip(&other.bytes) {
            *mine += theirs;
        }
    }

    /// Estimates the bytes moved in the first `since_start_ns` of a phase that ended at `end_ns`. Assumes a constant
    /// rate within each interval.
    pub fn bytes_at(&self, since_start_ns: u64, end_ns: u64) -> u64 {
        let whole = (since_start_ns >> self.shift) as usize;
        let before: u64 = self.bytes.iter().take(whole).sum();
        let begin_ns = since_start_ns >> self.shift << self.shift;
        // The last interval ends with the phase.
        let length_ns = end_ns.saturating_sub(begin_ns).min(self.interval_ns());
        let part_ns = (since_start_ns - begin_ns).min(length_ns);
        let within = self.bytes.get(whole).copied().unwrap_or(0);
        let part = u128::from(within) * u128::from(part_ns) / u128::from(length_ns.max(1));
        before + part as u64
    }

    /// Length of one interval.
    pub fn interval_ns(&self) -> u64 {
        1 << self.shift
    }

    /// Returns the intervals up to the last one that is not empty.
    pub fn intervals(&self) -> &[u64] {
        let last = self.bytes.iter().rposition(|&bytes| bytes > 0);
        &self.bytes[..last.map_or(0, |last| last + 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_intervals_loses_no_bytes() {
        let mut timeline = Timeline::default();
        for second in 0..100u64 {
            timeline.add(second * 1_000_000_000, 10);
        }
        assert_eq!(timeline.intervals().iter().sum::<u64>(), 1000);
        assert!(timeline.interval_ns() * INTERVALS as u64 > 99_000_000_000);
        // Half of the bytes have moved in half the time, to within one interval.
        let at = |ns| timeline.bytes_at(ns, u64::MAX);
        assert!(at(49_500_000_000).abs_diff(500) <= 10);
        assert_eq!(at(u64::MAX >> 1), 1000);
    }

    #[test]
    fn merging_takes_the_longer_intervals() {
        let (mut short, mut long) = (Timeline::default(), Timeline::default());
        short.add(0, 1);
        short.add(3 << SHIFT_FIRST, 5);
        long.add(1 << 40, 7);
        let mut other = long.clone();
        other.merge(short.clone());
        short.merge(long);
        assert_eq!(short, other);
        assert_eq!(short.bytes_at(1 << 39, 1 << 41), 6);
    }

    #[test]
    fn the_last_interval_ends_with_the_phase() {
        let mut timeline = Timeline::default();
        timeline.add(1000, 10);
        timeline.add(2000, 10);
        assert_eq!(timeline.bytes_at(2000, 2000), 20);
        assert_eq!(timeline.bytes_at(1000, 2000), 10);
        assert_eq!(timeline.bytes_at(0, 2000), 0);
    }

    #[test]
    fn an_instant_within_an_interval_has_its_fraction_of_the_bytes() {
        let mut timeline = Timeline::default();
        let interval_ns = timeline.interval_ns();
        timeline.add(0, 7);
        timeline.add(interval_ns + 5, 1000);
        assert_eq!(timeline.bytes_at(interval_ns, u64::MAX), 7);
        assert_eq!(
            timeline.bytes_at(interval_ns + interval_ns / 2, u64::MAX),
            507
        );
        assert_eq!(timeline.bytes_at(2 * interval_ns, u64::MAX), 1007);
    }

    #[test]
    fn intervals_end_with_the_last_in_which_anything_ended() {
        let mut timeline = Timeline::default();
        assert!(timeline.intervals().is_empty());
        timeline.add(2 * timeline.interval_ns(), 7);
        assert_eq!(timeline.intervals(), [0, 0, 7]);
    }
}
