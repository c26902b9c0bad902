//! `shm`: direct memory between two ranks of one host over a shared mapping. It is what this host could do at best: one
//! copy by the initiator, no system call, no library.
//!
//! Each worker's memory is a memory file (memfd). A peer opens it through `/proc/PID/fd`, which the kernel allows only
//! to the same user, and maps it. Nothing has a name in /dev/shm, so nothing can be left there, however a rank ends.
//! Arrivals and posted receives travel through rings in a second, small memory file: see `mailbox`. Which way of
//! copying is fastest depends on size and caches, so each point finds it out by trying: see `tuner`.

mod mailbox;
mod tuner;

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Caps, Card, Completion, Domain, Engine, Entry, Kind, Lane, LaneKind, LaneSpec, LimitKind, Op,
    Verb, WorkerConfig,
};
use tonnage_sys::copy::Method;
use tonnage_sys::mapping::{Arena, OutOfRange, Pages, Sharing};
use tonnage_units::{Error, Result};

use mailbox::{Arrival, Inbox, Mailbox, Outbox};
use tuner::Tuner;

/// One call of `post` moves at most about this much, so that a loop stays in control of large operations.
const POST_BYTES_MAX: u64 = 256 << 10;

/// The system's error number for a message that is longer than the receive it meets.
const MESSAGE_TOO_LONG: i32 = 90;

static CAPS: Caps = Caps {
    verbs: &Verb::ALL,
    immediate_bits: 32,
    depth: mailbox::DEPTH,
    message_bytes_max: u32::MAX as u64,
    moves_bytes: true,
    delivered: true,
    delivery_on_request: true,
    arrivals_named: true,
    arrives_by_polling: false,
    ordered_writes: true,
    shared_memory: true,
    limit: LimitKind::MemoryCopy,
};

/// The row of the list of engines.
pub const ENTRY: Entry = Entry {
    name: "shm",
    about: "direct memory between ranks of one host over a shared mapping: what this host can do at best",
    variant: None,
    options: &[],
    has_devices: false,
    libraries: &[],
    verbs: &Verb::ALL,
    ordered_writes: true,
    moves_bytes: true,
    open: |_| Ok(vec![Arc::new(ShmDomain)]),
};

struct ShmDomain;

impl Domain for ShmDomain {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    fn effective(&self) -> Value {
        json!({
            "name": "shm",
            "depth": mailbox::DEPTH,
            "completion": "delivered: the copy is done by the initiator",
            "ordering": "in order; the last byte of an ordered write is visible last",
            "post_bytes_max": POST_BYTES_MAX,
        })
    }

    fn worker(&self, config: &WorkerConfig, memory: Arc<dyn Memory>) -> Result<Box<dyn Engine>> {
        let bytes = mailbox::bytes(config.peers.len());
        let rings =
            Arena::allocate(bytes, Pages::Normal, Sharing::Shared, None).map_err(|error| {
                Error::io(
                    format!("cannot map {bytes} bytes for the rings of shm"),
                    error,
                )
            })?;
        Ok(Box::new(Shm {
            config: config.clone(),
            tuner: Tuner::new(config.clock, Method::available()),
            verb: None,
            mailbox: Mailbox::new(Arc::new(rings)),
            arena: Arc::clone(memory.mapped("shm")?),
            peers: Vec::new(),
            lanes: Vec::new(),
            done: VecDeque::with_capacity(mailbox::DEPTH as usize),
        }))
    }
}

/// Address of a worker's memory, for a peer to map it. Opaque to everybody else.
#[derive(Serialize, Deserialize)]
struct Address {
    boot_id: String,
    pid_namespace: String,
    pid: u32,
    memory_fd: i32,
    memory_bytes: u64,
    rings_fd: i32,
    rings_bytes: u64,
    /// Order of the rings: the ranks in the order of the worker's configuration.
    peers: Vec<u32>,
}

struct PeerMemory {
    rank: u32,
    memory: Arena,
    inbox: Inbox,
    outbox: Outbox,
}

struct LaneState {
    spec: LaneSpec,
    peer: usize,
}

struct Shm {
    config: WorkerConfig,
    /// For the operations of the point whose lanes were resolved last.
    tuner: Tuner,
    verb: Option<Verb>,
    mailbox: Mailbox,
    arena: Arc<Arena>,
    peers: Vec<PeerMemory>,
    lanes: Vec<LaneState>,
    done: VecDeque<Completion>,
}

