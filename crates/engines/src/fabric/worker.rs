//! A worker: its endpoint, registrations and lanes; posting and polling.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{
    ArmOutcome, Completion, Descriptor, Ending, EndpointAddress, Engine, Facts, Failure, Flush,
    Lane, LaneKind, LaneSpec, LaneTable, Op, PeerEndpoint, Region, RegionId, RegionTable, Verb,
    WorkerConfig, fact_names, move_waiting, never_connected,
};
use tonnage_machine::kernel_files::Tree;
use tonnage_sys::libfabric;
use tonnage_sys::libfabric::{
    Action, Endpoint, Event, EventKind, Hints, Info, Libfabric, Offer, PeerAddress, PeerToPeer,
    Posted, RegionHandle, RemoteRegion, Route, Wait,
};
use tonnage_sys::mapping::Arena;
use tonnage_units::{Error, Result};

use super::contact::{Address, Awaited, Contact, FarMemory, Mailbox, MailboxSlot, device};
use super::files;
use super::files::remove_own;
use super::options::{CARD_WAYS, OR_INSTEAD, UNTOLD};
use super::queue_sizes::{not_registered, sizes};
use crate::memory::vendor::vendor_of_memory;
use crate::registration::{NicMemory, NicRegions};
use crate::staged::INSTEAD;

/// User data of greetings, which are posted before any lane exists.
pub(super) const GREETING: u64 = u64::MAX;

/// How a worker transfers data.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransferModes {
    /// Whether small messages are injected.
    pub(super) inject: bool,
    /// Whether every write requests delivery.
    pub(super) deliver_every_write: bool,
    /// Limits of writes that need a later read to prove their arrival; `None` if no write needs one.
    pub(super) flushes: Option<FlushLimits>,
    /// Whether writes attach to the peer's memory, for which the system's permission is needed.
    pub(super) attaches: bool,
    /// Whether the provider is shm.
    pub(super) is_shm: bool,
}

/// Limits of writes that need a later read to prove their arrival.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlushLimits {
    /// The longest write that a read proves to have arrived.
    pub(super) bytes_max: u32,
    /// Whether writes longer than `bytes_max` can request a completion that proves delivery. If not, they are refused.
    pub(super) longer_delivered: bool,
}

pub(super) struct PeerState {
    pub(super) rank: u32,
    /// The peer's device, as described by [`device`].
    pub(super) device: String,
    pub(super) peer: PeerAddress,
    pub(super) mailbox: RemoteRegion,
    /// Offset in the peer's mailbox where this side writes its greeting.
    pub(super) offset: u64,
    /// Where the peer's greeting arrives in this side's mailboxes.
    pub(super) greets_at: MailboxSlot,
    /// Whether the peer distinguishes senders by tags, because it has several peers. Tags are needed because not every
    /// provider honours the address of a receive.
    pub(super) tags: bool,
}

/// A worker's endpoint.
pub(super) struct FabricWorker {
    pub(super) config: WorkerConfig,
    pub(super) name: String,
    pub(super) attributes: Offer,
    pub(super) inject_bytes_max: u32,
    pub(super) modes: TransferModes,
    /// Whether this process may attach to the memory of all peers; `None` unless the provider is shm.
    pub(super) attachable: Option<bool>,
    /// Whether a write carries 64 bits of data, enough to include the sender.
    pub(super) named: bool,
    pub(super) endpoint: Endpoint,
    /// Registered memories by region ID.
    regions: RegionTable<RegionHandle>,
    /// How to register GPU memory; `None` if the provider was opened for host memory.
    pub(super) registration: Option<String>,
    /// The registered GPU memories.
    pub(super) card_regions: NicRegions,
    /// One mailbox for each call of `endpoint_addresses` with new peers.
    pub(super) mailboxes: Vec<Mailbox>,
    pub(super) peers: Vec<PeerState>,
    /// Number of peers that completed first contact.
    pub(super) met: usize,
    lanes: LaneTable<LaneState>,
    /// Injected operations, which are complete but not yet reported.
    done: VecDeque<Completion>,
    /// Arrivals during first contact. They are reported before later arrivals.
    early: VecDeque<Completion>,
    /// Receives for which the library had no room. Receives for other peers are still posted, because messages of those
    /// peers may occupy the room.
    held: VecDeque<Op>,
    /// The library's error for the last failed operation.
    failed: Option<Box<libfabric::FabricError>>,
}

