//! One worker: an endpoint, its registrations, lanes, posting and polling.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Arm, Card, Completion, Ending, Engine, Facts, Failure, Flush, Lane, LaneKind, LaneSpec,
    Neighbor, Op, Region, RegionId, WorkerConfig,
};
use tonnage_sys::libfabric::{
    self, Attributes, Endpoint, Event, EventKind, Info, PeerAddress, Posted, RemoteRegion, Wait,
};
use tonnage_units::{Error, Result};

use super::causes::usual_cause;
use super::contact::FarMemory;
use super::files;
use super::lanes::LaneState;
use super::mail::{Greeted, Mail};
use super::options::OR_INSTEAD;
use super::queue_sizes::sizes;
use crate::early::EarlyArrivals;
use crate::registration::CardRegions;
use crate::slots::{self, has_lanes, never_resolved};

/// Tag of the greeting, which is posted before any lane exists.
pub(super) const GREETING: u64 = u64::MAX;

/// Choices among several ways to carry operations out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ways {
    /// True when small messages are injected.
    pub(super) inject: bool,
    /// True when every write asks for delivery.
    pub(super) deliver_every_write: bool,
    /// Writes of which a read after them proves that they have arrived.
    pub(super) flushes: Option<Flushed>,
    /// Writes go by attaching to the peer's memory, so that the system must allow it.
    pub(super) attaches: bool,
    /// The provider is shm.
    pub(super) is_shm: bool,
}

/// Writes whose arrival a read after them proves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flushed {
    /// The longest of them.
    pub(super) bytes_max: u32,
    /// True when longer ones can ask for delivery; else they are refused.
    pub(super) longer_delivered: bool,
}

pub(super) struct PeerState {
    pub(super) rank: u32,
    /// Its device, in words.
    pub(super) device: String,
    pub(super) peer: PeerAddress,
    pub(super) mailbox: RemoteRegion,
    /// Place of this side's greeting.
    pub(super) place: u64,
    /// Place of its own greeting.
    pub(super) greeted: Greeted,
    /// True when it has several peers, so that its receives tell them apart by tags. Not every provider honours the
    /// address of a receive.
    pub(super) tags: bool,
}

/// A worker's endpoint.
pub(super) struct FabricWorker {
    pub(super) config: WorkerConfig,
    pub(super) name: String,
    pub(super) attributes: Attributes,
    pub(super) inject_bytes_max: u32,
    pub(super) ways: Ways,
    /// True when this process may attach to the memory of all peers; only asked for shm.
    pub(super) attachable: Option<bool>,
    /// Writes carry 64 bits, so that an arrival says whose it is.
    pub(super) named: bool,
    pub(super) endpoint: Endpoint,
    /// Registered memories by the number of their region.
    pub(super) regions: BTreeMap<u32, libfabric::RegionHandle>,
    /// Way to register memory of GPUs; `None` where the provider was not asked for that.
    pub(super) registration: Option<String>,
    /// Those of them that are of GPUs.
    pub(super) card_regions: CardRegions,
    /// Numbers regions and their keys, where the provider lets its user choose; none is given twice.
    pub(super) region_next: u32,
    /// One for each call of `cards`.
    pub(super) mails: Vec<Mail>,
    pub(super) peers: Vec<PeerState>,
    /// Number of the peers that have met this worker.
    pub(super) met: usize,
    pub(super) lanes: Vec<Option<LaneState>>,
    /// Injected operations, which are done but not yet reported.
    done: VecDeque<Completion>,
    /// Arrivals during first contact, which are told before anything that comes later.
    pub(super) early: EarlyArrivals,
    /// Receives for which the library had no room. Those of other peers must not wait for them: it may be their
    /// messages that fill the room.
    held: VecDeque<Op>,
    /// The library's words for the last failed operation.
    failed: Option<Box<libfabric::FabricError>>,
}

