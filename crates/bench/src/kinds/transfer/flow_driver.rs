//! The flow driver of a worker. It has the worker's port and flows at one point, runs the loop of each round, and then
//! waits for late arrivals.

mod carried;

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::assignment::WorkerAssignment;
use super::flows::{
    allocate_scratch, announce_part_lengths, begin_credits, flushes_in_round, make_flows,
    make_receives, make_table,
};
use super::idle_policy::IdlePolicy;
use super::layout::answers;
use super::pairs::FlowTime;
use super::totals::TrialTotals;
use super::trial::{Schedule, WARM_UP};
use super::{paced, rails};
use crate::deadlines::DEADLINES;
use crate::opening::engine::EngineWorker;
use tonnage_engine::carried::{CarriedFlow, CarriedProgress};
use tonnage_engine::{BoundKind, Completion, Engine, Facts, Lane, Verb};
use tonnage_loops::batch::BatchLoop;
use tonnage_loops::flow::{Flow, Receives};
use tonnage_loops::flow_length::FlowLoads;
use tonnage_loops::paced::Timetable;
use tonnage_loops::ping_pong::{PingPongEnd, return_all};
use tonnage_loops::port::{Arrivals, Port};
use tonnage_loops::serve::serve;
use tonnage_loops::stall::StallWatch;
use tonnage_loops::timed_loop::{LoopKind, Recording, TimedLoop};
use tonnage_loops::until::Until;
use tonnage_loops::{BURST, Scratch};
use tonnage_plan::transfer::{BatchMerge, CallsPerBatch, CqMode, Pacing, TrialLength};
use tonnage_sys::clock::Clock;
use tonnage_units::histogram::Unfinished;
use tonnage_units::{Error, Result};

/// Maximum number of receives that are posted in advance for each peer. The engine's depth may limit it further.
const RECEIVES_MAX: u32 = 512;

/// Over shared memory, a receiver of a stream lets up to 1/`GATHER_SHARE` of the depth accumulate before it takes
/// messages.
const GATHER_SHARE: usize = 4;
/// Maximum number of messages that a receiver lets accumulate.
const GATHER_MAX: usize = 16;
/// Maximum length of messages that accumulate. Taking several at once was faster with 64 B, but not with 256 B.
const GATHER_BYTES_MAX: u32 = 128;

/// Latencies of the last trial that still have to be added to the histograms. Adding them within the measured interval
/// would make it longer.
pub(super) enum PendingLatencies {
    Nothing,
    /// Latencies of a trial that the device ran as a whole, with this number of operations. The device still holds
    /// them.
    Carried(u64),
    /// Latencies of operations that were due but never issued.
    Paced {
        flows: usize,
        timetable: Timetable,
        ended_ns: u64,
    },
}

/// Drives the flows of one worker during one point.
pub(super) struct FlowDriver<'a> {
    assignment: Rc<WorkerAssignment<'a>>,
    port: Port<'a>,
    /// All flows; empty for a ping-pong, which has its flows in `table`.
    flows: Vec<Flow>,
    table: Option<PingPongEnd>,
    /// Indices of the flows that are driven in the current round.
    active: Range<usize>,
    /// Number of operations left for each active flow, if a traffic file defines the loads.
    loads: Option<FlowLoads>,
    scratch: Scratch,
    /// Maximum size of a merged operation, if adjacent operations of a batch are merged; `None` if merging is off.
    merged_bytes_max: Option<u32>,
    receives_depth: u32,
    /// Number of receives, over all peers, that are posted when nothing is in flight.
    receives_posted: u64,
    /// All lanes of the point, which are released when the point is closed.
    lanes: Vec<Lane>,
    /// Flows of a round that the device runs itself.
    carried: Option<Vec<CarriedFlow>>,
    pending: PendingLatencies,
}