impl FabricWorker {
    /// Opens an endpoint. `registration` is how to register GPU memory; `None` for host memory.
    pub(super) fn open(
        info: Info,
        config: &WorkerConfig,
        (modes, registration): (TransferModes, Option<String>),
    ) -> Result<Self> {
        let attributes = info.attributes().clone();
        let name = format!("fabric:{}", attributes.provider);
        let sizes = sizes(config);
        let opening = |why| {
            let problem = modes.is_shm.then(files::problem).flatten();
            let problem = problem.map_or_else(String::new, |problem| format!("; {problem}"));
            // GPU memory can be the only reason why an endpoint is refused, so the error also advises to do without it.
            let instead = registration.as_ref().map_or("", |_| OR_INSTEAD);
            Error::Failed(format!(
                "cannot open {name} on {}: {why}{problem}{instead}",
                attributes.domain
            ))
        };
        let endpoint = Endpoint::open(info, sizes, config.sleeps).map_err(opening)?;
        let inject_bytes_max = if modes.inject {
            u32::try_from(endpoint.inject_bytes_max()).unwrap_or(u32::MAX)
        } else {
            0
        };
        Ok(Self {
            config: config.clone(),
            name,
            inject_bytes_max,
            modes,
            attachable: None,
            named: attributes.immediate_bytes >= 8,
            attributes,
            endpoint,
            regions: RegionTable::default(),
            registration,
            card_regions: NicRegions::default(),
            mailboxes: Vec::new(),
            peers: Vec::with_capacity(config.peers_max as usize),
            met: 0,
            lanes: LaneTable::default(),
            done: VecDeque::with_capacity(sizes.operations as usize),
            early: VecDeque::new(),
            held: VecDeque::with_capacity(sizes.receives as usize),
            failed: None,
        })
    }

    /// Posts one operation. Returns false if the queue is full.
    #[inline]
    fn take(&mut self, op: &Op) -> Result<bool> {
        let lane = self.lanes.get_mut(op.lane)?;
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
            Ok(taken @ (Posted::Pending | Posted::Injected)) => {
                lane.last_byte = Some(op.remote + u64::from(op.len.saturating_sub(1)));
                if taken == Posted::Injected {
                    self.done.push_back(Completion::new(op, Ending::Done));
                }
                Ok(true)
            }
            Ok(Posted::Again) if lane.spec.kind == LaneKind::Receive => Ok(self.hold(op)),
            Ok(Posted::Again) => Ok(false),
            Err(failure) => Err(self.dead(&failure, None)),
        }
    }

    /// Keeps a receive, to be posted later. Returns false if too many are already kept.
    #[cold]
    fn hold(&mut self, op: &Op) -> bool {
        if self.held.len() == self.held.capacity() {
            return false;
        }
        if let Some(lane) = self.lanes.peek_mut(op.lane) {
            lane.holds = true;
        }
        self.held.push_back(*op);
        true
    }

    /// Retries held receives, in order per lane.
    #[cold]
    fn post_held(&mut self) -> Result<()> {
        // If there is no room for a completion, no operation can be posted, so nothing is retried.
        if self.done.len() == self.done.capacity() {
            return Ok(());
        }
        let lanes = self.lanes.iter_mut();
        lanes.for_each(|(_, lane)| lane.holds = false);
        for _ in 0..self.held.len() {
            // A receive without room is held again, and so are all later receives of its lane.
            if let Some(op) = self.held.pop_front() {
                self.take(&op)?;
            }
        }
        Ok(())
    }

    /// Returns the lane of an operation with this user data.
    fn lane_of(&self, user: Option<u64>) -> Option<&LaneState> {
        let user = user.filter(|&user| user != GREETING)?;
        self.lanes.peek(Lane((user >> 32) as u32))
    }

    /// Describes a failure, with the library's text.
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

    /// The error of an endpoint that failed. It names the operation, if one is known.
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

    /// Reports a failed operation as a completion, and stores the library's error for [`Engine::failure`].
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
            ending: Ending::Failed(failure.code),
            ..Completion::EMPTY
        };
        self.failed = Some(failure);
        Ok(1)
    }
}

/// Converts the library's events into completions. Looks up the worker's lanes and peers.
struct EventConverter<'a> {
    lanes: &'a LaneTable<LaneState>,
    peers: &'a [PeerState],
    named: bool,
}

