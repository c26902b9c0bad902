//! Lanes as they are asked for, and the error for one that never was.

use tonnage_engine::{Lane, Verb};
use tonnage_transfer::{LocalMemory, RemoteMemory, SessionOptions};
use tonnage_units::Error;

/// Lane to be made: its operation, and both ends.
pub(super) struct WantedLane<'a> {
    pub(super) verb: Verb,
    pub(super) local: &'a LocalMemory,
    pub(super) remote: RemoteMemory,
    pub(super) options: SessionOptions,
}

#[cold]
pub(super) fn never_resolved(lane: Lane) -> Error {
    Error::Failed(format!("lane {} was never resolved", lane.0))
}
