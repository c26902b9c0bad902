//! A worker whose bytes are staged: registering, connecting, lanes, posting and polling.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Card, Completion, Descriptor, Ending, Engine, Facts, Failure, Flush, Lane, LaneKind, LaneSpec,
    Neighbor, Op, Peer, Region, RegionId, Verb, WorkerConfig,
};
use tonnage_sys::cuda::CudaContext;
use tonnage_units::{Error, Result};

use super::bounds::{DEPTH_MAX, STAGING};
use super::channel::{Spot, StagedChannel, StagedRegions, WaitingReceive};
use super::message::{MessageKind, NO_OPERATION, StagedMessage};
use super::pieces::{OUTSIDE, TOO_LONG};
use super::ring::{RingPlace, StagingRing};
use super::tag::Tag;
use crate::memory::cuda_region::{DriverMemory, gpu_name};
use crate::rings::described;
use crate::slots::{has_lanes, never_resolved, not_registered};

/// Completions of the engine below that are looked at at once.
const POLLED: usize = 32;

/// A worker's address: that of the engine below, and the ring.
#[derive(Serialize, Deserialize)]
struct StagedCard {
    below: Card,
    ring: Descriptor,
}

/// A registered memory as peers name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct StagedRegion {
    region: u32,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StagedLane {
    kind: LaneKind,
    channel: usize,
    local: RegionId,
    local_bytes: u64,
    /// A receive has none.
    far: Option<StagedRegion>,
}

/// A ring, its registration below, and the peers whose places it has.
struct PeersRing {
    ring: Arc<StagingRing>,
    region: Region,
    peers: Vec<Peer>,
}

pub(super) struct StagedWorker {
    below: Box<dyn Engine + Send>,
    /// Name of the engine below, for messages.
    below_name: String,
    config: WorkerConfig,
    regions: StagedRegions,
    region_next: u32,
    /// The GPU whose memory is registered.
    context: Option<Arc<CudaContext>>,
    rings: Vec<PeersRing>,
    channels: Vec<StagedChannel>,
    /// The peers' rings, in the order of the channels.
    far_rings: Vec<Descriptor>,
    lanes: Vec<Option<StagedLane>>,
    ready: VecDeque<Completion>,
}

impl StagedWorker {
    pub(super) fn new(
        (below, below_name): (Box<dyn Engine + Send>, String),
        config: &WorkerConfig,
    ) -> Self {
        Self {
            below,
            below_name,
            config: config.clone(),
            regions: BTreeMap::new(),
            region_next: 0,
            context: None,
            rings: Vec::new(),
            channels: Vec::new(),
            far_rings: Vec::new(),
            lanes: Vec::new(),
            ready: VecDeque::with_capacity(2 * DEPTH_MAX as usize),
        }
    }

    /// Refuses memory that neither the CPU nor the GPU of the ring copies.
    fn check_memory(&mut self, memory: &dyn Memory) -> Result<()> {
        if memory.host().is_some() {
            return Ok(());
        }
        let unavailable = |why: String, how: &str| Error::Unavailable {
            what: format!("memory {} with {STAGING}=pinned", memory.report().kind),
            why,
            how: how.to_owned(),
        };
        let Some(bytes) = DriverMemory::of(memory) else {
            let why = "neither the CPU nor the driver of a GPU copies this memory".to_owned();
            return Err(unavailable(why, "Choose memory host, cuda or hip"));
        };
        match &self.context {
            Some(known) if Arc::ptr_eq(known, bytes.context()) => Ok(()),
            None if self.rings.is_empty() => {
                self.context = Some(Arc::clone(bytes.context()));
                Ok(())
            }
            Some(known) => Err(unavailable(
                format!("the ring of this worker is pinned for {}", gpu_name(known)),
                "Register memory of one GPU only, or use a worker for each",
            )),
            None => Err(unavailable(
                "the ring of this worker was made before any GPU was known".to_owned(),
                "Register memory of the GPU before cards are made for peers",
            )),
        }
    }

    fn channel_of(&self, peer: Peer) -> Result<usize> {
        let place = self
            .channels
            .iter()
            .position(|channel| channel.peer == peer);
        place.ok_or_else(|| {
            Error::Failed(format!(
                "rank {} was never connected to rank {peer}",
                self.config.rank
            ))
        })
    }

