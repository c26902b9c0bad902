//! The lanes of a worker: what each was asked for, and the target of its work requests that came of it in `resolve`.

use tonnage_engine::{LaneKind, RegionId};
use tonnage_sys::verbs::{KeyedRegion, WorkTarget};

/// Key that tells lanes apart.
#[derive(Debug, PartialEq)]
pub(super) struct Asking {
    pub(super) kind: LaneKind,
    pub(super) peer: u32,
    pub(super) local: RegionId,
    pub(super) remote: KeyedRegion,
}

/// One lane.
pub(super) struct VerbsLane {
    pub(super) asked: Asking,
    /// Place of its queue pair in the worker's list.
    pub(super) pair: usize,
    /// Work requests of a lane that initiates; of a receive only region and queue pair mean something.
    pub(super) target: WorkTarget,
    /// Offset of the last byte that was written since the lane was resolved; `None` before.
    pub(super) last_byte: Option<u64>,
}
