//! Test doubles: a device, its workers and a memory, which behave as a test prescribes.
//!
//! A [`TestEngine`] is a handle to a [`TestScript`]. The code under test owns one clone of the handle and the test
//! another. Through the script, the test decides which calls are refused, completed, delayed or answered, and sees
//! which calls were made. No bytes move unless a hook of the script moves them.
//!
//! Operations stay in flight until the test completes them, or, with [`TestScript::ends`], until they are polled. A
//! [`TestDomain`] is a modified device, or one with the test's own workers. A [`TestMemory`] is memory that the CPU
//! cannot address.
//!
//! Without [`TestScript::keeps_handed`] or a hook that allocates, posting and polling allocate nothing once
//! [`TestScript::in_flight`] has its capacity.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};

use tonnage_sys::clock::Clock;
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result, WireDevice};

use crate::memory::{
    CopyRange, CopyRate, CopyRepetitions, DeviceMemory, Memory, MemoryReport, Request,
};
use crate::pattern::{self, Key, Mismatches};
use crate::{
    ArmOutcome, BoundKind, Caps, Completion, Descriptor, Domain, Domains, Ending, EndpointAddress,
    Engine, EngineReport, Failure, Flush, Lane, LaneKind, LaneSpec, Op, Peer, PeerEndpoint, Region,
    RegionId, Verb, WorkerConfig,
};

/// Returns how an operation in flight ends when polled; `None` leaves it in flight.
pub type EndingFn = Box<dyn FnMut(&Op) -> Option<Ending> + Send>;

/// Returns whether an operation is taken.
pub type AcceptFn = Box<dyn FnMut(&Op) -> bool + Send>;

/// Called with each operation taken, and the peer of its lane. The returned completion then arrives on this side.
pub type ArrivalFn = Box<dyn FnMut(Peer, &Op) -> Option<Completion> + Send>;

/// Every operation succeeds at the next poll.
pub fn ends_at_once() -> EndingFn {
    Box::new(|_| Some(Ending::Done))
}

/// Every operation succeeds at the next poll, except on this lane, where operations never complete.
pub fn ends_except_on(lane: Lane) -> EndingFn {
    Box::new(move |op| (op.lane != lane).then_some(Ending::Done))
}

/// The first `operations` succeed, and all later ones fail with this code.
pub fn failing_after(operations: u64, code: i32) -> EndingFn {
    let mut ended = 0;
    Box::new(move |_| {
        ended += 1;
        Some(match ended > operations {
            true => Ending::Failed(code),
            false => Ending::Done,
        })
    })
}

/// The first `operations` complete at once. All others wait until `stall_ns` have passed since the first of them was
/// polled.
pub fn stalling_after(operations: u64, stall_ns: u64) -> EndingFn {
    let (clock, mut ended, mut until_ns) = (Clock::new(), 0, None);
    Box::new(move |_| {
        if ended >= operations {
            let until_ns = *until_ns.get_or_insert_with(|| clock.now_ns() + stall_ns);
            if clock.now_ns() < until_ns {
                return None;
            }
        }
        ended += 1;
        Some(Ending::Done)
    })
}

/// A write-imm that arrives from a peer.
pub fn arrival(peer: Peer, imm: u32, len: u32) -> Completion {
    Completion {
        tag: 0,
        lane: Lane(peer),
        len,
        imm,
        ending: Ending::Arrived,
    }
}

/// A resolved lane, as first requested.
pub struct ResolvedLane {
    /// Verb or receive.
    pub kind: LaneKind,
    /// The other end.
    pub peer: Peer,
    /// This worker's region.
    pub local: RegionId,
    /// The peer's region.
    pub remote: Descriptor,
}

