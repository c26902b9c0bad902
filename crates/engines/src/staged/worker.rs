//! A worker with staged transfers: registering, connecting, lanes, posting and polling.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Completion, Descriptor, Ending, EndpointAddress, Engine, Facts, Failure, Flush, Lane, LaneKind,
    LaneSpec, LaneTable, Op, Peer, PeerEndpoint, Region, RegionId, RegionTable, Verb, WorkerConfig,
    move_waiting, never_connected,
};
use tonnage_sys::cuda::CudaContext;
use tonnage_units::{Error, Result};

use super::channel::{OUTSIDE, RegionOffset, StagedChannel, StagedRegions, WaitingReceive};
use super::message::{MessageKind, NO_OPERATION, StagedMessage};
use super::ring::{DEPTH_MAX, RingSlot, STAGING, StagingRing, Tag};
use crate::memory::cuda_region::{DriverMemory, gpu_name};
use crate::rings::failure;

/// Maximum number of completions taken from the engine below in one poll.
const POLLED: usize = 32;

/// A worker's endpoint address: the address of the engine below, and the descriptor of the ring.
#[derive(Serialize, Deserialize)]
struct StagedAddress {
    below: EndpointAddress,
    ring: Descriptor,
}

/// Descriptor of a registered memory.
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
    /// `None` for a receive.
    far: Option<StagedRegion>,
}

/// A ring, its registration with the engine below, and the peers for which it has slots.
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
    /// Context of the GPU that owns the registered memory; `None` if there is no GPU memory.
    context: Option<Arc<CudaContext>>,
    rings: Vec<PeersRing>,
    channels: Vec<StagedChannel>,
    /// Descriptors of the peers' rings, in the order of the channels.
    far_rings: Vec<Descriptor>,
    lanes: LaneTable<StagedLane>,
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
            regions: RegionTable::default(),
            context: None,
            rings: Vec::new(),
            channels: Vec::new(),
            far_rings: Vec::new(),
            lanes: LaneTable::default(),
            ready: VecDeque::with_capacity(2 * DEPTH_MAX as usize),
        }
    }

    /// Refuses memory that neither the CPU nor the GPU of the ring can copy.
    fn check_memory(&mut self, memory: &dyn Memory) -> Result<()> {
        if memory.host().is_some() {
            return Ok(());
        }
        let unavailable = |why: String, how: &str| Error::Unavailable {
            what: format!("memory {} with {STAGING}=pinned", memory.report().kind),
            why,
            how: how.to_owned(),
        };
        let Some(bytes) = DriverMemory::from_memory(memory) else {
            let why = "neither the CPU nor a GPU driver can copy this memory".to_owned();
            return Err(unavailable(why, "Choose memory host, cuda or hip"));
        };
        match &self.context {
            Some(known) if Arc::ptr_eq(known, bytes.context()) => Ok(()),
            None if self.rings.is_empty() => {
                self.context = Some(Arc::clone(bytes.context()));
                Ok(())
            }
            Some(known) => Err(unavailable(
                format!("the ring of this thread is pinned for {}", gpu_name(known)),
                "Register memory of one GPU only, or use one thread for each GPU",
            )),
            None => Err(unavailable(
                "the ring of this thread was created before GPU memory was registered".to_owned(),
                "Register GPU memory before making endpoint addresses for peers",
            )),
        }
    }

    /// Accepts one operation. Returns `false` if there is no room.
    fn take(&mut self, op: &Op) -> Result<bool> {
        let lane = *self.lanes.get(op.lane)?;
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
        let spot = RegionOffset {
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
        Ok(channel.take(message, spot, Completion::new(op, Ending::Done)))
    }

    /// Advances all channels as far as possible without waiting.
    fn step(&mut self) -> Result<()> {
        for channel in &mut self.channels {
            channel.step(&mut *self.below, &self.regions, &mut self.ready)?;
        }
        Ok(())
    }

    /// Handles completions of the engine below.
    fn poll_below(&mut self) -> Result<()> {
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
            match tag.slot() {
                RingSlot::Incoming(index) if completion.ending == Ending::Arrived => {
                    channel.handle_arrival(index, &self.regions, &mut self.ready)?;
                }
                slot => channel.slot_sent(slot, &mut self.ready),
            }
        }
        Ok(())
    }
}

