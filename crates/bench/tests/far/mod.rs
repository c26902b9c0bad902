//! A memory and an engine of tests: bytes behind a lock that only their owner opens, moved within one process.

mod copy;
mod deceit;
pub mod held;
mod lie;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use copy::carry;
use deceit::Deceit;
use held::HeldWrites;
use lie::{AT, LIE, Lie};
use tonnage_engine::memory::{
    CopyRate, CopyTurns, DeviceMemory, Memory, MemoryEntry, MemoryReport, Request, Stretch,
};
use tonnage_engine::pattern::{self, Key, Mismatches};
use tonnage_engine::{
    Arm, Caps, Card, Completion, Descriptor, Domain, Ending, Engine, EngineReport, Entry, Failure,
    Flush, Lane, LaneKind, LaneSpec, Lifecycle, LimitKind, Lists, Neighbor, Op, Peer, Region,
    RegionId, Verb, WorkerConfig,
};
use tonnage_sys::clock::Clock;
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_units::{Error, Result};

const DEPTH: u32 = 64;

static CAPS: Caps = Caps {
    verbs: &Verb::ALL,
    immediate_bits: 32,
    depth: DEPTH,
    message_bytes_max: 1 << 30,
    moves_bytes: true,
    delivered: true,
    delivery_on_request: false,
    arrivals_named: true,
    arrives_by_polling: false,
    ordered_writes: true,
    sends_taken: true,
    passive_target: false,
    shared_memory: false,
    carried: false,
    limit: LimitKind::MemoryCopy,
};

pub static ENGINES: [Entry; 1] = [Entry {
    name: "far",
    about: "within one process, between memories that the CPU cannot address",
    variant: None,
    options: &[LIE, AT],
    has_devices: false,
    libraries: &[],
    lifecycle: Lifecycle::NONE,
    device_memory: None,
    one_process: false,
    verbs: &Verb::ALL,
    ordered_writes: true,
    moves_bytes: true,
    open: |request| {
        let lie = Lie::of(&LIE.value(request.options));
        let at = AT.number(request.options);
        Ok(vec![Arc::new(FarDomain { lie, at })])
    },
}];

static MEMORIES: [MemoryEntry; 3] = [
    FAR,
    tonnage_engines::memory::HOST,
    tonnage_engines::memory::CUDA,
];

const FAR: MemoryEntry = MemoryEntry {
    name: "far",
    about: "bytes that only their owner touches",
    variant: None,
    host_addressable: false,
    takes_gpu: false,
    options: &[],
    allocate,
    available: |_| None,
    device: |_| None,
    libraries: &[],
};

pub static LISTS: Lists = Lists {
    engines: &ENGINES,
    file_engines: &[],
    memories: &MEMORIES,
    backends: &[tonnage_engine::backends::NATIVE],
};

/// The arena stands for the device's memory: nobody but this file reaches it.
struct Far {
    arena: Mutex<Arena>,
    bytes: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn outside(error: impl std::fmt::Display) -> Error {
    Error::Failed(error.to_string())
}

fn allocate(request: &Request<'_>) -> Result<Arc<dyn Memory>> {
    let len = request.bytes as usize;
    let arena = Arena::allocate(len, Pages::Normal, Sharing::Private, None);
    let arena = arena.map_err(outside)?;
    let (bytes, arena) = (arena.len() as u64, Mutex::new(arena));
    Ok(Arc::new(Far { arena, bytes }))
}

impl Memory for Far {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn host(&self) -> Option<&Arc<Arena>> {
        None
    }

    fn device(&self) -> Option<DeviceMemory<'_>> {
        Some(DeviceMemory {
            interface: "far",
            device: 0,
            address: std::ptr::from_ref(self) as u64,
            dmabuf: None,
        })
    }

    fn report(&self) -> MemoryReport {
        MemoryReport {
            kind: "far".into(),
            bytes: self.bytes,
            device: Some("far0".into()),
            ..MemoryReport::default()
        }
    }

