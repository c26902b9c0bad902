//! The worker threads of one rank during one point. Worker 0 is the rank's main thread and the leader, and the only one
//! that talks to other ranks. The other workers follow its orders. While bytes move, all of them poll.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

use super::background::WorkerPoints;
use super::intervals::Intervals;
use super::layout::SliceLayout;
use super::pairs::FlowTime;
use super::point_engine::PointEngine;
use super::stalled::FlowNames;
use super::totals::TrialTotals;
use super::transfer_worker::TransferWorker;
use super::trial::{IssuedOperations, Schedule, WorkerSetup};
use crate::bound::socket_stream::{SharedStreams, StreamedBytes};
use crate::deadlines::DEADLINES;
use crate::kinds::transfer::verify::ExpectedOperations;
use crate::opening::engine::{EngineWorker, OpenEngine};
use crate::threads::Followers;
use tonnage_engine::memory::{CopyRate, CopyRepetitions};
use tonnage_loops::batch::SharedBatches;
use tonnage_loops::recorder::PhaseHistograms;
use tonnage_plan::transfer::{BatchOf, CqMode, Pacing, TransferPoint};
use tonnage_ranks::{Rank, Sleepers};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// A command to a following worker.
#[derive(Debug, Clone)]
pub enum ThreadOrder {
    /// Measure the copy bound, in the turns that all copiers share.
    CopyBound(CopyRepetitions),
    /// Run this worker's socket streams.
    Stream(Arc<SharedStreams>),
    /// Prepare for the trial with this number. If the flag is set, fill in its data.
    Prepare(u64, bool),
    /// Drive the worker's flows, serve peers until all ranks are done, and finish the round.
    Trial(Schedule),
    /// Check the bytes after all rounds of the last trial.
    Check,
    /// Discard the latencies of the warm-up.
    Forget,
    /// Return the latencies of the last trial.
    LatenciesOfTrial,
    /// Return the latencies of all trials.
    Latencies,
    /// Return the number of operations to each peer since the point began, including the warm-up.
    Operations,
    /// Use up the receives that peers have posted, and serve peers until all ranks are done.
    Close,
}

/// A worker's answer to an order.
#[derive(Debug, Default)]
pub struct ThreadReport {
    /// Totals of a round or of a check.
    pub totals: Option<TrialTotals>,
    /// Times of the flows, if a traffic file defines the loads.
    pub times: Vec<FlowTime>,
    /// Rates of the copy bound.
    pub rates: Option<Vec<CopyRate>>,
    /// Bytes that the socket streams received.
    pub streamed: Option<StreamedBytes>,
    /// Latencies, if they were requested.
    pub latencies: Option<LatencyHistogram>,
    /// Latencies of the phases of batches.
    pub phases: Option<PhaseHistograms>,
    /// Number of operations to each peer, including the warm-up.
    pub operations: Vec<(u32, u64)>,
}

/// State that the workers of a rank share while bytes move.
#[derive(Default)]
pub struct SharedTrialState {
    /// Number of workers that still drive their own flows.
    driving: AtomicU32,
    /// True after all ranks are done.
    over: AtomicBool,
    /// Operations that each worker has issued.
    issued: Mutex<Vec<IssuedOperations>>,
    /// Operations that each worker should have seen.
    expected: Mutex<Vec<ExpectedOperations>>,
    /// The first failure of a following worker. The leader sees it without waiting for the worker's answer.
    failure: Mutex<Option<String>>,
    failed: AtomicBool,
    /// Workers that may be asleep, for waking them.
    sleepers: Arc<Sleepers>,
}

impl SharedTrialState {
    /// Creates the state for `workers` workers. Some of them may sleep.
    pub fn new(workers: usize, sleepers: Arc<Sleepers>) -> Self {
        Self {
            issued: Mutex::new(vec![IssuedOperations::default(); workers]),
            expected: Mutex::new(vec![ExpectedOperations::default(); workers]),
            sleepers,
            ..Self::default()
        }
    }