impl FabricWorker {
    /// Opens an endpoint. `registration` is the way to register memory of GPUs, where the provider was asked for that.
    pub(super) fn open(
        info: Info,
        config: &WorkerConfig,
        (ways, registration): (Ways, Option<String>),
    ) -> Result<Self> {
        let attributes = info.attributes().clone();
        let name = format!("fabric:{}", attributes.provider);
        let sizes = sizes(config);
        let opening = |why| {
            let trouble = ways.is_shm.then(files::trouble).flatten();
            let trouble = trouble.map_or_else(String::new, |trouble| format!("; {trouble}"));
            // One that was opened for memory of GPUs can be refused for these alone.
            let instead = registration.as_ref().map_or("", |_| OR_INSTEAD);
            Error::Failed(format!(
                "cannot open {name} on {}: {why}{trouble}{instead}",
                attributes.domain
            ))
        };
        let endpoint = Endpoint::open(info, sizes, config.sleeps).map_err(opening)?;
        let inject_bytes_max = if ways.inject {
            u32::try_from(endpoint.inject_bytes_max()).unwrap_or(u32::MAX)
        } else {
            0
        };
        Ok(Self {
            config: config.clone(),
            name,
            inject_bytes_max,
            ways,
            attachable: None,
            named: attributes.immediate_bytes >= 8,
            attributes,
            endpoint,
            regions: BTreeMap::new(),
            registration,
            card_regions: CardRegions::default(),
            region_next: 0,
            mails: Vec::new(),
            peers: Vec::with_capacity(config.peers_max as usize),
            met: 0,
            lanes: Vec::new(),
            done: VecDeque::with_capacity(sizes.operations as usize),
            early: EarlyArrivals::default(),
            held: VecDeque::with_capacity(sizes.receives as usize),
            failed: None,
        })
    }

    /// Posts one operation; false when there is no room for it now.
    #[inline]
    fn take(&mut self, op: &Op) -> Result<bool> {
        let Some(Some(lane)) = self.lanes.get_mut(op.lane.0 as usize) else {
            return Err(never_resolved(op.lane));
        };
        if self.done.len() == self.done.capacity() {
            return Ok(false);
        }
        if lane.holds {
            return Ok(self.hold(op));
        }
        let user = user_of(op.lane, op.tag);
        let data = lane.sender | u64::from(op.imm);
        if op.len > lane.flushed_bytes_max {
            return self.take_longer(op, data, user);
        }
        let posted = self
            .endpoint
            .post(&lane.route, op.local, op.remote, op.len, data, user);
        match posted {
            Ok(Posted::Pending) => {
                lane.last_byte = Some(op.remote + u64::from(op.len.saturating_sub(1)));
                Ok(true)
            }
            Ok(Posted::Injected) => {
                lane.last_byte = Some(op.remote + u64::from(op.len.saturating_sub(1)));
                self.done.push_back(Completion {
                    tag: op.tag,
                    lane: op.lane,
                    len: op.len,
                    imm: op.imm,
                    ending: Ending::Done,
                });
                Ok(true)
            }
            Ok(Posted::Again) if lane.spec.kind == LaneKind::Receive => Ok(self.hold(op)),
            Ok(Posted::Again) => Ok(false),
            Err(failure) => Err(self.dead(&failure, None)),
        }
    }

    /// Keeps a receive for later; false when too many are kept already.
    #[cold]
    fn hold(&mut self, op: &Op) -> bool {
        if self.held.len() == self.held.capacity() {
            return false;
        }
        if let Some(Some(lane)) = self.lanes.get_mut(op.lane.0 as usize) {
            lane.holds = true;
        }
        self.held.push_back(*op);
        true
    }

    /// Tries the receives again that were held, those of a lane in their order.
    #[cold]
    fn post_held(&mut self) -> Result<()> {
        // Then nothing is taken, and receives do not change it.
        if self.done.len() == self.done.capacity() {
            return Ok(());
        }
        let lanes = self.lanes.iter_mut().flatten();
        lanes.for_each(|lane| lane.holds = false);
        for _ in 0..self.held.len() {
            // What finds no room again goes to the end, and takes those of its lane that follow with it.
            if let Some(op) = self.held.pop_front() {
                self.take(&op)?;
            }
        }
        Ok(())
    }

    /// The lane of an operation that the library names.
    fn lane_of(&self, user: Option<u64>) -> Option<&LaneState> {
        let user = user.filter(|&user| user != GREETING)?;
        self.lanes.get((user >> 32) as usize)?.as_ref()
    }

