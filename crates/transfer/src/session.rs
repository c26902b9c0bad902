//! Sessions: a local memory, a remote memory and a peer, resolved once, and the operations posted on them.

use std::fmt;
use std::time::Duration;

use tonnage_engine::{Lane, Peer, Verb};

use crate::cell::SharedEndpoint;
use crate::error::{TransferError, TransferErrorKind, TransferResult};
use crate::extent::{Extent, QueuedExtent, carries};
use crate::flights::OperationName;
use crate::state::{NO_ROOM, SESSION_VERBS, lane_index};
use crate::ticket::Ticket;

/// A local memory, a remote memory and the peer that owns it, resolved once.
///
/// Dropping a session with operations in flight neither waits nor cancels: it closes after the last operation has
/// ended. Until an operation ends, the transfer owns its bytes, even if the session and the ticket were dropped.
pub struct Session {
    cell: SharedEndpoint,
    index: u32,
    peer: Peer,
    local_bytes: u64,
    remote_bytes: u64,
    message_bytes_max: u64,
    immediate_bits: u32,
    verbs: [Option<ResolvedVerb>; SESSION_VERBS],
}

/// A verb's lane, and the error for a lack of room. The error is created in advance, so that returning it does not
/// allocate.
struct ResolvedVerb {
    lane: Lane,
    busy: TransferError,
}

