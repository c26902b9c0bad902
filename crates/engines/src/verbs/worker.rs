//! A worker: lanes, posting and polling.

use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{
    ArmOutcome, Completion, Ending, EndpointAddress, Engine, Facts, Failure, Flush, Lane, LaneKind,
    LaneSpec, LaneTable, Op, PeerEndpoint, Region, RegionId, Verb, WorkerConfig, never_connected,
};
use tonnage_sys::error::LibraryError;
use tonnage_sys::verbs::{
    KeyedRegion, PairHandle, Queues, RegistrationHandle, WorkAction, WorkEvent, WorkRequest,
    WorkTarget,
};
use tonnage_units::{Error, Result};

use super::causes::{state_name, usual_cause};
use super::cm::CmSide;
use super::completions::Completions;
use super::contact::{SCRATCH, closing_tag};
use super::dc::OwnTarget;
use super::memories::Memories;
use super::peers::{FarBytes, PeerPairs, Peers, no_bytes};
use super::port::OpenPort;
use super::send_queue::{EndedWork, IMMEDIATE, RECEIVE, SILENT, send_id};
use super::transport::VerbsTransport;

/// A worker of a transport that posts in user space.
pub(super) struct Worker {
    pub(super) config: WorkerConfig,
    pub(super) port: Arc<OpenPort>,
    pub(super) queues: Queues,
    /// State of rdma_cm. It must be dropped after the queue pairs, because dropping it ends its connections.
    pub(super) cm: Option<CmSide>,
    pub(super) send_depth: u32,
    pub(super) receive_depth: u32,
    pub(super) memories: Memories,
    pub(super) peers: Peers,
    /// The DC target of this worker.
    pub(super) target: Option<OwnTarget>,
    lanes: LaneTable<VerbsLane>,
    completions: Completions,
    /// The reason why the queues have failed, which the next call returns.
    dead: Option<String>,
    /// One in `signal` operations of a queue pair is signalled.
    signal: u32,
    /// Number of empty writes that were posted only to complete unsignalled operations.
    closing_writes: u64,
    /// Whether work is posted to queue pairs without taking a lock.
    thread_domain: bool,
    /// Number of the port's device events that this worker has reported.
    events_seen: usize,
}

impl Worker {
    /// Opens the queues with these depths: of send queues, of receive queues, and of the completion queue.
    pub(super) fn open(
        port: &Arc<OpenPort>,
        config: &WorkerConfig,
        [send_depth, receive_depth, completions]: [u32; 3],
    ) -> Result<Self> {
        let about = |why: &dyn std::fmt::Display| {
            let (engine, at) = (port.engine(), port.in_words());
            Error::Failed(format!("{engine} on {at}: {why}"))
        };
        let context = &port.chosen.context;
        let mut queues =
            Queues::open(context, completions, config.sleeps).map_err(|why| about(&why))?;
        queues.gather_up_to(port.asked.stretches);
        queues.register_up_to(port.region_bytes());
        let thread_domain = !port.asked.locks && port.dc.is_none() && queues.without_locks();
        let memories = Memories::open(port, &mut queues)?;
        let mut worker = Self {
            config: config.clone(),
            port: Arc::clone(port),
            queues,
            cm: (port.cm.as_ref().map(CmSide::open).transpose()).map_err(|why| about(&why))?,
            send_depth,
            receive_depth,
            memories,
            peers: Peers::with_room(config.peers_max),
            target: None,
            lanes: LaneTable::default(),
            completions: Completions::new(),
            dead: None,
            signal: port.signal(config.depth, send_depth),
            closing_writes: 0,
            thread_domain,
            events_seen: 0,
        };
        worker.open_dc()?;
        Ok(worker)
    }

    /// Posts receives for write-imms, if the queue pair carries write-imms.
    pub(super) fn fill_with_receives(&mut self, place: usize) -> Result<(), LibraryError> {
        let is_one_sided = self.peers.all().iter().any(|peer| peer.one_sided == place);
        if !self.port.immediates || !is_one_sided {
            return Ok(());
        }
        let (handle, count) = (self.peers.pair(place).handle, self.receive_depth as usize);
        self.queues
            .receive_immediates(handle, count, RECEIVE | IMMEDIATE | place as u64)
    }