    /// Describes a failure by the words of the library.
    fn described(&self, failure: &libfabric::FabricError) -> Failure {
        let lane = self.lane_of(failure.user);
        Failure {
            name: failure.text.clone(),
            code: failure.code,
            engine: self.name.clone(),
            operation: lane.map(|lane| lane.spec.kind),
            peer: lane.map(|lane| lane.spec.peer),
            device: Some(self.attributes.domain.clone()),
            usual_cause: usual_cause(failure.code).map(str::to_owned),
            ..Failure::default()
        }
    }

    /// The end of the endpoint; names the operation if one is known.
    #[cold]
    pub(super) fn dead(&self, failure: &libfabric::FabricError, peer: Option<u32>) -> Error {
        if self.lane_of(failure.user).is_some() {
            return self.described(failure).into();
        }
        let what = match peer {
            Some(peer) => format!("first contact with rank {peer}"),
            None => "progress".to_owned(),
        };
        let cause = usual_cause(failure.code).map(|cause| format!("; usual cause: {cause}"));
        Error::Failed(format!(
            "{}: {what} on {} failed: {} ({}){}",
            self.name,
            self.attributes.domain,
            failure.text,
            failure.code,
            cause.unwrap_or_default()
        ))
    }

    /// A failed operation as a completion; what the library said is kept for whoever asks.
    #[cold]
    fn failed(
        &mut self,
        failure: Box<libfabric::FabricError>,
        done: &mut [Completion],
    ) -> Result<usize> {
        let (Some(user), Some(place)) = (failure.user, done.first_mut()) else {
            return Err(self.dead(&failure, None));
        };
        if user == GREETING {
            return Err(self.dead(&failure, None));
        }
        *place = Completion {
            tag: user as u32,
            lane: Lane((user >> 32) as u32),
            len: 0,
            imm: 0,
            ending: Ending::Failed(failure.code),
        };
        self.failed = Some(failure);
        Ok(1)
    }
}

/// The lanes and peers of a worker, by which an event of the library becomes a completion.
pub(super) struct Ends<'a> {
    pub(super) lanes: &'a [Option<LaneState>],
    pub(super) peers: &'a [PeerState],
    pub(super) named: bool,
}

impl Ends<'_> {
    #[inline]
    pub(super) fn completion(&self, event: &Event) -> Completion {
        let lane = (event.user >> 32) as u32;
        let (tag, len) = (event.user as u32, event.len as u32);
        match event.kind {
            EventKind::Done => Completion {
                tag,
                lane: Lane(lane),
                len,
                imm: 0,
                ending: Ending::Done,
            },
            EventKind::Received => Completion {
                tag,
                lane: match self.lanes.get(lane as usize) {
                    Some(Some(lane)) => Lane(lane.spec.peer),
                    _ => Lane::UNNAMED,
                },
                len,
                imm: 0,
                ending: Ending::Arrived,
            },
            EventKind::Arrived => Completion {
                tag: 0,
                lane: self.sender(event.data),
                len,
                imm: event.data as u32,
                ending: Ending::Arrived,
            },
        }
    }

    /// Names the writer: said by its data where that is wide enough, else known only where there is one peer.
    #[inline]
    fn sender(&self, data: u64) -> Lane {
        match self.peers {
            _ if self.named => Lane((data >> 32) as u32),
            [only] => Lane(only.rank),
            _ => Lane::UNNAMED,
        }
    }
}

