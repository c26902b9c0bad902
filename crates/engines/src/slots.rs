//! Lists of lanes from which single ones are taken out again, without moving the others; and what engines say of lanes
//! and regions that they do not have or cannot let go.

use tonnage_engine::{Lane, RegionId};
use tonnage_units::Error;

/// Puts a lane into the first free place.
pub(crate) fn put<T>(lanes: &mut Vec<Option<T>>, state: T) -> Lane {
    let free = lanes.iter().position(Option::is_none);
    let index = free.unwrap_or(lanes.len());
    match lanes.get_mut(index) {
        Some(place) => *place = Some(state),
        None => lanes.push(Some(state)),
    }
    Lane(index as u32)
}

/// Takes a lane out; nothing happens for one that is not there.
pub(crate) fn take<T>(lanes: &mut [Option<T>], lane: Lane) {
    if let Some(place) = lanes.get_mut(lane.0 as usize) {
        *place = None;
    }
}

/// The refusal to take a region back whose lanes are still there.
#[cold]
pub(crate) fn has_lanes(region: RegionId) -> Error {
    Error::Failed(format!(
        "region {} has lanes that were not released",
        region.0
    ))
}

/// The refusal of a region that this worker does not have.
#[cold]
pub(crate) fn not_registered(region: RegionId) -> Error {
    Error::Failed(format!("region {} is not registered", region.0))
}

/// The refusal of a lane that is not in the list.
#[cold]
pub(crate) fn never_resolved(lane: Lane) -> Error {
    Error::Failed(format!("lane {} was never resolved", lane.0))
}
