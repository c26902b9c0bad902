//! Outcome of a point, or of a part of one.

use serde::{Deserialize, Serialize};

/// Outcome of a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// The trials are complete.
    Measured,
    /// The point could not be tried here.
    Skipped {
        /// The requirement that this machine lacks, and how to get it.
        why: String,
    },
    /// The point was tried and failed.
    Failed {
        /// The failed rank, its host, and the next thing to try.
        why: String,
    },
}
