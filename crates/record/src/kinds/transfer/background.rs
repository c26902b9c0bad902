//! A latency with and without the load of a background beside it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::{Latency, LatencyHistogram};
use crate::spread::{Spread, spread};

/// Latency of one half of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialLatency {
    /// Number of samples.
    pub samples: u64,
    /// Mean over them.
    pub latency_ns_mean: f64,
    /// Median.
    pub latency_ns_p50: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
}

impl TrialLatency {
    /// Figures of a histogram; `None` of an empty one.
    pub fn of(histogram: &LatencyHistogram) -> Option<Self> {
        Some(Self {
            samples: histogram.count(),
            latency_ns_mean: histogram.mean_ns()?,
            latency_ns_p50: histogram.quantile_ns(0.5)?,
            latency_ns_p99: histogram.quantile_ns(0.99)?,
        })
    }
}

/// Background of one trial, whose own figures are those beside the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// The latency before it, without the load.
    pub idle: TrialLatency,
    /// The latency beside it.
    pub loaded: TrialLatency,
}

impl TrialBackground {
    /// Median latency beside the load / without it.
    pub fn ratio_p50(&self) -> f64 {
        self.loaded.latency_ns_p50 as f64 / self.idle.latency_ns_p50.max(1) as f64
    }

    /// 99th percentile beside the load / without it.
    pub fn ratio_p99(&self) -> f64 {
        self.loaded.latency_ns_p99 as f64 / self.idle.latency_ns_p99.max(1) as f64
    }
}

/// Backgrounds of all trials taken together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackgroundSummary {
    /// Operations of all trials.
    pub operations: u64,
    /// Payload bytes of all trials.
    pub payload_bytes: u64,
    /// Bandwidth over the trials.
    pub bandwidth_bytes_per_s: Spread,
    /// Latency without the load.
    pub idle: Latency,
    /// Mean latency beside the load / without it, of each trial.
    pub latency_ratio_mean: Spread,
    /// Median beside the load / without it, of each trial.
    pub latency_ratio_p50: Spread,
    /// 99th percentile beside the load / without it, of each trial.
    pub latency_ratio_p99: Spread,
}

impl BackgroundSummary {
    /// Takes the trials together; `idle` is the latency of all of them without the load.
    pub fn of(trials: &[&TrialBackground], idle: Latency) -> Self {
        let over = |value: fn(&TrialBackground) -> f64| {
            let values: Vec<f64> = trials.iter().map(|trial| value(trial)).collect();
            spread(&values)
        };
        Self {
            operations: trials.iter().map(|trial| trial.operations).sum(),
            payload_bytes: trials.iter().map(|trial| trial.payload_bytes).sum(),
            bandwidth_bytes_per_s: over(|trial| trial.bandwidth_bytes_per_s),
            idle,
            latency_ratio_mean: over(|trial| {
                trial.loaded.latency_ns_mean / trial.idle.latency_ns_mean.max(1.0)
            }),
            latency_ratio_p50: over(TrialBackground::ratio_p50),
            latency_ratio_p99: over(TrialBackground::ratio_p99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LatencyKind;

    #[test]
    fn ratios_are_of_the_halves_of_a_trial() {
        let half = |latency_ns_p50| TrialLatency {
            samples: 10,
            latency_ns_mean: 2.0 * latency_ns_p50 as f64,
            latency_ns_p50,
            latency_ns_p99: 10 * latency_ns_p50,
        };
        let trial = |idle_ns, loaded_ns| TrialBackground {
            window_ns: 1000,
            operations: 4,
            payload_bytes: 4000,
            bandwidth_bytes_per_s: 4e9,
            verified_bytes: None,
            idle: half(idle_ns),
            loaded: half(loaded_ns),
        };
        // A machine that is slow for a while is so in both halves of a trial.
        let trials = [trial(100, 400), trial(200, 800), trial(100, 400)];
        let mut histogram = LatencyHistogram::new();
        histogram.record(100);
        let idle = histogram.summary(LatencyKind::OneWay).unwrap();
        let all = BackgroundSummary::of(&trials.each_ref(), idle);
        assert_eq!((all.operations, all.payload_bytes), (12, 12_000));
        for ratio in [
            all.latency_ratio_mean,
            all.latency_ratio_p50,
            all.latency_ratio_p99,
        ] {
            assert_eq!((ratio.mean, ratio.ci95), (4.0, Some(0.0)));
        }
        assert_eq!(TrialLatency::of(&LatencyHistogram::new()), None);
        assert_eq!(TrialLatency::of(&histogram).unwrap().latency_ns_p99, 100);
    }
}