    /// Resets the state. Called before each round.
    pub fn reset(&self, workers: u32) {
        self.driving.store(workers, Ordering::Release);
        self.over.store(false, Ordering::Release);
    }

    /// Returns whether all workers of this rank have driven their flows.
    pub fn all_done_driving(&self) -> bool {
        self.driving.load(Ordering::Acquire) == 0
    }

    /// Returns whether a following worker has failed. This costs one atomic load.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// If following workers have failed, returns the first failure as an error.
    pub fn check_failed(&self) -> Result<()> {
        if !self.has_failed() {
            return Ok(());
        }
        let failure = lock(&self.failure).clone();
        failure.map_or(Ok(()), |why| Err(Error::Failed(why)))
    }

    fn has_driven(&self) {
        self.driving.fetch_sub(1, Ordering::AcqRel);
        self.sleepers.wake();
    }

    fn fail(&self, why: String) {
        lock(&self.failure).get_or_insert(why);
        self.failed.store(true, Ordering::Release);
        self.sleepers.wake();
    }

    /// Returns the operations that this rank's workers have issued. They are complete when
    /// [`Self::all_done_driving`] returns true.
    pub fn issued(&self) -> Vec<IssuedOperations> {
        lock(&self.issued).clone()
    }

    /// Sets the operations that each worker should have seen.
    pub fn expect(&self, expected: Vec<ExpectedOperations>) {
        *lock(&self.expected) = expected;
    }

    /// Signals that all ranks are done, and sets the operations that each worker should have seen.
    pub fn finish(&self, expected: Vec<ExpectedOperations>) {
        self.expect(expected);
        self.over.store(true, Ordering::Release);
        self.sleepers.wake();
    }

    fn expected(&self, worker: usize) -> ExpectedOperations {
        lock(&self.expected)
            .get(worker)
            .cloned()
            .unwrap_or_default()
    }

    /// Drives a worker's own flows, and publishes the operations that it issued. The caller then serves peers until the
    /// round is over.
    pub fn drive(
        &self,
        index: usize,
        work: &mut TransferWorker,
        schedule: &Schedule,
    ) -> Result<TrialTotals> {
        let result = work.drive(schedule);
        if let Err(error) = &result {
            work.abandon_batches(error);
        }
        let published = work.report_issued().map(|issued| {
            if let Some(place) = lock(&self.issued).get_mut(index) {
                *place = issued;
            }
        });
        self.has_driven();
        result.and_then(|totals| published.map(|()| totals))
    }

    /// Checks a worker's bytes, and advances the expected state.
    pub fn check(&self, index: usize, work: &mut TransferWorker) -> Result<TrialTotals> {
        let (expected, mut totals) = (self.expected(index), TrialTotals::default());
        work.check(&expected, &mut totals).map(|()| totals)
    }

    /// Carries out an order on the thread of a following worker. Such orders need no exchange with other ranks.
    fn follow(
        &self,
        index: usize,
        work: &mut TransferWorker,
        order: &ThreadOrder,
    ) -> Result<ThreadReport> {
        let mut report = ThreadReport::default();
        match order {
            ThreadOrder::CopyBound(turns) => report.rates = Some(work.copy_bound(*turns)?),
            ThreadOrder::Stream(shared) => report.streamed = Some(work.run_socket_streams(shared)?),
            ThreadOrder::Prepare(number, checked) => work.prepare(*number, *checked)?,
            ThreadOrder::Trial(schedule) => {
                work.begin_round();
                let driven = self.drive(index, work, schedule);
                work.serve_peers(|| self.over.load(Ordering::Acquire))?;
                let mut totals = driven?;
                work.finish(schedule, &self.expected(index), &mut totals)?;
                report.totals = Some(work.assign_totals(totals));
                report.times = work.flow_times(schedule);
            }
            ThreadOrder::Check => {
                let checked = self.check(index, work)?;
                report.totals = Some(work.assign_totals(checked));
            }
            ThreadOrder::Forget => work.discard_warm_up(),
            ThreadOrder::LatenciesOfTrial => {
                report.latencies = work.latencies().of_trial().cloned()
            }
            ThreadOrder::Latencies => {
                report.latencies = Some(work.latencies().of_point().clone());
                report.phases = work.latencies().phases().cloned();
            }
            ThreadOrder::Operations => report.operations = work.operations(),
            ThreadOrder::Close => {
                let closed = work.close();
                self.has_driven();
                work.poll_until(|| self.over.load(Ordering::Acquire))?;
                closed?;
            }
        }
        Ok(report)
    }
}

