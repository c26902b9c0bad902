//! The steps of one point on its leader, from warm-up to figures. All ranks take every step together. Decisions, such
//! as whether another trial is needed, use only figures that are equal on all ranks. So all ranks decide the same.
//! `rounds` has the rounds of a trial, `pairs` the figures per pair.

use std::sync::mpsc::Sender;

use super::background::WorkerPoints;
use super::intervals::Intervals;
use super::pairs::TrialSums;
use super::path_proof::PathProof;
use super::per_rank::figures_by_initiator;
use super::point_engine::PointEngine;
use super::rank_workers::RankWorkers;
use super::totals::TrialTotals;
use super::transfer_worker::TransferWorker;
use super::trial::{RoundSequence, WARM_UP, WorkerSetup};
use super::worker_threads::{SharedTrialState, ThreadOrder, Threads, serve, worker_setups};
use crate::bound::BoundMeasurement;
use crate::cpu_loss::CpuLossMeter;
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, await_first_cause};
use crate::json::Json;
use crate::kinds::kind::{LimitMoment, Stage, StepRunner, Steps};
use crate::network_paths::PathWatch;
use crate::opening::engine::OpenEngine;
use tonnage_engine::Facts;
use tonnage_loops::recorder::PhaseHistograms;
use tonnage_plan::transfer::{TransferPoint, TrialLength};
use tonnage_ranks::{Distinct, Rank};
use tonnage_record::spread::{GeometricSpread, ci_narrow_enough};
use tonnage_record::transfer::{BrokenOff, InitiatorFigures, PairRate, Trial, TrialBackground};
use tonnage_record::{Bound, Record, WireProof};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::{Error, Result};

/// Maximum number of warm-up rounds, if an engine keeps trying out alternatives.
const WARM_UP_ROUNDS_MAX: u32 = 20;

/// Results of the steps so far. Except for the fields that describe single ranks, they are equal on all ranks.
#[derive(Default)]
pub struct PointResults {
    pub trials: Vec<Trial>,
    /// Totals of the trials, in the same order.
    pub totals: Vec<TrialTotals>,
    /// Intervals of a trial that failed before its end.
    pub broken_off: Option<BrokenOff>,
    /// Latencies over all trials.
    pub histogram: LatencyHistogram,
    /// Latencies of the phases of batches, over all trials.
    pub phases: Option<PhaseHistograms>,
    /// Latencies without load, if there is a background load.
    pub idle: Option<LatencyHistogram>,
    /// Upper bound of the bandwidth.
    pub bound: Option<Bound>,
    /// Why there is no bound, if a reader would expect one.
    pub why_no_bound: Option<String>,
    /// With `until_ci`: whether the confidence interval became narrow enough.
    pub converged: Option<bool>,
    /// On rank 0, choices that each rank's engine made while bytes moved.
    pub chosen: Distinct<Facts>,
    /// Proof of path: counters of the devices that the payload had to cross.
    pub wire_proof: Option<WireProof>,
    /// Rates of the pairs of ranks, if pairs take turns.
    pub pairs: Vec<PairRate>,
    /// Figures of each initiating rank, if requested.
    pub initiators: Vec<InitiatorFigures>,
}

