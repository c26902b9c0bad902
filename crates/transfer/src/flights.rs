//! Operations in flight: a slot for each, whose number is the tag that the engine gives back.
//!
//! A slot is free again once its operation has ended and nobody holds its ticket any more, in whatever order that
//! comes. A batch has one slot, which counts its parts. Which lane carries an operation is not known here.

use std::collections::VecDeque;
use std::task::Waker;

use tonnage_engine::Verb;

use crate::error::TransferError;

/// State of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferStatus {
    /// On its way.
    InFlight,
    /// Ended well.
    Done,
    /// Ended badly; waiting for its ticket tells the error.
    Failed,
}

/// Somebody holds its ticket.
const HELD: u8 = 1;
/// It has something among the extras.
const EXTRAS: u8 = 2;
/// Its ticket was queued: its end is listed.
const QUEUED: u8 = 4;
/// Its session waits for its end.
const AWAITED: u8 = 8;

/// One operation, or one batch: the part of it that every operation touches.
pub(crate) struct Flight {
    /// The number that it was queued with.
    token: u64,
    /// Parts that the engine has not ended, or not even taken.
    parts: u32,
    /// The session that it belongs to.
    pub(crate) session: u32,
    status: TransferStatus,
    /// Duties at its end; nearly all have nothing but a ticket that is held.
    duties: u8,
    /// The operation's name.
    pub(crate) name: OperationName,
}

const _: () = assert!(size_of::<Flight>() == 24);

/// Name of an operation, in a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationName {
    /// One operation of this verb.
    One(Verb),
    /// Several under one ticket.
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

/// Things that few operations have.
#[derive(Default)]
struct Extras {
    /// The first failure of one of its parts.
    error: Option<TransferError>,
    /// Whoever holds the ticket has heard of the error.
    told: bool,
    waker: Option<Waker>,
}

/// End of an operation, for whoever keeps accounts of it.
#[derive(Default)]
pub(crate) struct Ended {
    /// The session that waited for this end.
    pub(crate) session: Option<u32>,
    /// The waiting task.
    pub(crate) waker: Option<Waker>,
    /// The error of an operation whose ticket nobody holds.
    pub(crate) unclaimed: Option<TransferError>,
}

/// All slots of an endpoint. Their number is fixed, so that nothing is allocated later.
pub(crate) struct Flights {
    slots: Vec<Flight>,
    extras: Vec<Extras>,
    free: Vec<u32>,
    /// Queued operations that have ended, the first of them first.
    ended: VecDeque<u32>,
    /// Operations that have not ended.
    in_flight: usize,
}

impl Flights {
    pub(crate) fn new(count: u32) -> Self {
        let slot = |_| Flight {
            token: 0,
            parts: 0,
            session: 0,
            status: TransferStatus::Done,
            duties: 0,
            name: OperationName::Flush,
        };
        Self {
            slots: (0..count).map(slot).collect(),
            extras: (0..count).map(|_| Extras::default()).collect(),
            free: (0..count).rev().collect(),
            ended: VecDeque::with_capacity(count as usize),
            in_flight: 0,
        }
    }

