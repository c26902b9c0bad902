//! Batches of a point: how many are in flight together, how they are handed over, and what becomes of neighbours.

use serde::{Deserialize, Serialize};

tonnage_units::names! {
    /// Calls that hand a batch over.
    pub enum BatchCall: "batch-call" {
        /// One with all operations.
        One = "one",
        /// One for each operation.
        Many = "many",
    }
}

tonnage_units::names! {
    /// Owner of a batch.
    pub enum BatchOf: "owner of batches" {
        /// Each worker has batches of its own.
        Worker = "worker",
        /// The workers of a rank share each batch out.
        Rank = "rank",
    }
}

tonnage_units::names! {
    /// Use of neighbourhood within a batch.
    pub enum BatchMerge: "merge" {
        /// Operations stay apart.
        Off = "off",
        /// Those that are adjacent at both ends become one.
        On = "on",
    }
}

/// Batches of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Batching {
    /// Owner of a batch.
    #[serde(
        default = "BatchOf::worker",
        skip_serializing_if = "BatchOf::is_worker"
    )]
    pub of: BatchOf,
    /// Batches in flight together.
    pub in_flight: u32,
    /// Calls that hand a batch over.
    pub call: BatchCall,
    /// Use of neighbourhood.
    pub merge: BatchMerge,
}

impl Default for Batching {
    /// Returns one batch at a time, handed over in one call, its operations apart.
    fn default() -> Self {
        Self {
            of: BatchOf::Worker,
            in_flight: 1,
            call: BatchCall::One,
            merge: BatchMerge::Off,
        }
    }
}

impl BatchOf {
    fn worker() -> Self {
        Self::Worker
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    fn is_worker(&self) -> bool {
        *self == Self::Worker
    }
}

impl Batching {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
