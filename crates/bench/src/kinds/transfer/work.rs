//! One worker during one point: its flows, what it does in a trial, and what it checks afterwards.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tonnage_sys::clock::thread_cpu_ns;

use super::driven::compares_each;
use super::driving::Unsettled;
use super::flows::{
    begin_credits, expect_parts, flows_of, flushes_in_round, make_flows, make_receives, make_table,
    scratch,
};
use super::pairs::FlowTime;
use super::totals::TrialTotals;
use super::trial::{Issued, Schedule, Station, WARM_UP};
use crate::deadlines::DEADLINES;
use crate::kinds::transfer::layout::{SliceLayout, answers};
use crate::kinds::transfer::verify::{Expected, MemoryWatch, check_arrivals};
use crate::limit::memory_copy::{copy_rates, stretch};
use crate::limit::socket_stream::{Berths, Streamed};
use crate::opening::engine::EngineWorker;
use tonnage_engine::memory::{CopyRate, CopyTurns, Memory, Stretch};
use tonnage_engine::pattern::Mismatches;
use tonnage_engine::{Caps, Completion, Engine, Lane, LimitKind, Verb};
use tonnage_loops::each::{ENGINE_AT_FAULT, Findings, Found};
use tonnage_loops::extent::FlowLoads;
use tonnage_loops::flow::{Flow, Receives};
use tonnage_loops::ping_pong::{Table, return_all};
use tonnage_loops::port::Port;
use tonnage_loops::pulse::FeltPulse;
use tonnage_loops::recorder::PhaseHistograms;
use tonnage_loops::serve::{RestingPlace, serve};
use tonnage_loops::stall::StallWatch;
use tonnage_loops::{BURST, Scratch};
use tonnage_plan::transfer::{BatchMerge, CqMode, Pacing, TransferPoint};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::{Error, Result};

/// Receives that are posted ahead for each peer, at most; the engine's own depth may allow fewer.
const RECEIVES_MAX: u32 = 512;

/// The receiver of a stream over memory lets this part of the window gather.
const GATHER_SHARE: usize = 4;
/// It lets no more messages gather than this.
const GATHER_MAX: usize = 16;
/// It lets no longer messages gather: with 64 B it gained, with 256 B it did not.
const GATHER_BYTES_MAX: u32 = 128;

/// One worker during one point.
pub struct Work<'a> {
    pub(super) point: &'a TransferPoint,
    pub(super) station: Station,
    pub(super) caps: Caps,
    pub(super) layout: SliceLayout,
    pub(super) port: Port<'a>,
    pub(super) memory: Arc<dyn Memory>,
    pub(super) flows: Vec<Flow>,
    /// The flows of the round that is driven.
    pub(super) active: Range<usize>,
    /// Operations of the flows that are driven, where a file says them.
    pub(super) loads: Option<FlowLoads>,
    pub(super) table: Option<Table>,
    pub(super) scratch: Scratch,
    /// The most bytes that neighbours of a batch are merged into; `None` where they stay apart.
    pub(super) merged_bytes_max: Option<u32>,
    pub(super) receives_depth: u32,
    /// Receives that are posted whenever nothing is in flight.
    pub(super) receives_posted: u64,
    /// Given back when the point is closed.
    pub(super) lanes: Vec<Lane>,
    /// Latencies of the running trial; taken out only while a loop records into it.
    pub(super) trial: Option<LatencyHistogram>,
    /// Latencies of the point.
    pub(super) histogram: LatencyHistogram,
    /// Pulse that it keeps in trials, where somebody feels it.
    pub(super) pulse: Option<FeltPulse>,
    /// Latencies of the trial that are not in `trial` yet.
    pub(super) unsettled: Unsettled,
    /// Those of the phases of batches, where the point has batches.
    pub(super) phases: Option<PhaseHistograms>,
    pub(super) watch: MemoryWatch,
    pub(super) number: u64,
    pub(super) window_end_ns: u64,
    pub(super) cpu_began_ns: u64,
    /// Time at which the point began.
    pub(super) began_ns: u64,
    /// True where the device serves the peers, so that nothing has to be polled for them.
    pub(super) rests_as_target: bool,
    /// Place to rest of a worker that may.
    pub(super) rest: Option<RestingPlace>,
    /// Results of comparing every operation, where that is asked for.
    pub(super) findings: Option<Arc<Findings>>,
}

