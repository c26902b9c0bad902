//! One point from warm-up to its figures. The leader's view: every step is taken by all ranks together, and every
//! decision (another trial? verified?) is made from figures that all ranks share, so that all decide alike. The rounds of
//! a trial are in `rounds`, what is counted of pairs in `pairs`.

use std::sync::mpsc::Sender;

use super::background::WorkerPoints;
use super::driven::Driven;
use super::intervals::Intervals;
use super::pairs::TrialSums;
use super::path_proof::PathProof;
use super::per_rank::initiators;
use super::rank_workers::RankWorkers;
use super::totals::TrialTotals;
use super::trial::{RoundStretch, Station, WARM_UP};
use super::work::Work;
use super::worker_threads::{SharedTrialState, ThreadOrder, Threads, serve, stations};
use crate::cpu_time::CpuTime;
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, await_first_cause};
use crate::json::Json;
use crate::kinds::kind::{Course, Stage, Steps, When};
use crate::limit::Bound;
use crate::network_paths::PathWatch;
use crate::opening::engine::OpenEngine;
use tonnage_engine::Facts;
use tonnage_loops::recorder::PhaseHistograms;
use tonnage_plan::transfer::{TransferPoint, TrialLength};
use tonnage_ranks::Alike;
use tonnage_record::spread::{GeometricSpread, ci_narrow_enough};
use tonnage_record::transfer::{BrokenOff, InitiatorFigures, PairRate, Trial, TrialBackground};
use tonnage_record::{Limit, Record, WireProof};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::{Error, Result};

/// Rounds of warming up while an engine is still trying things out.
const WARM_UP_ROUNDS_MAX: u32 = 20;

/// Results of a point's steps so far; of all of them once they have ended. The same on all ranks but for what describes
/// them.
#[derive(Default)]
pub struct Measured {
    pub trials: Vec<Trial>,
    /// Those of the trials.
    pub totals: Vec<TrialTotals>,
    /// Intervals of the trial that did not end.
    pub broken_off: Option<BrokenOff>,
    /// All latencies.
    pub histogram: LatencyHistogram,
    /// Those of the phases of batches.
    pub phases: Option<PhaseHistograms>,
    /// Latencies without the background, where there was one.
    pub idle: Option<LatencyHistogram>,
    /// Upper bound of the bandwidth.
    pub limit: Option<Limit>,
    /// The reason why it is not known, where one would look for it.
    pub why_no_limit: Option<String>,
    /// True when the interval became narrow enough, with `until_ci`.
    pub converged: Option<bool>,
    /// Choices that each rank's engine made by itself, at rank 0.
    pub chosen: Alike<Facts>,
    /// Counts of the devices that the payload had to cross.
    pub wire_proof: Option<WireProof>,
    /// Each pair, where they take turns.
    pub pairs: Vec<PairRate>,
    /// Each initiating rank, where that was asked for.
    pub initiators: Vec<InitiatorFigures>,
}

/// Makes the workers ready for one point on an open engine, and lets `course` take its steps. Of a point that fails,
/// `measured` has the trials that ended before. `record` is the point's, if it has one of its own.
///
/// # Errors
/// [`StepFailure::Point`] when the bytes were wrong: the ranks are in step and can go on. [`StepFailure::Run`] for
/// everything else.
pub fn measure(
    point: &TransferPoint,
    open: &mut OpenEngine,
    stage: &mut Stage<'_>,
    record: Option<&Record>,
    measured: &mut Measured,
    course: Course<'_>,
) -> Result<(), StepFailure> {
    let intervals = Intervals::of(point, stage, record, open.moves_bytes);
    let (rank, cpu, paths) = (&mut *stage.rank, &mut *stage.cpu, &mut *stage.paths);
    let stop = rank.stopped();
    let background = point.background_point();
    let points = &WorkerPoints {
        own: point,
        background: background.as_ref(),
    };
    let state = SharedTrialState::new(open.workers.len(), rank.sleepers());
    let stations = stations(point, points, open, rank, &intervals);
    let mut workers = open.workers.iter_mut().zip(stations);
    let (worker, station) = workers
        .next()
        .ok_or_else(|| Error::Failed("a rank needs at least one worker".into()))?;
    if let Some(cpu) = worker.cpu {
        tonnage_machine::pin_thread(cpu)?;
    }
    std::thread::scope(|scope| {
        let follow = |(worker, station): (_, Station)| {
            let (state, stop) = (&state, &*stop);
            move |orders: &_, answers: &Sender<_>| {
                let point = points.of(station.worker as usize);
                if let Err(error) = serve(point, station, worker, (state, stop), orders, answers) {
                    drop(answers.send(Err(error)));
                }
            }
        };
        let followers = Threads::start(scope, 1, workers.map(follow))?;
        let mut driven = Driven::begin(point, (station.rank, station.worker), worker)?;
        let own = Work::new(point, station, driven.engine(), worker, &stop)?;
        followers.collect()?;
        let mut lead = Lead {
            point,
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
            bound: Bound::new(point, &open.opened),
            proof: PathProof::new(record.map(|_| &open.route)),
            intervals,
            sums: TrialSums::default(),
            found: measured,
        };
        let result = lead.run(course);
        if let Err(StepFailure::Run(error)) = &result {
            // The other ranks and this rank's own followers are still polling; the stop flag ends them.
            await_first_cause(lead.workers.rank);
            lead.workers.rank.fail(error);
            lead.workers.state.finish(Vec::new());
        }
        if result.is_err() {
            lead.found.broken_off = lead.intervals.break_off();
        }
        drop(lead);
        driven.end(worker);
        result
    })
}

