//! Turns of batches: when a worker may begin one, and when one has ended. Its own here; those that the workers of a
//! rank share are in [`super::shared`].

use std::collections::VecDeque;

use crate::drive::until::Until;
use tonnage_units::Result;

/// Decides about the batches of a worker. A batch is known by its place among those in flight.
pub(super) trait BatchTurns {
    /// The place of a batch to begin now, if there is one.
    ///
    /// # Errors
    /// When another worker of the rank has failed.
    fn next(&mut self) -> Result<Option<u32>>;

    /// Hears that the batch at this place begins now.
    fn begin(&mut self, place: u32);

    /// Hears that all that this worker has of a batch is done.
    fn done(&mut self, place: u32);

    /// The place of a batch that has ended as a whole, each told once.
    fn take_ended(&mut self) -> Option<u32>;

    /// Returns whether there is nothing to begin or to wait for.
    fn is_over(&self) -> bool;
}

/// Turns of a worker whose batches are its own.
pub(super) struct OwnTurns<'a> {
    free: &'a mut VecDeque<u32>,
    places: usize,
    until: &'a mut Until,
    ended: Option<u32>,
    over: bool,
}

impl<'a> OwnTurns<'a> {
    /// Begins with all places free.
    pub(super) fn new(free: &'a mut VecDeque<u32>, until: &'a mut Until) -> Self {
        Self {
            places: free.len(),
            free,
            until,
            ended: None,
            over: false,
        }
    }
}

impl BatchTurns for OwnTurns<'_> {
    #[inline]
    fn next(&mut self) -> Result<Option<u32>> {
        // A free place is what the clock is read for.
        if !self.over && !self.free.is_empty() {
            self.over = self.until.grant(1) == 0;
        }
        Ok(match self.over {
            true => None,
            false => self.free.pop_front(),
        })
    }

    #[inline]
    fn begin(&mut self, _place: u32) {}

    #[inline]
    fn done(&mut self, place: u32) {
        self.ended = Some(place);
    }

    #[inline]
    fn take_ended(&mut self) -> Option<u32> {
        let ended = self.ended.take()?;
        self.free.push_back(ended);
        Some(ended)
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.over && self.free.len() == self.places
    }
}
