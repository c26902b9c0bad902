//! Operations that were handed to paths and have not ended, each in a place whose number is the tag of its parts.

use tonnage_units::{Error, Result};

use crate::{Completion, Ending, Lane};

/// An operation or a flush on its way.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    tag: u32,
    lane: Lane,
    len: u32,
    imm: u32,
    /// Parts that have not ended; 0 in a place that is free.
    left: u32,
    /// A part has failed, and that was said: the others end in silence.
    failed: bool,
}

/// Places of operations. They are made with the lanes, so that posting allocates nothing.
#[derive(Debug, Default)]
pub(super) struct PathOperations {
    places: Vec<Place>,
    free: Vec<u32>,
}

impl PathOperations {
    /// Makes places until there are so many.
    pub(super) fn grow_to(&mut self, count: usize) {
        let (from, to) = (self.places.len(), self.places.len().max(count));
        self.places.resize(to, Place::default());
        self.free.reserve(to);
        // The first places are used first, so that few of them stay in the cache.
        self.free.splice(0..0, (from as u32..to as u32).rev());
    }

    /// Takes a place for an operation of so many parts, and returns the tag of its parts, which is never 0; `None` when
    /// all are taken.
    #[inline]
    pub(super) fn begin(
        &mut self,
        (lane, tag): (Lane, u32),
        len: u32,
        imm: u32,
        left: u32,
    ) -> Option<u32> {
        let at = self.free.pop()?;
        self.places[at as usize] = Place {
            tag,
            lane,
            len,
            imm,
            left,
            failed: false,
        };
        Some(at + 1)
    }

    /// The lane of what has this tag.
    #[inline]
    pub(super) fn lane_of(&self, tag: u32) -> Option<Lane> {
        let place = self.places.get(tag.wrapping_sub(1) as usize)?;
        Some(place.lane)
    }

    /// Adds a part to what has this tag.
    pub(super) fn add_part(&mut self, tag: u32) {
        if let Some(place) = self.places.get_mut(tag.wrapping_sub(1) as usize) {
            place.left += 1;
        }
    }

    /// Ends a part of an operation, and returns the completion of the whole when that is to be told now.
    ///
    /// # Errors
    /// When nothing with this tag is in flight.
    #[inline]
    pub(super) fn end_part(&mut self, part: &Completion) -> Result<Option<Completion>> {
        let at = part.tag.wrapping_sub(1);
        let place = match self.places.get_mut(at as usize) {
            Some(place) if place.left > 0 => place,
            _ => return Err(never_begun()),
        };
        place.left -= 1;
        let whole = Completion {
            tag: place.tag,
            lane: place.lane,
            len: place.len,
            imm: place.imm,
            ending: part.ending,
        };
        let (over, said) = (place.left == 0, place.failed);
        place.failed |= matches!(part.ending, Ending::Failed(_));
        let says = !said && (over || place.failed);
        if over {
            self.free.push(at);
        }
        Ok(says.then_some(whole))
    }
}

#[cold]
fn never_begun() -> Error {
    Error::Failed(
        "a path completed an operation that was not in flight: it completed one twice, so its figures are worthless".into(),
    )
}
