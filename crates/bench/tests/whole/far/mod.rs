//! A test engine that moves bytes within one process, and may lie about them. Only the owners of its memories can
//! access these. Unlike `tonnage_engine::testing::TestEngine`, it really moves bytes, because it tests verification in
//! whole runs.

mod deceit;
mod lie;

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use deceit::LieState;
use lie::{AT, LIE, Lie, carry, change_word};
use tonnage_engine::memory::{Memory, MemoryEntry};
use tonnage_engine::testing::{CAPS, TestDomain, TestMemory, arrival};
use tonnage_engine::{
    ArmOutcome, BoundKind, Caps, Completion, Descriptor, Ending, EndpointAddress, Engine,
    EngineReport, Entry, Failure, Flush, Lane, LaneKind, LaneSpec, Lists, Op, OpenRequest, Peer,
    PeerEndpoint, Region, RegionId, Verb, WorkerConfig,
};
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

const DEPTH: u32 = 64;

pub static ENGINES: [Entry; 1] = [Entry {
    name: "far",
    about: "within one process, between memories that the CPU cannot address",
    options: &[LIE, AT],
    ordered_writes: true,
    moves_bytes: true,
    open: |request| Ok(vec![Arc::new(domain(request))]),
    ..tonnage_engines::null::ENTRY
}];

static MEMORIES: [MemoryEntry; 3] = [
    FAR,
    tonnage_engines::memory::HOST,
    tonnage_engines::memory::CUDA,
];

const FAR: MemoryEntry = MemoryEntry {
    name: "far",
    about: "bytes that only their owner touches",
    host_addressable: false,
    allocate: TestMemory::allocate,
    available: |_| None,
    ..tonnage_engines::memory::HOST
};

pub static LISTS: Lists = Lists {
    engines: &ENGINES,
    file_engines: &[],
    memories: &MEMORIES,
    backends: &[tonnage_engine::backends::NATIVE],
};

fn domain(request: &OpenRequest<'_>) -> TestDomain {
    let lie = Lie::from_name(&LIE.value(request.options));
    let at = AT.number(request.options);
    TestDomain {
        caps: Caps {
            depth: DEPTH,
            delivery_on_request: false,
            bound: BoundKind::MemoryCopy,
            ..CAPS
        },
        report: EngineReport {
            name: "far".into(),
            device: Some("far0".into()),
            ..EngineReport::default()
        },
        ..TestDomain::new(move |config| Worker::new(config, lie, at))
    }
}

/// A posted receive.
#[derive(Clone, Copy)]
struct Receive {
    local: u64,
    len: u32,
    tag: u32,
}

/// Memories and queues of one worker. Peers in this process find them by the number in the endpoint address.
struct Inbox {
    memories: Mutex<BTreeMap<u32, Arc<dyn Memory>>>,
    arrivals: Mutex<VecDeque<Completion>>,
    /// Arrivals that are reported a second time when this side is idle.
    echoes: Mutex<VecDeque<Completion>>,
    /// Posted receives of each peer.
    receives: Mutex<BTreeMap<Peer, VecDeque<Receive>>>,
    /// The latest bytes of plain writes to device memory, for each region and offset. They have left the sender, but
    /// are not visible until the target flushes them, as between a NIC and a GPU.
    held: Mutex<BTreeMap<(u32, u64), Vec<u8>>>,
    /// Written to, to wake a worker that sleeps.
    wake_sender: UnixStream,
}

/// Minimum time that a flush takes.
pub const LANDING: Duration = Duration::from_millis(1);

impl Inbox {
    fn tell(&self, arrival: Completion) {
        lock(&self.arrivals).push_back(arrival);
        // If the pipe is full, the bytes in it wake the worker.
        let _ = (&self.wake_sender).write(&[1]);
    }

    fn memory(&self, region: u32) -> Result<Arc<dyn Memory>> {
        let memory = lock(&self.memories).get(&region).cloned();
        memory.ok_or_else(|| unknown("a region"))
    }
}

static INBOXES: Mutex<BTreeMap<u64, Arc<Inbox>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

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
    /// Number of the operation that the lie concerns.
    at: u64,
    initiated: u64,
    /// Operations that have completed although their bytes have not moved.
    late: Vec<Op>,
    lie_state: LieState,
    number: u64,
    inbox: Arc<Inbox>,
    wake_receiver: UnixStream,
    peers: BTreeMap<Peer, Arc<Inbox>>,
    lanes: Vec<Option<FarLane>>,
    done: VecDeque<Completion>,
}

fn number_of(bytes: &[u8]) -> Result<u64> {
    let bytes: [u8; 8] = bytes.try_into().map_err(|_| unknown("a number"))?;
    Ok(u64::from_le_bytes(bytes))
}