impl Engine for FabricWorker {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        let (number, region, remote) = match memory.host() {
            Some(arena) => self.register_arena(arena)?,
            None => self.register_device(memory)?,
        };
        self.regions.insert(number, region);
        Ok(Region {
            id: RegionId(number),
            descriptor: FarMemory::from(remote).descriptor(),
        })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        let lanes = || self.lanes.iter().flatten();
        if lanes().any(|lane| lane.spec.local == region) {
            return Err(has_lanes(region));
        }
        let registered = self.regions.remove(&region.0);
        self.card_regions.forget(region);
        let never = || Error::Failed(format!("region {} is not registered", region.0));
        let closed = self.endpoint.deregister(registered.ok_or_else(never)?);
        closed.map_err(|why| Error::Failed(format!("{} cannot deregister: {why}", self.name)))
    }

    fn cards(&mut self, peers: &[u32]) -> Result<Vec<Card>> {
        self.make_mail(peers)?;
        peers.iter().map(|&peer| self.card(peer)).collect()
    }

    fn connect(&mut self, peers: &[Neighbor]) -> Result<()> {
        for neighbor in peers {
            let peer = self.connect_one(neighbor)?;
            self.peers.push(peer);
        }
        Ok(())
    }

    fn meet(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        self.first_contact(stopped)
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        self.resolve(spec)
    }

    fn release(&mut self, lane: Lane) {
        slots::take(&mut self.lanes, lane);
    }

    #[inline]
    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        for (taken, op) in ops.iter().enumerate() {
            match self.take(op) {
                Ok(true) => {}
                Err(error) if taken == 0 => return Err(error),
                Ok(false) | Err(_) => return Ok(taken),
            }
        }
        Ok(ops.len())
    }

    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush> {
        let Some(Some(state)) = self.lanes.get(lane.0 as usize) else {
            return Err(never_resolved(lane));
        };
        let (Some((route, scratch)), Some(last_byte)) = (&state.flush, state.last_byte) else {
            return Ok(Flush::Delivered);
        };
        let user = user_of(lane, tag);
        match self.endpoint.post(route, *scratch, last_byte, 1, 0, user) {
            Ok(Posted::Again) => Ok(Flush::Again),
            Ok(Posted::Pending | Posted::Injected) => Ok(Flush::Posted),
            Err(failure) => Err(self.dead(&failure, None)),
        }
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        self.card_regions.flush_all(&self.name)
    }

    fn settle(&mut self, trying: bool) -> bool {
        self.card_regions.begin(trying);
        true
    }

    fn failure(&self, done: &Completion) -> Failure {
        let user = user_of(done.lane, done.tag);
        match &self.failed {
            Some(failure) if failure.user == Some(user) => self.described(failure),
            _ => Failure {
                name: "unknown".to_owned(),
                engine: self.name.clone(),
                ..Failure::default()
            },
        }
    }

    fn arm(&mut self) -> Result<Arm<'_>> {
        if !(self.done.is_empty() && self.held.is_empty() && self.early.is_empty()) {
            return Ok(Arm::Ready);
        }
        match self.endpoint.arm() {
            Ok(Wait::Ready) => Ok(Arm::Ready),
            Ok(Wait::Sleep(descriptor)) => Ok(Arm::Sleep(descriptor)),
            Ok(Wait::Unsupported) => Ok(Arm::Unsupported),
            Err(why) => Err(Error::Failed(format!("{} cannot sleep: {why}", self.name))),
        }
    }

    fn chosen(&self) -> Facts {
        // What the provider shm does with messages that do not fit its queue depends on what the system allows.
        let large = self.attachable.map(|attachable| match attachable {
            true => "cma: from one process's memory to the other's",
            false => "through shared buffers: this process may not attach to its peers' memory",
        });
        self.card_facts().maybe("shm_large_messages", large)
    }

    #[inline]
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        if !self.held.is_empty() {
            self.post_held()?;
        }
        if !self.early.is_empty() {
            let count = self.early.tell(done);
            self.flush_arrived(&done[..count])?;
            return Ok(count);
        }
        // The library is always asked, because asking is what makes progress; half of the room is kept for it.
        let injected = self.done.len().min(done.len() / 2);
        let room = done.len() - injected;
        let ends = Ends {
            lanes: &self.lanes,
            peers: &self.peers,
            named: self.named,
        };
        let mut places = done.iter_mut();
        let polled = self.endpoint.poll(room, |event| {
            if let Some(place) = places.next() {
                *place = ends.completion(&event);
            }
        });
        let mut count = match polled {
            Ok(count) => count,
            Err(failure) => return self.failed(failure, done),
        };
        while count < done.len()
            && let Some(completion) = self.done.pop_front()
        {
            done[count] = completion;
            count += 1;
        }
        self.flush_arrived(&done[..count])?;
        Ok(count)
    }
}

#[inline]
fn user_of(lane: Lane, tag: u32) -> u64 {
    u64::from(lane.0) << 32 | u64::from(tag)
}
