//! Upper bounds that results are compared with.

use serde::{Deserialize, Serialize};

/// Upper bound that utilization refers to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bound {
    /// Description, such as "memory copy by rep movsb, 2 copiers at once".
    pub what: String,
    /// The bound.
    pub bytes_per_s: f64,
    /// Half width of the bound's 95 % confidence interval, over five equal parts of the measurement (Student's t).
    /// Absent if the bound is a best value, or was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_bytes_per_s: Option<f64>,
    /// Nominal speed of the links of the used NICs, if they report it or it was given. This speed is then the bound,
    /// unless the user stated one, or devices behind the NICs are slower, as `what` then notes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Links>,
}

impl Bound {
    /// A bound without an interval or links.
    pub fn new(what: impl Into<String>, bytes_per_s: f64) -> Self {
        Self {
            what: what.into(),
            bytes_per_s,
            ci95_bytes_per_s: None,
            links: None,
        }
    }
}

/// Nominal speed of the links on the slower side of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Links {
    /// Number of links that carried payload.
    pub used: u32,
    /// Total speed of the used links.
    pub used_bytes_per_s: f64,
    /// Number of links that the ranks of that side have opened.
    pub all: u32,
    /// Total speed of all links.
    pub all_bytes_per_s: f64,
}