impl Session {
    /// Wraps an open session, which closes when this handle is dropped.
    pub(crate) fn new(cell: SharedEndpoint, index: u32, bytes: [u64; 2]) -> Self {
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
                let subject = state.subject.with_operation(verb.name(), peer);
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

    /// Returns the peer.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Copies `len` local bytes into the peer's memory, without notifying the peer.
    ///
    /// # Errors
    /// As [`Self::post`].
    #[inline]
    pub fn write(&self, local: u64, remote: u64, len: u32) -> TransferResult<Ticket> {
        self.post(Verb::Write, &Extent::new(local, remote, len))
    }

    /// Copies bytes like a write, and then reports an [`ArrivedWrite`](crate::ArrivedWrite) with `imm` to the peer.
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

    /// Copies `len` bytes of the peer's memory into the local memory.
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
    /// `OutOfRange` for offsets outside of a memory, or an immediate value with too many bits; `Busy` if there is no
    /// room. `Unavailable` for a verb that the engine lacks, `Usage` for a verb that sessions do not support.
    /// `PeerLost`, `OperationFailed` and `EndpointFailed` if the session can no longer be used.
    #[inline(always)]
    pub fn post(&self, verb: Verb, extent: &Extent) -> TransferResult<Ticket> {
        let slot = self.post_slot(verb, extent)?;
        Ok(Ticket::new(self.cell.clone(), slot))
    }

    /// Posts one operation with a queued ticket: [`TransferEndpoint::poll_ended`](crate::TransferEndpoint::poll_ended)
    /// reports its end under this token.
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
                state.flights.report_by_token(slot, token);
                Ok(())
            }
            None => Err(resolved.busy.clone()),
        }
    }

    /// Posts a list of operations in one call of the engine.
    /// [`TransferEndpoint::poll_ended`](crate::TransferEndpoint::poll_ended) reports the end of each under its own
    /// token. Returns the number posted, counted from the start of the list. Post the rest again after an operation has
    /// ended.
    ///
    /// # Errors
    /// As [`Self::post`] for the first operation of the list; but without room, the result is 0 instead of `Busy`. If a
    /// later operation is invalid, only those before it are posted.
    #[inline]
    pub fn post_list_queued(&self, verb: Verb, list: &[QueuedExtent]) -> TransferResult<usize> {
        let resolved = self.resolved(verb)?;
        let is_right = |queued: &QueuedExtent| self.allows(verb, &queued.extent);
        let right = list.iter().take_while(|queued| is_right(queued)).count();
        if let (0, Some(first)) = (right, list.first()) {
            return Err(self.out_of_range_error(verb, &first.extent));
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

    /// Posts operations of one verb under one ticket, which ends when all of them have ended. They are posted to the
    /// engine together. Later polls post those that have no room now.
    ///
    /// # Errors
    /// As [`Self::post`]; in that case nothing is posted. `Usage` for an empty list. If an operation fails later, the
    /// ticket reports its error.
    pub fn batch(&self, verb: Verb, extents: &[Extent]) -> TransferResult<Ticket> {
        let resolved = self.resolved(verb)?;
        extents
            .iter()
            .try_for_each(|extent| self.check(verb, extent))?;
        if extents.is_empty() || u32::try_from(extents.len()).is_err() {
            let reason = format!("a batch cannot have {} operations", extents.len());
            return Err(self.error(TransferErrorKind::Usage, verb.name(), reason));
        }
        let lane = (resolved.lane, OperationName::Batch(verb));
        let posted = self.cell.borrow().post_batch(self.index, lane, extents)?;
        let slot = posted.ok_or_else(|| resolved.busy.clone())?;
        Ok(Ticket::new(self.cell.clone(), slot))
    }

    /// Starts to prove that all completed writes of this verb have arrived at the peer. The ticket ends when that is
    /// proved. Needed if completion does not imply arrival ([`Caps::delivered`](tonnage_engine::Caps::delivered)).
    ///
    /// # Errors
    /// As [`Self::post`].
    pub fn flush(&self, verb: Verb) -> TransferResult<Ticket> {
        let resolved = self.resolved(verb)?;
        let posted = self.cell.borrow().flush(self.index, resolved.lane)?;
        let slot = posted.ok_or_else(|| resolved.busy.clone())?;
        Ok(Ticket::new(self.cell.clone(), slot))
    }

    /// Returns whether the session can still be used. The engine must be alive, the peer's process must not have been
    /// seen to end, and no operation of this session may have failed. The check costs a system call if the peer's
    /// process is watched.
    pub fn is_alive(&self) -> bool {
        let mut state = self.cell.borrow();
        state.check_peers();
        let session = state.sessions.get(self.index);
        session.is_some_and(|session| session.refused.is_none() && !session.failed)
    }

    /// Waits until all operations of this session have ended, successfully or not. Their tickets report failures.
    ///
    /// # Errors
    /// `Deadline` after `timeout`, `EndpointFailed` if the engine is dead, `ArrivalsFull` if the queue of arrivals is
    /// full.
    pub fn wait_all(&self, timeout: Duration) -> TransferResult<()> {
        let index = self.index;
        self.cell.wait_until(
            timeout,
            |state| state.subject_of(index, "waiting"),
            |state| {
                let session = state.sessions.get(index);
                // After a refusal, operations that were given up do not count, although the engine may still have them.
                let none = session.is_none_or(|session| {
                    let refused = session.refused.is_some();
                    !state.flights.engine_has_any_of(index)
                        || (refused && !state.flights.has_unended_of(index))
                });
                Ok(none.then_some(()))
            },
        )
    }

    #[inline]
    fn resolved(&self, verb: Verb) -> TransferResult<&ResolvedVerb> {
        let resolved = lane_index(verb).and_then(|index| self.verbs[index].as_ref());
        resolved.ok_or_else(|| self.no_lane_error(verb))
    }

    #[cold]
    fn no_lane_error(&self, verb: Verb) -> TransferError {
        let (kind, reason) = match lane_index(verb) {
            Some(_) => (TransferErrorKind::Unavailable, "the engine lacks this verb"),
            None => (
                TransferErrorKind::Usage,
                "sessions do not support this verb",
            ),
        };
        self.error(kind, verb.name(), reason)
    }

    #[inline]
    fn check(&self, verb: Verb, extent: &Extent) -> TransferResult<()> {
        match self.allows(verb, extent) {
            true => Ok(()),
            false => Err(self.out_of_range_error(verb, extent)),
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
    fn out_of_range_error(&self, verb: Verb, extent: &Extent) -> TransferError {
        let Extent {
            local,
            remote,
            len,
            imm,
        } = *extent;
        let reason = if u64::from(len) > self.message_bytes_max {
            let most = self.message_bytes_max;
            format!("{len} bytes exceed this engine's maximum for one operation, {most}")
        } else if verb == Verb::WriteImm && !carries(self.immediate_bits, imm) {
            let bits = self.immediate_bits;
            format!("the immediate {imm} does not fit into the {bits} bits that the engine carries")
        } else {
            let (own, far) = (self.local_bytes, self.remote_bytes);
            format!(
                "a range lies outside: {len} bytes at offset {local} of {own} local bytes, and at offset {remote} of {far} \
                 remote bytes"
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
        let subject = self
            .cell
            .borrow()
            .subject
            .with_operation(operation, self.peer);
        TransferError::new(kind, subject, reason)
    }

    /// Returns the shared endpoint, for tasks that wait for room.
    pub(crate) fn cell(&self) -> &SharedEndpoint {
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
