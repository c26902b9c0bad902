//! One worker during one point: its part in trials, and the checks of its memory.

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use tonnage_sys::clock::thread_cpu_ns;

use super::assignment::WorkerAssignment;
use super::flow_driver::FlowDriver;
use super::idle_policy::IdlePolicy;
use super::memory_checker::MemoryChecker;
use super::pairs::FlowTime;
use super::totals::{OperationSums, TrialTotals};
use super::trial::{IssuedOperations, Schedule, WARM_UP, WorkerSetup};
use super::worker_latencies::WorkerLatencies;
use crate::bound::memory_copy::copy_stretch;
use crate::bound::socket_stream::{SharedStreams, StreamedBytes};
use crate::kinds::transfer::layout::SliceLayout;
use crate::kinds::transfer::verify::{ExpectedOperations, check_arrivals};
use crate::opening::engine::EngineWorker;
use tonnage_engine::Engine;
use tonnage_engine::memory::{CopyRange, CopyRate, CopyRepetitions};
use tonnage_plan::transfer::TransferPoint;
use tonnage_units::{Error, Result};

/// One worker during one point.
pub struct TransferWorker<'a> {
    assignment: Rc<WorkerAssignment<'a>>,
    pub(super) driver: FlowDriver<'a>,
    latencies: WorkerLatencies<'a>,
    checker: MemoryChecker<'a>,
    idle: IdlePolicy,
    /// Time when the point began.
    began_ns: u64,
    cpu_began_ns: u64,
    /// Time when the measured interval of the last round ended.
    window_end_ns: u64,
}

impl<'a> TransferWorker<'a> {
    /// Opens the lanes of a point, posts its receives, and fills its memory.
    pub fn new(
        point: &'a TransferPoint,
        setup: WorkerSetup,
        engine: &'a mut dyn Engine,
        worker: &'a mut EngineWorker,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        let began_ns = worker.clock.now_ns();
        let assignment = Rc::new(WorkerAssignment {
            layout: SliceLayout::new(point, setup.rank),
            caps: worker.caps,
            point,
            setup,
        });
        let mut checker = MemoryChecker::new(&assignment, worker);
        let mut driver = FlowDriver::new(&assignment, engine, worker, stop)?;
        if assignment.caps.moves_bytes {
            // Memory is filled because zeros would give better results: links compress them, and some memories skip
            // them.
            checker.fill()?;
            driver.hand_over_memory()?;
        }
        Ok(Self {
            driver,
            latencies: WorkerLatencies::new(&assignment),
            checker,
            idle: IdlePolicy::new(&assignment)?,
            assignment,
            began_ns,
            cpu_began_ns: 0,
            window_end_ns: 0,
        })
    }

    /// Returns the number of iterations of a serving loop between two reads of the clock.
    pub(super) fn rounds_per_clock_read(&self) -> u32 {
        self.idle.rounds_per_clock_read()
    }

    /// Returns the indices of the flows that are driven in a round.
    pub(super) fn in_round(&self, round: u32) -> Range<usize> {
        self.assignment.in_round(round)
    }

