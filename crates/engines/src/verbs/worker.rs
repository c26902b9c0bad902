//! One worker: posting and polling.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Arm, Card, Completion, Engine, Facts, Failure, Flush, Lane, LaneKind, LaneSpec, Neighbor, Op,
    Region, RegionId, WorkerConfig,
};
use tonnage_sys::verbs::{
    PairHandle, Queues, RegionAccess, RegistrationHandle, WorkAction, WorkEvent, WorkRequest,
    WorkTarget,
};
use tonnage_units::{Error, Result};

use super::causes::{state_name, usual_cause};
use super::cm_ways::CmSide;
use super::lanes::VerbsLane;
use super::page::{SCRATCH, page};
use super::pairs::{PeerPairs, WorkerPair};
use super::port::OpenPort;
use super::send_queue::{EndedWork, IMMEDIATE, RECEIVE, send_id};
use super::target_card::OwnTarget;
use super::transport::VerbsTransport;
use crate::early::EarlyArrivals;
use crate::locked_memory;
use crate::registration::CardRegions;
use crate::slots::{self, never_resolved};

/// Completions that are taken from the library at once.
const EVENTS: usize = 64;

/// A worker's queues.
pub(super) struct VerbsWorker {
    pub(super) config: WorkerConfig,
    pub(super) port: Arc<OpenPort>,
    pub(super) queues: Queues,
    /// Connecting by rdma_cm. What it connected stays so until this is gone, behind the queue pairs.
    pub(super) cm: Option<CmSide>,
    pub(super) send_depth: u32,
    pub(super) receive_depth: u32,
    pub(super) regions: BTreeMap<u32, RegistrationHandle>,
    pub(super) region_next: u32,
    /// Those of them that are of GPUs.
    pub(super) card_regions: CardRegions,
    pub(super) pairs: Vec<WorkerPair>,
    pub(super) peers: Vec<PeerPairs>,
    /// The target of this worker, over DC.
    pub(super) target: Option<OwnTarget>,
    /// Number of the peers that have answered.
    pub(super) met: usize,
    pub(super) lanes: Vec<Option<VerbsLane>>,
    /// Registered bytes of first contact, and where flushes land.
    pub(super) contact_region: RegistrationHandle,
    /// The least that was agreed upon with any peer.
    pub(super) mtu: Option<u32>,
    pub(super) reads: Option<u8>,
    events: Box<[WorkEvent; EVENTS]>,
    /// Events that were taken and not looked at: from the first of these up to the second.
    unread: [usize; 2],
    pub(super) ended: Option<EndedWork>,
    /// Arrivals from peers that had met this worker before it had met all of its own.
    early: EarlyArrivals,
    /// Reason why the queues cannot be relied on any more, for whoever calls next.
    pub(super) dead: Option<String>,
    /// Every so many operations of a queue pair one is signalled.
    signal: u32,
    /// Writes without a byte that only told of others' end.
    pub(super) closing_writes: u64,
    /// True where queue pairs are handed work without a lock.
    thread_domain: bool,
}

impl VerbsWorker {
    /// Opens the queues: work requests of each send and receive queue, and completions of all.
    pub(super) fn open(
        port: &Arc<OpenPort>,
        config: &WorkerConfig,
        [send_depth, receive_depth, completions]: [u32; 3],
    ) -> Result<Self> {
        let about = |why: String| {
            let (engine, at) = (port.engine(), port.in_words());
            Error::Failed(format!("{engine} on {at}: {why}"))
        };
        let context = &port.chosen.context;
        let mut queues = Queues::open(context, completions, config.sleeps).map_err(about)?;
        queues.gather_up_to(port.asked.stretches);
        queues.register_up_to(port.region_bytes());
        let thread_domain = !port.asked.locks && port.dc.is_none() && queues.without_locks();
        let page = page()?;
        let bytes = page.len();
        let contact_region = queues.register(page, RegionAccess::default());
        let mut worker = Self {
            contact_region: contact_region.map_err(|why| about(not_registered(bytes, &why)))?,
            config: config.clone(),
            port: Arc::clone(port),
            queues,
            cm: port
                .cm
                .as_ref()
                .map(CmSide::open)
                .transpose()
                .map_err(about)?,
            send_depth,
            receive_depth,
            regions: BTreeMap::new(),
            region_next: 0,
            card_regions: CardRegions::default(),
            pairs: Vec::new(),
            peers: Vec::with_capacity(config.peers_max as usize),
            target: None,
            met: 0,
            lanes: Vec::new(),
            mtu: None,
            reads: None,
            events: Box::new([WorkEvent::EMPTY; EVENTS]),
            unread: [0, 0],
            ended: None,
            early: EarlyArrivals::default(),
            dead: None,
            signal: port.signal(config.depth, send_depth),
            closing_writes: 0,
            thread_domain,
        };
        worker.open_dc()?;
        Ok(worker)
    }

