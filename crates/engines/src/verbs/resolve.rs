//! Resolving lanes: the work requests that come of what a lane was asked for.

use tonnage_engine::{Lane, LaneKind, LaneSpec, RegionId, Verb};
use tonnage_sys::verbs::{RegistrationHandle, WorkAction, WorkTarget};
use tonnage_units::{Error, Result};

use super::lanes::{Asking, VerbsLane};
use super::pairs::{FarBytes, PeerPairs, no_bytes};
use super::worker::VerbsWorker;
use crate::slots;

/// Registrations of one memory, at most: each peer gets all their keys.
const PIECES_MAX: u64 = 4096;

impl VerbsWorker {
    /// The lane of a specification: the same for the same. Order needs nothing: a queue pair keeps it.
    pub(super) fn resolve(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let peer = self.peers.iter().find(|peer| peer.rank == spec.peer);
        let peer = peer.ok_or_else(|| {
            let own = self.config.rank;
            Error::Failed(format!(
                "rank {} was never connected to rank {own}",
                spec.peer
            ))
        })?;
        let local = self.region(spec.local)?;
        let (action, pair) = action(spec.kind, peer);
        let is_one_sided = !matches!(action, WorkAction::Send);
        let asked = Asking {
            kind: spec.kind,
            peer: spec.peer,
            local: spec.local,
            remote: match is_one_sided && spec.kind != LaneKind::Receive {
                true => FarBytes::parse(spec.remote, spec.peer)?,
                // Where a message lands is said by its receive.
                false => no_bytes(),
            },
        };
        let same = |lane: &Option<VerbsLane>| matches!(lane, Some(lane) if lane.asked == asked);
        if let Some(index) = self.lanes.iter().position(same) {
            return Ok(Lane(index as u32));
        }
        let lane = VerbsLane {
            target: WorkTarget {
                action,
                pair: self.pairs[pair].handle,
                local,
                remote: asked.remote.clone(),
                inline_bytes_max: self.pairs[pair].inline_bytes,
                address: peer.address,
            },
            asked,
            pair,
            last_byte: None,
        };
        Ok(slots::put(&mut self.lanes, lane))
    }

    /// Bytes that registering a memory locks, where its registrations are not too many.
    pub(super) fn bytes_to_lock(&self, bytes: usize) -> Result<usize> {
        let (pieces, locked) = self.queues.would_register(bytes as u64);
        if pieces > PIECES_MAX {
            return Err(self.about_device(format!(
                "a memory of {bytes} bytes would have {pieces} registrations, whose keys all peers get: choose a larger                  mr-size, for {PIECES_MAX} at most"
            )));
        }
        Ok(usize::try_from(locked).unwrap_or(usize::MAX))
    }

    pub(super) fn region(&self, id: RegionId) -> Result<RegistrationHandle> {
        let found = self.regions.get(&id.0).copied();
        found.ok_or_else(|| Error::Failed(format!("region {} is not registered", id.0)))
    }
}

/// Action of a lane's work requests, and the place of the queue pair that carries them.
fn action(kind: LaneKind, peer: &PeerPairs) -> (WorkAction, usize) {
    match kind {
        LaneKind::Initiate(Verb::Write) => (WorkAction::Write, peer.one_sided),
        LaneKind::Initiate(Verb::WriteImm) => (WorkAction::WriteImm, peer.one_sided),
        LaneKind::Initiate(Verb::Read) => (WorkAction::Read, peer.one_sided),
        LaneKind::Initiate(Verb::FetchAdd) => (WorkAction::FetchAdd, peer.one_sided),
        LaneKind::Initiate(Verb::CompareSwap) => (WorkAction::CompareSwap, peer.one_sided),
        LaneKind::Initiate(Verb::Send) | LaneKind::Receive => (WorkAction::Send, peer.messages),
    }
}