    /// Hands over one operation. `false`: there is no room now.
    fn take(&mut self, op: &Op) -> Result<bool> {
        let Some(Some(lane)) = self.lanes.get(op.lane.0 as usize).copied() else {
            return Err(never_resolved(op.lane));
        };
        let channel = &mut self.channels[lane.channel];
        let inside = |offset: u64, bytes: u64| {
            let end = offset.checked_add(op.len.into());
            match end.is_some_and(|end| end <= bytes) {
                true => Ok(()),
                false => Err(Error::Failed(format!(
                    "{} bytes at offset {offset} lie outside a memory of {bytes} bytes",
                    op.len
                ))),
            }
        };
        inside(op.local, lane.local_bytes)?;
        let spot = Spot {
            region: lane.local.0,
            offset: op.local,
        };
        let (LaneKind::Initiate(verb), Some(far)) = (lane.kind, lane.far) else {
            let room = channel.receives.len() < DEPTH_MAX as usize;
            if room {
                channel.receives.push_back(WaitingReceive {
                    spot,
                    len: op.len,
                    tag: op.tag,
                });
            }
            return Ok(room);
        };
        let kind = match verb {
            Verb::Write => MessageKind::Write,
            Verb::WriteImm => MessageKind::WriteImm,
            Verb::Send => MessageKind::Send,
            Verb::Read => MessageKind::ReadRequest,
            Verb::FetchAdd | Verb::CompareSwap => {
                return Err(Error::Failed(format!("{} cannot be staged", verb.name())));
            }
        };
        if verb != Verb::Send {
            inside(op.remote, far.bytes)?;
        }
        let message = StagedMessage {
            kind,
            operation: NO_OPERATION,
            region: far.region,
            imm: op.imm,
            offset: op.remote,
            whole: op.len,
            at: 0,
            len: 0,
            code: 0,
        };
        let done = Completion {
            tag: op.tag,
            lane: op.lane,
            len: op.len,
            imm: op.imm,
            ending: Ending::Done,
        };
        Ok(channel.take(message, spot, done))
    }

    /// Moves everything on that need not wait.
    fn step(&mut self) -> Result<()> {
        for channel in &mut self.channels {
            channel.step(&mut *self.below, &self.regions, &mut self.ready)?;
        }
        Ok(())
    }

    /// Looks at what the engine below has done.
    fn look_below(&mut self) -> Result<()> {
        let mut done = [Completion::EMPTY; POLLED];
        let count = self.below.poll(&mut done)?;
        for completion in &done[..count] {
            let tag = Tag(completion.tag);
            if let Ending::Failed(_) = completion.ending {
                let failure = self.below.failure(completion);
                return Err(Error::Failed(format!("a piece was lost: {failure}")));
            }
            let Some(channel) = self.channels.get_mut(tag.channel()) else {
                continue;
            };
            match tag.place() {
                RingPlace::Arriving(index) if completion.ending == Ending::Arrived => {
                    channel.arrived(index, &self.regions, &mut self.ready)?;
                }
                place => channel.sent(place, &mut self.ready),
            }
        }
        Ok(())
    }
}

