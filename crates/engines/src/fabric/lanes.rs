//! The lanes of a worker: what each was asked for, and the route and the flush that come of it.

use tonnage_engine::{Lane, LaneKind, LaneSpec, RegionId, Verb};
use tonnage_sys::libfabric::{Action, Region, RemoteRegion, Route};
use tonnage_units::{Error, Result};

use super::meet::FarMemory;
use super::worker::{PeerState, Worker};
use crate::slots;

/// Key that tells lanes apart.
#[derive(PartialEq)]
pub(super) struct Spec {
    pub(super) kind: LaneKind,
    pub(super) peer: u32,
    pub(super) local: RegionId,
    pub(super) remote: RemoteRegion,
    pub(super) ordered: bool,
    pub(super) delivered: bool,
}

pub(super) struct LaneState {
    pub(super) spec: Spec,
    pub(super) route: Route,
    /// The read that proves arrival, and where its byte goes; writes that are delivered need none.
    pub(super) flush: Option<(Route, u64)>,
    /// Offset of the last byte that was written; `None` before the first write.
    pub(super) last_byte: Option<u64>,
    /// The sender, in the high half of the data of a write-imm.
    pub(super) sender: u64,
    /// Receives of it are held, so that later ones have to wait behind them.
    pub(super) holds: bool,
}

impl Worker {
    /// The lane of a specification: the same for the same.
    pub(super) fn resolve(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let peer = self.peers.iter().find(|peer| peer.rank == spec.peer);
        let peer = peer.ok_or_else(|| {
            Error::Failed(format!(
                "rank {} was never connected to rank {}",
                self.config.rank, spec.peer
            ))
        })?;
        let local = self.regions.get(&spec.local.0).copied();
        let local = local
            .ok_or_else(|| Error::Failed(format!("region {} is not registered", spec.local.0)))?;
        let action = self.action(spec.kind, peer);
        let remote = match action {
            Action::Write | Action::WriteData | Action::Read => {
                FarMemory::parse(spec.remote, spec.peer)?.into()
            }
            // Where a message lands is said by its receive.
            _ => RemoteRegion {
                base: 0,
                key: 0,
                len: 0,
            },
        };
        let wanted = Spec {
            kind: spec.kind,
            peer: spec.peer,
            local: spec.local,
            remote,
            ordered: spec.ordered,
            delivered: spec.delivered,
        };
        let same = |lane: &Option<LaneState>| matches!(lane, Some(lane) if lane.spec == wanted);
        if let Some(index) = self.lanes.iter().position(same) {
            return Ok(Lane(index as u32));
        }
        let state = self.state(wanted, (action, local), peer);
        Ok(slots::put(&mut self.lanes, state))
    }

    /// Kind of operation of a lane.
    fn action(&self, kind: LaneKind, peer: &PeerState) -> Action {
        let own_tag = u64::from(self.config.rank);
        match kind {
            LaneKind::Initiate(Verb::Write) => Action::Write,
            LaneKind::Initiate(Verb::WriteImm) => Action::WriteData,
            LaneKind::Initiate(Verb::Read) => Action::Read,
            LaneKind::Initiate(Verb::Send) if peer.tags => Action::SendTagged(own_tag),
            LaneKind::Initiate(Verb::Send) => Action::Send,
            LaneKind::Receive if self.tags() => Action::ReceiveTagged(u64::from(peer.rank)),
            LaneKind::Receive => Action::Receive,
        }
    }

    fn state(&self, spec: Spec, (action, local): (Action, Region), peer: &PeerState) -> LaneState {
        let writes = matches!(action, Action::Write | Action::WriteData);
        let route = Route {
            action,
            peer: peer.peer,
            remote: spec.remote,
            local,
            delivered: writes && (spec.delivered || self.ways.deliver_every_write),
            inject_bytes_max: self.inject_bytes_max,
        };
        let mail = &self.mails[peer.greeted.mail];
        let flush = Route {
            action: Action::Read,
            local: mail.region,
            ..route
        };
        let flushes = writes && !route.delivered && self.ways.flushes;
        LaneState {
            spec,
            route,
            flush: flushes.then(|| (flush, mail.scratch())),
            last_byte: None,
            sender: if self.named {
                u64::from(self.config.rank) << 32
            } else {
                0
            },
            holds: false,
        }
    }
}
