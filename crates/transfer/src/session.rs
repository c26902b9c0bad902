//! Sessions: local memory, remote memory and peer, resolved once; and what is posted on them.

use std::fmt;
use std::time::Duration;

use tonnage_engine::{Lane, Peer, Verb};

use crate::cell::EndpointCell;
use crate::error::{TransferError, TransferErrorKind, TransferResult};
use crate::extent::{Extent, QueuedExtent, carries};
use crate::flights::OperationName;
use crate::state::{NO_ROOM, SESSION_VERBS, lane_index};
use crate::ticket::Ticket;

/// A local memory, a remote memory and the peer that owns it, resolved once.
///
/// Dropping it with operations in flight neither waits nor cancels: it ends with the last of them. Bytes of an
/// operation belong to the transfer until that has ended, whoever still holds what.
pub struct Session {
    cell: EndpointCell,
    index: u32,
    peer: Peer,
    local_bytes: u64,
    remote_bytes: u64,
    message_bytes_max: u64,
    immediate_bits: u32,
    verbs: [Option<ResolvedVerb>; SESSION_VERBS],
}

/// A verb's lane, and the answer where it has no room: made before, so that saying it allocates nothing.
struct ResolvedVerb {
    lane: Lane,
    busy: TransferError,
}

impl Session {
    /// Takes a session over that was opened; it is closed when this is dropped.
    pub(crate) fn new(cell: EndpointCell, index: u32, bytes: [u64; 2]) -> Self {
        let state = cell.borrow();
        let (peer, lanes) = match state.sessions.get(index) {
            Some(session) => (session.peer, session.lanes),
            None => (0, [None; SESSION_VERBS]),
        };
        let mut verbs = [const { None }; SESSION_VERBS];
        for verb in Verb::COPYING {
            let Some(index) = lane_index(verb) else {
                continue;
            };
            verbs[index] = lanes[index].map(|lane| {
                let subject = state.subject.with(verb.name(), peer);
                let busy = TransferError::new(TransferErrorKind::Busy, subject, NO_ROOM);
                ResolvedVerb { lane, busy }
            });
        }
        let message_bytes_max = state.caps.message_bytes_max;
        let immediate_bits = state.caps.immediate_bits;
        drop(state);
        Self {
            cell,
            index,
            peer,
            local_bytes: bytes[0],
            remote_bytes: bytes[1],
            message_bytes_max,
            immediate_bits,
            verbs,
        }
    }

    /// The peer at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Copies `len` local bytes into the peer's memory; the peer is not told.
    ///
    /// # Errors
    /// As [`Self::post`].
    #[inline]
    pub fn write(&self, local: u64, remote: u64, len: u32) -> TransferResult<Ticket> {
        self.post(Verb::Write, &Extent::new(local, remote, len))
    }

    /// A write after which the peer finds an [`ArrivedWrite`](crate::ArrivedWrite) with `imm`.
    ///
    /// # Errors
    /// As [`Self::post`].
    #[inline]
    pub fn write_imm(&self, local: u64, remote: u64, len: u32, imm: u32) -> TransferResult<Ticket> {
        self.post(
            Verb::WriteImm,
            &Extent::new(local, remote, len).with_imm(imm),
        )
    }

    /// Copies `len` bytes of the peer's memory into the local one.
    ///
    /// # Errors
    /// As [`Self::post`].
    #[inline]
    pub fn read(&self, local: u64, remote: u64, len: u32) -> TransferResult<Ticket> {
        self.post(Verb::Read, &Extent::new(local, remote, len))
    }

    /// Posts one operation.
    ///
    /// # Errors
    /// `OutOfRange` for offsets outside of a memory, or an immediate that is too wide; `Busy` when there is no room
    /// now; `Unavailable` for a verb that the engine lacks, `Usage` for one that needs no session; `PeerLost`,
    /// `OperationFailed` and `EndpointFailed` when it cannot be posted any more.
    #[inline(always)]
    pub fn post(&self, verb: Verb, extent: &Extent) -> TransferResult<Ticket> {
        let slot = self.post_slot(verb, extent)?;
        Ok(Ticket::new(self.cell.clone(), slot))
    }

