//! Lists of lanes from which single ones are taken out again, without moving the others.

use tonnage_engine::Lane;
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

/// The refusal of a lane that is not in the list.
#[cold]
pub(crate) fn never_resolved(lane: Lane) -> Error {
    Error::Failed(format!("lane {} was never resolved", lane.0))
}
