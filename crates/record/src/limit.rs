//! Upper bounds that results are set beside.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Upper bound that utilization is a fraction of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// Description in words: "memory copy by rep movsb, 2 copiers at once".
    pub what: String,
    /// The limit.
    pub bytes_per_s: f64,
}