    fn fill(&self, origin: u64, offset: u64, len: u64, key: Key) -> Result<()> {
        pattern::fill(&lock(&self.arena), origin, offset, len, key)
    }

    fn verify(
        &self,
        origin: u64,
        offset: u64,
        len: u64,
        key: Key,
        found: &mut Mismatches,
    ) -> Result<()> {
        pattern::verify(&lock(&self.arena), origin, offset, len, key, found)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        lock(&self.arena).read(offset, bytes).map_err(outside)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        lock(&self.arena).write(offset, bytes).map_err(outside)
    }

    fn copy_rates(
        &self,
        stretch: &Stretch,
        slots: &mut dyn FnMut() -> (u64, u64),
        clock: &Clock,
        turns: CopyTurns,
    ) -> Result<Vec<CopyRate>> {
        let mut piece = vec![0; stretch.piece_bytes.max(stretch.last_piece_bytes) as usize];
        let mut copied_bytes = 0;
        while clock.now_ns() < turns.start_ns {}
        let began_ns = clock.now_ns();
        for _ in 0..16 {
            let (from, to, bytes) = stretch.copy(slots());
            let piece = &mut piece[..bytes as usize];
            self.read(stretch.from + from, piece)?;
            self.write(stretch.to + to, piece)?;
            copied_bytes += bytes;
        }
        let ns = clock.now_ns() - began_ns;
        Ok(vec![CopyRate {
            method: "far copy".into(),
            is_choice: false,
            turns_bytes_per_s: vec![copied_bytes as f64 * 1e9 / ns.max(1) as f64],
        }])
    }
}

struct FarDomain {
    lie: Option<Lie>,
    at: u64,
}

/// A posted receive.
#[derive(Clone, Copy)]
struct Receive {
    local: u64,
    len: u32,
    tag: u32,
}

/// Memories that peers of this process find by the number on a card.
struct Inbox {
    memories: Mutex<BTreeMap<u32, Arc<dyn Memory>>>,
    arrivals: Mutex<VecDeque<Completion>>,
    /// Those that are reported once this side has nothing else to do.
    echoes: Mutex<VecDeque<Completion>>,
    /// By the peer that they are for.
    receives: Mutex<BTreeMap<Peer, VecDeque<Receive>>>,
    held: HeldWrites,
    /// Written to wake a sleeper.
    bell: UnixStream,
}

impl Inbox {
    fn tell(&self, arrival: Completion) {
        lock(&self.arrivals).push_back(arrival);
        // A bell that rings already wakes as well.
        let _ = (&self.bell).write(&[1]);
    }
}

static INBOXES: Mutex<BTreeMap<u64, Arc<Inbox>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Domain for FarDomain {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            name: "far".into(),
            device: Some("far0".into()),
            ..EngineReport::default()
        }
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        let (ear, bell) = UnixStream::pair().map_err(outside)?;
        ear.set_nonblocking(true).map_err(outside)?;
        bell.set_nonblocking(true).map_err(outside)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let inbox = Arc::new(Inbox {
            memories: Mutex::default(),
            arrivals: Mutex::default(),
            echoes: Mutex::default(),
            receives: Mutex::default(),
            held: HeldWrites::default(),
            bell,
        });
        lock(&INBOXES).insert(number, Arc::clone(&inbox));
        Ok(Box::new(Worker {
            rank: config.rank,
            lie: self.lie,
            at: self.at,
            initiated: 0,
            late: Vec::new(),
            deceit: Deceit::default(),
            number,
            inbox,
            ear,
            peers: BTreeMap::new(),
            lanes: Vec::new(),
            done: VecDeque::new(),
        }))
    }
}

#[derive(Clone, Copy)]
struct FarLane {
    kind: LaneKind,
    peer: Peer,
    local: u32,
    remote: u32,
}

struct Worker {
    rank: Peer,
    lie: Option<Lie>,
    /// The operation that is lied about.
    at: u64,
    initiated: u64,
    /// Operations that have completed and not moved.
    late: Vec<Op>,
    deceit: Deceit,
    number: u64,
    inbox: Arc<Inbox>,
    ear: UnixStream,
    peers: BTreeMap<Peer, Arc<Inbox>>,
    lanes: Vec<Option<FarLane>>,
    done: VecDeque<Completion>,
}

