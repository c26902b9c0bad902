//! The side of a comparison that a record was measured for.

use serde::{Deserialize, Serialize};

tonnage_units::names! {
    /// Side of a comparison.
    pub enum SideName: "side" {
        /// The baseline, which the other side is compared with.
        A = "a",
        /// The side that is compared with side A.
        B = "b",
    }
}

impl SideName {
    /// Returns the letter of the side, in upper case.
    pub fn letter(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }
}

/// Side of a comparison that a record belongs to, and its position in the order of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Side {
    /// A or B.
    pub name: SideName,
    /// Number of this run in chronological order over both sides, counted from 0.
    pub turn: u32,
    /// Settings deliberately changed on side B, such as "variables.FI_SHM_TX_SIZE"; empty if the sides are two command
    /// lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub varied: Vec<String>,
}
