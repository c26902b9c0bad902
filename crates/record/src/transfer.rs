//! The body of a transfer: bytes between the memories of ranks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HistogramData, Latency, Spread};
use tonnage_plan::transfer::TransferPoint;

/// A transfer as it was asked for, and what came out of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TransferBody {
    /// The point that was asked for.
    pub point: TransferPoint,
    /// One entry for each timed repetition.
    pub trials: Vec<Trial>,
    /// The trials taken together; absent unless measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// Latencies of all operations of all trials and workers; absent where none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<HistogramData>,
}

impl TransferBody {
    /// A point before anything was measured.
    pub fn new(point: TransferPoint) -> Self {
        Self {
            point,
            trials: Vec::new(),
            summary: None,
            histogram: None,
        }
    }
}

/// One timed repetition over all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Time from the aligned start to the last completion or arrival on any rank, closing flush included.
    pub window_ns: u64,
    /// Operations completed (a round trip of a ping-pong is two).
    pub operations: u64,
    /// Payload bytes of those operations.
    pub payload_bytes: u64,
    /// `payload_bytes` / window.
    pub bandwidth_bytes_per_s: f64,
    /// `operations` / window.
    pub message_rate_per_s: f64,
    /// Mean of the latencies recorded in this trial; absent where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Smallest latency of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_min: Option<u64>,
    /// Largest latency of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_max: Option<u64>,
    /// CPU time of all initiating workers inside the window.
    pub initiator_cpu_ns: u64,
    /// CPU time of all workers that only serve.
    pub target_cpu_ns: u64,
    /// Delay of the last rank's real start after the aligned start.
    pub start_skew_ns: u64,
    /// Bytes that were checked after the trial and found right; absent without `--verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_bytes: Option<u64>,
}

/// The trials of a point taken together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Number of trials.
    pub trials: u32,
    /// Operations of all trials.
    pub operations: u64,
    /// Payload bytes of all trials.
    pub payload_bytes: u64,
    /// Bandwidth over the trials.
    pub bandwidth_bytes_per_s: Spread,
    /// Message rate over the trials.
    pub message_rate_per_s: Spread,
    /// Latency; absent where none was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Initiators' CPU time per operation.
    pub initiator_cpu_ns_per_operation: f64,
    /// Serving ranks' CPU time per operation.
    pub target_cpu_ns_per_operation: f64,
    /// Mean bandwidth / limit, 1.0 is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Paced runs: what was asked for and what was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// With `--until-ci`: true when the interval became that narrow before the time was up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converged: Option<bool>,
}

/// Offered and reached rate of a paced run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pace {
    /// Operations per second that were asked for, all initiating ranks together.
    pub offered_per_s: f64,
    /// Completed, all initiating ranks together.
    pub reached_per_s: f64,
    /// Part of the operations that were issued late because the window was full or the loop was behind.
    pub late_fraction: f64,
}