    /// Stages one operation. Returns false if the queue is full.
    #[inline]
    fn take(&mut self, op: &Op) -> Result<bool> {
        let lane = self.lanes.get_mut(op.lane)?;
        if lane.asked.kind == LaneKind::Receive {
            let (place, pair, region) = (lane.pair, lane.target.pair, lane.target.local);
            return self.take_receive(place, (pair, region), op);
        }
        if self.queues.must_ring(lane.target.pair) {
            self.ring()?;
            return self.take(op);
        }
        let sends = &mut self.peers.pair_mut(lane.pair).sends;
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
                Err(self.port.about(why))
            }
        }
    }

    /// Posts a receive. Returns false if the receive queue is full.
    #[inline]
    fn take_receive(
        &mut self,
        place: usize,
        (handle, region): (PairHandle, RegistrationHandle),
        op: &Op,
    ) -> Result<bool> {
        let pair = self.peers.pair_mut(place);
        if pair.receives_posted >= self.receive_depth {
            return Ok(false);
        }
        pair.receives_posted += 1;
        let id = RECEIVE | (place as u64) << 32 | u64::from(op.tag);
        let posted = self.queues.receive(handle, (region, op.local), op.len, id);
        posted.map(|()| true).map_err(|why| self.port.about(why))
    }

    /// Passes staged work to the device. After a failure, the queues are not used again.
    #[inline]
    pub(super) fn ring(&mut self) -> Result<()> {
        let Err(why) = self.queues.ring() else {
            return Ok(());
        };
        let error = self.port.about(why);
        self.dead = Some(error.to_string());
        Err(error)
    }

    /// Returns the error of an earlier call that could not return it.
    #[inline]
    fn alive(&self) -> Result<()> {
        match &self.dead {
            None => Ok(()),
            Some(why) => Err(Error::Failed(why.clone())),
        }
    }

    /// Processes completions of operations that the engine itself posted. Other completions are kept for later polls,
    /// because a peer may write as soon as its own first contact is complete.
    pub(super) fn take_silently(&mut self) -> Result<()> {
        let mut done = [Completion::EMPTY; 8];
        let count = self.take_completions(&mut done)?;
        self.completions.keep(&done[..count]);
        self.alive()
    }

    /// Takes completions from the device. Completions of operations that the engine itself posted are processed here
    /// and not returned.
    #[inline]
    fn take_completions(&mut self, done: &mut [Completion]) -> Result<usize> {
        let (mut count, mut asked, mut ended_some) = (0, false, false);
        while count < done.len() {
            if let Some(ended) = self.completions.ended() {
                count += self.report_ended(ended, &mut done[count..]);
                ended_some = true;
                continue;
            }
            if !self.completions.has_events() {
                // A caller that gets no completion may sleep. So if there is none to return yet, the device is polled
                // until it has no more.
                if asked && count > 0 {
                    break;
                }
                asked = true;
                let read = (self.completions).read(&mut self.queues, done.len() - count);
                if read.map_err(|why| self.port.about(why))? == 0 {
                    break;
                }
            }
            let event = self.completions.next_event();
            let id = event.id();
            if id & RECEIVE == 0 {
                let failure = event.failure();
                self.completions.set_ended(Some(EndedWork {
                    pair: (id >> 32) as usize,
                    last: id as u32,
                    failure: failure.map(|state| (state, event.vendor_code())),
                }));
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

impl Engine for Worker {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        self.memories.register(&mut self.queues, memory)
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        self.lanes.check_unused(region, |lane| lane.asked.local)?;
        self.memories.deregister(&mut self.queues, region)
    }

    fn endpoint_addresses(&mut self, peers: &[u32]) -> Result<Vec<EndpointAddress>> {
        let address = |&peer: &u32| match self.port.asked.transport {
            VerbsTransport::Rc | VerbsTransport::Kernel => self.address_for(peer),
            VerbsTransport::Dc => self.target_address(peer),
        };
        peers.iter().map(address).collect()
    }

    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()> {
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
        let peer = self.peers.of_rank(spec.peer);
        let peer = peer.ok_or_else(|| never_connected(self.config.rank, spec.peer))?;
        let local = self.memories.get(spec.local)?;
        // Every queue pair keeps the order of its writes, so promises about order need no extra work.
        let (action, pair) = action(spec.kind, peer);
        let is_one_sided = !matches!(action, WorkAction::Send);
        let asked = LaneKey {
            kind: spec.kind,
            peer: spec.peer,
            local: spec.local,
            remote: if is_one_sided && spec.kind != LaneKind::Receive {
                FarBytes::parse(spec.remote, spec.peer)?
            } else {
                // The peer's receive determines where a message is stored, so a send has no remote bytes.
                no_bytes()
            },
        };
        if let Some(known) = self.lanes.find(|lane| lane.asked == asked) {
            return Ok(known);
        }
        let lane = VerbsLane {
            target: WorkTarget {
                action,
                pair: self.peers.pair(pair).handle,
                local,
                remote: asked.remote.clone(),
                inline_bytes_max: self.peers.pair(pair).inline_bytes,
                address: peer.address,
            },
            asked,
            pair,
            last_byte: None,
        };
        Ok(self.lanes.put(lane))
    }

    fn release_lane(&mut self, lane: Lane) {
        self.lanes.release(lane);
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
                // The next call returns the error.
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
        let state = self.lanes.get(lane)?;
        let writes = matches!(
            state.target.action,
            WorkAction::Write | WorkAction::WriteImm
        );
        let Some(last_byte) = state.last_byte.filter(|_| writes) else {
            return Ok(Flush::Delivered);
        };
        let sends = &mut self.peers.pair_mut(state.pair).sends;
        if !sends.has_room() {
            return Ok(Flush::Again);
        }
        let (number, _) = sends.push(lane.0, tag, 1, 1);
        let target = WorkTarget {
            action: WorkAction::Read,
            local: self.memories.contact(),
            ..state.target.clone()
        };
        let request = own_request(send_id(state.pair, number), last_byte, 1);
        let staged = self.queues.stage(&target, &request);
        staged.map_err(|why| self.port.about(why))?;
        self.ring()?;
        Ok(Flush::Posted)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        self.memories.flush_incoming()
    }

    fn settle(&mut self, trying: bool) -> bool {
        self.memories.begin_point(trying);
        true
    }

    fn failure(&self, done: &Completion) -> Failure {
        let lane = self.lanes.get(done.lane).ok();
        let pair = lane.map(|lane| self.peers.pair(lane.pair));
        let Some((pair, failure)) = pair.and_then(|pair| Some((pair, pair.broken?))) else {
            return Failure {
                name: "unknown".to_owned(),
                engine: self.port.engine().to_owned(),
                ..Failure::default()
            };
        };
        let peer = self.peers.of_rank(pair.peer);
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

    fn arm(&mut self) -> Result<ArmOutcome<'_>> {
        if self.completions.are_left() {
            return Ok(ArmOutcome::Ready);
        }
        if self.signal > 1 {
            self.close_silent_queues()?;
        }
        let engine = self.port.engine();
        match self.queues.arm() {
            Ok(None) => Ok(ArmOutcome::Ready),
            Ok(Some(descriptor)) => Ok(ArmOutcome::Sleep(descriptor)),
            Err(why) => Err(Error::Failed(format!("{engine} cannot sleep: {why}"))),
        }
    }

    fn take_device_events(&mut self) -> Vec<String> {
        let events = self.port.unseen_events(&mut self.events_seen);
        let name = self.port.chosen.context.name();
        let with_device = |event| format!("{event} of {name}");
        events.into_iter().map(with_device).collect()
    }

    fn chosen(&self) -> Facts {
        let inline = self
            .peers
            .pairs()
            .iter()
            .map(|pair| pair.inline_bytes)
            .min();
        let copies = self.memories.cpu_copies();
        let inline = inline.map(|bytes| if copies { bytes } else { 0 });
        let gathered = Some(self.queues.gathered()).filter(|&count| count > 0);
        let facts = Facts::default();
        let facts = match &self.cm {
            Some(side) => side.add_granted(facts),
            None => facts,
        };
        (self.peers)
            .add_agreed(self.memories.add_granted(facts))
            .with_optional_fact("inline_bytes_max", inline)
            .with_fact("signal", self.signal)
            .with_fact("sq_depth", self.send_depth)
            .with_fact("thread_domain", self.thread_domain)
            .with_optional_fact(
                "rq_depth",
                Some(self.receive_depth).filter(|_| self.target.is_none()),
            )
            .with_optional_fact("dci", self.target.map(|_| self.peers.pairs().len() as u64))
            .with_optional_fact(
                "closing_writes",
                Some(self.closing_writes).filter(|&count| count > 0),
            )
            .with_optional_fact("gathered_operations", gathered)
            .with_optional_fact("registrations", self.memories.pieces(&self.queues))
    }

    #[inline]
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        self.alive()?;
        let count = if self.completions.has_early() {
            self.completions.take_early(done)
        } else {
            self.take_completions(done)?
        };
        if count == 0 {
            return self.alive().map(|()| 0);
        }
        self.flush_arrived(&done[..count])?;
        Ok(count)
    }
}

/// Identifies a lane. Requests with equal keys get the same lane.
#[derive(Debug, PartialEq)]
pub(super) struct LaneKey {
    pub(super) kind: LaneKind,
    pub(super) peer: u32,
    pub(super) local: RegionId,
    pub(super) remote: KeyedRegion,
}

/// One lane.
pub(super) struct VerbsLane {
    pub(super) asked: LaneKey,
    /// Index of the lane's queue pair.
    pub(super) pair: usize,
    /// Template of the lane's work requests. A receive uses only the region and the queue pair.
    pub(super) target: WorkTarget,
    /// Offset of the last byte written; `None` before the first write.
    pub(super) last_byte: Option<u64>,
}

/// A work request of the engine itself. Its bytes are stored in the scratch of the page of first contact.
pub(super) fn own_request(id: u64, remote: u64, len: u32) -> WorkRequest {
    WorkRequest {
        id,
        local: SCRATCH,
        remote,
        len,
        imm: 0,
        signalled: true,
    }
}

/// Returns the action of a lane's work requests, and the index of the queue pair that carries them.
fn action(kind: LaneKind, peer: &PeerPairs) -> (WorkAction, usize) {
    let action = match kind {
        LaneKind::Initiate(Verb::Write) => WorkAction::Write,
        LaneKind::Initiate(Verb::WriteImm) => WorkAction::WriteImm,
        LaneKind::Initiate(Verb::Read) => WorkAction::Read,
        LaneKind::Initiate(Verb::FetchAdd) => WorkAction::FetchAdd,
        LaneKind::Initiate(Verb::CompareSwap) => WorkAction::CompareSwap,
        LaneKind::Initiate(Verb::Send) | LaneKind::Receive => {
            return (WorkAction::Send, peer.messages);
        }
    };
    (action, peer.one_sided)
}

/// Number of receives that are posted at once to replace those consumed by write-imms.
const POSTED_AGAIN: u32 = 16;

impl Worker {
    /// Reports ended work requests, as far as `done` has room, and returns their number.
    #[inline]
    pub(super) fn report_ended(&mut self, ended: EndedWork, done: &mut [Completion]) -> usize {
        let mut count = 0;
        // Operations that were merged into the failed work request have failed, too. It is unknown which other
        // operations of this completion succeeded.
        let all_failed = self.port.asked.stretches > 1;
        while count < done.len() {
            let pair = self.peers.pair_mut(ended.pair);
            let Some((pending, is_last)) = pair.sends.pop(ended.last) else {
                self.completions.set_ended(None);
                return count;
            };
            let failure = ended.failure.filter(|_| is_last || all_failed);
            if pending.lane == SILENT {
                if let Some(failure) = failure
                    && self.peers.pair(ended.pair).broken.is_none()
                {
                    // The error is left to the next poll, so that the completions of this poll are not lost.
                    let error = self.silent_failure(ended.pair, pending.tag, failure);
                    self.peers.pair_mut(ended.pair).broken = Some(failure);
                    self.dead = Some(error.to_string());
                }
                continue;
            }
            let lane = Lane(pending.lane);
            let ending = match failure {
                None => Ending::Done,
                Some(failure) => self.note_failure(ended.pair, lane, failure),
            };
            done[count] = Completion {
                tag: pending.tag,
                lane,
                len: pending.len,
                imm: 0,
                ending,
            };
            count += 1;
            if is_last {
                self.completions.set_ended(None);
                return count;
            }
        }
        count
    }

    #[cold]
    fn note_failure(&mut self, pair: usize, lane: Lane, failure: (u32, u32)) -> Ending {
        let pair = self.peers.pair_mut(pair);
        if pair.broken.is_none()
            && let Ok(lane) = self.lanes.get(lane)
        {
            pair.peer = lane.asked.peer;
        }
        // Later operations of this queue pair fail for the same reason as the first.
        let first = *pair.broken.get_or_insert(failure);
        Ending::Failed(first.0 as i32)
    }

    /// Returns the completion for a receive that was filled or consumed; `None` if there is nothing to report.
    #[inline]
    pub(super) fn arrived(&mut self, event: WorkEvent) -> Result<Option<Completion>> {
        let id = event.id();
        if let Some(state) = event.failure() {
            return self.receive_failed(id, (state, event.vendor_code()));
        }
        if id & IMMEDIATE != 0 {
            let place = id as u32 as usize;
            let pair = self.peers.pair_mut(place);
            let peer = pair.peer;
            pair.used_up += 1;
            if pair.used_up >= POSTED_AGAIN.min(self.receive_depth.div_ceil(2)) {
                let (handle, count) = (pair.handle, std::mem::take(&mut pair.used_up));
                let again = self.queues.receive_immediates(handle, count as usize, id);
                again.map_err(|why| self.port.about(why))?;
            }
            return Ok(Some(Completion {
                tag: 0,
                lane: Lane(peer),
                len: event.len(),
                imm: event.immediate().unwrap_or(0),
                ending: Ending::Arrived,
            }));
        }
        let pair = self.peers.pair_mut(place_of(id));
        pair.receives_posted = pair.receives_posted.saturating_sub(1);
        Ok(Some(Completion {
            tag: id as u32,
            lane: Lane(pair.peer),
            len: event.len(),
            imm: 0,
            ending: Ending::Arrived,
        }))
    }

    #[cold]
    fn receive_failed(&mut self, id: u64, failure: (u32, u32)) -> Result<Option<Completion>> {
        let name = state_name(failure.0);
        // The queue pair failed before this receive did. The other end has failed too, and reports the reason.
        if name == "WR_FLUSH_ERR" {
            return Ok(None);
        }
        if id & IMMEDIATE != 0 {
            let why = format!("a receive for a write-imm failed: {name} ({})", failure.0);
            return Err(self.port.about(why));
        }
        let place = place_of(id);
        let of_pair = |lane: &VerbsLane| lane.pair == place && lane.asked.kind == LaneKind::Receive;
        let lane = self.lanes.find(of_pair).unwrap_or(Lane::UNNAMED);
        let ending = self.note_failure(place, lane, failure);
        Ok(Some(Completion {
            tag: id as u32,
            lane,
            ending,
            ..Completion::EMPTY
        }))
    }
}

/// Returns the index of a receive's queue pair.
#[inline]
fn place_of(id: u64) -> usize {
    (id >> 32) as usize & 0x3fff_ffff
}

impl Worker {
    /// If all work requests in flight of a queue pair are unsignalled, posts a signalled empty write, so that their
    /// completion is noticed.
    #[cold]
    pub(super) fn close_silent_queues(&mut self) -> Result<()> {
        for place in 0..self.peers.pairs().len() {
            if !self.peers.pair(place).sends.must_close() {
                continue;
            }
            // Any peer of the queue pair can be the target of the write.
            let leads = |peer: &PeerPairs| {
                peer.is_connected && [peer.one_sided, peer.messages].contains(&place)
            };
            let Some(at) = self.peers.all().iter().position(leads) else {
                continue;
            };
            let pair = self.peers.pair_mut(place);
            let (number, _) = pair.sends.push(SILENT, closing_tag(at), 0, 1);
            let handle = pair.handle;
            let peer = self.peers.at(at);
            let target = WorkTarget {
                action: WorkAction::Write,
                pair: handle,
                local: self.memories.contact(),
                remote: peer.mailbox.clone().unwrap_or_else(no_bytes),
                inline_bytes_max: 0,
                address: peer.address,
            };
            let request = own_request(send_id(place, number), 0, 0);
            self.closing_writes += 1;
            let staged = self.queues.stage(&target, &request);
            staged.map_err(|why| self.port.about(why))?;
        }
        self.ring()
    }

    /// Waits until the GPUs see the data of these completions.
    #[inline]
    pub(super) fn flush_arrived(&self, done: &[Completion]) -> Result<()> {
        let read = LaneKind::Initiate(Verb::Read);
        let reads = |lane: Lane| {
            self.lanes
                .get(lane)
                .is_ok_and(|lane| lane.asked.kind == read)
        };
        self.memories.flush_arrived(done, reads)
    }
}