    /// The slot that comes next; `None` when all are taken.
    #[inline]
    pub(crate) fn next(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// Takes the slot that [`Self::next`] named.
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

    /// Prepares the slots that come next for queued operations of one session, one for each number, and calls `slot`
    /// with each number's place in the list and its slot. None is taken before [`Self::begin_listed`].
    #[inline]
    pub(crate) fn list(
        &mut self,
        (session, name): (u32, OperationName),
        tokens: impl Iterator<Item = u64>,
        mut slot: impl FnMut(usize, u32),
    ) {
        for ((place, token), &number) in tokens.enumerate().zip(self.free.iter().rev()) {
            self.slots[number as usize] = Flight {
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

    /// Takes the first of the slots that were listed, and leaves the others free.
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
    pub(crate) fn get(&self, number: u32) -> Option<&Flight> {
        self.slots.get(number as usize)
    }

    #[inline]
    pub(crate) fn status(&self, number: u32) -> TransferStatus {
        self.slots[number as usize].status
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns whether nothing is in flight and no ticket is held.
    pub(crate) fn are_all_free(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Number of slots that are free.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// The engine has ended an operation that goes well, has one part, and with which nothing is to be done but to tell
    /// whoever holds its ticket, by a waker perhaps: the way of nearly all. For anything else nothing has changed, and
    /// it returns false.
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

    /// The engine has ended a queued operation that goes well and has one part, and there is nothing to be done but to
    /// tell its number, which is returned. For anything else nothing has changed.
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

    /// The engine has ended this many parts of an operation. `None`: there are not so many, so the engine is wrong.
    pub(crate) fn end_parts(&mut self, number: u32, parts: u32) -> Option<Ended> {
        let slot = self.slots.get_mut(number as usize)?;
        slot.parts = slot.parts.checked_sub(parts)?;
        if slot.parts > 0 {
            return Some(Ended::default());
        }
        Some(self.end(number))
    }

    fn end(&mut self, number: u32) -> Ended {
        let slot = &mut self.slots[number as usize];
        let extras = &mut self.extras[number as usize];
        let mut ended = Ended {
            session: (slot.duties & AWAITED != 0).then_some(slot.session),
            ..Ended::default()
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

    /// Keeps the first error of an operation's parts. One that was given up has failed already, and was told so.
    #[cold]
    pub(crate) fn blame(&mut self, number: u32, error: TransferError) {
        if let Some(slot) = self.slots.get_mut(number as usize)
            && slot.status == TransferStatus::InFlight
        {
            slot.duties |= EXTRAS;
            self.extras[number as usize].error.get_or_insert(error);
        }
    }

    /// Gives an operation up that the engine will perhaps never end: it has failed for whoever waits, and keeps its
    /// slot until the engine does.
    #[cold]
    pub(crate) fn give_up(&mut self, number: u32, error: TransferError) -> Ended {
        let mut ended = Ended::default();
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

    /// Lists the end of an operation whose ticket is held, by this number.
    #[inline]
    pub(crate) fn queue(&mut self, number: u32, token: u64) {
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

    /// Takes the next queued operation that has ended: its number in the queue, and its slot where its ticket is still
    /// to be let go, because there is more to tell.
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

    /// Numbers of the operations that have not ended.
    pub(crate) fn unended(&self) -> Vec<u32> {
        let slots = (0..).zip(&self.slots);
        let of = |(number, slot): (u32, &Flight)| {
            (slot.status == TransferStatus::InFlight).then_some(number)
        };
        slots.filter_map(of).collect()
    }

    /// Returns whether an operation of a session has not ended.
    pub(crate) fn is_any_of(&self, session: u32) -> bool {
        let is_of = |slot: &Flight| slot.session == session;
        let mut slots = self.slots.iter();
        slots.any(|slot| slot.status == TransferStatus::InFlight && is_of(slot))
    }

    /// Returns whether the engine has an operation of a session.
    pub(crate) fn has_any_of(&self, session: u32) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|slot| slot.parts > 0 && slot.session == session)
    }

    /// Has the ends of all operations of a session told to it, and returns how many the engine has.
    pub(crate) fn await_all_of(&mut self, session: u32) -> u32 {
        let is_meant = |slot: &&mut Flight| slot.parts > 0 && slot.session == session;
        let meant = self.slots.iter_mut().filter(is_meant);
        let mut count = 0;
        for slot in meant {
            slot.duties |= AWAITED;
            count += 1;
        }
        count
    }

    /// Has the end of one operation told to its session; returns whether the engine has it still.
    pub(crate) fn await_one(&mut self, number: u32) -> bool {
        let slot = &mut self.slots[number as usize];
        slot.duties |= AWAITED;
        slot.parts > 0
    }

    /// The error of an operation, for whoever holds its ticket.
    #[cold]
    pub(crate) fn tell(&mut self, number: u32) -> Option<TransferError> {
        let extras = self.extras.get_mut(number as usize)?;
        extras.told = true;
        extras.error.clone()
    }

    /// Nobody holds the ticket any more. Returns the waker, to be dropped outside, and an error that nobody has heard
    /// of.
    #[inline]
    pub(crate) fn let_go(&mut self, number: u32) -> Option<Ended> {
        let slot = &mut self.slots[number as usize];
        slot.duties &= !HELD;
        if slot.parts == 0 {
            self.free.push(number);
        }
        if slot.duties & EXTRAS == 0 {
            return None;
        }
        Some(self.let_go_extras(number))
    }

    fn let_go_extras(&mut self, number: u32) -> Ended {
        let status = self.status(number);
        let extras = &mut self.extras[number as usize];
        let mut ended = Ended {
            waker: extras.waker.take(),
            ..Ended::default()
        };
        if status == TransferStatus::Failed {
            ended.unclaimed = extras.error.take().filter(|_| !extras.told);
            extras.told = false;
        }
        ended
    }

    /// Has a task woken when the operation ends. Returns the waker that was there before.
    #[inline]
    pub(crate) fn wake_by(&mut self, number: u32, waker: &Waker) -> Option<Waker> {
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