    #[cold]
    pub(super) fn about_device(&self, why: String) -> Error {
        let (at, events) = (self.port.in_words(), self.port.events());
        let engine = self.port.engine();
        Error::Failed(format!("{engine} on {at}: {why}{events}"))
    }

    /// Posts receives that writes with an immediate use up, to a queue pair that is for them.
    pub(super) fn fill_with_receives(&mut self, place: usize) -> Result<(), String> {
        let is_one_sided = self.peers.iter().any(|peer| peer.one_sided == place);
        if !self.port.immediates || !is_one_sided {
            return Ok(());
        }
        let (handle, count) = (self.pairs[place].handle, self.receive_depth as usize);
        self.queues
            .receive_immediates(handle, count, RECEIVE | IMMEDIATE | place as u64)
    }

    /// Takes one operation; false when there is no room for it now.
    #[inline]
    fn take(&mut self, op: &Op) -> Result<bool> {
        let Some(Some(lane)) = self.lanes.get_mut(op.lane.0 as usize) else {
            return Err(never_resolved(op.lane));
        };
        if lane.asked.kind == LaneKind::Receive {
            let (place, pair, region) = (lane.pair, lane.target.pair, lane.target.local);
            return self.take_receive(place, (pair, region), op);
        }
        if self.queues.must_ring(lane.target.pair) {
            self.ring()?;
            return self.take(op);
        }
        let sends = &mut self.pairs[lane.pair].sends;
        if !sends.has_room() {
            return Ok(false);
        }
        let (number, signalled) = sends.push(op.lane.0, op.tag, op.len, self.signal);
        let request = WorkRequest {
            id: send_id(lane.pair, number),
            local: op.local,
            remote: op.remote,
            len: op.len,
            imm: op.imm,
            signalled,
        };
        match self.queues.stage(&lane.target, &request) {
            Ok(()) => {
                if op.len > 0 {
                    lane.last_byte = Some(op.remote.saturating_add(u64::from(op.len) - 1));
                }
                Ok(true)
            }
            Err(why) => {
                sends.take_back();
                Err(self.about_device(why))
            }
        }
    }

    /// Takes a receive, of which a queue pair has room for so many.
    #[inline]
    fn take_receive(
        &mut self,
        place: usize,
        (handle, region): (PairHandle, RegistrationHandle),
        op: &Op,
    ) -> Result<bool> {
        let pair = &mut self.pairs[place];
        if pair.receives_posted >= self.receive_depth {
            return Ok(false);
        }
        pair.receives_posted += 1;
        let id = RECEIVE | (place as u64) << 32 | u64::from(op.tag);
        let posted = self.queues.receive(handle, (region, op.local), op.len, id);
        posted.map(|()| true).map_err(|why| self.about_device(why))
    }

    /// Hands over what was staged. A device that does not take it is not asked again.
    #[inline]
    pub(super) fn ring(&mut self) -> Result<()> {
        let Err(why) = self.queues.ring() else {
            return Ok(());
        };
        let error = self.about_device(why);
        self.dead = Some(error.to_string());
        Err(error)
    }

    /// Tells what an earlier call could not.
    #[inline]
    fn alive(&self) -> Result<()> {
        match &self.dead {
            None => Ok(()),
            Some(why) => Err(Error::Failed(why.clone())),
        }
    }

