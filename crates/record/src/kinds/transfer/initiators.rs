//! Figures of each initiating rank by itself.

use serde::{Deserialize, Serialize};

use super::series::is_zero;

/// One initiating rank over all trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InitiatorFigures {
    /// The rank.
    pub rank: u32,
    /// Operations of all trials.
    pub operations: u64,
    /// Payload bytes of all trials.
    pub payload_bytes: u64,
    /// `payload_bytes` / the rank's own time: from the aligned start of each trial to its last completion, closing
    /// flush included.
    pub bandwidth_bytes_per_s: f64,
    /// Smallest latency; absent where none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_min: Option<u64>,
    /// Mean of its latencies; absent where none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Operations among its latencies that were due and never ended. With any, the mean is a lower bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
}
