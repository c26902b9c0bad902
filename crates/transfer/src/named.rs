//! Operations without a session: memory and peer are named by each call, and the lane is found in one of several ways.
//!
//! All of them end in a session that its caller never sees: kept for the next call, or closed with its operations.

use std::sync::Arc;

use tonnage_engine::{Peer, Verb};

use crate::card::RemoteId;
use crate::error::{TransferError, TransferErrorKind, TransferResult};
use crate::memory::LocalId;
use crate::progress::Extent;
use crate::resources::{SessionOptions, lane_index};
use crate::state::EndpointState;

impl EndpointState {
    /// The session that an earlier call has made for these memories, or a new one that later calls find.
    #[inline]
    pub(crate) fn looked_up_session(
        &mut self,
        verb: Verb,
        local: LocalId,
        remote: RemoteId,
    ) -> TransferResult<u32> {
        if let Some(&session) = self.looked_up.get(&(local.0, remote)) {
            return Ok(session);
        }
        let session = self.open_named(verb, local.0, remote, &Verb::ALL)?;
        self.looked_up.insert((local.0, remote), session);
        Ok(session)
    }

    /// A session with a lane for this verb alone.
    pub(crate) fn fresh_session(
        &mut self,
        verb: Verb,
        region: u32,
        remote: RemoteId,
    ) -> TransferResult<u32> {
        self.open_named(verb, region, remote, &[verb])
    }

    /// A session over a registration of its own.
    pub(crate) fn registered_session(
        &mut self,
        verb: Verb,
        local: LocalId,
        remote: RemoteId,
    ) -> TransferResult<u32> {
        let Some(known) = self.regions.get(local.0) else {
            return Err(self.unknown(verb, remote.peer, "the local memory is not registered"));
        };
        let memory = Arc::clone(&known.memory);
        let region = self.register(memory)?;
        let session = self.fresh_session(verb, region, remote);
        // The session is a user of its own.
        self.release_region(region);
        session
    }

    fn open_named(
        &mut self,
        verb: Verb,
        region: u32,
        remote: RemoteId,
        verbs: &[Verb],
    ) -> TransferResult<u32> {
        if self.regions.get(region).is_none() {
            return Err(self.unknown(verb, remote.peer, "the local memory is not registered"));
        }
        let Some(known) = self.remotes.get(&remote) else {
            return Err(self.unknown(verb, remote.peer, "the remote memory is not known here"));
        };
        let descriptor = known.descriptor.clone();
        let far = (remote.peer, &descriptor);
        self.open_session(region, far, SessionOptions::default(), verbs)
    }

    /// Posts on a session by its number, and returns the slot.
    #[inline]
    pub(crate) fn post_by_index(
        &mut self,
        session: u32,
        verb: Verb,
        (local, remote): (LocalId, RemoteId),
        extents: &[Extent],
    ) -> TransferResult<u32> {
        let own = self.regions.get(local.0);
        let own_bytes = own.map_or(0, |region| region.memory.bytes());
        let far_bytes = self.remotes.get(&remote).map_or(0, |remote| remote.bytes);
        let most = self.caps.message_bytes_max;
        let is_inside = |extent: &Extent| {
            let len = u64::from(extent.len);
            let fits = |offset: u64, bytes: u64| offset <= bytes && len <= bytes - offset;
            fits(extent.local, own_bytes) && fits(extent.remote, far_bytes) && len <= most
        };
        if !extents.iter().all(is_inside) {
            return Err(self.named_outside(verb, remote.peer, [own_bytes, far_bytes]));
        }
        let lanes = self.sessions.get(session).map(|session| session.lanes);
        let lane = lane_index(verb).and_then(|index| lanes?[index]);
        let Some(lane) = lane else {
            return Err(self.unknown(verb, remote.peer, "the engine lacks this verb"));
        };
        let posted = match extents {
            [one] => self.post(session, (lane, verb.name()), one)?,
            [] => return Err(self.unknown(verb, remote.peer, "nothing to be transferred")),
            many => self.post_batch(session, (lane, verb.name()), many)?,
        };
        posted.ok_or_else(|| {
            let subject = self.subject.with(verb.name(), remote.peer);
            let reason = "no room now: poll, and try again";
            TransferError::new(TransferErrorKind::Busy, subject, reason)
        })
    }

    #[cold]
    fn named_outside(&self, verb: Verb, peer: Peer, bytes: [u64; 2]) -> TransferError {
        let [own, far] = bytes;
        let reason = format!(
            "an operation lies outside a local memory of {own} bytes or a remote one of {far} bytes, or is longer than \
             this engine's longest, {}",
            self.caps.message_bytes_max
        );
        let subject = self.subject.with(verb.name(), peer);
        TransferError::new(TransferErrorKind::OutOfRange, subject, reason)
    }

    #[cold]
    fn unknown(&self, verb: Verb, peer: Peer, reason: &str) -> TransferError {
        let subject = self.subject.with(verb.name(), peer);
        TransferError::new(TransferErrorKind::Usage, subject, reason)
    }
}