impl Shm {
    fn address(&self) -> Address {
        let raw = |arena: &Arena| arena.file().map_or(-1, |file| file.as_raw_fd());
        Address {
            boot_id: tonnage_sys::host::boot_id(),
            pid_namespace: tonnage_sys::host::pid_namespace(),
            pid: std::process::id(),
            memory_fd: raw(&self.arena),
            memory_bytes: self.arena.len() as u64,
            rings_fd: raw(self.mailbox.arena()),
            rings_bytes: self.mailbox.arena().len() as u64,
            peers: self.config.peers.clone(),
        }
    }

    fn connect_one(
        &self,
        own: &Address,
        index: usize,
        rank: u32,
        card: &Card,
    ) -> Result<PeerMemory> {
        let unusable = |why: String| {
            Error::Unavailable {
            what: format!("shm between ranks {} and {rank}", self.config.rank),
            why,
            how: "Start both ranks on one host, in one container and as one user, or choose a network engine".into(),
        }
        };
        let peer: Address = serde_json::from_slice(&card.0)
            .map_err(|error| unusable(format!("the peer's address cannot be read ({error})")))?;
        if peer.boot_id != own.boot_id {
            return Err(unusable("they are on different hosts".into()));
        }
        if peer.pid_namespace != own.pid_namespace {
            return Err(unusable(
                "they are in different containers (PID namespaces)".into(),
            ));
        }
        let my_place = peer
            .peers
            .iter()
            .position(|&other| other == self.config.rank)
            .filter(|&place| mailbox::bytes(place + 1) as u64 <= peer.rings_bytes)
            .ok_or_else(|| unusable("the peer does not expect this rank".into()))?;
        let attach = |fd: i32, bytes: u64| -> Result<Arena> {
            let path = format!("/proc/{}/fd/{fd}", peer.pid);
            let file = OpenOptions::new().read(true).write(true).open(&path);
            let file = file.map_err(|error| unusable(format!("cannot open {path}: {error}")))?;
            Arena::attach(OwnedFd::from(file), bytes as usize)
                .map_err(|error| unusable(format!("cannot map {path}: {error}")))
        };
        let memory = attach(peer.memory_fd, peer.memory_bytes)?;
        let rings = Arc::new(attach(peer.rings_fd, peer.rings_bytes)?);
        Ok(PeerMemory {
            rank,
            memory,
            inbox: self.mailbox.inbox(index),
            outbox: Outbox::new(rings, my_place),
        })
    }

    /// Carries out one operation. `false`: there is no room now, try again after polling.
    #[inline]
    fn carry_out(&mut self, op: &Op) -> Result<bool> {
        let Some(lane) = self.lanes.get(op.lane.0 as usize) else {
            return Err(Error::Failed(format!(
                "lane {} was never resolved",
                op.lane.0
            )));
        };
        let peer = &mut self.peers[lane.peer];
        let (own, tuner) = (&self.arena, &mut self.tuner);
        let mut kind = Kind::Done;
        let taken = match lane.spec.kind {
            LaneKind::Receive => {
                return peer
                    .inbox
                    .post_receive(op.local, op.len, op.tag)
                    .map_err(ring);
            }
            LaneKind::Initiate(Verb::Write) => {
                peer.write(own, op, lane.spec.ordered, tuner).map(|()| true)
            }
            LaneKind::Initiate(Verb::Read) => peer.read(own, op, tuner).map(|()| true),
            LaneKind::Initiate(Verb::WriteImm) => peer.write_imm(own, op, tuner),
            LaneKind::Initiate(Verb::Send) => peer.send(own, op, tuner, &mut kind),
        };
        let rank = peer.rank;
        let taken = taken
            .map_err(|error| Error::Failed(format!("an operation with rank {rank}: {error}")))?;
        if taken {
            self.done.push_back(Completion {
                tag: op.tag,
                lane: op.lane,
                len: op.len,
                imm: op.imm,
                kind,
            });
        }
        Ok(taken)
    }
}

impl PeerMemory {
    #[inline]
    fn write(
        &self,
        own: &Arena,
        op: &Op,
        ordered: bool,
        tuner: &mut Tuner,
    ) -> Result<(), OutOfRange> {
        tuner.run(op.len, |method| {
            if ordered {
                own.copy_to_last_byte_last(op.local, &self.memory, op.remote, op.len, method)
            } else {
                own.copy_to(op.local, &self.memory, op.remote, op.len, method)
            }
        })
    }