impl<'a> FlowDriver<'a> {
    /// Opens the lanes of a point, and posts its receives.
    pub(super) fn new(
        assignment: &Rc<WorkerAssignment<'a>>,
        engine: &'a mut dyn Engine,
        worker: &'a mut EngineWorker,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        let WorkerAssignment {
            point,
            setup,
            caps,
            layout,
        } = &**assignment;
        let (rank, memory) = (setup.rank, Arc::clone(&worker.memory));
        let flows = make_flows(point, rank, layout, engine, worker)?;
        announce_part_lengths(point, layout, engine, true)?;
        let receives = match point.op {
            Verb::Send if caps.moves_bytes => make_receives(point, rank, layout, engine, worker)?,
            _ => Vec::new(),
        };
        let mut lanes: Vec<Lane> = flows.iter().map(|flow| flow.lane).collect();
        lanes.extend(receives.iter().map(Receives::lane));
        let credits = worker.credits.as_mut();
        let credited = begin_credits(credits, point, engine, caps, &flows, layout)?;
        let port = Port::new(engine, worker.clock, stop, setup.yielding);
        let mut port = with_waiting(port, assignment, flows.len())?;
        if let Some((credits, tells)) = credited {
            lanes.extend(tells);
            port = port.with_credits(credits);
        }
        let receives_depth = caps.depth.min(RECEIVES_MAX).min(2 * point.depth().max(8));
        let receives_posted = receives.len() as u64 * u64::from(receives_depth);
        if receives_posted > 0 {
            port.post_receives(receives, receives_depth)?;
        }
        let count = flows.len();
        let at_once = count.min(point.roles.targets_at_once() as usize);
        // Writes may complete before they arrive, so they need a flush.
        let flushes = matches!(point.op, Verb::Write | Verb::WriteImm);
        let loads = point.loads.as_ref();
        let message_bytes_max = u32::try_from(caps.message_bytes_max).unwrap_or(u32::MAX);
        let (flows, table) = if answers(point) {
            let table = make_table(point, rank, layout, flows, &memory, caps)?;
            (Vec::new(), Some(table))
        } else {
            (flows, None)
        };
        Ok(Self {
            assignment: Rc::clone(assignment),
            port,
            flows,
            table,
            active: 0..count,
            loads: loads.map(|_| FlowLoads::new(count, flushes, worker.clock)),
            scratch: allocate_scratch(point, at_once),
            merged_bytes_max: (point.batching.merge == BatchMerge::On).then_some(message_bytes_max),
            receives_depth,
            receives_posted,
            lanes,
            carried: None,
            pending: PendingLatencies::Nothing,
        })
    }

    /// Returns the worker's clock.
    pub(super) fn clock(&self) -> Clock {
        self.port.clock
    }

    /// Synchronizes the clock with the kernel's. Called between rounds.
    pub(super) fn follow_clock(&mut self) {
        self.port.clock.follow();
    }

    /// Returns the choices that the engine has made while bytes moved.
    pub(super) fn chosen(&self) -> Facts {
        self.port.engine.chosen()
    }

    /// Lets the engine settle between trials, or try out choices during a warm-up. Returns true when it has settled.
    pub(super) fn settle_engine(&mut self, is_warm_up: bool) -> bool {
        self.port.engine.settle(is_warm_up)
    }

    /// Resets the bytes by which a ping-pong recognizes answers, before the next trial.
    pub(super) fn reset_ping_pong(&self) -> Result<()> {
        self.table
            .as_ref()
            .map_or(Ok(()), PingPongEnd::reset_incoming)
    }

    /// Returns all flows of the point.
    pub(super) fn flows(&self) -> &[Flow] {
        let table = self.table.as_ref();
        table.map_or(&self.flows, |table| &table.flows)
    }

    /// Returns the times of the last execution's flows, in the order of their targets, if a traffic file defines the
    /// loads.
    pub(super) fn flow_times(&self, start_ns: u64) -> Vec<FlowTime> {
        let loads = self.loads.as_ref();
        loads.map_or_else(Vec::new, |loads| FlowTime::from_loads(loads, start_ns))
    }

    /// Serves peers until `over` returns true. In a ping-pong it answers pings, otherwise it only polls.
    pub(super) fn serve_peers(
        &mut self,
        idle: &IdlePolicy,
        mut over: impl FnMut() -> bool,
    ) -> Result<()> {
        if !self.assignment.initiates()
            && let Some(table) = &mut self.table
        {
            let served = return_all(&mut self.port, table, &mut over);
            return served
                .map(drop)
                .map_err(|error| self.name_stalled_flows(error));
        }
        self.poll_until(idle, over)
    }

    /// Polls or rests until `over` returns true. Pings are not answered.
    pub(super) fn poll_until(
        &mut self,
        idle: &IdlePolicy,
        over: impl FnMut() -> bool,
    ) -> Result<()> {
        let polled = idle.poll_until(&mut self.port, over);
        polled.map_err(|error| self.name_stalled_flows(error))
    }

    /// Prepares a round of the `active` flows before it starts. If the device runs the round itself, returns a handle
    /// on its progress.
    pub(super) fn begin_round(
        &mut self,
        schedule: &Schedule,
        active: Range<usize>,
    ) -> Result<Option<Arc<dyn CarriedProgress>>> {
        self.port.take_arrivals();
        self.active = active;
        self.pending = PendingLatencies::Nothing;
        let progress = self.begin_carried(schedule)?;
        let setup = &self.assignment.setup;
        let yields = setup.role.yields(setup.yielding, schedule.is_loaded);
        self.port.set_yielding(yields);
        Ok(progress)
    }

    /// Serves peers until the aligned start. By its own clock, a peer may begin a moment earlier.
    pub(super) fn await_start(&mut self, idle: &IdlePolicy, start_ns: u64) -> Result<()> {
        let clock = self.port.clock;
        self.port.keep_awake(true);
        self.serve_peers(idle, || clock.now_ns() >= start_ns)?;
        self.port.keep_awake(false);
        self.port.take_most_in_flight();
        Ok(())
    }

    /// Runs the timed part of a round: the loop for the point's pacing, and the final flush. The caller passes a
    /// failure to [`Self::name_stalled_flows`].
    pub(super) fn drive(
        &mut self,
        schedule: &Schedule,
        recording: Recording<'_>,
        totals: &mut TrialTotals,
    ) -> Result<()> {
        self.port.restart_watch();
        self.port.engine.take_rail_loads();
        if let Some(flows) = self.carried.take() {
            return self.drive_carried(schedule, &flows, totals);
        }
        self.set_loads(schedule);
        let WorkerAssignment { point, setup, .. } = &*self.assignment;
        let mut until = self.until(schedule);
        let batching = BatchLoop {
            size: point.batch_share(setup.worker),
            in_flight: point.batching.in_flight,
            one_call: point.batching.call == CallsPerBatch::One,
            merged_bytes_max: self.merged_bytes_max,
        };
        let timetable = match point.pacing {
            Pacing::Paced { rate, .. } => {
                Some(paced::timetable(point, rate, setup.role.place, schedule))
            }
            _ => None,
        };
        let flows = match &mut self.table {
            Some(table) => {
                table.activate(self.active.clone());
                &mut []
            }
            None => &mut self.flows[self.active.clone()],
        };
        let pace = match (point.pacing, &timetable) {
            (Pacing::Paced { .. }, Some(timetable)) => LoopKind::Paced(timetable),
            (Pacing::Batch { .. }, _) => match &setup.shared {
                None => LoopKind::Batch(batching),
                Some(shared) => LoopKind::SharedBatch(batching, shared, setup.worker),
            },
            (Pacing::PingPong, _) => match &mut self.table {
                Some(table) => LoopKind::PingPong(table),
                None => LoopKind::ReadInTurn,
            },
            _ => LoopKind::Stream(self.loads.as_mut()),
        };
        let timed_loop = TimedLoop {
            pace,
            port: &mut self.port,
            flows,
            scratch: &mut self.scratch,
            until: &mut until,
        };
        let driven = timed_loop.run(recording)?;
        totals.operations = driven.operations;
        totals.handed_over = driven.handed_over;
        if let (Some(punctuality), Some(timetable)) = (driven.punctuality, timetable) {
            let flows = &self.flows[self.active.clone()];
            (totals.due, totals.late) = (timetable.operations, punctuality.late);
            totals.stall = paced::stall_from_punctuality(&punctuality, setup.rank, flows, schedule);
            self.pending = PendingLatencies::Paced {
                flows: flows.len(),
                timetable,
                ended_ns: punctuality.ended_ns,
            };
        }
        // A flow with a load of its own is flushed when it finishes its load, so only other flows are flushed here.
        let writes = matches!(point.op, Verb::Write | Verb::WriteImm)
            && (self.loads.is_none() || schedule.number == WARM_UP);
        if !writes {
            return Ok(());
        }
        let flows = self
            .table
            .as_ref()
            .map_or(&self.flows, |table| &table.flows);
        self.port.flush(&flows[self.active.clone()])
    }

    /// Ends the timed part of a round. `window_ns` is its duration; `None` for a worker that drove no flow.
    pub(super) fn end_round(&mut self, window_ns: Option<u64>, totals: &mut TrialTotals) {
        if let Some(window_ns) = window_ns {
            totals.in_flight_max = self.port.take_most_in_flight();
            let WorkerAssignment { point, setup, .. } = &*self.assignment;
            let loads = self.port.engine.take_rail_loads();
            totals.rails = rails::rail_totals(&loads, window_ns);
            let worker = (setup.rank, setup.worker);
            totals.least_rail =
                rails::least_loaded_rail(worker, point.division.rails, &loads, &totals.rails);
        }
        self.active = 0..self.flows().len();
    }

    /// Sets the number of operations of each flow, if a traffic file defines the loads. In the warm-up, the same flows
    /// continue until the time is over.
    fn set_loads(&mut self, schedule: &Schedule) {
        let WorkerAssignment { point, setup, .. } = &*self.assignment;
        let operations =
            |flow: &Flow| match point.load_operations(setup.rank, flow.peer, setup.worker) {
                0 => 0,
                _ if schedule.number == WARM_UP => u64::MAX,
                operations => operations,
            };
        if let Some(loads) = &mut self.loads {
            let flows = &self.flows[self.active.clone()];
            loads.set(self.port.clock, flows.iter().map(operations));
        }
    }

    /// Returns the condition on which the round's operations end.
    fn until(&self, schedule: &Schedule) -> Until {
        let until = match (schedule.length, &self.loads) {
            (TrialLength::DurationNs(ns), _) => {
                Until::time(self.port.clock, schedule.start_ns + ns)
            }
            (TrialLength::Iterations(_), Some(loads)) => Until::operations(loads.operations()),
            (TrialLength::Iterations(count), None) => Until::operations(count),
        };
        until.at_most(self.assignment.point.iterations_max().unwrap_or(u64::MAX))
    }

    /// Takes the latencies of the last trial that still have to be added to the histograms.
    pub(super) fn take_pending_latencies(&mut self) -> PendingLatencies {
        std::mem::replace(&mut self.pending, PendingLatencies::Nothing)
    }

    /// Returns the operations of the last trial that were due but never issued, from `scratch`.
    pub(super) fn never_issued(
        &self,
        flows: usize,
        timetable: &Timetable,
        ended_ns: u64,
    ) -> impl Iterator<Item = Unfinished> {
        self.scratch.never_issued(flows, timetable, ended_ns)
    }

    /// Serves peers while `is_missing` returns true, up to the deadline for arrivals. The caller checks whether
    /// something is still missing.
    pub(super) fn serve_while(&mut self, is_missing: impl Fn() -> bool) -> Result<()> {
        let served = self.serve_port_while(|_| is_missing());
        served.map_err(|error| self.name_stalled_flows(error))
    }

    /// Waits until `count` operations have arrived in this round, and until all plain writes are visible. Returns the
    /// time that it took to make plain writes visible.
    pub(super) fn await_arrivals(&mut self, count: Option<u64>, round: u32) -> Result<u64> {
        if let Some(count) = count {
            let awaited = self.serve_port_while(|port| port.arrivals.count < count);
            awaited.map_err(|error| self.name_stalled_flows(error))?;
        }
        // Plain writes cause no event at the target. Their initiators have already ended the measured interval.
        let WorkerAssignment {
            point,
            setup,
            layout,
            ..
        } = &*self.assignment;
        if !layout.into.is_empty() && flushes_in_round(point, setup.rank, round) {
            return Ok(self.port.flush_incoming()?.unwrap_or(0));
        }
        Ok(0)
    }

    /// Returns the arrivals since the last call.
    pub(super) fn take_arrivals(&mut self) -> Arrivals {
        self.port.take_arrivals()
    }

    /// Polls while `is_missing` returns true, up to the deadline for arrivals.
    fn serve_port_while(&mut self, is_missing: impl Fn(&Port<'_>) -> bool) -> Result<()> {
        let clock = self.port.clock;
        let deadline_ns = clock.now_ns() + DEADLINES.arrival.as_nanos() as u64;
        let rounds_max = if self.port.sleeps() { 1 } else { 64 };
        while is_missing(&self.port) && clock.now_ns() < deadline_ns {
            let mut rounds = 0;
            serve(&mut self.port, &mut || {
                rounds += 1;
                rounds > rounds_max
            })?;
        }
        Ok(())
    }

    /// Uses up the receives on both sides, so that the next point starts without any, and releases the lanes. All
    /// workers of all ranks call this, and then [`Self::poll_until`] until all of them have finished.
    pub(super) fn close(&mut self) -> Result<()> {
        self.port.use_up_receives();
        if self.assignment.point.op == Verb::Send {
            let used_up = self.use_up_receives();
            let settled = used_up.and_then(|()| self.port.settle_credits());
            settled.map_err(|error| self.name_stalled_flows(error))?;
        }
        for lane in std::mem::take(&mut self.lanes) {
            self.port.engine.release_lane(lane);
        }
        let WorkerAssignment { point, layout, .. } = &*self.assignment;
        announce_part_lengths(point, layout, self.port.engine, false)
    }

    /// Sends one filler for each receive that a peer has posted, and waits for the fillers of the peers.
    fn use_up_receives(&mut self) -> Result<()> {
        let depth = self.receives_depth as usize;
        let fillers: Vec<_> = self
            .flows()
            .iter()
            .flat_map(|flow| std::iter::repeat_n(flow.filler_op(), depth))
            .collect();
        self.port.take_arrivals();
        let mut done = [Completion::EMPTY; BURST];
        self.port.complete(&fillers, &mut done)?;
        let posted = self.receives_posted;
        self.serve_port_while(|port| port.arrivals.count < posted)?;
        let seen = self.port.take_arrivals().count;
        // An engine that moves no bytes has no receives, so fillers don't arrive.
        if posted > 0 && seen != posted {
            return Err(Error::Failed(format!(
                "{seen} of the {posted} receives that were posted ahead could be used up at the end of the point",
            )));
        }
        Ok(())
    }

    /// If `error` is a stall, replaces it by an error that names the stalled flows.
    pub(super) fn name_stalled_flows(&mut self, error: Error) -> Error {
        let Some(stall) = self.port.stall().cloned() else {
            return error;
        };
        let WorkerAssignment { point, setup, .. } = &*self.assignment;
        let waiting = match point.pacing {
            Pacing::Stream { .. } | Pacing::Paced { .. } => self.scratch.waiting_flows(),
            _ => Vec::new(),
        };
        let table = self.table.as_ref();
        let flows = table.map_or(&self.flows, |table| &table.flows);
        let flows = &flows[self.active.clone()];
        let names = &setup.names;
        names.stall_error(point, &stall, flows, &waiting, self.port.engine)
    }
}

