//! A trial divided into intervals: the operations in each interval, and standstills of clients.

use serde::{Deserialize, Serialize};
use tonnage_units::quantity::human::number_at_least;

use tonnage_units::histogram::LowerBounds;

/// Operations of a trial over time, in consecutive intervals from the aligned start.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialSeries {
    /// Length of an interval; the last one ends with the trial.
    pub interval_ns: u64,
    /// Operations completed in each interval, over all clients. Their sum is the number of the trial's operations.
    pub operations: Vec<u64>,
    /// Latencies of each interval, over all clients; empty if no latencies were recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<IntervalLatency>,
    /// Operations of each client, if there are at most 16 clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientSeries>,
    /// The slowest and the fastest client of each interval, if there are more than 16 clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extremes: Vec<IntervalExtremes>,
    /// Times in which a client moved nothing for at least one whole interval, in order of their start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standstills: Vec<Standstill>,
    /// Number of standstills that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_standstills: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Maximum number of clients with their own series.
pub const SERIES_CLIENTS_MAX: usize = 16;

/// Latencies of the operations that completed in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IntervalLatency {
    /// Number of samples. If it is 0, all other figures are 0 too.
    pub samples: u64,
    /// Median.
    pub latency_ns_p50: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// Maximum.
    pub latency_ns_max: u64,
    /// Marks some of these figures as lower bounds; absent if all figures are exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bounds: Option<LowerBounds>,
}

impl IntervalLatency {
    /// Returns median, 99th percentile and maximum in microseconds, as tables print them.
    pub fn shown_us(&self) -> [String; 3] {
        let us = |ns: u64, is_bound: bool| number_at_least(ns as f64 / 1e3, is_bound);
        let is_bound = |ns| self.lower_bounds.is_some_and(|it| it.has_percentile(ns));
        let (p50, p99) = (self.latency_ns_p50, self.latency_ns_p99);
        let max_is_bound = self.lower_bounds.is_some_and(|it| it.has_extremes());
        [
            us(p50, is_bound(p50)),
            us(p99, is_bound(p99)),
            us(self.latency_ns_max, max_is_bound),
        ]
    }
}

/// Operations of one client over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientSeries {
    /// The initiating rank.
    pub rank: u32,
    /// Operations completed in each interval.
    pub operations: Vec<u64>,
}

/// The clients with the fewest and the most operations in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IntervalExtremes {
    /// The rank with the fewest operations.
    pub slowest_rank: u32,
    /// Operations of the slowest rank.
    pub slowest_operations: u64,
    /// The rank with the most operations.
    pub fastest_rank: u32,
    /// Operations of the fastest rank.
    pub fastest_operations: u64,
}

/// Consecutive intervals in which a client moved nothing although it still had operations to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Standstill {
    /// The client.
    pub rank: u32,
    /// Start of the first interval, from the aligned start.
    pub begin_ns: u64,
    /// End of the last interval.
    pub end_ns: u64,
}

/// A trial that did not finish, because its point failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BrokenOff {
    /// Number of the trial, starting at 1.
    pub trial: u64,
    /// Intervals up to the failure.
    pub series: TrialSeries,
}

impl TrialSeries {
    /// Returns the length of the interval with this index, in a trial of `window_ns`. Returns at least 1.
    pub fn length_ns(&self, at: usize, window_ns: u64) -> u64 {
        let begin_ns = self.interval_ns.saturating_mul(at as u64);
        let is_last = at + 1 == self.operations.len();
        let left_ns = window_ns.saturating_sub(begin_ns);
        match is_last && left_ns > 0 {
            true => left_ns,
            false => self.interval_ns.max(1),
        }
    }

    /// Returns the operations per second in each interval of a trial of `window_ns`.
    pub fn operations_per_s(&self, window_ns: u64) -> impl Iterator<Item = f64> {
        let at = self.operations.iter().enumerate();
        at.map(move |(at, &count)| count as f64 * 1e9 / self.length_ns(at, window_ns) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_interval_is_as_long_as_what_is_left() {
        let series = TrialSeries {
            interval_ns: 1_000_000_000,
            operations: vec![100, 200, 50],
            ..TrialSeries::default()
        };
        let rates: Vec<f64> = series.operations_per_s(2_500_000_000).collect();
        assert_eq!(rates, [100.0, 200.0, 100.0]);
        // With an unknown measured interval of 0, or one that ends before the last interval, all intervals count as
        // whole.
        let rates: Vec<f64> = series.operations_per_s(0).collect();
        assert_eq!(rates, [100.0, 200.0, 50.0]);
    }
}
