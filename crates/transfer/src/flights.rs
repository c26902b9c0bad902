//! Operations in flight. Each has a slot; the slot number is the tag of its completion.
//!
//! A slot becomes free after its operation has ended and its ticket was released, in either order. A batch has one
//! slot, which counts the batch's parts. This module does not know lanes.

use std::collections::VecDeque;
use std::task::Waker;

use tonnage_engine::Verb;

use crate::error::TransferError;

/// State of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferStatus {
    /// In flight.
    InFlight,
    /// Ended successfully.
    Done,
    /// Ended with an error. Polling or waiting for the ticket returns the error.
    Failed,
}

/// The operation's ticket exists.
const HELD: u8 = 1;
/// The operation's `SlotExtras` are in use.
const EXTRAS: u8 = 2;
/// The operation's ticket was queued: when the operation ends, it is added to the list of ended operations.
const QUEUED: u8 = 4;
/// The operation's session is closing and counts the operation's end.
const AWAITED: u8 = 8;

/// One operation or batch: the fields that every operation touches.
pub(crate) struct SlotState {
    /// The token under which the operation was queued.
    token: u64,
    /// Number of parts that have not ended, including parts that the engine has not taken yet.
    parts: u32,
    /// The session that the operation belongs to.
    pub(crate) session: u32,
    status: TransferStatus,
    /// Flags such as `HELD`, which determine what happens when the operation ends. Nearly all operations have only
    /// `HELD`.
    duties: u8,
    pub(crate) name: OperationName,
}

const _: () = assert!(size_of::<SlotState>() == 24);

/// Kind of an operation, in one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationName {
    /// One operation of this verb.
    One(Verb),
    /// Several operations under one ticket.
    Batch(Verb),
    Flush,
}

impl OperationName {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::One(verb) => verb.name(),
            Self::Batch(Verb::Write) => "batch of writes",
            Self::Batch(Verb::Read) => "batch of reads",
            Self::Batch(Verb::WriteImm) => "batch of write-imms",
            Self::Batch(Verb::Send) => "batch of sends",
            Self::Batch(Verb::FetchAdd) => "batch of fetch-adds",
            Self::Batch(Verb::CompareSwap) => "batch of compare-swaps",
            Self::Flush => "flush",
        }
    }
}

/// Fields that few operations use.
#[derive(Default)]
struct SlotExtras {
    /// The first error of a part.
    error: Option<TransferError>,
    /// Whether the ticket has reported the error.
    reported: bool,
    waker: Option<Waker>,
}

/// Effects of an operation's end, which the endpoint must apply.
#[derive(Default)]
pub(crate) struct SlotEnd {
    /// The session that must count this end.
    pub(crate) session: Option<u32>,
    /// The task to wake.
    pub(crate) waker: Option<Waker>,
    /// The error of an operation with a dropped ticket.
    pub(crate) unclaimed: Option<TransferError>,
}

/// All slots of an endpoint. Their number is fixed, so nothing is allocated later.
pub(crate) struct OperationSlots {
    slots: Vec<SlotState>,
    extras: Vec<SlotExtras>,
    free: Vec<u32>,
    /// Queued operations that have ended, in the order of their ends.
    ended: VecDeque<u32>,
    /// Number of operations that have not ended.
    in_flight: usize,
}

impl OperationSlots {
    pub(crate) fn new(count: u32) -> Self {
        let slot = |_| SlotState {
            token: 0,
            parts: 0,
            session: 0,
            status: TransferStatus::Done,
            duties: 0,
            name: OperationName::Flush,
        };
        Self {
            slots: (0..count).map(slot).collect(),
            extras: (0..count).map(|_| SlotExtras::default()).collect(),
            free: (0..count).rev().collect(),
            ended: VecDeque::with_capacity(count as usize),
            in_flight: 0,
        }
    }