    /// Takes completions of what the engine does by itself. What comes for others meanwhile is kept for them: a peer
    /// that has met all of its own may write at once.
    pub(super) fn take_silently(&mut self) -> Result<()> {
        let mut done = [Completion::EMPTY; 8];
        let count = self.take_completions(&mut done)?;
        done[..count]
            .iter()
            .for_each(|&completion| self.early.keep(completion));
        self.alive()
    }

    /// Takes completions that the device has, of lanes and of what the engine does by itself.
    #[inline]
    fn take_completions(&mut self, done: &mut [Completion]) -> Result<usize> {
        let (mut count, mut asked, mut ended_some) = (0, false, false);
        while count < done.len() {
            if let Some(ended) = self.ended {
                count += self.tell(ended, &mut done[count..]);
                ended_some = true;
                continue;
            }
            if self.unread[0] == self.unread[1] {
                // Whoever is told of nothing may sleep, so that nothing may be left then.
                if asked && count > 0 {
                    break;
                }
                asked = true;
                let room = (done.len() - count).min(EVENTS);
                let polled = self.queues.poll(&mut self.events[..room]);
                let polled = polled.map_err(|why| self.about_device(why))?;
                self.unread = [0, polled];
                if polled == 0 {
                    break;
                }
            }
            let event = self.events[self.unread[0]];
            self.unread[0] += 1;
            let id = event.id();
            if id & RECEIVE == 0 {
                let failure = event.failure();
                self.ended = Some(EndedWork {
                    pair: (id >> 32) as usize,
                    last: id as u32,
                    failure: failure.map(|state| (state, event.vendor_code())),
                });
            } else if let Some(completion) = self.arrived(event)? {
                done[count] = completion;
                count += 1;
            }
        }
        if !ended_some && self.signal > 1 {
            self.close_silent_queues()?;
        }
        Ok(count)
    }
}

pub(super) fn not_registered(bytes: usize, why: &str) -> String {
    let advice = locked_memory::advice(bytes);
    format!("{bytes} bytes cannot be registered: {why}{advice}")
}