impl EventConverter<'_> {
    #[inline]
    pub(super) fn completion(&self, event: &Event) -> Completion {
        let lane = Lane((event.user >> 32) as u32);
        let (tag, len) = (event.user as u32, event.len as u32);
        let (tag, lane, imm, ending) = match event.kind {
            EventKind::Done => (tag, lane, 0, Ending::Done),
            EventKind::Received => {
                let sender = self.lanes.peek(lane).map(|lane| Lane(lane.spec.peer));
                (tag, sender.unwrap_or(Lane::UNNAMED), 0, Ending::Arrived)
            }
            EventKind::Arrived => {
                let (sender, imm) = (self.sender(event.data), event.data as u32);
                (0, sender, imm, Ending::Arrived)
            }
        };
        Completion {
            tag,
            lane,
            len,
            imm,
            ending,
        }
    }

    /// Sender of a write: contained in its data if the data is wide enough, otherwise known only if there is a single
    /// peer.
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
        let (id, remote) = match memory.host() {
            Some(arena) => self.register_arena(arena)?,
            None => {
                let region = self.register_card_memory(memory)?;
                self.add_region(region)?
            }
        };
        Ok(Region {
            id,
            descriptor: Descriptor::encode(&FarMemory::from(remote)),
        })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        self.lanes.check_unused(region, |lane| lane.spec.local)?;
        let registered = self.regions.take(region)?;
        self.card_regions.forget(region);
        let closed = self.endpoint.deregister(registered);
        closed.map_err(|why| Error::Failed(format!("{} cannot deregister: {why}", self.name)))
    }

    fn endpoint_addresses(&mut self, peers: &[u32]) -> Result<Vec<EndpointAddress>> {
        self.add_mailbox(peers)?;
        peers.iter().map(|&peer| self.address_for(peer)).collect()
    }

    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()> {
        for neighbor in peers {
            let peer = self.connect_one(neighbor)?;
            self.peers.push(peer);
        }
        Ok(())
    }

    fn meet(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        let fresh = &self.peers[self.met..];
        let awaited = |peer: &PeerState| Awaited {
            rank: peer.rank,
            device: peer.device.clone(),
            mailbox: Arc::clone(&self.mailboxes[peer.greets_at.mailbox].arena),
            offset: peer.greets_at.offset,
        };
        let own = device(&self.attributes);
        let mut contact = Contact::new(own, fresh.iter().map(awaited).collect());
        let all = fresh.len();
        let mut left: Vec<u32> = fresh.iter().map(|peer| peer.rank).collect();
        let mut completed = 0;
        loop {
            // Greetings of an earlier call that was stopped may complete during this call.
            let in_flight = all.saturating_sub(left.len() + completed);
            if contact.is_complete(self.config.rank, &left, in_flight)? {
                // A peer has mapped this worker's file before its greeting arrives. After the last greeting, the file
                // needs no name.
                self.met = self.peers.len();
                if self.met == self.config.peers_max as usize {
                    remove_own(self.endpoint.name());
                }
                return Ok(());
            }
            if stopped() {
                return Err(Error::Failed("the run was stopped".into()));
            }
            left = self.greet(&left)?;
            let converter = EventConverter {
                lanes: &self.lanes,
                peers: &self.peers,
                named: self.named,
            };
            let early = &mut self.early;
            let polled = self.endpoint.poll(usize::MAX, |event| match event.user {
                GREETING => completed += 1,
                // A peer may write as soon as its own first contact is complete.
                _ => early.push_back(converter.completion(&event)),
            });
            polled.map_err(|failure| self.dead(&failure, None))?;
        }
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let peer = self.peers.iter().find(|peer| peer.rank == spec.peer);
        let peer = peer.ok_or_else(|| never_connected(self.config.rank, spec.peer))?;
        let local = *self.regions.get(spec.local)?;
        let action = self.action(spec.kind, peer)?;
        let remote = match action {
            Action::Write | Action::WriteData | Action::Read => {
                FarMemory::parse(spec.remote, spec.peer)?.into()
            }
            // A message lands where its receive says, so no remote region is needed.
            _ => RemoteRegion {
                base: 0,
                key: 0,
                len: 0,
            },
        };
        let wanted = LaneKey {
            kind: spec.kind,
            peer: spec.peer,
            local: spec.local,
            remote,
            ordered: spec.ordered,
            delivered: spec.delivered,
        };
        if let Some(known) = self.lanes.find(|lane| lane.spec == wanted) {
            return Ok(known);
        }
        let state = self.state(wanted, (action, local), peer);
        Ok(self.lanes.put(state))
    }

    fn release_lane(&mut self, lane: Lane) {
        self.lanes.release(lane);
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
        let state = self.lanes.get(lane)?;
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
        self.card_regions.begin_point(trying);
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

    fn arm(&mut self) -> Result<ArmOutcome<'_>> {
        if !(self.done.is_empty() && self.held.is_empty() && self.early.is_empty()) {
            return Ok(ArmOutcome::Ready);
        }
        match self.endpoint.arm() {
            Ok(Wait::Ready) => Ok(ArmOutcome::Ready),
            Ok(Wait::Sleep(descriptor)) => Ok(ArmOutcome::Sleep(descriptor)),
            Ok(Wait::Unsupported) => Ok(ArmOutcome::Unsupported),
            Err(why) => Err(Error::Failed(format!("{} cannot sleep: {why}", self.name))),
        }
    }

    fn chosen(&self) -> Facts {
        // The system's permissions determine how shm transfers messages that do not fit its queue.
        let large = self.attachable.map(|attachable| match attachable {
            true => "cma: from one process's memory to the other's",
            false => "through shared buffers: this process may not attach to its peers' memory",
        });
        self.card_facts()
            .with_optional_fact("shm_large_messages", large)
    }

    #[inline]
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        if !self.held.is_empty() {
            self.post_held()?;
        }
        if !self.early.is_empty() {
            let count = move_waiting(&mut self.early, done);
            self.flush_arrived(&done[..count])?;
            return Ok(count);
        }
        // The library is polled even if the injected operations could fill `done`, because polling drives its progress.
        // Half of `done` is reserved for the library's completions.
        let injected = self.done.len().min(done.len() / 2);
        let room = done.len() - injected;
        let converter = EventConverter {
            lanes: &self.lanes,
            peers: &self.peers,
            named: self.named,
        };
        let mut places = done.iter_mut();
        let polled = self.endpoint.poll(room, |event| {
            if let Some(place) = places.next() {
                *place = converter.completion(&event);
            }
        });
        let mut count = match polled {
            Ok(count) => count,
            Err(failure) => return self.failed(failure, done),
        };
        count += move_waiting(&mut self.done, &mut done[count..]);
        self.flush_arrived(&done[..count])?;
        Ok(count)
    }
}

