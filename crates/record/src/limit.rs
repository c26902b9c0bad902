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
    /// Half width of its 95 % confidence interval, over five equal parts of the measurement (Student's t); absent where
    /// it is a best value, or was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_bytes_per_s: Option<f64>,
}
