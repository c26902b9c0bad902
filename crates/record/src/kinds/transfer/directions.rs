//! Pairs that move bytes in both directions at once: each direction by itself.

use serde::{Deserialize, Serialize};

use super::series::is_zero;

use crate::spread::Spread;

/// Both directions of a trial, over the same window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialDirections {
    /// Operations of the first ranks of the pairs.
    pub forward: TrialDirection,
    /// Operations of the ranks behind them.
    pub back: TrialDirection,
}

/// One direction of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialDirection {
    /// Operations completed.
    pub operations: u64,
    /// Their payload bytes.
    pub payload_bytes: u64,
    /// `payload_bytes` / window of the trial, so that both directions add up to the trial's bandwidth.
    pub bandwidth_bytes_per_s: f64,
}

/// Both directions over all trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Directions {
    /// Operations of the first ranks of the pairs.
    pub forward: PairDirection,
    /// Operations of the ranks behind them.
    pub back: PairDirection,
}

/// One direction over all trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairDirection {
    /// Operations of all trials.
    pub operations: u64,
    /// Payload bytes of all trials.
    pub payload_bytes: u64,
    /// Bandwidth over the trials.
    pub bandwidth_bytes_per_s: Spread,
    /// Mean of its latencies; absent where none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Operations among its latencies that were due and never ended. With any, the mean is a lower bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
}