fn number_of(bytes: &[u8]) -> Result<u64> {
    let bytes: [u8; 8] = bytes.try_into().map_err(outside)?;
    Ok(u64::from_le_bytes(bytes))
}

fn unknown(what: &str) -> Error {
    Error::Failed(format!("{what} is not known"))
}

fn memory_of(inbox: &Inbox, region: u32) -> Result<Arc<dyn Memory>> {
    let memory = lock(&inbox.memories).get(&region).cloned();
    memory.ok_or_else(|| unknown("a region"))
}

impl Worker {
    fn lane_of(&self, lane: Lane) -> Result<&FarLane> {
        let lane = self.lanes.get(lane.0 as usize).and_then(Option::as_ref);
        lane.ok_or_else(|| unknown("a lane"))
    }

    /// One operation; false when the peer has no receive for it yet.
    fn carry_out(&self, op: &Op, lie: Option<Lie>) -> Result<bool> {
        let lane = self.lane_of(op.lane)?;
        let own = memory_of(&self.inbox, lane.local)?;
        let peer = self
            .peers
            .get(&lane.peer)
            .ok_or_else(|| unknown("a peer"))?;
        let mut arrived = Completion {
            tag: 0,
            lane: Lane(self.rank),
            len: op.len,
            imm: op.imm,
            ending: Ending::Arrived,
        };
        let far = memory_of(peer, lane.remote)?;
        match lane.kind {
            LaneKind::Initiate(Verb::Read) => {
                carry(op, lie, (&*far, op.remote), (&*own, op.local))?
            }
            LaneKind::Initiate(Verb::Write) if self.lie.is_none() && far.host().is_none() => {
                let (to, from) = ((lane.remote, op.remote), (&*own, op.local));
                peer.held.hold(to, from, op.len)?;
            }
            LaneKind::Initiate(Verb::Write | Verb::WriteImm) => {
                carry(op, lie, (&*own, op.local), (&*far, op.remote))?;
            }
            LaneKind::Initiate(verb) if verb.is_atomic() => {
                words::change(op, verb, lie, &*far, &*own)?;
            }
            LaneKind::Initiate(_) => {
                let receive = lock(&peer.receives)
                    .entry(self.rank)
                    .or_default()
                    .pop_front();
                let Some(receive) = receive else {
                    return Ok(false);
                };
                if receive.len < op.len {
                    return Err(Error::Failed("a receive that is too short".into()));
                }
                carry(op, lie, (&*own, op.local), (&*far, receive.local))?;
                arrived.tag = receive.tag;
            }
            LaneKind::Receive => {
                let (local, len, tag) = (op.local, op.len, op.tag);
                let mut receives = lock(&self.inbox.receives);
                let queue = receives.entry(lane.peer).or_default();
                queue.push_back(Receive { local, len, tag });
                return Ok(true);
            }
        }
        if lie == Some(Lie::Again) {
            // This precedes the notification. Bytes that land after the target has compared leave no trace.
            self.land_again()?;
        }
        if matches!(lane.kind, LaneKind::Initiate(verb) if verb.notifies_target()) {
            if lie == Some(Lie::Stranger) {
                arrived.lane = Lane(self.rank + 1);
            }
            peer.tell(arrived);
            match lie {
                Some(Lie::Double) => peer.tell(arrived),
                Some(Lie::Echo) => lock(&peer.echoes).push_back(arrived),
                _ => {}
            }
        }
        Ok(true)
    }
}

