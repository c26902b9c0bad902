//! Operations without a session. Each call identifies both memories; a [`LaneSource`] decides how the call gets its
//! lane.
//!
//! Internally each call uses a session, which is either kept for later calls or closes when the call's operations have
//! ended.

use std::sync::Arc;

use tonnage_engine::{Lane, Peer, Verb};

use crate::address::RemoteId;
use crate::error::{TransferError, TransferErrorKind, TransferResult};
use crate::extent::{Extent, carries};
use crate::flights::OperationName;
use crate::state::{EndpointState, LocalId, lane_index};

/// Reason for refusing a call with unregistered local memory.
const NOT_REGISTERED: &str = "the local memory is not registered";

/// How an operation without a session gets its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaneSource {
    /// Each call looks up the session of its two memories. The first call opens that session.
    LookUp,
    /// Each call opens a lane of its own, which is released when the call's operations have ended.
    Fresh,
    /// Like `Fresh`, but each call also registers the local memory, and deregisters it at the end.
    Register,
}

impl EndpointState {
    /// Posts operations by ID, with a lane from `source`, and returns their slot.
    #[inline]
    pub(crate) fn transfer(
        &mut self,
        source: LaneSource,
        verb: Verb,
        (local, remote): (LocalId, RemoteId),
        extents: &[Extent],
    ) -> TransferResult<u32> {
        let index = match source {
            LaneSource::LookUp => self.find_or_open_session(verb, local, remote)?,
            LaneSource::Fresh => {
                let place = self.known_region(verb, local, remote)?;
                self.open_named(verb, place, remote, &[verb])?
            }
            LaneSource::Register => self.open_with_registration(verb, local, remote)?,
        };
        let posted = self.post_by_index(index, verb, (local, remote), extents);
        if source != LaneSource::LookUp {
            // The session closes when its operations have ended, or now if nothing was posted.
            self.close_after_slot(index, posted.as_ref().ok().copied());
        }
        posted
    }

    /// Returns the session that an earlier call opened for these memories, or opens one for this and later calls.
    #[inline]
    pub(crate) fn find_or_open_session(
        &mut self,
        verb: Verb,
        local: LocalId,
        remote: RemoteId,
    ) -> TransferResult<u32> {
        if let Some(&session) = self.named_sessions.get(&(local, remote)) {
            return Ok(session);
        }
        let place = self.known_region(verb, local, remote)?;
        let session = self.open_named(verb, place, remote, &Verb::COPYING)?;
        self.named_sessions.insert((local, remote), session);
        Ok(session)
    }

    /// Opens a session with a registration of its own.
    pub(crate) fn open_with_registration(
        &mut self,
        verb: Verb,
        local: LocalId,
        remote: RemoteId,
    ) -> TransferResult<u32> {
        let Some(memory) = self.region_of(local).map(|known| Arc::clone(&known.memory)) else {
            return Err(self.unknown(verb, remote.peer, NOT_REGISTERED));
        };
        let region = self.register(memory)?;
        let session = self.open_named(verb, region, remote, &[verb]);
        // The session keeps the registration alive.
        self.release_region(region);
        session
    }

    /// Returns the index of the local memory's registration. Fails if the memory is not registered.
    fn known_region(&self, verb: Verb, local: LocalId, remote: RemoteId) -> TransferResult<u32> {
        match self.region_of(local) {
            Some(_) => Ok(local.place),
            None => Err(self.unknown(verb, remote.peer, NOT_REGISTERED)),
        }
    }

    fn open_named(
        &mut self,
        verb: Verb,
        region: u32,
        remote: RemoteId,
        verbs: &[Verb],
    ) -> TransferResult<u32> {
        let Some(known) = self.remotes.get(&remote) else {
            return Err(self.unknown(
                verb,
                remote.peer,
                "the remote memory is unknown to this endpoint",
            ));
        };
        let (descriptor, options) = (known.descriptor.clone(), known.options);
        let far = (remote.peer, &descriptor);
        self.open_session(region, far, options, verbs)
    }

    /// Starts a flush of the operations that were posted with [`LaneSource::LookUp`], and returns its slot.
    pub(crate) fn flush_by_name(
        &mut self,
        verb: Verb,
        local: LocalId,
        remote: RemoteId,
    ) -> TransferResult<u32> {
        let session = self.find_or_open_session(verb, local, remote)?;
        let lane = self.lane_of(session, verb, remote.peer)?;
        let flushed = self.flush(session, lane)?;
        flushed.ok_or_else(|| self.busy.clone())
    }

    #[inline]
    fn lane_of(&self, session: u32, verb: Verb, peer: Peer) -> TransferResult<Lane> {
        let session = self.sessions.get(session);
        let lane = lane_index(verb).and_then(|index| session?.lanes[index]);
        lane.ok_or_else(|| self.unknown(verb, peer, "the engine lacks this verb"))
    }

    /// Posts operations on the session with this index, and returns their slot.
    #[inline]
    pub(crate) fn post_by_index(
        &mut self,
        session: u32,
        verb: Verb,
        (local, remote): (LocalId, RemoteId),
        extents: &[Extent],
    ) -> TransferResult<u32> {
        let own = self.region_of(local);
        let own_bytes = own.map_or(0, |region| region.memory.bytes());
        let far_bytes = self.remotes.get(&remote).map_or(0, |remote| remote.bytes);
        let (most, bits) = (self.caps.message_bytes_max, self.caps.immediate_bits);
        let is_inside = |extent: &Extent| {
            let len = u64::from(extent.len);
            let fits = |offset: u64, bytes: u64| offset <= bytes && len <= bytes - offset;
            let lies_inside = fits(extent.local, own_bytes) && fits(extent.remote, far_bytes);
            lies_inside && len <= most && (verb != Verb::WriteImm || carries(bits, extent.imm))
        };
        if !extents.iter().all(is_inside) {
            return Err(self.out_of_range_error(verb, remote.peer, [own_bytes, far_bytes]));
        }
        let lane = self.lane_of(session, verb, remote.peer)?;
        let posted = match extents {
            [one] => self.post(session, (lane, OperationName::One(verb)), one)?,
            [] => return Err(self.unknown(verb, remote.peer, "the batch is empty")),
            many => self.post_batch(session, (lane, OperationName::Batch(verb)), many)?,
        };
        posted.ok_or_else(|| self.busy.clone())
    }

    #[cold]
    fn out_of_range_error(&self, verb: Verb, peer: Peer, bytes: [u64; 2]) -> TransferError {
        let [own, far] = bytes;
        let reason = format!(
            "an operation lies outside a local memory of {own} bytes or a remote one of {far} bytes, or is longer than \
             this engine's longest, {}, or its immediate has more than {} bits",
            self.caps.message_bytes_max, self.caps.immediate_bits
        );
        let subject = self.subject.with_operation(verb.name(), peer);
        TransferError::new(TransferErrorKind::OutOfRange, subject, reason)
    }

    #[cold]
    fn unknown(&self, verb: Verb, peer: Peer, reason: &str) -> TransferError {
        let subject = self.subject.with_operation(verb.name(), peer);
        TransferError::new(TransferErrorKind::Usage, subject, reason)
    }
}