impl Engine for StagedWorker {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        self.check_memory(&**memory)?;
        let id = RegionId(self.region_next);
        self.regions.insert(id.0, Arc::clone(memory));
        self.region_next += 1;
        let described = StagedRegion {
            region: id.0,
            bytes: memory.bytes(),
        };
        // Two numbers: writing them as JSON cannot fail.
        let descriptor = Descriptor(serde_json::to_vec(&described).unwrap_or_default());
        Ok(Region { id, descriptor })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        let mut lanes = self.lanes.iter().flatten();
        if lanes.any(|lane| lane.local == region) {
            return Err(has_lanes(region));
        }
        let taken = self.regions.remove(&region.0);
        taken.map(|_| ()).ok_or_else(|| not_registered(region))
    }

    fn cards(&mut self, peers: &[Peer]) -> Result<Vec<Card>> {
        let ring = Arc::new(StagingRing::new(peers.len(), self.context.as_ref())?);
        let region = self.below.register(ring.memory())?;
        let cards = self.below.cards(peers)?.into_iter().map(|below| {
            let card = StagedCard {
                below,
                ring: region.descriptor.clone(),
            };
            // Two lists of bytes: writing them as JSON cannot fail.
            Card(serde_json::to_vec(&card).unwrap_or_default())
        });
        let cards = cards.collect();
        self.rings.push(PeersRing {
            ring,
            region,
            peers: peers.to_vec(),
        });
        Ok(cards)
    }

    fn connect(&mut self, peers: &[Neighbor]) -> Result<()> {
        let mut below = Vec::with_capacity(peers.len());
        for neighbor in peers {
            let peer = neighbor.peer;
            let unreadable = |error| {
                Error::Failed(format!(
                    "the card of rank {peer} cannot be read ({error}): choose {STAGING}=pinned for all ranks"
                ))
            };
            let card: StagedCard = serde_json::from_slice(&neighbor.card.0).map_err(unreadable)?;
            let known = self.rings.iter().rev().find_map(|known| {
                let index = known.peers.iter().position(|&other| other == peer)?;
                Some((Arc::clone(&known.ring), index))
            });
            let none = || Error::Failed(format!("no card was made for rank {peer}"));
            let number = self.channels.len() as u32;
            let channel = StagedChannel::new(peer, known.ok_or_else(none)?, number)?;
            self.channels.push(channel);
            self.far_rings.push(card.ring);
            below.push(Neighbor {
                card: card.below,
                ..neighbor.clone()
            });
        }
        self.below.connect(&below)
    }

    fn meet(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        self.below.meet(stopped)?;
        for (channel, remote) in self.channels.iter_mut().zip(&self.far_rings) {
            let of_ring = |known: &&PeersRing| Arc::ptr_eq(&known.ring, &channel.ring);
            let Some(known) = self.rings.iter().find(of_ring) else {
                continue;
            };
            if channel.lanes.is_some() {
                continue;
            }
            let mut lane = |kind| {
                self.below.lane(&LaneSpec {
                    kind,
                    peer: channel.peer,
                    local: known.region.id,
                    remote,
                    ordered: false,
                    in_order: true,
                    delivered: false,
                })
            };
            let sending = lane(LaneKind::Initiate(Verb::Send))?;
            channel.lanes = Some((sending, lane(LaneKind::Receive)?));
        }
        // Receives are there before anybody sends.
        self.step()
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let channel = self.channel_of(spec.peer)?;
        let own = self.regions.get(&spec.local.0);
        let own = own.ok_or_else(|| not_registered(spec.local))?;
        let far = match spec.kind {
            LaneKind::Receive => None,
            LaneKind::Initiate(_) => {
                let region = serde_json::from_slice(&spec.remote.0);
                Some(region.map_err(|error| {
                    Error::Failed(format!(
                        "a region of rank {} cannot be read ({error}): choose {STAGING}=pinned for all ranks",
                        spec.peer
                    ))
                })?)
            }
        };
        let state = StagedLane {
            kind: spec.kind,
            channel,
            local: spec.local,
            local_bytes: own.bytes(),
            far,
        };
        let same = |lane: &Option<StagedLane>| *lane == Some(state);
        if let Some(index) = self.lanes.iter().position(same) {
            return Ok(Lane(index as u32));
        }
        Ok(crate::slots::put(&mut self.lanes, state))
    }

    fn release(&mut self, lane: Lane) {
        crate::slots::take(&mut self.lanes, lane);
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let mut taken = 0;
        for op in ops {
            match self.take(op) {
                Ok(true) => taken += 1,
                Err(error) if taken == 0 => return Err(error),
                Ok(false) | Err(_) => break,
            }
        }
        self.step()?;
        Ok(taken)
    }

    fn flush(&mut self, lane: Lane, _tag: u32) -> Result<Flush> {
        // What has completed has been acknowledged by the peer.
        match self.lanes.get(lane.0 as usize) {
            Some(Some(_)) => Ok(Flush::Delivered),
            _ => Err(never_resolved(lane)),
        }
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        self.look_below()?;
        self.step()?;
        let mut count = 0;
        while count < done.len()
            && let Some(completion) = self.ready.pop_front()
        {
            done[count] = completion;
            count += 1;
        }
        Ok(count)
    }

    fn failure(&self, done: &Completion) -> Failure {
        let lane = self.lanes.get(done.lane.0 as usize).copied().flatten();
        let (name, usual_cause) = match done.ending {
            Ending::Failed(TOO_LONG) => (
                "message too long",
                Some("the peer posted a receive that is shorter than the message"),
            ),
            Ending::Failed(OUTSIDE) => (
                "outside of the peer's memory",
                Some("the peer has taken the registration of that memory back"),
            ),
            _ => ("not a failure", None),
        };
        let of = (
            lane.map(|lane| lane.kind),
            lane.map(|lane| self.channels[lane.channel].peer),
        );
        let engine = format!("{STAGING} over {}", self.below_name);
        described(&engine, done, of, (name, usual_cause))
    }

    fn settle(&mut self, trying: bool) -> bool {
        self.below.settle(trying)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        self.below.flush_incoming()
    }

    fn chosen(&self) -> Facts {
        self.below.chosen()
    }
}
