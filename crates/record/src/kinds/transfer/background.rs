//! Latency with and without a background load.

use serde::{Deserialize, Serialize};

use super::Stall;
use crate::figures::Value;
use crate::histogram::Latency;
use crate::spread::{GeometricSpread, Spread, spread};
use tonnage_units::histogram::{LatencyHistogram, LowerBounds};

tonnage_units::names! {
    /// CPUs of the threads that measure latency under load.
    pub enum CpuSharing: "CPUs of measuring threads" {
        /// Each measuring thread has its own CPU.
        Own = "own",
        /// Some measuring threads share a CPU with threads of the load. The latency under load then measures the
        /// scheduler, not the path.
        WithLoad = "with-load",
        /// Some measuring threads share a CPU with each other. The latency without load then also measures the
        /// scheduler.
        Together = "together",
    }
}

/// Latency in one half of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialLatency {
    /// Number of samples.
    pub samples: u64,
    /// Mean latency.
    pub latency_ns_mean: f64,
    /// Median.
    pub latency_ns_p50: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// Marks some of these figures as lower bounds; absent if all figures are exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bounds: Option<LowerBounds>,
}

impl TrialLatency {
    /// Computes the figures of a histogram; `None` if it is empty.
    pub fn summarize(histogram: &LatencyHistogram) -> Option<Self> {
        Some(Self {
            samples: histogram.count(),
            latency_ns_mean: histogram.mean_ns()?,
            latency_ns_p50: histogram.quantile_ns(0.5)?,
            latency_ns_p99: histogram.quantile_ns(0.99)?,
            lower_bounds: histogram.lower_bounds(),
        })
    }

    /// Returns whether this percentile is a lower bound.
    fn has_bound(&self, of: fn(&Self) -> u64) -> bool {
        self.lower_bounds
            .is_some_and(|bounds| bounds.has_percentile(of(self)))
    }
}

/// Background load of one trial. The other figures of the trial were measured under this load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialBackground {
    /// Measured interval of the load: from its start to its last completion, including the closing flush.
    pub window_ns: u64,
    /// Operations completed.
    pub operations: u64,
    /// Payload bytes of those operations.
    pub payload_bytes: u64,
    /// `payload_bytes` / measured interval.
    pub bandwidth_bytes_per_s: f64,
    /// Bytes that were verified after the trial; absent without `--verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_bytes: Option<u64>,
    /// Longest stall of the load, if the load had a rate and stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
    /// Latency without load, from the other half of the trial.
    pub idle: TrialLatency,
    /// Latency under load.
    pub loaded: TrialLatency,
}

impl TrialBackground {
    /// Returns the median latency under load / without load.
    pub fn ratio_p50(&self) -> f64 {
        let [idle_ns, loaded_ns] = self.halves(|half| half.latency_ns_p50);
        loaded_ns / idle_ns
    }

    /// Returns the 99th percentile under load / without load.
    pub fn ratio_p99(&self) -> f64 {
        let [idle_ns, loaded_ns] = self.halves(|half| half.latency_ns_p99);
        loaded_ns / idle_ns
    }

    /// Returns a latency without and under load. A latency below one nanosecond counts as one.
    fn halves(&self, of: fn(&TrialLatency) -> u64) -> [f64; 2] {
        [&self.idle, &self.loaded].map(|half| of(half).max(1) as f64)
    }
}

/// A latency under load and without load, over the trials.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadedLatency {
    /// Without load: geometric mean over the trials.
    pub idle_latency_ns: f64,
    /// Under load: geometric mean over the trials.
    pub loaded_latency_ns: f64,
    /// `loaded_latency_ns` / `idle_latency_ns`, with its confidence interval. Equals the geometric mean of the trials'
    /// ratios.
    pub ratio: GeometricSpread,
    /// True if the latency without load is a lower bound in some trial.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle_at_least: bool,
    /// True if the latency under load is a lower bound in some trial.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loaded_at_least: bool,
}

impl LoadedLatency {
    /// Returns the latency without load.
    pub(super) fn idle(&self) -> Value {
        Value::Number(self.idle_latency_ns).lower_bound_if(self.idle_at_least)
    }

    /// Returns the latency under load.
    pub(super) fn loaded(&self) -> Value {
        Value::Number(self.loaded_latency_ns).lower_bound_if(self.loaded_at_least)
    }

    /// Returns the ratio. If the latency without load is a lower bound, the ratio is unknown. If only the latency under
    /// load is one, the ratio is a lower bound too.
    pub(super) fn ratio(&self) -> Value {
        match self.idle_at_least {
            true => Value::Unknown,
            false => Value::Number(self.ratio.mean).lower_bound_if(self.loaded_at_least),
        }
    }