impl Engine for StagedWorker {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        self.check_memory(&**memory)?;
        let id = self.regions.put(Arc::clone(memory));
        let descriptor = Descriptor::encode(&StagedRegion {
            region: id.0,
            bytes: memory.bytes(),
        });
        Ok(Region { id, descriptor })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        self.lanes.check_unused(region, |lane| lane.local)?;
        self.regions.take(region).map(|_| ())
    }

    fn endpoint_addresses(&mut self, peers: &[Peer]) -> Result<Vec<EndpointAddress>> {
        let ring = Arc::new(StagingRing::new(peers.len(), self.context.as_ref())?);
        let region = self.below.register(ring.memory())?;
        let addresses = self
            .below
            .endpoint_addresses(peers)?
            .into_iter()
            .map(|below| {
                EndpointAddress::encode(&StagedAddress {
                    below,
                    ring: region.descriptor.clone(),
                })
            });
        let addresses = addresses.collect();
        self.rings.push(PeersRing {
            ring,
            region,
            peers: peers.to_vec(),
        });
        Ok(addresses)
    }

    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()> {
        let mut below = Vec::with_capacity(peers.len());
        for neighbor in peers {
            let peer = neighbor.peer;
            let unreadable = |error| {
                Error::Failed(format!(
                    "cannot decode the endpoint address of rank {peer} ({error}): choose {STAGING}=pinned for all \
                     ranks"
                ))
            };
            let address: StagedAddress =
                serde_json::from_slice(&neighbor.address.0).map_err(unreadable)?;
            let known = self.rings.iter().rev().find_map(|known| {
                let index = known.peers.iter().position(|&other| other == peer)?;
                Some((Arc::clone(&known.ring), index))
            });
            let none = || {
                Error::Failed(format!(
                    "this side made no endpoint address for rank {peer}"
                ))
            };
            let number = self.channels.len() as u32;
            let channel = StagedChannel::new(peer, known.ok_or_else(none)?, number)?;
            self.channels.push(channel);
            self.far_rings.push(address.ring);
            below.push(PeerEndpoint {
                address: address.below,
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
                    in_order: true,
                    ..LaneSpec::new(kind, channel.peer, known.region.id, remote)
                })
            };
            let sending = lane(LaneKind::Initiate(Verb::Send))?;
            channel.lanes = Some((sending, lane(LaneKind::Receive)?));
        }
        // Posts receives before any peer sends.
        self.step()
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let of_peer = |channel: &StagedChannel| channel.peer == spec.peer;
        let channel = self.channels.iter().position(of_peer);
        let channel = channel.ok_or_else(|| never_connected(self.config.rank, spec.peer))?;
        let own = self.regions.get(spec.local)?;
        let far = match spec.kind {
            LaneKind::Receive => None,
            LaneKind::Initiate(_) => {
                let region = serde_json::from_slice(&spec.remote.0);
                Some(region.map_err(|error| {
                    Error::Failed(format!(
                        "cannot decode a region of rank {} ({error}): choose {STAGING}=pinned for all ranks",
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
        let known = self.lanes.find(|lane| *lane == state);
        Ok(known.unwrap_or_else(|| self.lanes.put(state)))
    }

    fn release_lane(&mut self, lane: Lane) {
        self.lanes.release(lane);
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
        // The peer has acknowledged all pieces of every completed operation.
        self.lanes.get(lane).map(|_| Flush::Delivered)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        self.poll_below()?;
        self.step()?;
        Ok(move_waiting(&mut self.ready, done))
    }

    fn failure(&self, done: &Completion) -> Failure {
        let lane = self.lanes.get(done.lane).ok();
        let lane = lane.map(|lane| (lane.kind, self.channels[lane.channel].peer));
        let outside = (
            OUTSIDE,
            "outside of the peer's memory",
            "the peer has deregistered that memory",
        );
        let engine = format!("{STAGING} over {}", self.below_name);
        failure(&engine, done, lane, outside)
    }

    fn settle(&mut self, trying: bool) -> bool {
        self.below.settle(trying)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        self.below.flush_incoming()
    }

    fn take_device_events(&mut self) -> Vec<String> {
        self.below.take_device_events()
    }

    fn chosen(&self) -> Facts {
        self.below.chosen()
    }
}