    #[inline]
    fn read(&self, own: &Arena, op: &Op, tuner: &mut Tuner) -> Result<(), OutOfRange> {
        tuner.run(op.len, |method| {
            self.memory
                .copy_to(op.remote, own, op.local, op.len, method)
        })
    }

    #[inline]
    fn write_imm(&mut self, own: &Arena, op: &Op, tuner: &mut Tuner) -> Result<bool, OutOfRange> {
        if !self.outbox.has_room()? {
            return Ok(false);
        }
        self.write(own, op, false, tuner)?;
        self.outbox.tell(Arrival {
            tag: 0,
            len: op.len,
            imm: op.imm,
        })?;
        Ok(true)
    }

    /// A send that is longer than the receive it meets fails and leaves the receive where it is.
    #[inline]
    fn send(
        &mut self,
        own: &Arena,
        op: &Op,
        tuner: &mut Tuner,
        kind: &mut Kind,
    ) -> Result<bool, OutOfRange> {
        if !self.outbox.has_room()? {
            return Ok(false);
        }
        let Some(receive) = self.outbox.next_receive()? else {
            return Ok(false);
        };
        if receive.len < op.len {
            *kind = Kind::Failed(MESSAGE_TOO_LONG);
            return Ok(true);
        }
        tuner.run(op.len, |method| {
            own.copy_to(op.local, &self.memory, receive.offset, op.len, method)
        })?;
        self.outbox.take_receive()?;
        self.outbox.tell(Arrival {
            tag: receive.tag,
            len: op.len,
            imm: op.imm,
        })?;
        Ok(true)
    }
}

impl Engine for Shm {
    fn card(&self) -> Card {
        // An address holds only numbers and two short strings, so that writing it as JSON cannot fail.
        Card(serde_json::to_vec(&self.address()).unwrap_or_default())
    }

    fn connect(&mut self, peers: &[(u32, Card)]) -> Result<()> {
        let own = self.address();
        for (index, (rank, card)) in peers.iter().enumerate() {
            let peer = self.connect_one(&own, index, *rank, card)?;
            self.peers.push(peer);
        }
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec) -> Result<Lane> {
        let peer = self
            .peers
            .iter()
            .position(|peer| peer.rank == spec.peer)
            .ok_or_else(|| {
                Error::Failed(format!(
                    "rank {} was never connected to rank {}",
                    self.config.rank, spec.peer
                ))
            })?;
        let same = |lane: &LaneState| {
            lane.spec.kind == spec.kind
                && lane.spec.peer == spec.peer
                && lane.spec.ordered == spec.ordered
        };
        // Lanes are resolved at the beginning of a point, for which another copy method may be the fastest.
        if let LaneKind::Initiate(verb) = spec.kind {
            self.verb = Some(verb);
            self.tuner.restart();
        }
        if let Some(index) = self.lanes.iter().position(same) {
            return Ok(Lane(index as u32));
        }
        self.lanes.push(LaneState { spec: *spec, peer });
        Ok(Lane(self.lanes.len() as u32 - 1))
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let (mut taken, mut bytes) = (0, 0);
        for op in ops {
            if bytes >= POST_BYTES_MAX
                || self.done.len() == mailbox::DEPTH as usize
                || !self.carry_out(op)?
            {
                break;
            }
            taken += 1;
            bytes += u64::from(op.len);
        }
        Ok(taken)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        // Arrivals first, because somebody waits for them, but never all of the room: own completions would starve.
        let share = done.len().div_ceil(2);
        let mut count = 0;
        for peer in &mut self.peers {
            while count < share
                && let Some(arrival) = peer.inbox.next_arrival().map_err(ring)?
            {
                done[count] = Completion {
                    tag: arrival.tag,
                    lane: Lane(peer.rank),
                    len: arrival.len,
                    imm: arrival.imm,
                    kind: Kind::Arrived,
                };
                count += 1;
            }
        }
        while count < done.len()
            && let Some(completion) = self.done.pop_front()
        {
            done[count] = completion;
            count += 1;
        }
        Ok(count)
    }

    fn settle(&mut self, trying: bool) -> bool {
        self.tuner.settle(trying)
    }

    fn chosen(&self) -> Value {
        match self.verb {
            // A rank that only serves copies nothing.
            None => Value::Null,
            Some(_) => {
                json!({ "copy_method": self.tuner.choice().unwrap_or(Method::Memcpy).name() })
            }
        }
    }
}

fn ring(error: OutOfRange) -> Error {
    Error::Failed(format!("a ring of shm was torn: {error}"))
}

#[cfg(test)]
mod tests;
