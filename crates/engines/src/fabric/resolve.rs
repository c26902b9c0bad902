//! Resolving lanes: the route and the flush that come of what a lane was asked for.

use crate::slots::not_registered;
use tonnage_engine::{Lane, LaneKind, LaneSpec, Verb};
use tonnage_sys::libfabric::{Action, RegionHandle, RemoteRegion, Route};
use tonnage_units::{Error, Result};

use super::contact::FarMemory;
use super::lanes::{LaneState, Spec};
use super::worker::{FabricWorker, PeerState};
use crate::slots;

impl FabricWorker {
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
        let local = local.ok_or_else(|| not_registered(spec.local))?;
        let action = self.action(spec.kind, peer)?;
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
    fn action(&self, kind: LaneKind, peer: &PeerState) -> Result<Action> {
        let own_tag = u64::from(self.config.rank);
        Ok(match kind {
            LaneKind::Initiate(Verb::Write) => Action::Write,
            LaneKind::Initiate(Verb::WriteImm) => Action::WriteData,
            LaneKind::Initiate(Verb::Read) => Action::Read,
            LaneKind::Initiate(Verb::Send) if peer.tags => Action::SendTagged(own_tag),
            LaneKind::Initiate(Verb::Send) => Action::Send,
            LaneKind::Receive if self.tags() => Action::ReceiveTagged(u64::from(peer.rank)),
            LaneKind::Receive => Action::Receive,
            LaneKind::Initiate(Verb::FetchAdd | Verb::CompareSwap) => {
                let text = format!("{} is not among the verbs of fabric", kind.name());
                return Err(Error::Failed(text));
            }
        })
    }

    fn state(
        &self,
        spec: Spec,
        (action, local): (Action, RegionHandle),
        peer: &PeerState,
    ) -> LaneState {
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
        let flushed = self.ways.flushes.filter(|_| writes && !route.delivered);
        LaneState {
            spec,
            route,
            flush: flushed.map(|_| (flush, mail.scratch())),
            flushed_bytes_max: flushed.map_or(u32::MAX, |by| by.bytes_max),
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
