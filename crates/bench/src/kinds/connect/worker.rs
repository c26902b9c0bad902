//! One worker: a thread that sets up its connections step by step, as ordered, and closes them again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Instant;

use super::connections::{ConnectionCounts, Connections, VisibleCompletions};
use super::figures::StepTimes;
use crate::deadlines::DEADLINES;
use crate::opening::introduction::{Introduction, Introductions, PeerIntroduction};
use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Caps, Completion, Descriptor, Domain, Ending, Engine, LaneKind, LaneSpec, Op, Peer, RegionId,
    Verb, WorkerConfig,
};
use tonnage_record::connect::Step;
use tonnage_units::{Error, Result};

/// Verbs that can move the first byte, in order of preference. With a write with immediate, the peer gets a completion
/// too. With a read, only the reading side knows that the byte has moved.
pub const FIRST_BYTES: [Verb; 2] = [Verb::WriteImm, Verb::Read];

/// Returns the verb that moves the first byte over a device; `None` if the device offers no suitable verb.
pub fn first_byte(caps: &Caps) -> Option<Verb> {
    let offered = |verb: &Verb| caps.verbs.contains(verb);
    FIRST_BYTES.into_iter().find(offered)
}

/// A step that the main thread orders a worker to take.
#[derive(Debug, Clone)]
pub enum WorkerOrder {
    /// Open an engine, register the worker's memory with it, and create endpoint addresses for its peers.
    Open,
    /// Connect to the peers with these introductions.
    Connect(Vec<PeerIntroduction>),
    /// Make first contact with the peers. Both sides take part.
    Meet,
    /// Send a byte to each target, and let it answer with a byte.
    FirstByte,
    /// Close everything.
    Close,
    /// Return the times since the last order of this kind.
    ReportTimes,
}

/// The worker's answer to an order.
#[derive(Debug)]
pub enum WorkerAnswer {
    Done,
    /// The engine is open. Contains an introduction for each peer.
    Introductions(Introductions),
    /// All connections are closed. `Some` has the connections of the round, if all its bytes have moved.
    Closed(Option<ConnectionCounts>),
    /// Times of all steps.
    Times(Box<StepTimes>),
}

/// Refusal of an order by a worker.
#[derive(Debug)]
pub struct WorkerRefusal {
    /// The reason.
    pub error: Error,
    /// True if registering memory failed, so that the limit for locked memory may be the cause.
    pub registering: bool,
}

impl From<Error> for WorkerRefusal {
    fn from(error: Error) -> Self {
        Self {
            error,
            registering: false,
        }
    }
}

/// Answers for a worker that cannot start. Refuses the first step with this error. There is nothing to close.
pub fn refuse(
    error: Error,
    orders: &Receiver<WorkerOrder>,
    answers: &Sender<Result<WorkerAnswer, WorkerRefusal>>,
) {
    let mut reason = Some(error);
    while let Ok(order) = orders.recv() {
        let again = || Error::Failed("a thread that could not start got another order".into());
        let answer = match order {
            WorkerOrder::Close => Ok(WorkerAnswer::Closed(None)),
            _ => Err(reason.take().unwrap_or_else(again).into()),
        };
        if answers.send(answer).is_err() {
            break;
        }
    }
}

/// A worker, and its state across rounds.
pub struct ConnectWorker {
    // Declared before `memory` and `domain`, so that it is dropped first.
    engine: Option<Box<dyn Engine + Send>>,
    memory: Arc<dyn Memory>,
    domain: Arc<dyn Domain>,
    config: WorkerConfig,
    /// The worker's connections in this round.
    ends: Connections,
    visibility: VisibleCompletions,
    /// The verb of the first byte.
    verb: Verb,
    /// The worker's own registered memory.
    region: Option<RegionId>,
    remote: Vec<(Peer, Descriptor)>,
    stopped: Arc<AtomicBool>,
    times: StepTimes,
    /// Start of the set-up, and end of its last step.
    began_ns: u64,
    stepped_ns: u64,
    /// True while the worker polls between orders. False before first contact, because first contact does its own
    /// polling.
    polls: bool,
    /// True after all bytes of this round have moved.
    is_complete: bool,
}

impl ConnectWorker {
    /// Creates a worker that has nothing open yet. It connects to `targets`; `initiators` connect to it.
    pub fn new(
        domain: Arc<dyn Domain>,
        memory: Arc<dyn Memory>,
        config: WorkerConfig,
        (targets, initiators): (Vec<Peer>, Vec<Peer>),
        moves_bytes: bool,
        stopped: Arc<AtomicBool>,
    ) -> Self {
        let verb = first_byte(domain.caps()).unwrap_or(FIRST_BYTES[0]);
        let visibility = match verb {
            _ if !moves_bytes => VisibleCompletions::OwnOnly,
            Verb::Read => VisibleCompletions::OwnReads,
            _ => VisibleCompletions::BothWays,
        };
        let ends = Connections::new(visibility, config.worker, targets, initiators);
        Self {
            engine: None,
            memory,
            domain,
            config,
            ends,
            visibility,
            verb,
            region: None,
            remote: Vec::new(),
            stopped,
            times: StepTimes::default(),
            began_ns: 0,
            stepped_ns: 0,
            polls: false,
            is_complete: false,
        }
    }