    /// Returns the latencies so far.
    pub(super) fn latencies(&self) -> &WorkerLatencies<'a> {
        &self.latencies
    }

    /// Returns the range of memory that [`Self::copy_bound`] copies.
    pub fn copy_stretch(&self) -> CopyRange {
        copy_stretch(&self.assignment.layout, self.assignment.point)
    }

    /// Measures copy rates over this point's footprint. All copiers use the same turns.
    pub fn copy_bound(&self, turns: CopyRepetitions) -> Result<Vec<CopyRate>> {
        self.checker.copy_rates(&self.driver.clock(), turns)
    }

    /// Runs this worker's socket streams.
    pub fn run_socket_streams(&self, shared: &SharedStreams) -> Result<StreamedBytes> {
        let worker = self.assignment.setup.worker;
        shared.run_streams_of(worker as usize, &self.driver.clock())
    }

    /// Prepares for trial `number`, outside the measured interval. If it will be `checked`, fills in the data of all
    /// its rounds.
    pub fn prepare(&mut self, number: u64, checked: bool) -> Result<()> {
        self.idle.resume();
        self.driver.settle_engine(number == WARM_UP);
        self.checker.begin(number);
        if checked {
            self.checker.fill()?;
            self.driver.hand_over_memory()?;
        }
        self.driver.reset_ping_pong()
    }

    /// Prepares for a round, before any worker of the rank drives it. Rounds may start long after their trial began, so
    /// the clock is synchronized again.
    pub fn begin_round(&mut self) {
        if self.assignment.setup.worker == 0 {
            self.driver.follow_clock();
            if let Some(shared) = &self.assignment.setup.shared {
                shared.reset();
            }
        }
    }

    /// Serves peers until `over` returns true. In a ping-pong it answers pings, otherwise it only polls.
    pub fn serve_peers(&mut self, over: impl FnMut() -> bool) -> Result<()> {
        self.driver.serve_peers(&self.idle, over)
    }

    /// Polls or rests until `over` returns true. Pings are not answered.
    pub fn poll_until(&mut self, over: impl FnMut() -> bool) -> Result<()> {
        self.driver.poll_until(&self.idle, over)
    }

    /// Waits for the aligned start, and then drives this worker's own flows until they are done and flushed. The caller
    /// passes a failure to [`Self::abandon_batches`].
    pub fn drive(&mut self, schedule: &Schedule) -> Result<TrialTotals> {
        let WorkerAssignment { point, setup, .. } = &*self.assignment;
        let schedule = &schedule.for_worker(setup.role.is_background);
        self.latencies.begin();
        self.idle.begin_round(schedule);
        let active = if self.assignment.initiates() && !self.idle.is_paused() {
            self.assignment.in_round(schedule.round)
        } else {
            0..0
        };
        let drives = !active.is_empty();
        if let Some(progress) = self.driver.begin_round(schedule, active)? {
            self.latencies.follow(schedule, progress);
        }
        self.driver.await_start(&self.idle, schedule.start_ns)?;
        self.cpu_began_ns = thread_cpu_ns();
        let clock = self.driver.clock();
        let skew_ns = clock.now_ns().saturating_sub(schedule.start_ns);
        let mut totals = TrialTotals {
            // A worker that rests may wake late, but this does not delay any operation.
            start_skew_ns: if self.idle.is_at_rest() { 0 } else { skew_ns },
            ..TrialTotals::default()
        };
        if drives {
            let recording = self.latencies.recording(schedule);
            if let Err(error) = self.driver.drive(schedule, recording, &mut totals) {
                let error = self.driver.name_stalled_flows(error);
                self.latencies.stop_following();
                return Err(error);
            }
            totals.initiator_cpu_ns = thread_cpu_ns() - self.cpu_began_ns;
            self.window_end_ns = clock.now_ns();
            totals.own_ns = self.window_end_ns.saturating_sub(schedule.start_ns);
        } else {
            self.window_end_ns = schedule.start_ns;
        }
        self.driver
            .end_round(drives.then_some(totals.own_ns), &mut totals);
        if self.assignment.caps.moves_bytes {
            totals.payload_bytes = totals.operations * u64::from(point.slots.size_bytes);
        }
        Ok(totals)
    }

    /// Ends the batches that this worker shares with others, after its own part has failed.
    pub fn abandon_batches(&self, error: &Error) {
        let setup = &self.assignment.setup;
        if let Some(shared) = &setup.shared {
            shared.abandon(setup.worker, error);
        }
    }

    /// Returns the operations that this worker's flows issued in the last trial.
    pub fn report_issued(&mut self) -> Result<IssuedOperations> {
        self.checker.issued(self.driver.flows())
    }

    /// Returns the times of the flows in the last round, in the order of their targets, if a traffic file defines the
    /// loads.
    pub(super) fn flow_times(&self, schedule: &Schedule) -> Vec<FlowTime> {
        self.driver.flow_times(schedule.start_ns)
    }

    /// Returns each peer with the number of operations to it since the point began, including answers and the warm-up.
    pub fn operations(&self) -> Vec<(u32, u64)> {
        let flows = self.driver.flows().iter();
        flows.map(|flow| (flow.peer, flow.issued)).collect()
    }

    /// Waits until all operations that initiators have completed towards this worker have arrived. The measured
    /// interval ends with the last arrival.
    pub fn finish(
        &mut self,
        schedule: &Schedule,
        expected: &ExpectedOperations,
        totals: &mut TrialTotals,
    ) -> Result<()> {
        let WorkerAssignment {
            point, setup, caps, ..
        } = &*self.assignment;
        let schedule = &schedule.for_worker(setup.role.is_background);
        self.driver.serve_while(|| !self.checker.is_settled())?;
        if !self.checker.is_settled() {
            return Err(Error::Failed(
                "--verify=each: a peer announced an operation that never came to be compared; look for that peer's error, \
                 or repeat with --depth 1"
                    .into(),
            ));
        }
        totals.flush_ns = self
            .driver
            .await_arrivals(expected.arrivals, schedule.round)?;
        let arrivals = self.driver.take_arrivals();
        self.window_end_ns = self.window_end_ns.max(arrivals.last_ns);
        if self.assignment.takes_part() && self.in_round(schedule.round).is_empty() {
            totals.target_cpu_ns = thread_cpu_ns() - self.cpu_began_ns;
        }
        self.latencies
            .finish_round(&mut self.driver, schedule, totals)?;
        let roles = point.roles;
        if roles.bidirectional && roles.is_target_side(setup.rank) {
            totals.back = OperationSums::from_totals(totals);
        }
        totals.window_ns = self.window_end_ns.saturating_sub(schedule.start_ns);
        totals.elapsed_ns = self.driver.clock().now_ns().saturating_sub(self.began_ns);
        totals.unsettled = u64::from(!self.driver.settle_engine(schedule.number == WARM_UP));
        check_arrivals(point, expected, &arrivals, caps.arrivals_named)
    }

    /// Checks the memory after the rounds of a trial, and adds the number of correct bytes to `totals`. Then advances
    /// to the next trial.
    pub fn check(&mut self, expected: &ExpectedOperations, totals: &mut TrialTotals) -> Result<()> {
        let fetched = self.driver.fetch_memory();
        let checked = fetched.and_then(|()| self.checker.check(expected, totals));
        self.checker.advance(expected);
        checked
    }

    /// Uses up everything that is posted. All workers of all ranks call this, and then [`Self::poll_until`] until all
    /// of them have finished.
    pub fn close(&mut self) -> Result<()> {
        self.checker.stop_comparing();
        self.driver.close()
    }

    /// Assigns this worker's totals either to the measured part or to the background load.
    pub(super) fn assign_totals(&self, totals: TrialTotals) -> TrialTotals {
        if self.assignment.setup.role.is_background {
            totals.into_background()
        } else {
            totals
        }
    }

    /// Discards the latencies of the warm-up.
    pub fn discard_warm_up(&mut self) {
        self.latencies.discard_warm_up();
    }
}