impl<'a> Work<'a> {
    /// Resolves the lanes of a point and posts its receives.
    pub fn new(
        point: &'a TransferPoint,
        station: Station,
        engine: &'a mut dyn Engine,
        worker: &'a mut EngineWorker,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        let (rank, began_ns) = (station.rank, worker.clock.now_ns());
        let layout = SliceLayout::new(point, rank);
        let (memory, caps) = (Arc::clone(&worker.memory), worker.caps);
        let findings = worker.findings.clone().filter(|_| compares_each(point));
        let flows = make_flows(point, rank, &layout, engine, worker)?;
        expect_parts(point, &layout, engine, true)?;
        let receives = match point.op {
            Verb::Send if caps.moves_bytes => make_receives(point, rank, &layout, engine, worker)?,
            _ => Vec::new(),
        };
        let mut lanes: Vec<Lane> = flows.iter().map(|flow| flow.lane).collect();
        lanes.extend(receives.iter().map(Receives::lane));
        let credits = worker.credits.as_mut();
        let credited = begin_credits(credits, point, engine, &caps, &flows, &layout)?;
        let port = Port::new(engine, worker.clock, stop, station.yielding);
        let mut port = waiting(port, point, &station, &caps, flows.len())?;
        if let Some((credits, tells)) = credited {
            lanes.extend(tells);
            port = port.with_credits(credits);
        }
        let receives_depth = caps.depth.min(RECEIVES_MAX).min(2 * point.depth().max(8));
        let posted = receives.len() as u64 * u64::from(receives_depth);
        if posted > 0 {
            port.post_receives(receives, receives_depth)?;
        }
        let at_once = flows.len().min(point.roles.targets_at_once() as usize);
        // Completed writes may not have arrived.
        let flushes = matches!(point.op, Verb::Write | Verb::WriteImm);
        let loads = point.loads.as_ref();
        let times_batches = point.latency && matches!(point.pacing, Pacing::Batch { .. });
        let message_bytes_max = u32::try_from(caps.message_bytes_max).unwrap_or(u32::MAX);
        let mut work = Self {
            watch: MemoryWatch::new(point, (rank, station.worker), &layout),
            rests_as_target: is_served(point, &caps, &layout),
            rest: place_to_rest(point, &station, &caps, &layout)?,
            point,
            caps,
            layout,
            port,
            memory,
            active: 0..flows.len(),
            loads: loads.map(|_| FlowLoads::new(flows.len(), flushes, worker.clock)),
            flows,
            table: None,
            scratch: scratch(point, at_once),
            merged_bytes_max: (point.batching.merge == BatchMerge::On).then_some(message_bytes_max),
            receives_depth,
            receives_posted: posted,
            lanes,
            trial: Some(LatencyHistogram::new()),
            histogram: LatencyHistogram::new(),
            pulse: station.pulse.clone().map(FeltPulse::new),
            unsettled: Unsettled::Nothing,
            phases: times_batches.then(PhaseHistograms::default),
            number: 0,
            window_end_ns: 0,
            cpu_began_ns: 0,
            began_ns,
            station,
            findings,
        };
        if answers(point) {
            let flows = std::mem::take(&mut work.flows);
            let table = make_table(point, rank, &work.layout, flows, &work.memory, &caps)?;
            work.table = Some(table);
        }
        if caps.moves_bytes {
            // Zeros would be a flattering payload: links compress them, and memories skip them.
            work.watch.fill(work.memory.as_ref(), WARM_UP)?;
            work.hand_over_memory()?;
        }
        Ok(work)
    }

    /// Returns whether this worker issues operations of its own accord.
    pub fn begins(&self) -> bool {
        self.point.roles.initiates(self.station.rank)
    }

    /// Rounds of a serving loop between two looks at the clock: few where each is a rest, or a sleep.
    pub(super) fn look_rounds(&self) -> u32 {
        match self.point.cq {
            CqMode::Busy if !self.is_at_rest() => 1 << 16,
            _ => 1,
        }
    }

    /// Returns whether this worker rests now instead of polling: it takes no part, or the device does it all.
    fn is_at_rest(&self) -> bool {
        !self.takes_part() || self.station.part.is_resting || self.rests_as_target
    }