/// The leader: worker 0, which takes the steps of a point with the other ranks.
pub(super) struct Lead<'a, 'b> {
    pub(super) point: &'a TransferPoint,
    pub(super) workers: RankWorkers<'a, 'b>,
    pub(super) cpu: &'a mut CpuTime,
    paths: &'a mut PathWatch,
    bound: Bound<'a>,
    pub(super) proof: PathProof<'a>,
    pub(super) intervals: Intervals,
    pub(super) sums: TrialSums,
    pub(super) found: &'a mut Measured,
}

impl Lead<'_, '_> {
    fn run(&mut self, course: Course<'_>) -> Result<(), StepFailure> {
        let rank = &mut *self.workers.rank;
        rank.barrier("begin the point", DEADLINES.step)?;
        course(self)?;
        self.found.why_no_limit = self.bound.why_no_limit();
        self.found.limit = self.bound.limit(self.workers.rank.hosts());
        Ok(())
    }

    /// Returns whether the trials suffice: `None` for another one, else whether they converged.
    fn converged(&self) -> Option<Option<bool>> {
        let length = &self.point.length;
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

    /// One trial on all ranks.
    fn one_trial(
        &mut self,
        trial: u64,
        length: TrialLength,
        name: &str,
    ) -> Result<(TrialTotals, Option<TrialBackground>), StepFailure> {
        if self.point.background.is_some() {
            return self.trial_of_halves(trial, length, name);
        }
        let rounds = 0..self.point.roles.rounds();
        let totals = self.stretch(&RoundStretch::trial(trial, rounds, length), name)?;
        Ok((totals, None))
    }
}

impl Steps for Lead<'_, '_> {
    fn limit(&mut self, when: When) -> Result<(), StepFailure> {
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

    /// Moves bytes untimed until so much time has passed and all engines know how they want to move them. An engine
    /// that does not find out within some rounds goes on with what it has, and its record says what that is.
    fn warm_up(&mut self) -> Result<(), StepFailure> {
        let warmup_ns = self.point.length.warmup_ns;
        if warmup_ns == 0 {
            return Ok(());
        }
        for _ in 0..WARM_UP_ROUNDS_MAX {
            let (totals, _) =
                self.one_trial(WARM_UP, TrialLength::DurationNs(warmup_ns), "warm-up")?;
            if totals.unsettled == 0 {
                break;
            }
        }
        self.workers.own.forget();
        self.workers.everybody(&ThreadOrder::Forget)?;
        Ok(())
    }

    fn trial(&mut self) -> Result<(), StepFailure> {
        let number = WARM_UP + 1 + self.found.trials.len() as u64;
        let length = self.point.length.trial;
        let (totals, background) = self.one_trial(number, length, &format!("trial {number}"))?;
        self.found.trials.push(Trial {
            directions: self.point.roles.bidirectional.then(|| totals.directions()),
            // Intervals end with what moved bytes: a flush behind it moves none.
            series: self
                .intervals
                .finish(totals.window_ns.saturating_sub(totals.flush_ns))?,
            background,
            ..totals.trial(self.point.verify.is_on())
        });
        self.found.totals.push(totals);
        Ok(())
    }

    fn enough(&mut self) -> Result<bool, StepFailure> {
        let enough = self.converged();
        self.found.converged = enough.flatten();
        if enough.is_some() {
            self.turns_beside()?;
        }
        Ok(enough.is_some())
    }

    /// Leaves nothing posted behind, and looks at what the devices counted until then.
    fn close(&mut self) -> Result<(), StepFailure> {
        self.workers.close()?;
        self.paths.look();
        self.found.wire_proof = self.proof.conclude(&mut self.workers)?;
        Ok(())
    }

    fn gather(&mut self) -> Result<(), StepFailure> {
        (self.found.histogram, self.found.phases) = self.workers.latencies()?;
        if self.point.per_rank || self.point.loads.is_some() {
            let (rank, own) = (&mut *self.workers.rank, &self.sums.own);
            let all = rank.collect("figures of ranks", own, DEADLINES.step)?;
            self.found.initiators = initiators(self.point, &all);
        }
        self.collect_pairs()?;
        let chosen = Json(self.workers.own.chosen());
        let rank = &mut *self.workers.rank;
        let all = rank.collect("engine choices", &chosen, DEADLINES.step)?;
        self.found.chosen = all.map(|Json(chosen)| chosen);
        Ok(())
    }
}

/// Returns whether the interval of what the trials are about is narrow enough: the message rate, or beside a background
/// the ratio of the medians, because the rate of the load is another matter and that of an open loop is given.
fn narrow_enough(trials: &[Trial], fraction: f64) -> bool {
    let loads = trials.iter().filter_map(|trial| trial.background.as_ref());
    let ratios: Vec<f64> = loads.map(TrialBackground::ratio_p50).collect();
    if let Some(ratio) = GeometricSpread::of(&ratios) {
        return ratio.is_narrow(ratios.len(), fraction);
    }
    let rates = trials.iter().map(|trial| trial.message_rate_per_s);
    ci_narrow_enough(&rates.collect::<Vec<_>>(), fraction)
}
