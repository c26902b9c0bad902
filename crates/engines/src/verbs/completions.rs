//! Completions of one worker that were taken from the device and not yet returned by a poll.

use std::collections::VecDeque;

use tonnage_engine::{Completion, move_waiting};
use tonnage_sys::error::LibraryError;
use tonnage_sys::verbs::{Queues, WorkEvent};

use super::send_queue::EndedWork;

/// Maximum number of completions taken from the library by one call.
const EVENTS: usize = 64;

/// Completions that were taken from the device and not yet returned by a poll.
pub(super) struct Completions {
    events: Box<[WorkEvent; EVENTS]>,
    /// Range of the events that are not processed yet: start and end.
    unread: [usize; 2],
    ended: Option<EndedWork>,
    /// Arrivals during first contact, from peers that completed their first contact earlier.
    early: VecDeque<Completion>,
}

impl Completions {
    pub(super) fn new() -> Self {
        Self {
            events: Box::new([WorkEvent::EMPTY; EVENTS]),
            unread: [0, 0],
            ended: None,
            early: VecDeque::new(),
        }
    }

    /// Whether the next poll returns completions without polling the device.
    pub(super) fn are_left(&self) -> bool {
        self.ended.is_some() || self.has_events() || self.has_early()
    }

    #[inline]
    pub(super) fn has_events(&self) -> bool {
        self.unread[0] < self.unread[1]
    }

    /// Takes up to `room` events from the device, and returns their number. All earlier events must have been
    /// processed.
    #[inline]
    pub(super) fn read(&mut self, queues: &mut Queues, room: usize) -> Result<usize, LibraryError> {
        let polled = queues.poll(&mut self.events[..room.min(EVENTS)])?;
        self.unread = [0, polled];
        Ok(polled)
    }

    /// Takes the next event, which must exist: see [`Self::has_events`].
    #[inline]
    pub(super) fn next_event(&mut self) -> WorkEvent {
        let event = self.events[self.unread[0]];
        self.unread[0] += 1;
        event
    }

    /// Returns ended work requests that have not all been reported yet.
    #[inline]
    pub(super) fn ended(&self) -> Option<EndedWork> {
        self.ended
    }

    #[inline]
    pub(super) fn set_ended(&mut self, ended: Option<EndedWork>) {
        self.ended = ended;
    }

    /// Stores arrivals for the polls after first contact.
    pub(super) fn keep(&mut self, early: &[Completion]) {
        self.early.extend(early);
    }

    #[inline]
    pub(super) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Takes stored arrivals, and returns their number.
    pub(super) fn take_early(&mut self, done: &mut [Completion]) -> usize {
        move_waiting(&mut self.early, done)
    }
}
