//! Side of a comparison that a record was measured for, where two sides took turns.

use serde::{Deserialize, Serialize};

tonnage_units::names! {
    /// Side of a comparison.
    pub enum SideName: "side" {
        /// The first one, which the other is set beside.
        A = "a",
        /// The second one.
        B = "b",
    }
}

impl SideName {
    /// The letter, for people.
    pub fn letter(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }
}

/// The side that a record is of, and its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Side {
    /// A or B.
    pub name: SideName,
    /// Number of the run among those of both sides, counted from 0, in the order in which they were made.
    pub turn: u32,
    /// Keys of what side B was given another value of on purpose, such as "variables.FI_SHM_TX_SIZE"; empty where the
    /// sides are two command lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub varied: Vec<String>,
}