    /// The flows of a round.
    pub(super) fn in_round(&self, round: u32) -> Range<usize> {
        self.layout.in_round(self.point, (self.station.rank, round))
    }

    /// Returns whether this worker initiates, or others initiate to it.
    pub(super) fn takes_part(&self) -> bool {
        !(self.layout.out.is_empty() && self.layout.into.is_empty())
    }

    /// The pieces that [`Self::copy_limit`] copies.
    pub fn copy_stretch(&self) -> Stretch {
        stretch(&self.layout, self.point)
    }

    /// Copy rates over this point's footprint, in the turns of all copiers.
    pub fn copy_limit(&self, turns: CopyTurns) -> Result<Vec<CopyRate>> {
        copy_rates(
            self.memory.as_ref(),
            &self.layout,
            self.point,
            &self.port.clock,
            turns,
        )
    }

    /// Carries this worker's socket streams.
    pub fn stream(&self, berths: &Berths) -> Result<Streamed> {
        berths.carry(self.station.worker as usize, &self.port.clock)
    }

    /// Makes ready for trial `number`, outside the clock; puts the data of all its rounds in place where its bytes are
    /// `checked`.
    pub fn prepare(&mut self, number: u64, checked: bool) -> Result<()> {
        self.number = number;
        self.station.part.is_resting = false;
        self.port.engine.settle(number == WARM_UP);
        if let Some(findings) = &self.findings {
            findings.take();
        }
        if checked {
            self.watch.fill(self.memory.as_ref(), number)?;
            self.hand_over_memory()?;
        }
        if let Some(table) = &self.table {
            table.rearm()?;
        }
        Ok(())
    }

    /// Makes ready for a round, before any worker of the rank drives it: rounds may be long after their trial began.
    pub fn begin_round(&mut self) {
        if self.station.worker == 0 {
            self.port.clock.follow();
            if let Some(shared) = &self.station.shared {
                shared.reset();
            }
        }
    }

    /// Serves peers until `over`: answers under ping-pong, polls otherwise.
    pub fn serve_peers(&mut self, mut over: impl FnMut() -> bool) -> Result<()> {
        if !self.begins()
            && let Some(table) = &mut self.table
        {
            let served = return_all(&mut self.port, table, &mut over);
            return served.map(|_| ()).map_err(|error| self.with_stalled(error));
        }
        self.poll_until(over)
    }

    /// Polls until `over` and answers nothing; rests where this worker takes no part, or the device does it all.
    pub fn poll_until(&mut self, mut over: impl FnMut() -> bool) -> Result<()> {
        let is_at_rest = self.is_at_rest();
        let waited = match self.rest.as_ref().filter(|_| is_at_rest) {
            Some(rest) => rest.until(&mut self.port, over),
            None => serve(&mut self.port, &mut over),
        };
        waited.map_err(|error| self.with_stalled(error))
    }

    /// Operations that this worker's flows issued in the trial that was just driven.
    pub fn issued(&mut self) -> Result<Issued> {
        let flows = flows_of(&self.table, &self.flows);
        self.watch.issued(self.memory.as_ref(), flows)
    }

    /// Flows of the execution that was just driven, in the order of their targets, where a file says their loads.
    pub(super) fn flow_times(&self, schedule: &Schedule) -> Vec<FlowTime> {
        let loads = self.loads.as_ref();
        loads.map_or_else(Vec::new, |loads| FlowTime::of(loads, schedule.start_ns))
    }

    /// Peers and how many operations went to each since the point began, answers and the warm-up's included.
    pub fn operations(&self) -> Vec<(u32, u64)> {
        let flows = flows_of(&self.table, &self.flows);
        flows.iter().map(|flow| (flow.peer, flow.issued)).collect()
    }