#[inline]
fn user_of(lane: Lane, tag: u32) -> u64 {
    u64::from(lane.0) << 32 | u64::from(tag)
}

/// Identifies a lane. Requests with equal keys get the same lane.
#[derive(PartialEq)]
pub(super) struct LaneKey {
    pub(super) kind: LaneKind,
    pub(super) peer: u32,
    pub(super) local: RegionId,
    pub(super) remote: RemoteRegion,
    pub(super) ordered: bool,
    pub(super) delivered: bool,
}

/// One lane.
pub(super) struct LaneState {
    pub(super) spec: LaneKey,
    pub(super) route: Route,
    /// The read that proves arrival, and the offset where it stores its byte; `None` if no proof is needed.
    pub(super) flush: Option<(Route, u64)>,
    /// The longest write that this read proves to have arrived; `u32::MAX` without a read.
    pub(super) flushed_bytes_max: u32,
    /// Offset of the last byte written without delivery; `None` before the first such write.
    pub(super) last_byte: Option<u64>,
    /// This rank in the upper half of the data of a write-imm; 0 if the data is too narrow for it.
    pub(super) sender: u64,
    /// Whether receives of this lane are held, so that later ones must be held too.
    pub(super) holds: bool,
}

impl FabricWorker {
    /// Posts a write that is too long for a later read to prove its arrival. So the write requests delivery.
    #[cold]
    pub(super) fn take_longer(&mut self, op: &Op, data: u64, user: u64) -> Result<bool> {
        let lane = self.lanes.get(op.lane)?;
        if !self.modes.flushes.is_some_and(|by| by.longer_delivered) {
            return Err(Error::Failed(format!(
                "{} orders reads only after writes of {} bytes or less, so nothing would prove that one of {} has \
                 arrived: use smaller sizes, --engine-option completion=auto if the provider can report delivery, or \
                 --op send",
                self.name, lane.flushed_bytes_max, op.len
            )));
        }
        let route = Route {
            delivered: true,
            ..lane.route
        };
        let posted = self
            .endpoint
            .post(&route, op.local, op.remote, op.len, data, user);
        match posted {
            Ok(taken) => Ok(taken != Posted::Again),
            Err(failure) => Err(self.dead(&failure, None)),
        }
    }