/// Prepares the workers for one point on an open engine, and takes the point's steps by `run_steps`. If the point
/// fails, `measured` has the trials that were completed before. `record` is the record of this point; `None` for a
/// point without its own record.
///
/// # Errors
/// [`StepFailure::Point`] if data were wrong: all ranks are then at the same step and can continue.
/// [`StepFailure::Run`] for any other failure.
pub fn measure(
    point: &TransferPoint,
    open: &mut OpenEngine,
    stage: &mut Stage<'_>,
    record: Option<&Record>,
    measured: &mut PointResults,
    run_steps: StepRunner<'_>,
) -> Result<(), StepFailure> {
    let intervals = Intervals::new(point, stage, record, open.moves_bytes);
    let (rank, cpu, paths) = (&mut *stage.rank, &mut *stage.cpu, &mut *stage.paths);
    let stop = rank.stop_flag();
    let background = point.background_point();
    let points = &WorkerPoints {
        own: point,
        background: background.as_ref(),
    };
    let state = SharedTrialState::new(open.workers.len(), rank.sleepers());
    let worker_setups = worker_setups(point, points, open, rank, &intervals);
    let mut workers = open.workers.iter_mut().zip(worker_setups);
    let (worker, setup) = workers
        .next()
        .ok_or_else(|| Error::Failed("a rank needs at least one thread".into()))?;
    if let Some(cpu) = worker.cpu {
        tonnage_machine::pin_thread(cpu)?;
    }
    std::thread::scope(|scope| {
        let follow = |(worker, setup): (_, WorkerSetup)| {
            let (state, stop) = (&state, &*stop);
            move |orders: &_, answers: &Sender<_>| {
                let point = points.for_worker(setup.worker as usize);
                if let Err(error) = serve(point, setup, worker, (state, stop), orders, answers) {
                    drop(answers.send(Err(error)));
                }
            }
        };
        let followers = Threads::start(scope, 1, workers.map(follow))?;
        let mut driven = PointEngine::begin(point, (setup.rank, setup.worker), worker)?;
        let own = TransferWorker::new(point, setup, driven.engine(), worker, &stop)?;
        followers.collect()?;
        let mut lead = PointLeader {
            workers: RankWorkers {
                rank,
                own,
                points,
                state: &state,
                followers,
                moves_bytes: open.moves_bytes,
            },
            cpu,
            paths,
            bound: BoundMeasurement::new(point, &open.opened),
            proof: PathProof::new(record.map(|_| &open.route)),
            intervals,
            sums: TrialSums::default(),
            found: measured,
        };
        let begun = (lead.workers.rank).barrier("begin the point", DEADLINES.step);
        let begun = begun.map_err(StepFailure::from);
        let result = begun.and_then(|()| run_steps(&mut lead));
        if let Err(StepFailure::Run(error)) = &result {
            // The other ranks and this rank's following threads are still polling. The stop flag ends this.
            await_first_cause(lead.workers.rank);
            lead.workers.rank.fail(error);
            lead.workers.state.finish(Vec::new());
        }
        if result.is_err() {
            lead.found.broken_off = lead.intervals.take_partial_series();
        }
        drop(lead);
        driven.end(worker);
        result
    })
}

/// The leader of a point on this rank: worker 0. It takes the point's steps together with the leaders of other ranks.
pub(super) struct PointLeader<'a, 'b> {
    pub(super) workers: RankWorkers<'a, 'b>,
    pub(super) cpu: &'a mut CpuLossMeter,
    paths: &'a mut PathWatch,
    bound: BoundMeasurement<'a>,
    pub(super) proof: PathProof<'a>,
    pub(super) intervals: Intervals,
    pub(super) sums: TrialSums,
    pub(super) found: &'a mut PointResults,
}

impl PointLeader<'_, '_> {
    /// Returns whether the trials suffice. `None` if another trial is needed. Otherwise, the inner value is whether
    /// they converged; it is `None` if this was not requested.
    fn has_converged(&self) -> Option<Option<bool>> {
        let length = &self.workers.points.own.length;
        let trials = &self.found.trials;
        if trials.len() < length.trials as usize {
            return None;
        }
        let Some(fraction) = length.until_ci else {
            return Some(None);
        };
        if narrow_enough(trials, fraction) {
            return Some(Some(true));
        }
        let elapsed_ns = self.found.totals.last().map_or(0, |last| last.elapsed_ns);
        (elapsed_ns >= length.max_duration_ns.unwrap_or(u64::MAX)).then_some(Some(false))
    }

    /// Runs one trial on all ranks.
    fn run_trial(
        &mut self,
        trial: u64,
        length: TrialLength,
        name: &str,
    ) -> Result<(TrialTotals, Option<TrialBackground>), StepFailure> {
        let point = self.workers.points.own;
        if point.background.is_some() {
            return self.run_trial_in_halves(trial, length, name);
        }
        let rounds = 0..point.roles.round_count();
        let totals = self.run_rounds(&RoundSequence::trial(trial, rounds, length), name)?;
        Ok((totals, None))
    }
}

impl Steps for PointLeader<'_, '_> {
    fn rank(&mut self) -> &mut Rank {
        self.workers.rank
    }