    /// Posts one operation whose end [`TransferEndpoint::poll_ended`](crate::TransferEndpoint::poll_ended) tells by
    /// this number, as if its ticket had been queued.
    ///
    /// # Errors
    /// As [`Self::post`].
    #[inline]
    pub fn post_queued(&self, verb: Verb, extent: &Extent, token: u64) -> TransferResult<()> {
        let resolved = self.resolved(verb)?;
        self.check(verb, extent)?;
        let lane = (resolved.lane, OperationName::One(verb));
        let mut state = self.cell.borrow();
        match state.post(self.index, lane, extent)? {
            Some(slot) => {
                state.flights.queue(slot, token);
                Ok(())
            }
            None => Err(resolved.busy.clone()),
        }
    }

    /// Posts operations of a list in one call of the engine, each of which ends by itself: its number is told by
    /// [`TransferEndpoint::poll_ended`](crate::TransferEndpoint::poll_ended). Returns how many of the first ones were
    /// posted; the others are to be posted again when something has ended.
    ///
    /// # Errors
    /// As [`Self::post`], of the first operation of the list, but for `Busy`: no room is a count of 0. An operation
    /// that is wrong ends the list before it.
    #[inline]
    pub fn post_list_queued(&self, verb: Verb, list: &[QueuedExtent]) -> TransferResult<usize> {
        let resolved = self.resolved(verb)?;
        let is_right = |queued: &QueuedExtent| self.allows(verb, &queued.extent);
        let right = list.iter().take_while(|queued| is_right(queued)).count();
        if let (0, Some(first)) = (right, list.first()) {
            return Err(self.outside(verb, &first.extent));
        }
        let lane = (resolved.lane, OperationName::One(verb));
        let mut state = self.cell.borrow();
        state.post_list(self.index, lane, &list[..right])
    }

    #[inline(always)]
    fn post_slot(&self, verb: Verb, extent: &Extent) -> TransferResult<u32> {
        let resolved = self.resolved(verb)?;
        self.check(verb, extent)?;
        let lane = (resolved.lane, OperationName::One(verb));
        let posted = self.cell.borrow().post(self.index, lane, extent)?;
        posted.ok_or_else(|| resolved.busy.clone())
    }

    /// Posts operations of one verb by a list, under one ticket, which has ended when all of them have. They are handed
    /// to the engine together; those that it has no room for follow while it is polled.
    ///
    /// # Errors
    /// As [`Self::post`], and then none is posted; `Usage` for an empty list. The error of a part is the ticket's.
    pub fn batch(&self, verb: Verb, extents: &[Extent]) -> TransferResult<Ticket> {
        let resolved = self.resolved(verb)?;
        extents
            .iter()
            .try_for_each(|extent| self.check(verb, extent))?;
        if extents.is_empty() || u32::try_from(extents.len()).is_err() {
            let reason = format!("a batch of {} operations", extents.len());
            return Err(self.error(TransferErrorKind::Usage, verb.name(), reason));
        }
        let lane = (resolved.lane, OperationName::Batch(verb));
        let posted = self.cell.borrow().post_batch(self.index, lane, extents)?;
        let slot = posted.ok_or_else(|| resolved.busy.clone())?;
        Ok(Ticket::new(self.cell.clone(), slot))
    }

    /// Proves that all writes of this verb that are done have arrived at the peer: the ticket ends when they have. Of
    /// account where a done write means less, which [`Caps::delivered`](tonnage_engine::Caps::delivered) tells.
    ///
    /// # Errors
    /// As [`Self::post`].
    pub fn flush(&self, verb: Verb) -> TransferResult<Ticket> {
        let resolved = self.resolved(verb)?;
        let posted = self.cell.borrow().flush(self.index, resolved.lane)?;
        let slot = posted.ok_or_else(|| resolved.busy.clone())?;
        Ok(Ticket::new(self.cell.clone(), slot))
    }

