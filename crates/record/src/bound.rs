//! Upper bounds that results are compared with.

use serde::{Deserialize, Serialize};

/// Upper bound that utilization refers to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bound {
    /// Description, such as "memory copy by rep movsb, 2 copiers at once".
    pub what: String,
    /// The bound itself.
    pub bytes_per_s: f64,
    /// Half width of the bound's 95 % confidence interval (Student's t). Each sample is the rate in one of five equal
    /// parts of the measurement. Absent if the bound was not measured, or is the best of several values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_bytes_per_s: Option<f64>,
    /// Nominal speed of the links of the used NICs, if the NICs report it or the user gave it. This speed is then the
    /// bound, with two exceptions: the user stated a bound, or devices behind the NICs are slower. `what` names the
    /// exception.
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
    /// Number of links that carried payload of the point.
    pub used: u32,
    /// Total speed of the used links.
    pub used_bytes_per_s: f64,
    /// Number of links that the ranks on that side have opened, including links without payload.
    pub all: u32,
    /// Total speed of all opened links.
    pub all_bytes_per_s: f64,
}
