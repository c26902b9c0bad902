//! Upper bounds that results are set beside.

use serde::{Deserialize, Serialize};

/// Upper bound that utilization is a fraction of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limit {
    /// Description in words: "memory copy by rep movsb, 2 copiers at once".
    pub what: String,
    /// The limit.
    pub bytes_per_s: f64,
    /// Half width of its 95 % confidence interval, over five equal parts of the measurement (Student's t); absent where
    /// it is a best value, or was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_bytes_per_s: Option<f64>,
    /// Nominal speed of the links that were used, where they say it or were told. It is the limit then, unless one is
    /// stated or that of devices behind network cards is lower, as `what` says: these links are the cards'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Links>,
}

impl Limit {
    /// A limit without an interval or links.
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
    /// Links that carried payload.
    pub used: u32,
    /// Their speed together.
    pub used_bytes_per_s: f64,
    /// All links that the ranks of that side have opened.
    pub all: u32,
    /// Their speed together.
    pub all_bytes_per_s: f64,
}
