//! Rates of pairs that take turns, or have the loads of a file.

use serde::{Deserialize, Serialize};

use super::series::is_zero;

/// One pair of ranks that had the path for itself in its turn, or one with a load of a file, whose bytes and rates are
/// those of the trials, in which all pairs move theirs at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairRate {
    /// The rank that initiated.
    pub initiator: u32,
    /// The other one.
    pub target: u32,
    /// True where both are on one host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub within_host: bool,
    /// True where workers of both are on one CPU, so that they take turns on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_cpu: bool,
    /// Payload bytes of all its turns.
    #[serde(default)]
    pub payload_bytes: u64,
    /// Payload bytes of all its turns / their time.
    pub bandwidth_bytes_per_s: f64,
    /// Rate of its best turn.
    #[serde(default)]
    pub bandwidth_bytes_per_s_max: f64,
    /// Time from the aligned start until its load had arrived in a turn for itself, nanoseconds: the median of as many
    /// turns as trials. Only of loads of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns_alone: Option<f64>,
    /// Median of that time over the trials, beside the other pairs. Only of loads of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns_together: Option<f64>,
    /// Mean of its latencies; absent where none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Operations among its latencies that were due and never ended. With any, the mean is a lower bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
}

impl PairRate {
    /// Time beside the other pairs / time alone.
    pub fn slowdown(&self) -> Option<f64> {
        let alone_ns = self.time_ns_alone.filter(|&ns| ns > 0.0)?;
        Some(self.time_ns_together? / alone_ns)
    }

    /// The rank that sends and the one that receives. `reads`: bytes flow towards the initiator.
    pub fn direction(&self, reads: bool) -> (u32, u32) {
        match reads {
            true => (self.target, self.initiator),
            false => (self.initiator, self.target),
        }
    }
}