/// Behaviour of a [`TestEngine`], and a log of the calls made to it.
#[derive(Default)]
pub struct TestScript {
    /// First number of the worker's regions and lanes, and first byte of its descriptors and addresses.
    pub first: u32,
    /// Name that its failures report.
    pub failure: String,
    /// If true, only memory that the CPU can address can be registered.
    pub needs_host_memory: bool,
    /// If true, resolving the same specification again returns a new lane.
    pub lanes_distinct: bool,
    /// Peers that cannot be reached.
    pub unreachable: Vec<Peer>,
    /// If true, `meet` does not return until it is stopped.
    pub never_meets: bool,
    /// If true, `post`, `flush`, `poll` and `arm` fail.
    pub dead: bool,
    /// If true, the next post is an error.
    pub post_fails: bool,
    /// If true, a call of `post` without operations panics.
    pub panics_at_nothing: bool,
    /// Number of next calls of `post` that take nothing.
    pub busy: u32,
    /// The most operations that one post takes; `None` for all.
    pub post_max: Option<usize>,
    /// The most operations in flight; `None` for no limit.
    pub room: Option<usize>,
    /// Decides which operations are taken; `None` for all.
    pub takes: Option<AcceptFn>,
    /// Produces the peers' answers to operations taken.
    pub answers: Option<ArrivalFn>,
    /// Called at the start of each poll.
    pub before_poll: Option<Box<dyn FnMut() + Send>>,
    /// Decides how operations end; `None` if the test ends them itself.
    pub ends: Option<EndingFn>,
    /// The most operations that end in one poll; `None` for no limit.
    pub poll_max: Option<usize>,
    /// Outcomes of the next flushes.
    pub flush_answers: VecDeque<Flush>,
    /// If true, flushes without a prepared outcome are posted. If false, they report that everything has been
    /// delivered.
    pub posts_flushes: bool,
    /// Result of [`Engine::flush_incoming`].
    pub waits_for_incoming: bool,
    /// Result of the next call of [`Engine::take_device_events`].
    pub device_events: Vec<String>,
    /// If true, operations are logged in [`Self::handed`].
    pub keeps_handed: bool,

    /// Operations and flushes that were taken and have not ended, oldest first.
    pub in_flight: VecDeque<Op>,
    /// Completions for the next polls. While there are any, a poll does not end operations in flight.
    pub done: VecDeque<Completion>,
    /// The operations that each post took; posts that took nothing are left out.
    pub handed: Vec<Vec<Op>>,
    /// Number of calls of `post`.
    pub posts: u64,
    /// Number of calls of `post` that ended at an operation that `takes` refused.
    pub refused: u64,
    /// Number of operations taken.
    pub posted: u64,
    /// The most operations in one call of `post`.
    pub most_handed: usize,
    /// The most operations that were in flight.
    pub most_in_flight: usize,
    /// Number of calls of `poll`.
    pub polls: u64,
    /// Number of calls of `flush`.
    pub flushes: u32,
    /// Number of calls of `flush_incoming`.
    pub incoming: u32,
    /// Number of calls of `arm` that returned a descriptor to sleep on.
    pub slept: u32,
    /// Resolved lanes, indexed by their number minus `first`.
    pub resolved: Vec<ResolvedLane>,
    /// Lanes that have not been released.
    pub lanes: BTreeSet<u32>,
    /// Number of calls of `lane`.
    pub lanes_asked: usize,
    /// Number of calls of `release_lane`.
    pub released: usize,
    /// Regions that have not been deregistered.
    pub regions: BTreeSet<u32>,
    /// Number of calls of `register`.
    pub regions_asked: usize,
    /// Number of calls of `deregister`.
    pub deregistered: usize,
    /// Peers that the engine has been connected to.
    pub connected: Vec<PeerEndpoint>,
    /// The completion last passed to `failure`.
    pub explained: Option<Completion>,
    /// Violations of the contract: lanes or regions used after release, or released while in use.
    pub wrong: Vec<String>,
}

impl TestScript {
    fn check_alive(&self) -> Result<()> {
        if self.dead {
            return Err(Error::Failed("the device is gone".into()));
        }
        Ok(())
    }

    /// Ends the `count` oldest operations in flight.
    pub fn end(&mut self, count: usize, ending: Ending) {
        assert!(
            count <= self.in_flight.len(),
            "fewer operations are in flight"
        );
        let ended = self.in_flight.drain(..count);
        self.done
            .extend(ended.map(|op| Completion::new(&op, ending)));
    }

    /// Reports a completion of this operation, even if it has already completed.
    pub fn end_op(&mut self, op: &Op, ending: Ending) {
        let is_it = |other: &Op| (other.lane, other.tag) == (op.lane, op.tag);
        if let Some(at) = self.in_flight.iter().position(is_it) {
            self.in_flight.remove(at);
        }
        self.done.push_back(Completion::new(op, ending));
    }

    /// Number of lanes that were not released, and of regions that were not deregistered.
    pub fn left(&self) -> (usize, usize) {
        (self.lanes.len(), self.regions.len())
    }

    fn room_left(&self) -> usize {
        let room = self.room.unwrap_or(usize::MAX);
        room.saturating_sub(self.in_flight.len())
    }