fn unknown(what: &str) -> Error {
    Error::Failed(format!("{what} is not known"))
}

impl Worker {
    fn new(config: &WorkerConfig, lie: Option<Lie>, at: u64) -> Self {
        let (wake_receiver, wake_sender) = UnixStream::pair().unwrap();
        wake_receiver.set_nonblocking(true).unwrap();
        wake_sender.set_nonblocking(true).unwrap();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let inbox = Arc::new(Inbox {
            memories: Mutex::default(),
            arrivals: Mutex::default(),
            echoes: Mutex::default(),
            receives: Mutex::default(),
            held: Mutex::default(),
            wake_sender,
        });
        lock(&INBOXES).insert(number, Arc::clone(&inbox));
        Self {
            rank: config.rank,
            lie,
            at,
            initiated: 0,
            late: Vec::new(),
            lie_state: LieState::default(),
            number,
            inbox,
            wake_receiver,
            peers: BTreeMap::new(),
            lanes: Vec::new(),
            done: VecDeque::new(),
        }
    }

    fn lane_of(&self, lane: Lane) -> Result<&FarLane> {
        let lane = self.lanes.get(lane.0 as usize).and_then(Option::as_ref);
        lane.ok_or_else(|| unknown("a lane"))
    }

    fn inbox_of(&self, peer: Peer) -> Result<&Arc<Inbox>> {
        self.peers.get(&peer).ok_or_else(|| unknown("a peer"))
    }

    /// Carries out one operation. Returns false if the peer has posted no receive for it yet.
    fn carry_out(&self, op: &Op, lie: Option<Lie>) -> Result<bool> {
        let lane = self.lane_of(op.lane)?;
        let own = self.inbox.memory(lane.local)?;
        let peer = self.inbox_of(lane.peer)?;
        let far = peer.memory(lane.remote)?;
        let mut arrived = arrival(self.rank, op.imm, op.len);
        match lane.kind {
            LaneKind::Initiate(Verb::Read) => {
                carry(op, lie, (&*far, op.remote), (&*own, op.local))?
            }
            LaneKind::Initiate(Verb::Write) if self.lie.is_none() && far.host().is_none() => {
                let mut bytes = vec![0; op.len as usize];
                own.read(op.local, &mut bytes)?;
                lock(&peer.held).insert((lane.remote, op.remote), bytes);
            }
            LaneKind::Initiate(Verb::Write | Verb::WriteImm) => {
                carry(op, lie, (&*own, op.local), (&*far, op.remote))?;
            }
            LaneKind::Initiate(verb) if verb.is_atomic() => {
                change_word(op, verb, lie, &*far, &*own)?;
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
            // The repeated delivery must land before the notification. After the target has compared its bytes, it
            // would leave no trace.
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

    fn endpoint_addresses(&mut self, peers: &[Peer]) -> Result<Vec<EndpointAddress>> {
        let address = EndpointAddress(self.number.to_le_bytes().to_vec());
        Ok(vec![address; peers.len()])
    }

    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()> {
        for PeerEndpoint { peer, address, .. } in peers {
            let inbox = lock(&INBOXES).get(&number_of(&address.0)?).cloned();
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

    fn release_lane(&mut self, lane: Lane) {
        for op in std::mem::take(&mut self.late) {
            // A failure is ignored, because the peer may have ended.
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
            // Lies concern payload, which is in the first registered memory. Further memories are for the worker's own
            // use.
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
                self.done.push_back(Completion::new(op, Ending::Done));
            }
        }
        Ok(ops.len())
    }

    fn flush(&mut self, lane: Lane, _tag: u32) -> Result<Flush> {
        self.lane_of(lane).map(|_| Flush::Delivered)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        let all = std::mem::take(&mut *lock(&self.inbox.held));
        let (held, began) = (!all.is_empty(), Instant::now());
        for ((region, offset), bytes) in all {
            self.inbox.memory(region)?.write(offset, &bytes)?;
        }
        while held && began.elapsed() < LANDING {}
        Ok(held)
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

    fn arm(&mut self) -> Result<ArmOutcome<'_>> {
        // Empties the pipe first, so that the next arrival wakes the worker again.
        let mut rung = [0; 64];
        while (&self.wake_receiver)
            .read(&mut rung)
            .is_ok_and(|count| count > 0)
        {}
        if !self.done.is_empty() || !lock(&self.inbox.arrivals).is_empty() {
            return Ok(ArmOutcome::Ready);
        }
        Ok(ArmOutcome::Sleep(self.wake_receiver.as_fd()))
    }
}