    /// Returns the library's operation for a lane.
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
                let text = format!("engine fabric does not support op {}", kind.name());
                return Err(Error::Failed(text));
            }
        })
    }

    fn state(
        &self,
        spec: LaneKey,
        (action, local): (Action, RegionHandle),
        peer: &PeerState,
    ) -> LaneState {
        let writes = matches!(action, Action::Write | Action::WriteData);
        let route = Route {
            action,
            peer: peer.peer,
            remote: spec.remote,
            local,
            delivered: writes && (spec.delivered || self.modes.deliver_every_write),
            inject_bytes_max: self.inject_bytes_max,
        };
        let mailbox = &self.mailboxes[peer.greets_at.mailbox];
        let flush = Route {
            action: Action::Read,
            local: mailbox.region,
            ..route
        };
        let flushed = self.modes.flushes.filter(|_| writes && !route.delivered);
        LaneState {
            spec,
            route,
            flush: flushed.map(|_| (flush, mailbox.scratch_offset())),
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

    /// Registers host memory with a new key.
    pub(super) fn register_arena(
        &mut self,
        arena: &Arc<Arena>,
    ) -> Result<(RegionId, RemoteRegion)> {
        let registered = self.endpoint.register(Arc::clone(arena), self.key());
        let region =
            registered.map_err(|why| not_registered(&self.name, arena.len(), &why.to_string()))?;
        self.add_region(region)
    }

    /// Key of the next region, for providers that let the caller choose. Keys are never reused.
    fn key(&self) -> u64 {
        u64::from(self.regions.next().0) + 1
    }

    fn add_region(&mut self, region: RegionHandle) -> Result<(RegionId, RemoteRegion)> {
        let remote = self.endpoint.remote(region);
        let remote = remote.ok_or_else(|| Error::Failed("a region has no address".into()))?;
        Ok((self.regions.put(region), remote))
    }

    /// Whether this worker's receives distinguish peers by tags.
    pub(super) fn tags(&self) -> bool {
        self.config.peers_max > 1
    }

    /// Adds a mailbox for the peers that have no slot yet.
    pub(super) fn add_mailbox(&mut self, peers: &[u32]) -> Result<()> {
        let has_slot =
            |peer: &u32| (self.mailboxes.iter()).any(|mailbox| mailbox.offset(*peer).is_some());
        let fresh: Vec<u32> = peers
            .iter()
            .copied()
            .filter(|peer| !has_slot(peer))
            .collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let arena = Mailbox::allocate(fresh.len())?;
        let (region, remote) = self.register_arena(&arena)?;
        let region = *self.regions.get(region)?;
        let mailbox = Mailbox::new(arena, region, remote, fresh, self.config.rank)?;
        self.mailboxes.push(mailbox);
        Ok(())
    }

    /// Returns where a peer's greeting arrives.
    pub(super) fn mailbox_slot(&self, rank: u32) -> Result<MailboxSlot> {
        let find = |(index, mailbox): (usize, &Mailbox)| {
            let offset = mailbox.offset(rank)?;
            Some(MailboxSlot {
                mailbox: index,
                offset,
            })
        };
        let found = self.mailboxes.iter().enumerate().find_map(find);
        found.ok_or_else(|| {
            Error::Failed(format!(
                "this side made no endpoint address for rank {rank}"
            ))
        })
    }

    pub(super) fn address_for(&self, rank: u32) -> Result<EndpointAddress> {
        let slot = self.mailbox_slot(rank)?;
        let mailbox = &self.mailboxes[slot.mailbox];
        Ok(EndpointAddress::encode(&Address::new(
            &self.attributes,
            self.endpoint.library(),
            self.endpoint.name(),
            (mailbox, slot.offset),
            (rank, self.tags()),
        )))
    }

    pub(super) fn connect_one(&mut self, neighbor: &PeerEndpoint) -> Result<PeerState> {
        let rank = neighbor.peer;
        let about = |error: Error| {
            Error::Failed(format!(
                "{} between ranks {} and {rank}: {error}",
                self.name, self.config.rank
            ))
        };
        if self.peers.len() >= self.config.peers_max as usize {
            let most = self.config.peers_max;
            return Err(about(Error::Failed(format!(
                "this endpoint was opened for {most} peers, and already has {most}"
            ))));
        }
        let address = Address::parse(&neighbor.address).map_err(about)?;
        let own = (&self.attributes, self.endpoint.library());
        address.check_fits(own, [self.config.rank, rank], neighbor.locality)?;
        if address.peer != self.config.rank {
            return Err(about(Error::Failed(
                "the peer does not expect this rank".into(),
            )));
        }
        let greets_at = self.mailbox_slot(rank).map_err(about)?;
        if self.modes.is_shm {
            self.try_to_attach(rank, &address)?;
        }
        let peer = self.endpoint.insert(&address.name).map_err(|why| {
            Error::Failed(format!("{} cannot address rank {rank}: {why}", self.name))
        })?;
        Ok(PeerState {
            rank,
            device: address.device,
            peer,
            mailbox: address.mailbox.into(),
            offset: address.offset,
            greets_at,
            tags: address.tags,
        })
    }

    /// Posts greetings to the peers in `left`. Returns the peers for which the library has no room now. A peer that is
    /// not ready must not delay the others.
    pub(super) fn greet(&mut self, left: &[u32]) -> Result<Vec<u32>> {
        let mut later = Vec::new();
        for peer in self.peers.iter().filter(|peer| left.contains(&peer.rank)) {
            let mailbox = &self.mailboxes[peer.greets_at.mailbox];
            let route = Route {
                action: Action::Write,
                peer: peer.peer,
                remote: peer.mailbox,
                local: mailbox.region,
                delivered: false,
                inject_bytes_max: 0,
            };
            match self
                .endpoint
                .post(&route, mailbox.own_offset(), peer.offset, 8, 0, GREETING)
            {
                Ok(Posted::Again) => later.push(peer.rank),
                Ok(Posted::Pending | Posted::Injected) => {}
                Err(failure) => return Err(self.dead(&failure, Some(peer.rank))),
            }
        }
        Ok(later)
    }

    /// Tests whether this process may access a peer's memory directly.
    pub(super) fn try_to_attach(&mut self, rank: u32, address: &Address) -> Result<()> {
        let tried = address.try_to_attach();
        self.attachable = Some(self.attachable.unwrap_or(true) && tried.is_ok());
        match tried {
            Err(error) if self.modes.attaches => Err(Error::Unavailable {
                what: format!("shm-writes=cma between ranks {} and {rank}", self.config.rank),
                why: format!("process_vm_readv of the peer's memory failed: {error}"),
                how: "Start both ranks as one user in one container, with kernel.yama.ptrace_scope at most 1, or use \
                      shm-writes=ordered"
                    .into(),
            }),
            _ => Ok(()),
        }
    }

    /// Registers GPU memory with a new key.
    pub(super) fn register_card_memory(
        &mut self,
        memory: &Arc<dyn Memory>,
    ) -> Result<RegionHandle> {
        let key = self.key();
        let card = NicMemory::new(memory, &self.name)?;
        let device = &self.attributes.domain;
        let what = format!(
            "memory {} with engine {} on {device}",
            card.kind(),
            self.name
        );
        let Some(asked) = &self.registration else {
            return Err(Error::Unavailable {
                what,
                why: "the provider was opened for host memory".to_owned(),
                how: format!("Name GPU memory when the engine is opened; or {INSTEAD}"),
            });
        };
        let (endpoint, region) = (&mut self.endpoint, self.regions.next());
        let refused = (what, INSTEAD);
        (self.card_regions).register((region, &card), (asked, &CARD_WAYS), refused, |way| {
            let interface = card.interface()?;
            card.register((&Tree::host(), device), way, |bytes| {
                Ok(endpoint.register_device(bytes, interface, key)?)
            })
        })
    }

    /// Facts about GPU memory, and the size limit of injected messages.
    pub(super) fn card_facts(&self) -> Facts {
        let regions = &self.card_regions;
        let untold = self.endpoint.peer_to_peer() == Some(PeerToPeer::NotConfirmed);
        let mut facts = regions.add_granted(Facts::default());
        if untold {
            facts = facts.with_fact("peer_to_peer", UNTOLD);
            if !regions.is_empty() {
                let mut remarks: Vec<_> = facts.texts(fact_names::REMARKS);
                let doubt = format!(
                    "{} accesses GPU memory in a way that is {UNTOLD}",
                    self.name
                );
                remarks.push(&doubt);
                let remarks: Vec<String> = remarks.into_iter().map(str::to_owned).collect();
                facts = facts.with_fact(fact_names::REMARKS, remarks);
            }
        }
        // The endpoint may allow less for writes than the provider's attributes allow for messages in general. The
        // library never injects memory that the CPU cannot address.
        let injects = regions.is_empty();
        facts.with_fact(
            "inject_bytes_max",
            if injects { self.inject_bytes_max } else { 0 },
        )
    }

    /// Waits until the GPUs see the data of these completions.
    #[inline]
    pub(super) fn flush_arrived(&self, done: &[Completion]) -> Result<()> {
        let read = LaneKind::Initiate(Verb::Read);
        let reads = |lane: Lane| {
            self.lanes
                .get(lane)
                .is_ok_and(|lane| lane.spec.kind == read)
        };
        self.card_regions.flush(&self.name, done, reads)
    }
}

/// Returns the error for GPU memory, if FI_HMEM is the only one of `hints` that the provider lacks. `None` if it lacks
/// others too.
pub(super) fn without_hmem(
    library: &Arc<Libfabric>,
    hints: &Hints<'_>,
    (memory, why_embedded): (&str, Option<&str>),
) -> Option<Error> {
    let provider = hints.provider;
    let of_host = Hints {
        device_memory: false,
        ..hints.clone()
    };
    let offers = |hints: &Hints<'_>| Info::query(library, hints).unwrap_or_default();
    if offers(&of_host).is_empty() {
        return None;
    }
    let any = Hints {
        provider: "",
        ..hints.clone()
    };
    let names: BTreeSet<String> = offers(&any)
        .into_iter()
        .map(|info| info.attributes().provider.clone())
        .collect();
    let names: Vec<_> = names.into_iter().collect();
    let who = match names.as_slice() {
        [] => "no provider of this library supports it on this host".to_owned(),
        names => format!(
            "providers of this library that support it on this host: {}",
            names.join(", ")
        ),
    };
    // If the vendor is unknown, the memory belongs to the engine's caller.
    let (built_with, providers) = vendor_of_memory(memory)
        .map_or(("CUDA or ROCm", "verbs;ofi_rxm"), |maker| {
            (maker.cards.built_with, maker.cards.providers)
        });
    let used = why_embedded.map_or_else(String::new, |why| {
        format!("; this library is used because {why}")
    });
    Some(Error::Unavailable {
        what: format!("memory {memory} with engine fabric:{provider}"),
        why: format!(
            "provider {provider} of libfabric {} ({}) does not register device memory (FI_HMEM); {who}{used}",
            library.release(),
            library.path()
        ),
        how: format!(
            "Use a libfabric built with {built_with} (--libfabric), and a provider that supports it, such as \
             {providers}; or {INSTEAD}"
        ),
    })
}

/// Usual cause of an error number, if there is one.
pub(super) fn usual_cause(code: i32) -> Option<&'static str> {
    Some(match code {
        // EIO, EPIPE, ESHUTDOWN, ECONNRESET, ECONNABORTED, ENOTCONN
        5 | 32 | 108 | 104 | 103 | 107 => {
            "the process at the other end has ended, or its device is gone"
        }
        // ECONNREFUSED, EHOSTUNREACH, ENETUNREACH
        111 | 113 | 101 => "a firewall or a missing route between the two devices; see --devices",
        // ETIMEDOUT
        110 => "packets were lost for longer than the provider retries",
        // ENOMEM
        12 => "too little memory, or too low a limit on locked memory (ulimit -l)",
        // EACCES, EPERM, EKEYREJECTED
        13 | 1 | 129 => "the peer's registration does not allow it, or is gone",
        // EMSGSIZE, FI_ETRUNC
        90 | 265 => "a message that is longer than its receive",
        _ => return None,
    })
}
