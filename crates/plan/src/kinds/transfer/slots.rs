//! Slots that the operations of a point walk over: size, distance, footprint and order.

use serde::{Deserialize, Serialize};

use crate::point::is_default;
pub use tonnage_engine::Access;

/// Default alignment of slots. With it, no word crosses a boundary between aligned words.
pub(super) const ALIGNMENT_BYTES: u64 = 8;

/// Slots of each lane, at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Slots {
    /// Payload bytes of one operation, 1 or more.
    pub size_bytes: u32,
    /// Bytes over which the operations of one lane walk: a whole number of strides.
    pub footprint_bytes: u64,
    /// Whether initiators share one footprint at a target.
    #[serde(default, skip_serializing_if = "is_default")]
    pub target_footprint: TargetFootprint,
    /// Distance between the starts of two neighbouring slots.
    pub stride_bytes: u64,
    /// Order in which slots are used.
    #[serde(alias = "addresses")]
    pub access: Access,
    /// Order at the initiator's end, if it differs.
    #[serde(
        alias = "local_addresses",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub local_access: Option<Access>,
    /// Seed of random access and of the data.
    pub seed: u64,
}

impl Slots {
    /// Number of slots in the footprint of one lane, at least 1.
    pub fn count(&self) -> u64 {
        (self.footprint_bytes / self.stride_bytes.max(1)).max(1)
    }

    /// Orders of the slots at the initiator's end and at the target's end.
    pub fn orders(&self) -> (Access, Access) {
        (self.local_access.unwrap_or(self.access), self.access)
    }

    /// Bytes between two neighbouring slots.
    pub fn gap_bytes(&self) -> u64 {
        self.stride_bytes.saturating_sub(self.size_bytes.into())
    }

    /// Whether the distance between slots is the default one.
    pub fn has_own_stride(&self) -> bool {
        self.stride_bytes == u64::from(self.size_bytes).next_multiple_of(ALIGNMENT_BYTES)
    }

    /// Returns whether slots have more unused bytes between them than their alignment requires.
    pub fn has_gaps(&self) -> bool {
        self.stride_bytes > u64::from(self.size_bytes).next_multiple_of(ALIGNMENT_BYTES)
    }
}

tonnage_units::names! {
    /// Footprints at a target.
    pub enum TargetFootprint: "target footprint", default Own {
        /// Each initiator has one of its own.
        Own = "own",
        /// All initiators read one, or change its words; each of the target's threads has one.
        Shared = "shared",
    }
}