    /// Logs the use of a released lane.
    fn note_lane(&mut self, lane: Lane, what: &str) {
        if !self.resolved.is_empty() && !self.lanes.contains(&lane.0) {
            self.wrong.push(format!("{what} on {lane:?}"));
        }
    }

    /// Peer of a lane. A lane that was never resolved counts as a lane to the peer of the same number.
    fn peer(&self, lane: Lane) -> Peer {
        let index = lane.0.wrapping_sub(self.first) as usize;
        self.resolved.get(index).map_or(lane.0, |lane| lane.peer)
    }
}

/// An engine that behaves as its script prescribes. Clones share the script.
#[derive(Clone, Default)]
pub struct TestEngine {
    script: Arc<Mutex<TestScript>>,
    /// A pair of sockets. The engine sleeps on the first, to which nothing is ever written. The second keeps the first
    /// open.
    descriptor: Option<Arc<(UnixStream, UnixStream)>>,
}

impl TestEngine {
    /// An engine with a script.
    pub fn new(script: TestScript) -> Self {
        Self {
            script: Arc::new(Mutex::new(script)),
            descriptor: None,
        }
    }

    /// Adds a descriptor on which the engine's user can sleep.
    #[must_use]
    pub fn sleeping(mut self) -> Self {
        self.descriptor = UnixStream::pair().ok().map(Arc::new);
        self
    }

    /// Locks the script. Do not hold the lock during a call of the engine.
    pub fn lock(&self) -> MutexGuard<'_, TestScript> {
        lock(&self.script)
    }
}