    fn bound(&mut self, when: LimitMoment) -> Result<(), StepFailure> {
        let RankWorkers {
            rank,
            own,
            followers,
            ..
        } = &mut self.workers;
        Ok(self.bound.measure(when, rank, own, followers)?)
    }

    fn prepare(&mut self) -> Result<(), StepFailure> {
        self.proof.begin(&self.workers);
        Ok(())
    }

    /// Moves bytes without timing until the warm-up time is over and all engines have settled. After
    /// [`WARM_UP_ROUNDS_MAX`] rounds, an engine that has not settled keeps its current choice. The record shows this
    /// choice.
    fn warm_up(&mut self) -> Result<(), StepFailure> {
        let warmup_ns = self.workers.points.own.length.warmup_ns;
        if warmup_ns == 0 {
            return Ok(());
        }
        for _ in 0..WARM_UP_ROUNDS_MAX {
            let (totals, _) =
                self.run_trial(WARM_UP, TrialLength::DurationNs(warmup_ns), "warm-up")?;
            if totals.unsettled == 0 {
                break;
            }
        }
        self.workers.own.discard_warm_up();
        self.workers.run_on_followers(&ThreadOrder::Forget)?;
        Ok(())
    }

    fn trial(&mut self) -> Result<(), StepFailure> {
        let number = WARM_UP + 1 + self.found.trials.len() as u64;
        let point = self.workers.points.own;
        let (totals, background) =
            self.run_trial(number, point.length.trial, &format!("trial {number}"))?;
        self.found.trials.push(Trial {
            directions: point.roles.bidirectional.then(|| totals.directions()),
            // The series ends with the last operation. It excludes the flush after it, which moves no bytes.
            series: self
                .intervals
                .finish(totals.window_ns.saturating_sub(totals.flush_ns))?,
            background,
            ..totals.to_record(point.verify.is_on())
        });
        self.found.totals.push(totals);
        Ok(())
    }

    fn enough(&mut self) -> Result<bool, StepFailure> {
        let enough = self.has_converged();
        self.found.converged = enough.flatten();
        if enough.is_some() {
            self.run_extra_turns()?;
        }
        Ok(enough.is_some())
    }

    /// Uses up everything that is posted, and reads the counters of the devices.
    fn close(&mut self) -> Result<(), StepFailure> {
        self.workers.close()?;
        self.paths.read_sockets();
        self.found.wire_proof = self.proof.conclude(&mut self.workers)?;
        Ok(())
    }

    fn gather(&mut self) -> Result<(), StepFailure> {
        // The time limit of the run may have ended the trials.
        let until_ci = self.workers.points.own.length.until_ci;
        self.found.converged = self.found.converged.or(until_ci.map(|_| false));
        (self.found.histogram, self.found.phases) = self.workers.latencies()?;
        let point = self.workers.points.own;
        if point.per_rank || point.loads.is_some() {
            let (rank, own) = (&mut *self.workers.rank, &self.sums.own);
            let all = rank.collect("figures of ranks", own, DEADLINES.step)?;
            self.found.initiators = figures_by_initiator(point, &all);
        }
        self.collect_pairs()?;
        let chosen = Json(self.workers.own.driver.chosen());
        let rank = &mut *self.workers.rank;
        let all = rank.collect("engine choices", &chosen, DEADLINES.step)?;
        self.found.chosen = all.map(|Json(chosen)| chosen);
        self.found.why_no_bound = self.bound.why_no_bound();
        self.found.bound = self.bound.bound(self.workers.rank.hosts());
        Ok(())
    }
}

/// Returns whether the confidence interval is narrow enough. With a background, this means the interval of the ratio of
/// median latencies: the measurement is not about the load's rate, and a paced rate is fixed. Otherwise, it means the
/// interval of the message rate.
fn narrow_enough(trials: &[Trial], fraction: f64) -> bool {
    let loads = trials.iter().filter_map(|trial| trial.background.as_ref());
    let ratios: Vec<f64> = loads.map(TrialBackground::ratio_p50).collect();
    if let Some(ratio) = GeometricSpread::from_values(&ratios) {
        return ratio.is_narrow(ratios.len(), fraction);
    }
    let rates = trials.iter().map(|trial| trial.message_rate_per_s);
    ci_narrow_enough(&rates.collect::<Vec<_>>(), fraction)
}
