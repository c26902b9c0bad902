//! A latency with and without the load of a background beside it.

use serde::{Deserialize, Serialize};

use super::Stall;
use crate::figures::Value;
use crate::histogram::Latency;
use crate::spread::{GeometricSpread, Spread, spread};
use tonnage_units::histogram::{LatencyHistogram, LowerBounds};

tonnage_units::names! {
    /// CPUs of the workers that measure a latency beside a load.
    pub enum MeasuringCpus: "CPUs of measuring workers" {
        /// Each has one of its own.
        Own = "own",
        /// Some share theirs with workers of the load: the latency beside it is of the scheduler, not of the path.
        WithLoad = "with-load",
        /// Some share theirs with each other: also the latency without the load is of the scheduler.
        Together = "together",
    }
}

/// Latency of one half of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialLatency {
    /// Number of samples.
    pub samples: u64,
    /// Mean over them.
    pub latency_ns_mean: f64,
    /// Median.
    pub latency_ns_p50: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// Present if some of these figures are lower bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bounds: Option<LowerBounds>,
}

impl TrialLatency {
    /// Figures of a histogram; `None` of an empty one.
    pub fn of(histogram: &LatencyHistogram) -> Option<Self> {
        Some(Self {
            samples: histogram.count(),
            latency_ns_mean: histogram.mean_ns()?,
            latency_ns_p50: histogram.quantile_ns(0.5)?,
            latency_ns_p99: histogram.quantile_ns(0.99)?,
            lower_bounds: histogram.lower_bounds(),
        })
    }

    /// Returns whether this percentile of it is a lower bound.
    fn has_bound(&self, of: fn(&Self) -> u64) -> bool {
        self.lower_bounds
            .is_some_and(|bounds| bounds.has_percentile(of(self)))
    }
}

/// Background of one trial, whose own figures are those beside the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialBackground {
    /// Time from its start to its last completion, closing flush included.
    pub window_ns: u64,
    /// Operations completed.
    pub operations: u64,
    /// Payload bytes of those operations.
    pub payload_bytes: u64,
    /// `payload_bytes` / window.
    pub bandwidth_bytes_per_s: f64,
    /// Bytes that were checked after the trial and found right; absent without `--verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_bytes: Option<u64>,
    /// Its longest stall, if it had a rate and any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
    /// The latency without the load, of the other half of the trial.
    pub idle: TrialLatency,
    /// The latency beside it.
    pub loaded: TrialLatency,
}

impl TrialBackground {
    /// Median latency beside the load / without it.
    pub fn ratio_p50(&self) -> f64 {
        let [idle_ns, loaded_ns] = self.halves(|half| half.latency_ns_p50);
        loaded_ns / idle_ns
    }

    /// 99th percentile beside the load / without it.
    pub fn ratio_p99(&self) -> f64 {
        let [idle_ns, loaded_ns] = self.halves(|half| half.latency_ns_p99);
        loaded_ns / idle_ns
    }

    /// A latency without the load and beside it. What is less than a nanosecond counts as one.
    fn halves(&self, of: fn(&TrialLatency) -> u64) -> [f64; 2] {
        [&self.idle, &self.loaded].map(|half| of(half).max(1) as f64)
    }
}

/// A latency beside a load and without it, over the trials.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadedLatency {
    /// Without the load: the geometric mean over the trials.
    pub idle_latency_ns: f64,
    /// Beside it: the geometric mean over the trials.
    pub loaded_latency_ns: f64,
    /// The second / the first, which is the geometric mean of the trials' own ratios, with its interval.
    pub ratio: GeometricSpread,
    /// True if a trial's latency without the load is a lower bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle_at_least: bool,
    /// True if a trial's latency beside the load is a lower bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loaded_at_least: bool,
}

impl LoadedLatency {
    /// The latency without the load.
    pub(super) fn idle(&self) -> Value {
        Value::Number(self.idle_latency_ns).bounded(self.idle_at_least)
    }

    /// The latency beside it.
    pub(super) fn loaded(&self) -> Value {
        Value::Number(self.loaded_latency_ns).bounded(self.loaded_at_least)
    }

    /// Their ratio: a lower bound if only the latency beside the load is one, and unknown if the other is.
    pub(super) fn ratio(&self) -> Value {
        match self.idle_at_least {
            true => Value::Unknown,
            false => Value::Number(self.ratio.mean).bounded(self.loaded_at_least),
        }
    }

    /// Takes a latency of the trials together; `None` without trials.
    fn of(trials: &[&TrialBackground], latency: fn(&TrialLatency) -> u64) -> Option<Self> {
        let is_bound = |half: fn(&TrialBackground) -> &TrialLatency| {
            trials.iter().any(|trial| half(trial).has_bound(latency))
        };
        let over = |value: &dyn Fn([f64; 2]) -> f64| {
            let halves = trials.iter().map(|trial| trial.halves(latency));
            GeometricSpread::of(&halves.map(value).collect::<Vec<_>>())
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

/// Backgrounds of trials taken together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackgroundSummary {
    /// Operations of all trials.
    pub operations: u64,
    /// Payload bytes of all trials.
    pub payload_bytes: u64,
    /// Bandwidth over the trials.
    pub bandwidth_bytes_per_s: Spread,
    /// Latency without the load, of the halves of all trials together; absent of a point that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Latency>,
    /// Median latency.
    pub p50: LoadedLatency,
    /// 99th percentile of the latency.
    pub p99: LoadedLatency,
}

impl BackgroundSummary {
    /// Takes the trials together; `None` without any. `idle` is the latency of all of them without the load.
    pub fn of(trials: &[&TrialBackground], idle: Option<Latency>) -> Option<Self> {
        let bandwidths: Vec<f64> = trials
            .iter()
            .map(|trial| trial.bandwidth_bytes_per_s)
            .collect();
        Some(Self {
            operations: trials.iter().map(|trial| trial.operations).sum(),
            payload_bytes: trials.iter().map(|trial| trial.payload_bytes).sum(),
            bandwidth_bytes_per_s: spread(&bandwidths),
            idle,
            p50: LoadedLatency::of(trials, |half| half.latency_ns_p50)?,
            p99: LoadedLatency::of(trials, |half| half.latency_ns_p99)?,
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
        BackgroundSummary::of(&trials.iter().collect::<Vec<_>>(), None).unwrap()
    }

    #[test]
    fn ratios_are_of_the_halves_of_a_trial() {
        // A machine that is slow for a while is so in both halves of a trial.
        let all = summary(&[trial(100, 400), trial(200, 800), trial(100, 400)]);
        assert_eq!((all.operations, all.payload_bytes), (12, 12_000));
        for LoadedLatency { ratio, .. } in [all.p50, all.p99] {
            let [mean, low, high] = [Some(ratio.mean), ratio.low, ratio.high].map(Option::unwrap);
            assert!((mean - 4.0).abs() < 1e-9 && (high - low).abs() < 1e-9);
        }
        assert_eq!(BackgroundSummary::of(&[], None), None);
        assert_eq!(TrialLatency::of(&LatencyHistogram::new()), None);
    }

    /// Trials of a machine that is disturbed: a mean of their ratios is 6.6, where the latencies are as 1066 to 1336.
    #[test]
    fn a_ratio_is_that_of_the_latencies_beside_it() {
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