/// The leader's handles to the following workers.
pub type Threads = Followers<ThreadOrder, ThreadReport, Error>;

/// Returns the set-ups of this rank's workers.
pub(super) fn worker_setups(
    point: &TransferPoint,
    points: &WorkerPoints<'_>,
    open: &OpenEngine,
    rank: &Rank,
    intervals: &Intervals,
) -> Vec<WorkerSetup> {
    let shares = matches!(point.pacing, Pacing::Batch { .. }) && point.batching.of == BatchOf::Rank;
    let sleepers = (point.cq == CqMode::Event).then(|| rank.sleepers());
    let shared = shares
        .then(|| SharedBatches::new(point.threads, point.batching.in_flight, sleepers))
        .map(Arc::new);
    let cpus = open.opened.common.measuring_cpus;
    let setup = |(index, worker): (u32, &EngineWorker)| WorkerSetup {
        rank: rank.id(),
        worker: index,
        names: {
            let out = SliceLayout::new(points.for_worker(index as usize), rank.id()).out;
            FlowNames::new(&out, rank.rank_infos(), &worker.devices)
        },
        yielding: open.yielding,
        patience: rank.network_timeout() + DEADLINES.stall,
        sleepers: rank.sleepers(),
        shared: shared.clone(),
        loop_progress: intervals.loop_progress(index),
        role: points.role_of_worker(index, cpus),
    };
    (0u32..).zip(&open.workers).map(setup).collect()
}

/// Body of a following worker's thread. It prepares the worker, reports that it is ready, and carries out orders until
/// the leader drops its end of the channel.
pub(super) fn serve(
    point: &TransferPoint,
    setup: WorkerSetup,
    worker: &mut EngineWorker,
    (state, stop): (&SharedTrialState, &AtomicBool),
    orders: &Receiver<ThreadOrder>,
    answers: &Sender<Result<ThreadReport>>,
) -> Result<()> {
    if let Some(cpu) = worker.cpu {
        tonnage_machine::pin_thread(cpu)?;
    }
    let index = setup.worker as usize;
    let mut driven = PointEngine::begin(point, (setup.rank, setup.worker), worker)?;
    let mut work = TransferWorker::new(point, setup, driven.engine(), worker, stop)?;
    if answers.send(Ok(ThreadReport::default())).is_ok() {
        while let Ok(order) = orders.recv() {
            let answer = state.follow(index, &mut work, &order);
            if let Err(error) = &answer {
                state.fail(format!("thread {index}: {error}"));
            }
            if answers.send(answer).is_err() {
                break;
            }
        }
    }
    drop(work);
    driven.end(worker);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_loops::testing::{LONG, rested};

    /// Each change for which a resting worker may wait must wake it immediately.
    #[test]
    fn each_change_of_the_shared_state_wakes_a_resting_worker() {
        let (sleepers, stop) = (Arc::new(Sleepers::default()), AtomicBool::new(false));
        let state = SharedTrialState::new(2, Arc::clone(&sleepers));
        let is_over = || state.over.load(Ordering::Acquire);
        type Tells<'a> = (&'a (dyn Fn() -> bool + Sync), &'a (dyn Fn() + Sync));
        let each: [Tells; 3] = [
            (&|| state.all_done_driving(), &|| state.has_driven()),
            (&is_over, &|| state.finish(Vec::new())),
            (&|| state.has_failed(), &|| state.fail("it failed".into())),
        ];
        state.reset(1);
        for (over, action) in each {
            assert!(!over());
            let took = rested(&sleepers, &stop, over, action).unwrap();
            assert!(took < LONG / 2, "{took:?}");
        }
    }
}
