//! Length of a point's measurement, with everything fixed. What options mean together is in `length` and `interval`.

use serde::{Deserialize, Serialize};

/// Length of a point's measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PointLength {
    /// Trials; with `until_ci` the fewest.
    pub trials: u32,
    /// Length of one trial.
    pub trial: TrialLength,
    /// Untimed operations before the first trial, at least this long; 0 turns warming up off.
    pub warmup_ns: u64,
    /// Go on until the 95 % confidence interval of the mean bandwidth is within this fraction of it, on either side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ci: Option<f64>,
    /// Longest time of the trials with `until_ci`; then measuring stops all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_ns: Option<u64>,
    /// Length of the intervals that each trial is cut into, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ns: Option<u64>,
    /// Time of a trial between two checkpoints, where they are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_ns: Option<u64>,
}

/// Length of one trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TrialLength {
    /// At least this long; what is in flight then is finished and counted. Verified trials of atomic operations end
    /// before, when there is no place for another old value.
    DurationNs(u64),
    /// This many operations of each worker (batches under `batch`, round trips under `ping-pong`).
    Iterations(u64),
}
