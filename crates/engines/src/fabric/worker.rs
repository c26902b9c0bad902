//! One worker: an endpoint, its lanes, posting and polling.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Card, Completion, Engine, Kind, Lane, LaneKind, LaneSpec, Op, Verb, WorkerConfig,
};
use tonnage_sys::libfabric::{
    Action, Endpoint, Event, EventKind, Failure, Info, Peer, Posted, Region, RemoteRegion, Route,
};
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_units::{Error, Result};

use super::files::remove_own;
use super::meet::{Address, Contact, PLACE_BYTES, greeting, mailbox_bytes};
use crate::fabric::queue_sizes::{not_registered, sizes};

/// Completions that are taken from the library at once.
const EVENTS: usize = 64;

/// Keys of the two registrations, where the provider lets its user choose.
const MEMORY_KEY: u64 = 1;
const MAILBOX_KEY: u64 = 2;

/// Tag of the greeting, which is posted before any lane exists.
const GREETING: u64 = u64::MAX;

/// Choices among several ways to carry operations out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ways {
    /// True when small messages are injected.
    pub(super) inject: bool,
    /// True when every write asks for delivery.
    pub(super) deliver_every_write: bool,
    /// Writes go by attaching to the peer's memory, so that the system must allow it.
    pub(super) attaches: bool,
    /// The provider is shm.
    pub(super) is_shm: bool,
}

struct PeerState {
    rank: u32,
    peer: Peer,
    memory: RemoteRegion,
    mailbox: RemoteRegion,
    /// Place of this side's greeting.
    place: u64,
    /// True when it has several peers, so that its receives tell them apart by tags. Not every provider honours the
    /// address of a receive.
    tags: bool,
}

struct LaneState {
    spec: LaneSpec,
    route: Route,
    /// The sender, in the high half of the data of a write-imm.
    sender: u64,
    /// Receives of it are held, so that later ones have to wait behind them.
    holds: bool,
}

/// A worker's endpoint over its memory.
pub(super) struct Worker {
    config: WorkerConfig,
    name: String,
    inject_bytes_max: u32,
    ways: Ways,
    /// True when this process may attach to the memory of all peers; only asked for shm.
    attachable: Option<bool>,
    /// Writes carry 64 bits, so that an arrival says whose it is.
    named: bool,
    endpoint: Endpoint,
    address: Address,
    memory: Region,
    mailbox: Region,
    mail: Arc<Arena>,
    peers: Vec<PeerState>,
    lanes: Vec<LaneState>,
    /// Injected operations, which are done but not yet reported.
    done: VecDeque<Completion>,
    /// Receives for which the library had no room. Those of other peers must not wait for them: it may be their messages
    /// that fill the room.
    held: VecDeque<Op>,
    events: Box<[Event; EVENTS]>,
}