/// Returns how many messages a worker that only receives lets accumulate. It is 0 unless messages arrive through memory
/// that is shared with the senders.
fn messages_to_accumulate(WorkerAssignment { point, caps, .. }: &WorkerAssignment) -> usize {
    let is_shared = caps.arrives_by_polling && caps.bound == BoundKind::MemoryCopy;
    let is_short = point.op == Verb::Send && point.slots.size_bytes <= GATHER_BYTES_MAX;
    match point.pacing {
        Pacing::Stream { depth } if is_shared && is_short => {
            (depth as usize / GATHER_SHARE).min(GATHER_MAX)
        }
        _ => 0,
    }
}

/// Configures how a port waits, as the point requests and the device allows. The port also watches its flows for
/// stalls.
fn with_waiting<'a>(
    port: Port<'a>,
    assignment: &WorkerAssignment,
    flows: usize,
) -> Result<Port<'a>> {
    let WorkerAssignment {
        point, setup, caps, ..
    } = assignment;
    let patience_ns = setup.patience.as_nanos() as u64;
    let mut port = port.with_watch(StallWatch::new(patience_ns, point.slots.size_bytes, flows));
    if !caps.arrivals_named {
        port = port.without_names();
    }
    if caps.arrives_by_polling {
        port = port.without_pause();
    }
    if flows == 0 {
        port = port.with_accumulation(messages_to_accumulate(assignment));
    }
    if point.cq == CqMode::Event {
        port = port.with_sleeper(setup.sleepers.add_sleeper()?);
    }
    Ok(port)
}