    /// Carries out orders until the main thread drops its end of the channel.
    pub fn serve(
        mut self,
        orders: &Receiver<WorkerOrder>,
        answers: &Sender<Result<WorkerAnswer, WorkerRefusal>>,
    ) {
        while let Some(order) = self.next_order(orders) {
            let answer = match order {
                Ok(order) => self.carry_out(order),
                Err(error) => Err(error.into()),
            };
            if answers.send(answer).is_err() {
                break;
            }
        }
    }

    /// Waits for an order. After first contact the worker polls meanwhile, because a peer's step may depend on these
    /// polls.
    fn next_order(&mut self, orders: &Receiver<WorkerOrder>) -> Option<Result<WorkerOrder>> {
        if !self.polls {
            return orders.recv().ok().map(Ok);
        }
        let mut failed = None;
        loop {
            match orders.try_recv() {
                Ok(WorkerOrder::Close) => return Some(Ok(WorkerOrder::Close)),
                Ok(order) => return Some(failed.map_or(Ok(order), Err)),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            if failed.is_none() {
                failed = self.poll().err();
            }
            std::thread::yield_now();
        }
    }

    fn carry_out(&mut self, order: WorkerOrder) -> Result<WorkerAnswer, WorkerRefusal> {
        match order {
            WorkerOrder::Open => self.open().map(WorkerAnswer::Introductions),
            WorkerOrder::Connect(introductions) => {
                self.step(Step::Exchange);
                let (mut neighbors, mut remote) = (Vec::new(), Vec::new());
                for introduced in introductions {
                    remote.push((introduced.neighbor.peer, introduced.memory));
                    neighbors.push(introduced.neighbor);
                }
                self.remote = remote;
                self.engine()?.connect(&neighbors)?;
                self.step(Step::Connect);
                Ok(WorkerAnswer::Done)
            }
            WorkerOrder::Meet => {
                self.step(Step::Exchange);
                let stopped = self.stopped.clone();
                self.engine()?.meet(&|| stopped.load(Ordering::Relaxed))?;
                self.polls = true;
                self.step(Step::Connect);
                Ok(WorkerAnswer::Done)
            }
            WorkerOrder::FirstByte => {
                self.step(Step::Exchange);
                self.first_byte()?;
                // The peers already have their answers, so a failure here does not make them wait.
                self.ends.check()?;
                self.step(Step::FirstByte);
                self.times.add_total(self.stepped_ns - self.began_ns);
                self.is_complete = true;
                Ok(WorkerAnswer::Done)
            }
            WorkerOrder::Close => {
                if self.is_complete {
                    self.take_excess();
                }
                self.polls = false;
                let since_ns = self.config.clock.now_ns();
                if self.engine.take().is_some() {
                    let took_ns = self.config.clock.now_ns() - since_ns;
                    self.times.end_round(took_ns);
                }
                if !std::mem::take(&mut self.is_complete) {
                    return Ok(WorkerAnswer::Closed(None));
                }
                self.ends.check()?;
                Ok(WorkerAnswer::Closed(Some(self.ends.count_complete())))
            }
            WorkerOrder::ReportTimes => Ok(WorkerAnswer::Times(Box::new(std::mem::take(
                &mut self.times,
            )))),
        }
    }

    fn open(&mut self) -> Result<Introductions, WorkerRefusal> {
        self.ends.clear();
        self.is_complete = false;
        self.began_ns = self.config.clock.now_ns();
        self.stepped_ns = self.began_ns;
        self.engine = Some(self.domain.worker(&self.config)?);
        self.step(Step::Open);
        let memory = self.memory.clone();
        let region = self.engine()?.register(&memory);
        let region = region.map_err(|error| WorkerRefusal {
            error,
            registering: true,
        })?;
        self.region = Some(region.id);
        self.step(Step::Register);
        let peers = self.ends.peers();
        let addresses = self.engine()?.endpoint_addresses(&peers)?;
        // Parts of an endpoint address, such as queue pairs, are created here, and count for the connection step.
        self.step(Step::Connect);
        let introduce = |address| Introduction {
            address,
            memory: region.descriptor.clone(),
            credits: None,
            messages: None,
        };
        Ok(peers
            .into_iter()
            .zip(addresses.into_iter().map(introduce))
            .collect())
    }

    /// Adds the time since the last step to `step`. For the exchange, this includes the wait for the slowest rank.
    fn step(&mut self, step: Step) {
        let now_ns = self.config.clock.now_ns();
        self.times.add(step, now_ns - self.stepped_ns);
        self.stepped_ns = now_ns;
    }

    fn engine(&mut self) -> Result<&mut Box<dyn Engine + Send>> {
        let none =
            || Error::Failed("a thread got an order to connect before its engine was open".into());
        self.engine.as_mut().ok_or_else(none)
    }

    /// Moves one byte to each target, and one byte back. A target answers after all bytes for it have arrived. With
    /// reads, it reads without waiting.
    fn first_byte(&mut self) -> Result<()> {
        self.exchange_first_bytes(self.ends.initiated_range())?;
        match self.visibility {
            VisibleCompletions::BothWays => {
                let came_from = |ends: &Connections| ends.describe_silent(ends.accepted_range());
                self.wait("first byte of", came_from, |worker| {
                    Ok(worker.ends.have_all_requests_arrived())
                })?;
                self.exchange_first_bytes(self.ends.accepted_range())?;
                let came_from = |ends: &Connections| ends.describe_silent(ends.initiated_range());
                self.wait("answer of", came_from, |worker| {
                    Ok(worker.ends.have_all_answers_arrived())
                })
            }
            VisibleCompletions::OwnReads => self.exchange_first_bytes(self.ends.accepted_range()),
            VisibleCompletions::OwnOnly => Ok(()),
        }
    }

    /// Moves one byte over each connection in `range`. The verb determines whether the byte goes to the peer or comes
    /// from it.
    fn exchange_first_bytes(&mut self, range: Range<usize>) -> Result<()> {
        let (peers, verb, rank) = (self.ends.peers(), self.verb, self.config.rank);
        let until = range.end;
        for index in range {
            let peer = peers[index];
            let (Some(local), Some(remote)) = (self.region, self.remote_of(peer)) else {
                return Err(Error::Failed(format!(
                    "rank {peer} is not connected; look for that rank's error, or report it"
                )));
            };
            let spec = LaneSpec::new(LaneKind::Initiate(verb), peer, local, &remote);
            let lane = self.engine()?.lane(&spec)?;
            let op = Op {
                lane,
                tag: index as u32,
                local: 0,
                remote: 0,
                len: 1,
                imm: self.ends.post(index, rank, lane),
            };
            self.wait(
                "room for a byte to",
                Connections::describe_incomplete,
                |worker| Ok(worker.engine()?.post(&[op])? == 1),
            )?;
        }
        self.wait(
            "completion of a byte with",
            Connections::describe_incomplete,
            |worker| Ok(worker.ends.are_done(until)),
        )
    }

    fn remote_of(&self, peer: Peer) -> Option<Descriptor> {
        let mut all = self.remote.iter();
        let found = all.find(|(rank, _)| *rank == peer);
        found.map(|(_, memory)| memory.clone())
    }

    /// Polls until `over` returns true. In an error, `whose` names the peer that did not act.
    fn wait(
        &mut self,
        what: &str,
        whose: impl Fn(&Connections) -> String,
        mut over: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let deadline = Instant::now() + DEADLINES.arrival;
        while !over(self)? {
            self.poll()?;
            if self.stopped.load(Ordering::Relaxed) {
                return Err(Error::Failed("the run was stopped".into()));
            }
            if Instant::now() > deadline {
                // If a completion was wrong, this explains more than the timeout.
                self.ends.check()?;
                return Err(Error::Failed(format!(
                    "thread {}: no {what} {} within {} s; look for that rank's error, or try another --engine",
                    self.config.worker,
                    whose(&self.ends),
                    DEADLINES.arrival.as_secs()
                )));
            }
            // Peers that run on this CPU need it to make progress.
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Takes surplus bytes until a poll finds none. A peer may have closed its connections already, which some engines
    /// report as an error. This ends the loop, but is not a failure.
    fn take_excess(&mut self) {
        loop {
            match self.poll() {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => {
                    let worker = self.config.worker;
                    return log::debug!("thread {worker}: while its connections close: {error}");
                }
            }
        }
    }

    /// Takes completions and returns their number. Completions after a failed one are taken too.
    fn poll(&mut self) -> Result<usize> {
        let mut found = [Completion::EMPTY; 16];
        let count = self.engine()?.poll(&mut found)?;
        let mut failed = None;
        for completion in &found[..count] {
            match completion.ending {
                Ending::Done => self.ends.record_completion(completion),
                Ending::Arrived => self.ends.record_arrival(completion),
                Ending::Failed(_) if failed.is_none() => {
                    failed = Some(self.engine()?.failure(completion));
                }
                Ending::Failed(_) => {}
            }
        }
        failed.map_or(Ok(count), |failure| Err(failure.into()))
    }
}