impl Engine for TestEngine {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        let mut script = self.lock();
        if script.needs_host_memory {
            memory.mapped("test")?;
        }
        let id = script.first + script.regions_asked as u32;
        script.regions_asked += 1;
        script.regions.insert(id);
        Ok(Region {
            id: RegionId(id),
            descriptor: Descriptor(vec![script.first as u8]),
        })
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        let mut script = self.lock();
        script.deregistered += 1;
        let is_used = |&lane: &u32| script.resolved[(lane - script.first) as usize].local == region;
        if script.lanes.iter().any(is_used) || !script.regions.remove(&region.0) {
            script.wrong.push(format!("deregistered {region:?}"));
        }
        Ok(())
    }

    fn endpoint_addresses(&mut self, peers: &[Peer]) -> Result<Vec<EndpointAddress>> {
        let address = |&peer| EndpointAddress(vec![self.lock().first as u8, peer as u8]);
        Ok(peers.iter().map(address).collect())
    }

    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()> {
        let mut script = self.lock();
        for neighbor in peers {
            if script.unreachable.contains(&neighbor.peer) {
                return Err(Error::Failed("no way there".into()));
            }
            let mut known = script.connected.iter();
            if known.any(|known| known.peer == neighbor.peer) {
                script.wrong.push(format!("connected {neighbor:?}"));
            }
            script.connected.push(neighbor.clone());
        }
        Ok(())
    }

    fn meet(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        while self.lock().never_meets {
            if stopped() {
                return Err(Error::Failed("stopped".into()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let mut script = self.lock();
        script.lanes_asked += 1;
        let wanted = (spec.kind, spec.peer, spec.local);
        let mut known = script.resolved.iter();
        let known = known.position(|lane| {
            (lane.kind, lane.peer, lane.local) == wanted && !script.lanes_distinct
        });
        let index = known.unwrap_or_else(|| {
            script.resolved.push(ResolvedLane {
                kind: spec.kind,
                peer: spec.peer,
                local: spec.local,
                remote: spec.remote.clone(),
            });
            script.resolved.len() - 1
        });
        let number = script.first + index as u32;
        script.lanes.insert(number);
        Ok(Lane(number))
    }

    fn release_lane(&mut self, lane: Lane) {
        let mut script = self.lock();
        script.released += 1;
        let in_flight = script.in_flight.iter().any(|op| op.lane == lane);
        if in_flight || !script.lanes.remove(&lane.0) {
            script.wrong.push(format!("released {lane:?}"));
        }
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let script = &mut *self.lock();
        assert!(
            !ops.is_empty() || !script.panics_at_nothing,
            "a post without operations wastes time"
        );
        script.posts += 1;
        script.most_handed = script.most_handed.max(ops.len());
        script.check_alive()?;
        if std::mem::take(&mut script.post_fails) {
            return Err(Error::Failed("the device refuses".into()));
        }
        if script.busy > 0 {
            script.busy -= 1;
            return Ok(0);
        }
        let mut taken = ops.len().min(script.room_left());
        taken = taken.min(script.post_max.unwrap_or(taken));
        if let Some(takes) = &mut script.takes
            && let Some(refused) = ops[..taken].iter().position(|op| !takes(op))
        {
            script.refused += 1;
            taken = refused;
        }
        for op in &ops[..taken] {
            script.note_lane(op.lane, "posted");
            let peer = script.peer(op.lane);
            if let Some(answers) = &mut script.answers {
                script.done.extend(answers(peer, op));
            }
        }
        script.in_flight.extend(&ops[..taken]);
        script.posted += taken as u64;
        script.most_in_flight = script.most_in_flight.max(script.in_flight.len());
        if script.keeps_handed && taken > 0 {
            script.handed.push(ops[..taken].to_vec());
        }
        Ok(taken)
    }

    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush> {
        let mut script = self.lock();
        script.check_alive()?;
        script.flushes += 1;
        script.note_lane(lane, "flushed");
        let answer = match script.flush_answers.pop_front() {
            Some(answer) => answer,
            None if !script.posts_flushes => Flush::Delivered,
            None if script.room_left() == 0 => Flush::Again,
            None => Flush::Posted,
        };
        if answer == Flush::Posted {
            script.in_flight.push_back(Op {
                lane,
                tag,
                local: 0,
                remote: 0,
                len: 0,
                imm: 0,
            });
        }
        Ok(answer)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        let mut script = self.lock();
        script.incoming += 1;
        Ok(script.waits_for_incoming)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        let script = &mut *self.lock();
        script.check_alive()?;
        script.polls += 1;
        if let Some(before) = &mut script.before_poll {
            before();
        }
        let count = script.done.len().min(done.len());
        for (place, completion) in done.iter_mut().zip(script.done.drain(..count)) {
            *place = completion;
        }
        let Some(ends) = script.ends.as_mut().filter(|_| count == 0) else {
            return Ok(count);
        };
        let most = done.len().min(script.poll_max.unwrap_or(usize::MAX));
        for (count, place) in done[..most].iter_mut().enumerate() {
            let mut all = script.in_flight.iter().enumerate();
            let ended = all.find_map(|(at, op)| Some((at, Completion::new(op, ends(op)?))));
            let Some((at, completion)) = ended else {
                return Ok(count);
            };
            script.in_flight.remove(at);
            *place = completion;
        }
        Ok(most)
    }

    fn failure(&self, done: &Completion) -> Failure {
        let mut script = self.lock();
        script.explained = Some(*done);
        let Ending::Failed(code) = done.ending else {
            return Failure::default();
        };
        Failure {
            name: script.failure.clone(),
            code,
            peer: Some(script.peer(done.lane)),
            ..Failure::default()
        }
    }

    fn take_device_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lock().device_events)
    }

    fn arm(&mut self) -> Result<ArmOutcome<'_>> {
        let mut script = lock(&self.script);
        script.check_alive()?;
        let is_ready =
            !script.done.is_empty() || (script.ends.is_some() && !script.in_flight.is_empty());
        Ok(match &self.descriptor {
            None => ArmOutcome::Unsupported,
            Some(_) if is_ready => ArmOutcome::Ready,
            Some(descriptor) => {
                script.slept += 1;
                ArmOutcome::Sleep(descriptor.0.as_fd())
            }
        })
    }
}

/// Capabilities of a device that keeps every promise and has no upper bound of its bandwidth.
pub const CAPS: Caps = Caps {
    verbs: &Verb::ALL,
    immediate_bits: 32,
    depth: 64,
    message_bytes_max: 1 << 30,
    moves_bytes: true,
    delivered: true,
    delivery_on_request: true,
    sends_taken: true,
    passive_target: false,
    arrivals_named: true,
    arrives_by_polling: false,
    ordered_writes: true,
    shared_memory: false,
    carried: false,
    bound: BoundKind::None,
};

/// Makes workers.
pub type WorkerFn = Arc<dyn Fn(&WorkerConfig) -> Result<Box<dyn Engine + Send>> + Send + Sync>;

/// A device with the capabilities, report, address and workers in these fields.
pub struct TestDomain {
    /// Capabilities of the domain.
    pub caps: Caps,
    /// Report of the domain.
    pub report: EngineReport,
    /// Address of the domain's device.
    pub stream_address: Option<IpAddr>,
    /// The devices that the payload has to cross.
    pub wire_devices: Vec<WireDevice>,
    /// Creates the workers of the domain.
    pub workers: WorkerFn,
}