    /// Waits until everything that the initiators completed has arrived, and ends the trial: its window counts the last
    /// arrival.
    pub fn finish(
        &mut self,
        schedule: &Schedule,
        expected: &Expected,
        totals: &mut TrialTotals,
    ) -> Result<()> {
        let schedule = &schedule.of_worker(self.station.part.is_background);
        if let Some(findings) = self.findings.clone() {
            let settled = self.serve_while(|_| !findings.is_settled());
            settled.map_err(|error| self.with_stalled(error))?;
            if !findings.is_settled() {
                return Err(Error::Failed(
                    "--verify=each: a peer announced an operation and never had it compared; look for that peer's error, \
                     or repeat with --window 1"
                        .into(),
                ));
            }
        }
        if let Some(count) = expected.arrivals {
            let awaited = self.await_arrivals(count);
            awaited.map_err(|error| self.with_stalled(error))?;
        }
        // Plain writes tell this side nothing. Their initiators have closed the window, which this comes behind.
        if !self.layout.into.is_empty()
            && flushes_in_round(self.point, self.station.rank, schedule.round)
        {
            totals.flush_ns = self.port.flush_incoming()?.unwrap_or(0);
        }
        let arrivals = self.port.take_arrivals();
        self.window_end_ns = self.window_end_ns.max(arrivals.last_ns);
        if self.takes_part() && self.in_round(schedule.round).is_empty() {
            totals.target_cpu_ns = thread_cpu_ns() - self.cpu_began_ns;
        }
        self.settle_latencies(schedule, totals)?;
        totals.window_ns = self.window_end_ns.saturating_sub(schedule.start_ns);
        totals.elapsed_ns = self.port.clock.now_ns().saturating_sub(self.began_ns);
        totals.unsettled = u64::from(!self.port.engine.settle(self.number == WARM_UP));
        if let Some(trial) = self.trial.as_ref().filter(|_| !schedule.again) {
            self.histogram.merge(trial);
        }
        check_arrivals(self.point, expected, &arrivals, self.caps.arrivals_named)
    }

    /// Compares the last visit of each slot with what it should have moved, or asks for the comparisons of all; adds what was right to `totals`.
    pub fn check(&mut self, expected: &Expected, totals: &mut TrialTotals) -> Result<()> {
        self.fetch_memory()?;
        let (mut moved, mut untouched) = (Mismatches::default(), Mismatches::default());
        self.watch.check(
            self.memory.as_ref(),
            self.number,
            expected,
            &mut moved,
            &mut untouched,
        )?;
        totals.verified_bytes = moved.checked_bytes - moved.wrong_bytes;
        if let Some(findings) = &self.findings {
            let reads = self.point.op == Verb::Read;
            let of = if reads { &expected.out } else { &expected.into };
            let moved_bytes = of.iter().sum::<u64>() * u64::from(self.point.size_bytes);
            totals.verified_bytes = checked_each(&findings.take(), moved_bytes)?;
        }
        if self.point.op == Verb::CompareSwap {
            totals.swapped = expected.ascents.iter().map(|told| told.count).sum();
        }
        if !moved.is_clean() {
            return Err(Error::Failed(format!(
                "of what was moved, {}",
                moved.describe()
            )));
        }
        if !untouched.is_clean() {
            return Err(Error::Failed(format!(
                "of what nobody should have touched, {}",
                untouched.describe()
            )));
        }
        Ok(())
    }

    /// Uses up the receives of both sides, so that the next point starts with none, and gives the lanes back: each
    /// initiator sends as many fillers as its peer has receives. All workers of all ranks call it, then
    /// [`Self::poll_until`] everybody has.
    pub fn close(&mut self) -> Result<()> {
        if let Some(findings) = &self.findings {
            findings.pass(true);
        }
        self.port.use_up_receives();
        if self.point.op == Verb::Send {
            let used_up = self.use_up_receives();
            let settled = used_up.and_then(|()| self.port.settle_credits());
            settled.map_err(|error| self.with_stalled(error))?;
        }
        for lane in std::mem::take(&mut self.lanes) {
            self.port.engine.release(lane);
        }
        expect_parts(self.point, &self.layout, self.port.engine, false)
    }

    fn use_up_receives(&mut self) -> Result<()> {
        let flows = flows_of(&self.table, &self.flows);
        let fillers: Vec<_> = flows
            .iter()
            .flat_map(|flow| std::iter::repeat_n(flow.filler_op(), self.receives_depth as usize))
            .collect();
        self.port.take_arrivals();
        let mut done = [Completion::EMPTY; BURST];
        self.port.complete(&fillers, &mut done)?;
        self.await_arrivals(self.receives_posted)?;
        let seen = self.port.take_arrivals().count;
        // An engine that moves nothing has no receives, and answers its own operations.
        if self.receives_posted > 0 && seen != self.receives_posted {
            return Err(Error::Failed(format!(
                "{seen} of the {} receives that were posted ahead could be used up at the end of the point",
                self.receives_posted
            )));
        }
        Ok(())
    }