    /// Returns the slot that [`Self::begin`] takes next; `None` if no slot is free.
    #[inline]
    pub(crate) fn next_free(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// Takes the slot that [`Self::next_free`] returned.
    #[inline]
    pub(crate) fn begin(&mut self, session: u32, name: OperationName, parts: u32) {
        let Some(number) = self.free.pop() else {
            return;
        };
        let slot = &mut self.slots[number as usize];
        slot.parts = parts;
        slot.session = session;
        slot.status = TransferStatus::InFlight;
        slot.duties = HELD;
        slot.name = name;
        self.in_flight += 1;
    }

    /// Prepares the next free slots for queued operations of one session, one slot for each token. Calls `slot` with
    /// each token's index and slot number. [`Self::begin_listed`] then takes the slots.
    #[inline]
    pub(crate) fn post_each(
        &mut self,
        (session, name): (u32, OperationName),
        tokens: impl Iterator<Item = u64>,
        mut slot: impl FnMut(usize, u32),
    ) {
        for ((place, token), &number) in tokens.enumerate().zip(self.free.iter().rev()) {
            self.slots[number as usize] = SlotState {
                token,
                parts: 1,
                session,
                status: TransferStatus::InFlight,
                duties: HELD | QUEUED,
                name,
            };
            slot(place, number);
        }
    }

    /// Takes the first `taken` of the prepared slots, and resets the others.
    #[inline]
    pub(crate) fn begin_listed(&mut self, listed: usize, taken: usize) {
        let taken = taken.min(listed);
        let first = self.free.len() - listed;
        for &number in &self.free[first..first + listed - taken] {
            let slot = &mut self.slots[number as usize];
            slot.parts = 0;
            slot.status = TransferStatus::Done;
            slot.duties = 0;
        }
        self.free.truncate(self.free.len() - taken);
        self.in_flight += taken;
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&SlotState> {
        self.slots.get(number as usize)
    }

    #[inline]
    pub(crate) fn status(&self, number: u32) -> TransferStatus {
        self.slots[number as usize].status
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns whether nothing is in flight and no ticket exists.
    pub(crate) fn are_all_free(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Returns the number of free slots.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Ends an operation in the usual case: it succeeded, has one part, its ticket exists, and its session is not
    /// closing. Adds the waiting task, if any, to `woken`. In all other cases, returns false and changes nothing.
    #[inline]
    pub(crate) fn end_plain(&mut self, number: u32, woken: &mut Vec<Waker>) -> bool {
        let Some(slot) = self.slots.get_mut(number as usize) else {
            return false;
        };
        let is_plain = slot.duties & !(QUEUED | EXTRAS) == HELD;
        if !is_plain || slot.parts != 1 || slot.status != TransferStatus::InFlight {
            return false;
        }
        if slot.duties & EXTRAS != 0 {
            let extras = &mut self.extras[number as usize];
            if extras.error.is_some() {
                return false;
            }
            woken.extend(extras.waker.take());
            slot.duties &= !EXTRAS;
        }
        slot.parts = 0;
        slot.status = TransferStatus::Done;
        if slot.duties & QUEUED != 0 {
            self.ended.push_back(number);
        }
        self.in_flight -= 1;
        true
    }

    /// Ends a queued operation in the usual case: it succeeded, has one part and no other flags. Returns its token. In
    /// all other cases, returns `None` and changes nothing.
    #[inline]
    pub(crate) fn end_queued(&mut self, number: u32) -> Option<u64> {
        let slot = self.slots.get_mut(number as usize)?;
        let is_plain = slot.duties == HELD | QUEUED && slot.parts == 1;
        if !is_plain || slot.status != TransferStatus::InFlight {
            return None;
        }
        slot.parts = 0;
        slot.status = TransferStatus::Done;
        slot.duties = 0;
        self.free.push(number);
        self.in_flight -= 1;
        Some(slot.token)
    }

    /// Ends this many parts of an operation. Returns `None` if the operation has fewer, which is an error of the
    /// engine.
    pub(crate) fn end_parts(&mut self, number: u32, parts: u32) -> Option<SlotEnd> {
        let slot = self.slots.get_mut(number as usize)?;
        slot.parts = slot.parts.checked_sub(parts)?;
        if slot.parts > 0 {
            return Some(SlotEnd::default());
        }
        Some(self.end(number))
    }

    fn end(&mut self, number: u32) -> SlotEnd {
        let slot = &mut self.slots[number as usize];
        let extras = &mut self.extras[number as usize];
        let mut ended = SlotEnd {
            session: (slot.duties & AWAITED != 0).then_some(slot.session),
            ..SlotEnd::default()
        };
        if slot.status == TransferStatus::InFlight {
            slot.status = match extras.error {
                None => TransferStatus::Done,
                Some(_) => TransferStatus::Failed,
            };
            self.in_flight -= 1;
            ended.waker = extras.waker.take();
            if extras.error.is_none() {
                slot.duties &= !EXTRAS;
            }
            if slot.duties & QUEUED != 0 {
                self.ended.push_back(number);
            }
        }
        if slot.duties & HELD == 0 {
            ended.unclaimed = extras.error.take();
            self.free.push(number);
        }
        ended
    }

    /// Records the first error of an operation's parts. Does nothing if the operation was given up, because its failure
    /// is already known.
    #[cold]
    pub(crate) fn record_error(&mut self, number: u32, error: TransferError) {
        if let Some(slot) = self.slots.get_mut(number as usize)
            && slot.status == TransferStatus::InFlight
        {
            slot.duties |= EXTRAS;
            self.extras[number as usize].error.get_or_insert(error);
        }
    }

    /// Gives up an operation that the engine may never end. The operation counts as failed, but keeps its slot until
    /// the engine ends it.
    #[cold]
    pub(crate) fn end_with_error(&mut self, number: u32, error: TransferError) -> SlotEnd {
        let mut ended = SlotEnd::default();
        let Some(slot) = self.slots.get_mut(number as usize) else {
            return ended;
        };
        if slot.status == TransferStatus::InFlight {
            let extras = &mut self.extras[number as usize];
            slot.status = TransferStatus::Failed;
            slot.duties |= EXTRAS;
            let error = extras.error.get_or_insert(error);
            if slot.duties & HELD == 0 {
                ended.unclaimed = Some(error.clone());
                extras.error = None;
            }
            ended.waker = extras.waker.take();
            if slot.duties & QUEUED != 0 {
                self.ended.push_back(number);
            }
            self.in_flight -= 1;
        }
        ended
    }

    /// Queues an operation that still has a ticket. Its end is then reported under this token.
    #[inline]
    pub(crate) fn report_by_token(&mut self, number: u32, token: u64) {
        let slot = &mut self.slots[number as usize];
        slot.token = token;
        slot.duties |= QUEUED;
        if slot.status != TransferStatus::InFlight {
            self.ended.push_back(number);
        }
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Takes the next queued operation that has ended, and returns its token. If the operation may have an error to
    /// report, also returns its slot; the caller must then release the ticket.
    #[inline]
    pub(crate) fn next_ended(&mut self) -> Option<(u64, Option<u32>)> {
        let number = self.ended.pop_front()?;
        let slot = &mut self.slots[number as usize];
        if slot.duties == HELD | QUEUED && slot.parts == 0 && slot.status == TransferStatus::Done {
            slot.duties = 0;
            self.free.push(number);
            return Some((slot.token, None));
        }
        slot.duties &= !QUEUED;
        Some((slot.token, Some(number)))
    }

    /// Returns the slots of the operations that are in flight and were not given up.
    pub(crate) fn unended(&self) -> Vec<u32> {
        let slots = (0..).zip(&self.slots);
        let of = |(number, slot): (u32, &SlotState)| {
            (slot.status == TransferStatus::InFlight).then_some(number)
        };
        slots.filter_map(of).collect()
    }

    /// Returns whether a session has operations in flight that were not given up.
    pub(crate) fn has_unended_of(&self, session: u32) -> bool {
        let is_of = |slot: &SlotState| slot.session == session;
        let mut slots = self.slots.iter();
        slots.any(|slot| slot.status == TransferStatus::InFlight && is_of(slot))
    }

    /// Returns whether the engine still has an operation of a session, including operations that were given up.
    pub(crate) fn engine_has_any_of(&self, session: u32) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|slot| slot.parts > 0 && slot.session == session)
    }

    /// Requests that a session count the ends of its operations. Returns how many operations the engine still has.
    pub(crate) fn notify_ends_of(&mut self, session: u32) -> u32 {
        let is_meant = |slot: &&mut SlotState| slot.parts > 0 && slot.session == session;
        let meant = self.slots.iter_mut().filter(is_meant);
        let mut count = 0;
        for slot in meant {
            slot.duties |= AWAITED;
            count += 1;
        }
        count
    }

    /// Requests that a session count the end of one operation. Returns whether the engine still has it.
    pub(crate) fn notify_end(&mut self, number: u32) -> bool {
        let slot = &mut self.slots[number as usize];
        slot.duties |= AWAITED;
        slot.parts > 0
    }

    /// Returns the error of an operation to the holder of its ticket, and marks it as reported.
    #[cold]
    pub(crate) fn report_error(&mut self, number: u32) -> Option<TransferError> {
        let extras = self.extras.get_mut(number as usize)?;
        extras.reported = true;
        extras.error.clone()
    }

    /// Releases a ticket. Returns its waker, which must be dropped while nothing is borrowed, and any error that was
    /// not reported.
    #[inline]
    pub(crate) fn release_ticket(&mut self, number: u32) -> Option<SlotEnd> {
        let slot = &mut self.slots[number as usize];
        slot.duties &= !HELD;
        if slot.parts == 0 {
            self.free.push(number);
        }
        if slot.duties & EXTRAS == 0 {
            return None;
        }
        Some(self.release_extras(number))
    }

    fn release_extras(&mut self, number: u32) -> SlotEnd {
        let status = self.status(number);
        let extras = &mut self.extras[number as usize];
        let mut ended = SlotEnd {
            waker: extras.waker.take(),
            ..SlotEnd::default()
        };
        if status == TransferStatus::Failed {
            ended.unclaimed = extras.error.take().filter(|_| !extras.reported);
            extras.reported = false;
        }
        ended
    }

    /// Sets the task to wake when the operation ends. Returns the previous waker.
    #[inline]
    pub(crate) fn set_waker(&mut self, number: u32, waker: &Waker) -> Option<Waker> {
        self.slots[number as usize].duties |= EXTRAS;
        let known = &mut self.extras[number as usize].waker;
        match known {
            Some(known) if known.will_wake(waker) => None,
            _ => known.replace(waker.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