impl Engine for Worker {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        let mut memories = lock(&self.inbox.memories);
        let id = memories.len() as u32;
        memories.insert(id, Arc::clone(memory));
        Ok(Region {
            id: RegionId(id),
            descriptor: Descriptor(u64::from(id).to_le_bytes().to_vec()),
        })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        let taken = lock(&self.inbox.memories).remove(&region.0);
        taken.map(|_| ()).ok_or_else(|| unknown("a region"))
    }

    fn cards(&mut self, peers: &[Peer]) -> Result<Vec<Card>> {
        let card = Card(self.number.to_le_bytes().to_vec());
        Ok(vec![card; peers.len()])
    }

    fn connect(&mut self, peers: &[Neighbor]) -> Result<()> {
        for Neighbor { peer, card, .. } in peers {
            let inbox = lock(&INBOXES).get(&number_of(&card.0)?).cloned();
            let inbox = inbox.ok_or_else(|| unknown("a peer"))?;
            self.peers.insert(*peer, inbox);
        }
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        self.lanes.push(Some(FarLane {
            kind: spec.kind,
            peer: spec.peer,
            local: spec.local.0,
            remote: number_of(&spec.remote.0)? as u32,
        }));
        Ok(Lane(self.lanes.len() as u32 - 1))
    }

    fn release(&mut self, lane: Lane) {
        for op in std::mem::take(&mut self.late) {
            // Whoever would have been told of a failure has gone.
            let _ = self.carry_out(&op, None);
        }
        if let Some(place) = self.lanes.get_mut(lane.0 as usize) {
            *place = None;
        }
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        for (taken, op) in ops.iter().enumerate() {
            let FarLane { kind, local, .. } = *self.lane_of(op.lane)?;
            let LaneKind::Initiate(verb) = kind else {
                self.carry_out(op, None)?;
                continue;
            };
            // Lies are about payload, whose memory is the first; what else a worker registers is for its own use.
            let is_payload = local == 0;
            if let Some(lie) = self.lie.filter(|lie| is_payload && lie.is_of_several()) {
                if self.done.len() >= DEPTH as usize || !self.deceive(lie, verb, op)? {
                    return Ok(taken);
                }
                continue;
            }
            let (this, at) = (self.initiated, self.at);
            let lie = self.lie.filter(|lie| is_payload && lie.is_of(this, at));
            match lie {
                _ if self.done.len() >= DEPTH as usize => return Ok(taken),
                Some(Lie::Drop) => {}
                Some(Lie::Late) => self.late.push(*op),
                lie if !self.carry_out(op, lie)? => return Ok(taken),
                _ => {}
            }
            self.initiated += u64::from(is_payload);
            let twice = lie == Some(Lie::Double) && !verb.notifies_target();
            for _ in 0..1 + usize::from(twice) {
                self.done.push_back(Completion {
                    tag: op.tag,
                    lane: op.lane,
                    len: op.len,
                    imm: op.imm,
                    ending: Ending::Done,
                });
            }
        }
        Ok(ops.len())
    }

    fn flush(&mut self, lane: Lane, _tag: u32) -> Result<Flush> {
        self.lane_of(lane).map(|_| Flush::Delivered)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        (self.inbox.held).land(|region| memory_of(&self.inbox, region))
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        let mut arrivals = lock(&self.inbox.arrivals);
        let mut count = 0;
        let share = done.len().div_ceil(2);
        while count < share
            && let Some(arrival) = arrivals.pop_front()
        {
            done[count] = arrival;
            count += 1;
        }
        while count < done.len()
            && let Some(completion) = self.done.pop_front()
        {
            done[count] = completion;
            count += 1;
        }
        if count == 0
            && self.initiated > 0
            && let Some(echo) = lock(&self.inbox.echoes).pop_front()
        {
            done[0] = echo;
            count = 1;
        }
        Ok(count)
    }

    fn failure(&self, _done: &Completion) -> Failure {
        Failure::default()
    }

    fn arm(&mut self) -> Result<Arm<'_>> {
        // The bell is silenced first, so that what arrives from here on rings it again.
        let mut rung = [0; 64];
        while (&self.ear).read(&mut rung).is_ok_and(|count| count > 0) {}
        if !self.done.is_empty() || !lock(&self.inbox.arrivals).is_empty() {
            return Ok(Arm::Ready);
        }
        Ok(Arm::Sleep(self.ear.as_fd()))
    }
}