impl Worker {
    pub(super) fn open(
        info: Info,
        config: &WorkerConfig,
        memory: Arc<dyn Memory>,
        ways: Ways,
    ) -> Result<Self> {
        let attributes = info.attributes().clone();
        let name = format!("fabric:{}", attributes.provider);
        let sizes = sizes(config);
        let opening = |why| {
            Error::Failed(format!(
                "cannot open {name} on {}: {why}",
                attributes.domain
            ))
        };
        let mut endpoint = Endpoint::open(info, sizes).map_err(opening)?;
        let mail_bytes = mailbox_bytes(config.peers.len());
        let mail = Arena::allocate(mail_bytes, Pages::Normal, Sharing::Private, None)
            .map_err(|error| Error::io(format!("cannot map {mail_bytes} bytes"), error))?;
        let mail = Arc::new(mail);
        let mut register = |arena: &Arc<Arena>, key| {
            let bytes = arena.len();
            let region = endpoint
                .register(Arc::clone(arena), key)
                .map_err(|why| not_registered(&name, bytes, &why))?;
            let remote = endpoint.remote(region);
            let remote = remote.ok_or_else(|| Error::Failed("a region has no address".into()))?;
            Ok::<_, Error>((region, remote))
        };
        let (memory, memory_remote) = register(memory.mapped(&name)?, MEMORY_KEY)?;
        let (mailbox, mailbox_remote) = register(&mail, MAILBOX_KEY)?;
        let address = Address::new(
            &mail,
            &attributes,
            endpoint.library(),
            endpoint.name(),
            [memory_remote, mailbox_remote],
            &config.peers,
        );
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
            endpoint,
            address,
            memory,
            mailbox,
            mail,
            peers: Vec::with_capacity(config.peers.len()),
            lanes: Vec::new(),
            done: VecDeque::with_capacity(sizes.operations as usize),
            held: VecDeque::with_capacity(sizes.receives as usize),
            events: Box::new([Event::EMPTY; EVENTS]),
        })
    }

    fn connect_one(&self, rank: u32, card: &Card) -> Result<(Address, u64)> {
        let about = |error: Error| {
            Error::Failed(format!(
                "{} between ranks {} and {rank}: {error}",
                self.name, self.config.rank
            ))
        };
        let address = Address::parse(card).map_err(about)?;
        address.check_fits(&self.address, [self.config.rank, rank])?;
        let place = address.place_of(self.config.rank).map_err(about)?;
        Ok((address, place))
    }

    /// Greets the peers that have not been greeted, each that takes it now; returns those that are left. A peer that is
    /// not ready must not keep the others waiting.
    fn greet(&mut self, left: &[u32]) -> Result<Vec<u32>> {
        let mut later = Vec::new();
        for peer in self.peers.iter().filter(|peer| left.contains(&peer.rank)) {
            let route = Route {
                action: Action::Write,
                peer: peer.peer,
                remote: peer.mailbox,
                local: self.mailbox,
                delivered: false,
                inject_bytes_max: 0,
            };
            let own = self.peers.len() as u64 * PLACE_BYTES;
            match self.endpoint.post(&route, own, peer.place, 8, 0, GREETING) {
                Ok(Posted::Again) => later.push(peer.rank),
                Ok(Posted::Pending | Posted::Injected) => {}
                Err(failure) => return Err(self.failed(&failure, Some(peer.rank))),
            }
        }
        Ok(later)
    }

    /// Finds out whether this process may read and write a peer's memory directly.
    fn try_to_attach(&mut self, rank: u32, address: &Address) -> Result<()> {
        let tried = address.try_to_attach();
        self.attachable = Some(self.attachable.unwrap_or(true) && tried.is_ok());
        match tried {
            Err(error) if self.ways.attaches => Err(Error::Unavailable {
                what: format!("shm-writes=cma between ranks {} and {rank}", self.config.rank),
                why: format!("process_vm_readv of the peer's memory failed: {error}"),
                how: "Start both ranks as one user in one container, with kernel.yama.ptrace_scope at most 1, or use \
                      shm-writes=ordered"
                    .into(),
            }),
            _ => Ok(()),
        }
    }

    /// Posts one operation; false when there is no room for it now.
    #[inline]
    fn take(&mut self, op: &Op) -> Result<bool> {
        let Some(lane) = self.lanes.get(op.lane.0 as usize) else {
            let lane = op.lane.0;
            return Err(Error::Failed(format!("lane {lane} was never resolved")));
        };
        if self.done.len() == self.done.capacity() {
            return Ok(false);
        }
        if lane.holds {
            return Ok(self.hold(op));
        }
        let user = u64::from(op.lane.0) << 32 | u64::from(op.tag);
        let data = lane.sender | u64::from(op.imm);
        let posted = self
            .endpoint
            .post(&lane.route, op.local, op.remote, op.len, data, user);
        match posted {
            Ok(Posted::Pending) => Ok(true),
            Ok(Posted::Injected) => {
                self.done.push_back(Completion {
                    tag: op.tag,
                    lane: op.lane,
                    len: op.len,
                    imm: op.imm,
                    kind: Kind::Done,
                });
                Ok(true)
            }
            Ok(Posted::Again) if lane.spec.kind == LaneKind::Receive => Ok(self.hold(op)),
            Ok(Posted::Again) => Ok(false),
            Err(failure) => Err(self.failed(&failure, None)),
        }
    }

    /// Keeps a receive for later; false when too many are kept already.
    #[cold]
    fn hold(&mut self, op: &Op) -> bool {
        if self.held.len() == self.held.capacity() {
            return false;
        }
        if let Some(lane) = self.lanes.get_mut(op.lane.0 as usize) {
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
        self.lanes.iter_mut().for_each(|lane| lane.holds = false);
        for _ in 0..self.held.len() {
            // What finds no room again goes to the end, and takes those of its lane that follow with it.
            if let Some(op) = self.held.pop_front() {
                self.take(&op)?;
            }
        }
        Ok(())
    }

    /// Names the rank, and the operation if one is known.
    #[cold]
    fn failed(&self, failure: &Failure, peer: Option<u32>) -> Error {
        let lane = failure
            .user
            .filter(|&user| user != GREETING)
            .and_then(|user| self.lanes.get((user >> 32) as usize));
        let what = match (lane, peer) {
            (Some(lane), _) => {
                format!("{} with rank {}", kind_name(lane.spec.kind), lane.spec.peer)
            }
            (None, Some(peer)) => format!("first contact with rank {peer}"),
            (None, None) => "progress".to_owned(),
        };
        Error::Failed(format!(
            "{}: {what} failed on rank {}: {} ({})",
            self.name, self.config.rank, failure.text, failure.code
        ))
    }

    #[inline]
    fn completion(&self, event: &Event) -> Completion {
        let lane = (event.user >> 32) as u32;
        match event.kind {
            EventKind::Done => Completion {
                tag: event.user as u32,
                lane: Lane(lane),
                len: event.len as u32,
                imm: 0,
                kind: Kind::Done,
            },
            EventKind::Received => Completion {
                tag: event.user as u32,
                lane: self
                    .lanes
                    .get(lane as usize)
                    .map_or(Lane::UNNAMED, |lane| Lane(lane.spec.peer)),
                len: event.len as u32,
                imm: 0,
                kind: Kind::Arrived,
            },
            EventKind::Arrived => Completion {
                tag: 0,
                lane: self.sender(event.data),
                len: event.len as u32,
                imm: event.data as u32,
                kind: Kind::Arrived,
            },
        }
    }

    /// Names the writer: said by its data where that is wide enough, else known only where there is one peer.
    #[inline]
    fn sender(&self, data: u64) -> Lane {
        match self.config.peers.as_slice() {
            _ if self.named => Lane((data >> 32) as u32),
            [only] => Lane(*only),
            _ => Lane::UNNAMED,
        }
    }
}