    /// Combines one latency over the trials; `None` without trials.
    fn from_trials(trials: &[&TrialBackground], latency: fn(&TrialLatency) -> u64) -> Option<Self> {
        let is_bound = |half: fn(&TrialBackground) -> &TrialLatency| {
            trials.iter().any(|trial| half(trial).has_bound(latency))
        };
        let over = |value: &dyn Fn([f64; 2]) -> f64| {
            let halves = trials.iter().map(|trial| trial.halves(latency));
            GeometricSpread::from_values(&halves.map(value).collect::<Vec<_>>())
        };
        Some(Self {
            idle_latency_ns: over(&|[idle, _]| idle)?.mean,
            loaded_latency_ns: over(&|[_, loaded]| loaded)?.mean,
            ratio: over(&|[idle, loaded]| loaded / idle)?,
            idle_at_least: is_bound(|trial| &trial.idle),
            loaded_at_least: is_bound(|trial| &trial.loaded),
        })
    }
}

/// Summary of the backgrounds of all trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackgroundSummary {
    /// Operations of all trials.
    pub operations: u64,
    /// Payload bytes of all trials.
    pub payload_bytes: u64,
    /// Bandwidth over the trials.
    pub bandwidth_bytes_per_s: Spread,
    /// Latency without load over all trials; absent for a point that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Latency>,
    /// Median latency.
    pub p50: LoadedLatency,
    /// 99th percentile of the latency.
    pub p99: LoadedLatency,
}

impl BackgroundSummary {
    /// Summarizes the trials; `None` without trials. `idle` is the latency without load over all trials.
    pub fn from_trials(trials: &[&TrialBackground], idle: Option<Latency>) -> Option<Self> {
        let bandwidths: Vec<f64> = trials
            .iter()
            .map(|trial| trial.bandwidth_bytes_per_s)
            .collect();
        Some(Self {
            operations: trials.iter().map(|trial| trial.operations).sum(),
            payload_bytes: trials.iter().map(|trial| trial.payload_bytes).sum(),
            bandwidth_bytes_per_s: spread(&bandwidths),
            idle,
            p50: LoadedLatency::from_trials(trials, |half| half.latency_ns_p50)?,
            p99: LoadedLatency::from_trials(trials, |half| half.latency_ns_p99)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(latency_ns_p50: u64) -> TrialLatency {
        TrialLatency {
            samples: 10,
            latency_ns_mean: 2.0 * latency_ns_p50 as f64,
            latency_ns_p50,
            latency_ns_p99: 10 * latency_ns_p50,
            lower_bounds: None,
        }
    }

    fn trial(idle_ns: u64, loaded_ns: u64) -> TrialBackground {
        TrialBackground {
            window_ns: 1000,
            operations: 4,
            payload_bytes: 4000,
            bandwidth_bytes_per_s: 4e9,
            verified_bytes: None,
            stall: None,
            idle: half(idle_ns),
            loaded: half(loaded_ns),
        }
    }

    fn summary(trials: &[TrialBackground]) -> BackgroundSummary {
        BackgroundSummary::from_trials(&trials.iter().collect::<Vec<_>>(), None).unwrap()
    }

    #[test]
    fn ratios_are_of_the_halves_of_a_trial() {
        // If a machine is slow for a while, both halves of a trial are slow, and their ratio does not change.
        let all = summary(&[trial(100, 400), trial(200, 800), trial(100, 400)]);
        assert_eq!((all.operations, all.payload_bytes), (12, 12_000));
        for LoadedLatency { ratio, .. } in [all.p50, all.p99] {
            let [mean, low, high] = [Some(ratio.mean), ratio.low, ratio.high].map(Option::unwrap);
            assert!((mean - 4.0).abs() < 1e-9 && (high - low).abs() < 1e-9);
        }
        assert_eq!(BackgroundSummary::from_trials(&[], None), None);
        assert_eq!(TrialLatency::summarize(&LatencyHistogram::new()), None);
    }

    /// Trials of a disturbed machine. The mean of their ratios would be 6.6, although the two latencies are 1066 and
    /// 1336.
    #[test]
    fn a_ratio_is_the_quotient_of_its_two_latencies() {
        let all = summary(&[trial(1000, 1100), trial(50, 1250), trial(1300, 1350)]);
        let LoadedLatency {
            idle_latency_ns,
            loaded_latency_ns,
            ratio,
            ..
        } = all.p50;
        assert!((ratio.mean - loaded_latency_ns / idle_latency_ns).abs() < 1e-9);
        let [low, high] = [ratio.low, ratio.high].map(Option::unwrap);
        assert!(
            0.0 < low && low < ratio.mean && ratio.mean < high,
            "{ratio:?}"
        );
    }
}