    /// Polls until so many operations have arrived since the counters were taken last. What is missing after the
    /// deadline is for the caller to find.
    fn await_arrivals(&mut self, count: u64) -> Result<()> {
        self.serve_while(|port| port.arrivals.count < count)
    }

    /// Polls while something is missing, until the deadline at most.
    fn serve_while(&mut self, is_missing: impl Fn(&Port<'_>) -> bool) -> Result<()> {
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

    /// Latencies of the trial that was just driven; `None` of a worker that measures none.
    pub(super) fn latencies_of_trial(&self) -> Option<&LatencyHistogram> {
        self.trial
            .as_ref()
            .filter(|_| !self.station.part.is_background)
    }

    /// Sums of this worker, where they belong.
    pub(super) fn placed(&self, totals: TrialTotals) -> TrialTotals {
        if self.station.part.is_background {
            totals.beside()
        } else {
            totals
        }
    }

    /// Forgets the warm-up's latencies.
    pub fn forget(&mut self) {
        self.histogram.clear();
        if let Some(phases) = &mut self.phases {
            phases.clear();
        }
    }
}

/// Bytes that were right of operations that were compared one by one and should have moved so many.
fn checked_each(found: &Found, moved_bytes: u64) -> Result<u64> {
    if let Some(wrong) = &found.wrong {
        return Err(Error::Failed(wrong.clone()));
    }
    if found.moved_bytes != moved_bytes {
        return Err(Error::Failed(format!(
            "--verify=each compared operations with {} bytes, but the initiators completed operations with \
             {moved_bytes}; {ENGINE_AT_FAULT}",
            found.moved_bytes
        )));
    }
    Ok(found.right_bytes)
}

/// Returns whether the device does everything that peers ask of a worker, which has nothing to do itself.
fn is_served(point: &TransferPoint, caps: &Caps, layout: &SliceLayout) -> bool {
    let is_silent = caps.passive_target && !point.op.notifies_target() && !compares_each(point);
    is_silent && layout.out.is_empty() && point.cq == CqMode::Busy
}

/// Place of a worker that may rest: one without a part in this point, that of a served target, the background's.
fn place_to_rest(
    point: &TransferPoint,
    station: &Station,
    caps: &Caps,
    layout: &SliceLayout,
) -> Result<Option<RestingPlace>> {
    let is_idle = layout.out.is_empty() && layout.into.is_empty();
    let may_rest = is_idle || is_served(point, caps, layout) || station.part.is_background;
    may_rest
        .then(|| RestingPlace::among(&station.sleepers))
        .transpose()
}

/// Messages that a worker which only receives lets gather; none where they do not come through memory that senders and this worker share.
fn gathered(point: &TransferPoint, caps: &Caps) -> usize {
    let is_shared = caps.arrives_by_polling && caps.limit == LimitKind::MemoryCopy;
    let is_short = point.op == Verb::Send && point.size_bytes <= GATHER_BYTES_MAX;
    match point.pacing {
        Pacing::Stream { window } if is_shared && is_short => {
            (window as usize / GATHER_SHARE).min(GATHER_MAX)
        }
        _ => 0,
    }
}

/// A port that waits as the point asks and the device allows, and watches over so many flows.
fn waiting<'a>(
    port: Port<'a>,
    point: &TransferPoint,
    station: &Station,
    caps: &Caps,
    flows: usize,
) -> Result<Port<'a>> {
    let patience_ns = station.patience.as_nanos() as u64;
    let mut port = port.with_watch(StallWatch::new(patience_ns, point.size_bytes, flows));
    if !caps.arrivals_named {
        port = port.without_names();
    }
    if caps.arrives_by_polling {
        port = port.without_pause();
    }
    if flows == 0 {
        port = port.gathering(gathered(point, caps));
    }
    if point.cq == CqMode::Event {
        port = port.with_sleeper(station.sleepers.join()?);
    }
    Ok(port)
}