impl Engine for Worker {
    fn card(&self) -> Card {
        self.address.card()
    }

    fn connect(&mut self, peers: &[(u32, Card)]) -> Result<()> {
        for (rank, card) in peers {
            let (address, place) = self.connect_one(*rank, card)?;
            if self.ways.is_shm {
                self.try_to_attach(*rank, &address)?;
            }
            let peer = self.endpoint.insert(&address.name).map_err(|why| {
                Error::Failed(format!("{} cannot address rank {rank}: {why}", self.name))
            })?;
            self.peers.push(PeerState {
                rank: *rank,
                peer,
                memory: address.memory.into(),
                mailbox: address.mailbox.into(),
                place,
                tags: address.peers.len() > 1,
            });
        }
        Ok(())
    }

    fn meet(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        let own = self.peers.len() as u64 * PLACE_BYTES;
        self.mail
            .write(own, &greeting(self.config.rank).to_le_bytes())
            .map_err(|error| Error::Failed(error.to_string()))?;
        let (mail, peers) = (Arc::clone(&self.mail), self.config.peers.clone());
        let contact = Contact::new(&mail, &peers);
        let mut left = peers.clone();
        let mut completed = 0;
        loop {
            let in_flight = peers.len() - left.len() - completed;
            if contact.is_complete(self.config.rank, &left, in_flight)? {
                // Who has greeted this worker has mapped it.
                remove_own(self.endpoint.name());
                return Ok(());
            }
            if stopped() {
                return Err(Error::Failed("the run was stopped".into()));
            }
            left = self.greet(&left)?;
            let mut events = [Event::EMPTY; EVENTS];
            let polled = self.endpoint.poll(&mut events);
            completed += polled.map_err(|failure| self.failed(&failure, None))?;
        }
    }