    /// Looks whether anything can still be transferred: the engine lives, the peer's process was not seen to end, and
    /// no operation of this session has failed. A system call where the peer's process can be watched.
    pub fn alive(&self) -> bool {
        let mut state = self.cell.borrow();
        state.look_at_peers();
        let session = state.sessions.get(self.index);
        session.is_some_and(|session| session.refused.is_none() && !session.failed)
    }

    /// Waits until everything of this session has ended, well or badly; failures are told by their tickets.
    ///
    /// # Errors
    /// `Deadline` when the time is over, `EndpointFailed` when the engine is dead, `ArrivalsFull` when nobody takes
    /// arrivals.
    pub fn wait_all(&self, timeout: Duration) -> TransferResult<()> {
        let index = self.index;
        self.cell.wait(
            timeout,
            |state| state.subject_of(index, "waiting"),
            |state| {
                let session = state.sessions.get(index);
                // What was given up stays in flight for the engine's sake only.
                let none = session.is_none_or(|session| {
                    let refused = session.refused.is_some();
                    !state.flights.has_any_of(index) || (refused && !state.flights.is_any_of(index))
                });
                Ok(none.then_some(()))
            },
        )
    }

    #[inline]
    fn resolved(&self, verb: Verb) -> TransferResult<&ResolvedVerb> {
        let resolved = lane_index(verb).and_then(|index| self.verbs[index].as_ref());
        resolved.ok_or_else(|| self.no_lane(verb))
    }

    #[cold]
    fn no_lane(&self, verb: Verb) -> TransferError {
        let (kind, reason) = match lane_index(verb) {
            Some(_) => (TransferErrorKind::Unavailable, "the engine lacks this verb"),
            None => (TransferErrorKind::Usage, "no session has this verb"),
        };
        self.error(kind, verb.name(), reason)
    }

    #[inline]
    fn check(&self, verb: Verb, extent: &Extent) -> TransferResult<()> {
        match self.allows(verb, extent) {
            true => Ok(()),
            false => Err(self.outside(verb, extent)),
        }
    }

    #[inline]
    fn allows(&self, verb: Verb, extent: &Extent) -> bool {
        let len = u64::from(extent.len);
        let is_inside = |offset: u64, bytes: u64| offset <= bytes && len <= bytes - offset;
        is_inside(extent.local, self.local_bytes)
            && is_inside(extent.remote, self.remote_bytes)
            && len <= self.message_bytes_max
            && (verb != Verb::WriteImm || carries(self.immediate_bits, extent.imm))
    }

    #[cold]
    fn outside(&self, verb: Verb, extent: &Extent) -> TransferError {
        let Extent {
            local,
            remote,
            len,
            imm,
        } = *extent;
        let reason = if u64::from(len) > self.message_bytes_max {
            let most = self.message_bytes_max;
            format!("{len} bytes are more than one operation of this engine moves, {most}")
        } else if verb == Verb::WriteImm && !carries(self.immediate_bits, imm) {
            let bits = self.immediate_bits;
            format!("the immediate {imm} does not fit into the {bits} bits that the engine carries")
        } else {
            let (own, far) = (self.local_bytes, self.remote_bytes);
            format!(
                "{len} bytes at offset {local} of a local memory of {own} bytes and at offset {remote} of a remote one of \
                 {far} bytes: that lies outside"
            )
        };
        self.error(TransferErrorKind::OutOfRange, verb.name(), reason)
    }

    #[cold]
    fn error(
        &self,
        kind: TransferErrorKind,
        operation: &'static str,
        reason: impl Into<String>,
    ) -> TransferError {
        let subject = self.cell.borrow().subject.with(operation, self.peer);
        TransferError::new(kind, subject, reason)
    }

    /// The endpoint, for tasks that wait for room.
    pub(crate) fn cell(&self) -> &EndpointCell {
        &self.cell
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.cell.borrow().close_session(self.index);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("peer", &self.peer)
            .field("local_bytes", &self.local_bytes)
            .field("remote_bytes", &self.remote_bytes)
            .finish()
    }
}