impl TestDomain {
    /// A device with the test's own workers.
    pub fn new<E: Engine + Send + 'static>(
        worker: impl Fn(&WorkerConfig) -> E + Send + Sync + 'static,
    ) -> Self {
        Self {
            caps: CAPS,
            report: EngineReport::default(),
            stream_address: None,
            wire_devices: Vec::new(),
            workers: Arc::new(move |config| Ok(Box::new(worker(config)))),
        }
    }

    /// A copy of a device, modified by `change`.
    pub fn wrap(inner: Arc<dyn Domain>, change: impl FnOnce(&mut Self)) -> Arc<dyn Domain> {
        let mut domain = Self {
            caps: *inner.caps(),
            report: inner.report(),
            stream_address: inner.stream_address(),
            wire_devices: inner.wire_devices(),
            workers: Arc::new(move |config| inner.worker(config)),
        };
        change(&mut domain);
        Arc::new(domain)
    }

    /// Opened devices, each modified by `change`.
    ///
    /// # Errors
    /// If the devices could not be opened.
    pub fn wrap_all(opened: Result<Domains>, change: impl Fn(&mut Self)) -> Result<Domains> {
        let opened = opened?.into_iter();
        Ok(opened.map(|inner| Self::wrap(inner, &change)).collect())
    }
}

impl Domain for TestDomain {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn report(&self) -> EngineReport {
        self.report.clone()
    }

    fn stream_address(&self) -> Option<IpAddr> {
        self.stream_address
    }

    fn wire_devices(&self) -> Vec<WireDevice> {
        self.wire_devices.clone()
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        (self.workers)(config)
    }
}

/// Memory of a device called "far": an arena that can be accessed only through [`Memory`]'s methods.
pub struct TestMemory(Mutex<Arena>);

impl TestMemory {
    /// Allocates the requested memory.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn allocate(request: &Request<'_>) -> Result<Arc<dyn Memory>> {
        let len = request.bytes as usize;
        let arena = Arena::allocate(len, Pages::Normal, Sharing::Private, None);
        Ok(Arc::new(Self(Mutex::new(arena.map_err(outside)?))))
    }
}

fn outside(error: impl std::fmt::Display) -> Error {
    Error::Failed(error.to_string())
}

impl Memory for TestMemory {
    fn bytes(&self) -> u64 {
        lock(&self.0).len() as u64
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
            bytes: self.bytes(),
            device: Some("far0".into()),
            ..MemoryReport::default()
        }
    }

    fn fill(&self, origin: u64, offset: u64, len: u64, key: Key) -> Result<()> {
        pattern::fill(&lock(&self.0), origin, offset, len, key)
    }

    fn verify(
        &self,
        origin: u64,
        offset: u64,
        len: u64,
        key: Key,
        found: &mut Mismatches,
    ) -> Result<()> {
        pattern::verify(&lock(&self.0), origin, offset, len, key, found)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        lock(&self.0).read(offset, bytes).map_err(outside)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        lock(&self.0).write(offset, bytes).map_err(outside)
    }

    fn copy_rates(
        &self,
        stretch: &CopyRange,
        slots: &mut dyn FnMut() -> (u64, u64),
        clock: &Clock,
        turns: CopyRepetitions,
    ) -> Result<Vec<CopyRate>> {
        let mut piece = vec![0; stretch.piece_bytes.max(stretch.last_piece_bytes) as usize];
        let mut copied_bytes = 0;
        while clock.now_ns() < turns.start_ns {}
        let began_ns = clock.now_ns();
        for _ in 0..16 {
            let (from, to, bytes) = stretch.copy_offsets(slots());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::unwrap_used, reason = "it is a test")]
    fn use_of_a_released_lane_is_logged() {
        let mut engine = TestEngine::default();
        let remote = Descriptor::default();
        let spec = LaneSpec::new(LaneKind::Initiate(Verb::Write), 1, RegionId(0), &remote);
        let lane = engine.lane(&spec).unwrap();
        engine.flush(lane, 0).unwrap();
        engine.release_lane(lane);
        assert!(engine.lock().wrong.is_empty());
        engine.flush(lane, 0).unwrap();
        assert_eq!(engine.lock().wrong, [format!("flushed on {lane:?}")]);
    }
}