impl Engine for VerbsWorker {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        self.register_memory(memory)
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        let mut lanes = self.lanes.iter().flatten();
        if lanes.any(|lane| lane.asked.local == region) {
            let text = format!("region {} has lanes that were not released", region.0);
            return Err(Error::Failed(text));
        }
        let handle = self.region(region)?;
        self.regions.remove(&region.0);
        self.card_regions.forget(region);
        let closed = self.queues.deregister(handle);
        closed.map_err(|why| self.about_device(why))
    }

    fn cards(&mut self, peers: &[u32]) -> Result<Vec<Card>> {
        let card = |&peer: &u32| match self.port.asked.transport {
            VerbsTransport::Rc | VerbsTransport::Kernel => self.card(peer),
            VerbsTransport::Dc => self.target_card(peer),
        };
        peers.iter().map(card).collect()
    }

    fn connect(&mut self, peers: &[Neighbor]) -> Result<()> {
        peers
            .iter()
            .try_for_each(|peer| match self.port.asked.transport {
                VerbsTransport::Rc | VerbsTransport::Kernel => self.connect_one(peer),
                VerbsTransport::Dc => self.address_one(peer),
            })
    }

    fn meet(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        self.meet_by_cm(stopped)?;
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
        self.alive()?;
        let list = self.port.asked.list;
        let mut taken = 0;
        let mut waiting = 0;
        for op in ops {
            match self.take(op) {
                Ok(true) => taken += 1,
                Ok(false) => break,
                Err(error) if taken == 0 => return Err(error),
                // The next call tells it.
                Err(_) => break,
            }
            waiting += 1;
            if waiting >= list {
                self.ring()?;
                waiting = 0;
            }
        }
        self.ring()?;
        Ok(taken)
    }

    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush> {
        let Some(Some(state)) = self.lanes.get(lane.0 as usize) else {
            return Err(never_resolved(lane));
        };
        let writes = matches!(
            state.target.action,
            WorkAction::Write | WorkAction::WriteImm
        );
        let Some(last_byte) = state.last_byte.filter(|_| writes) else {
            return Ok(Flush::Delivered);
        };
        let sends = &mut self.pairs[state.pair].sends;
        if !sends.has_room() {
            return Ok(Flush::Again);
        }
        let (number, _) = sends.push(lane.0, tag, 1, 1);
        let target = WorkTarget {
            action: WorkAction::Read,
            local: self.contact_region,
            ..state.target.clone()
        };
        let request = WorkRequest {
            id: send_id(state.pair, number),
            local: SCRATCH,
            remote: last_byte,
            len: 1,
            imm: 0,
            signalled: true,
        };
        let staged = self.queues.stage(&target, &request);
        staged.map_err(|why| self.about_device(why))?;
        self.ring()?;
        Ok(Flush::Posted)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        self.card_regions.flush_all(self.port.engine())
    }

    fn settle(&mut self, trying: bool) -> bool {
        self.card_regions.begin(trying);
        true
    }

    fn failure(&self, done: &Completion) -> Failure {
        let lane = self
            .lanes
            .get(done.lane.0 as usize)
            .and_then(Option::as_ref);
        let pair = lane.map(|lane| &self.pairs[lane.pair]);
        let Some((pair, failure)) = pair.and_then(|pair| Some((pair, pair.broken?))) else {
            return Failure {
                name: "unknown".to_owned(),
                engine: self.port.engine().to_owned(),
                ..Failure::default()
            };
        };
        let peer = self.peers.iter().find(|peer| peer.rank == pair.peer);
        let name = state_name(failure.0);
        let cause = usual_cause(name).unwrap_or("none is known");
        let at = peer.map_or_else(String::new, |peer| {
            format!("; rank {} is at {}", peer.rank, peer.device)
        });
        let cause = format!("{cause}{at}{}", self.port.events());
        Failure {
            name: name.to_owned(),
            code: failure.0 as i32,
            engine: self.port.engine().to_owned(),
            operation: lane.map(|lane| lane.asked.kind),
            peer: Some(pair.peer),
            device: Some(self.port.in_words()),
            queue_pair: Some(pair.number),
            vendor_code: Some(failure.1),
            usual_cause: Some(cause),
        }
    }

    fn arm(&mut self) -> Result<Arm<'_>> {
        let is_left = self.ended.is_some() || self.unread[0] < self.unread[1];
        if is_left || !self.early.is_empty() {
            return Ok(Arm::Ready);
        }
        if self.signal > 1 {
            self.close_silent_queues()?;
        }
        let engine = self.port.engine();
        match self.queues.arm() {
            Ok(None) => Ok(Arm::Ready),
            Ok(Some(descriptor)) => Ok(Arm::Sleep(descriptor)),
            Err(why) => Err(Error::Failed(format!("{engine} cannot sleep: {why}"))),
        }
    }

    fn chosen(&self) -> Facts {
        let inline = self.pairs.iter().map(|pair| pair.inline_bytes).min();
        let copies = self.card_regions.is_empty();
        let inline = inline.map(|bytes| if copies { bytes } else { 0 });
        let gathered = Some(self.queues.gathered()).filter(|&count| count > 0);
        let registrations = self.queues.registrations();
        // Beside the memories, the bytes of first contact have one.
        let in_pieces = registrations > self.regions.len() + 1;
        let facts = Facts::default();
        let facts = match &self.cm {
            Some(side) => side.add_granted(facts),
            None => facts,
        };
        (self.card_regions.add_granted(facts))
            .maybe("mtu_bytes", self.mtu)
            .maybe("rd_atomic", self.reads.map(u32::from))
            .maybe("inline_bytes_max", inline)
            .with("signal", self.signal)
            .with("sq_depth", self.send_depth)
            .with("thread_domain", self.thread_domain)
            .maybe(
                "rq_depth",
                self.target.is_none().then_some(self.receive_depth),
            )
            .maybe("dci", self.target.map(|_| self.pairs.len() as u64))
            .maybe(
                "closing_writes",
                (self.closing_writes > 0).then_some(self.closing_writes),
            )
            .maybe("gathered_operations", gathered)
            .maybe("registrations", in_pieces.then_some(registrations as u64))
    }

    #[inline]
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        self.alive()?;
        let count = match self.early.is_empty() {
            false => self.early.tell(done),
            true => self.take_completions(done)?,
        };
        if count == 0 {
            return self.alive().map(|()| 0);
        }
        self.flush_arrived(&done[..count])?;
        Ok(count)
    }
}