    fn lane(&mut self, spec: &LaneSpec) -> Result<Lane> {
        let same = |lane: &LaneState| lane.spec == *spec;
        if let Some(index) = self.lanes.iter().position(same) {
            return Ok(Lane(index as u32));
        }
        let peer = self.peers.iter().find(|peer| peer.rank == spec.peer);
        let peer = peer.ok_or_else(|| {
            Error::Failed(format!(
                "rank {} was never connected to rank {}",
                self.config.rank, spec.peer
            ))
        })?;
        let own_tag = u64::from(self.config.rank);
        let action = match spec.kind {
            LaneKind::Initiate(Verb::Write) => Action::Write,
            LaneKind::Initiate(Verb::WriteImm) => Action::WriteData,
            LaneKind::Initiate(Verb::Read) => Action::Read,
            LaneKind::Initiate(Verb::Send) if peer.tags => Action::SendTagged(own_tag),
            LaneKind::Initiate(Verb::Send) => Action::Send,
            LaneKind::Receive if self.config.peers.len() > 1 => {
                Action::ReceiveTagged(u64::from(peer.rank))
            }
            LaneKind::Receive => Action::Receive,
        };
        let route = Route {
            action,
            peer: peer.peer,
            remote: peer.memory,
            local: self.memory,
            delivered: (spec.delivered || self.ways.deliver_every_write)
                && matches!(action, Action::Write | Action::WriteData),
            inject_bytes_max: self.inject_bytes_max,
        };
        self.lanes.push(LaneState {
            spec: *spec,
            route,
            sender: if self.named {
                u64::from(self.config.rank) << 32
            } else {
                0
            },
            holds: false,
        });
        Ok(Lane(self.lanes.len() as u32 - 1))
    }

    #[inline]
    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        for (taken, op) in ops.iter().enumerate() {
            if !self.take(op)? {
                return Ok(taken);
            }
        }
        Ok(ops.len())
    }

    fn chosen(&self) -> Value {
        // The endpoint can allow less for writes than the provider's attributes say of all messages.
        let mut chosen = json!({ "inject_bytes_max": self.inject_bytes_max });
        // What the provider shm does with messages that do not fit its queue depends on what the system allows.
        if let Some(attachable) = self.attachable {
            chosen["shm_large_messages"] = if attachable {
                "cma: from one process's memory to the other's".into()
            } else {
                "through shared buffers: this process may not attach to its peers' memory".into()
            };
        }
        chosen
    }

    #[inline]
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        if !self.held.is_empty() {
            self.post_held()?;
        }
        // The library is always asked, because asking is what makes progress; half of the room is kept for it.
        let injected = self.done.len().min(done.len() / 2);
        let room = (done.len() - injected).min(EVENTS);
        let polled = self.endpoint.poll(&mut self.events[..room]);
        let mut count = match polled {
            Ok(count) => count,
            Err(failure) => return Err(self.failed(&failure, None)),
        };
        for (place, event) in done.iter_mut().zip(&self.events[..count]) {
            *place = self.completion(event);
        }
        while count < done.len()
            && let Some(completion) = self.done.pop_front()
        {
            done[count] = completion;
            count += 1;
        }
        Ok(count)
    }
}

fn kind_name(kind: LaneKind) -> &'static str {
    match kind {
        LaneKind::Initiate(verb) => verb.name(),
        LaneKind::Receive => "receive",
    }
}
