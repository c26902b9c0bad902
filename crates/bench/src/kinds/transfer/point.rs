//! One point from warm-up to its figures. The leader's view: every step is taken by all ranks together, and every
//! decision (another trial? verified?) is made from figures that all ranks share, so that all decide alike. The rounds of
//! a trial are in `rounds`, what is counted of pairs in `pairs`.

use std::sync::mpsc::Sender;
use std::time::Instant;

use super::background::WorkerPoints;
use super::crew::{Crew, CrewOrder, CrewReport, Deck, serve, stations};
use super::driven::Driven;
use super::intervals::Intervals;
use super::pairs::{PairSums, PairTimes};
use super::per_rank::{RankSums, initiators};
use super::rounds::left;
use super::totals::TrialTotals;
use super::trial::{RoundStretch, Station, WARM_UP};
use super::work::Work;
use crate::cpu_time::CpuTime;
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, await_first_cause};
use crate::json::Json;
use crate::kinds::kind::{Course, Stage, Steps, When};
use crate::latencies::merge_all;
use crate::limit::{Bound, Measurement};
use crate::network_paths::PathWatch;
use crate::opening::engine::OpenEngine;
use crate::wire_proof::{RouteShare, Watch};
use tonnage_engine::Facts;
use tonnage_loops::recorder::PhaseHistograms;
use tonnage_plan::transfer::{TransferPoint, TrialLength};
use tonnage_ranks::{Alike, Rank};
use tonnage_record::spread::{GeometricSpread, ci_narrow_enough};
use tonnage_record::transfer::{BrokenOff, InitiatorFigures, PairRate, Trial, TrialBackground};
use tonnage_record::{Limit, Record, WireProof};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::{Error, Reduce, Result};

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
    let deck = Deck::new(open.workers.len(), rank.sleepers());
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
            let (deck, stop) = (&deck, &*stop);
            move |orders: &_, answers: &Sender<_>| {
                let point = points.of(station.worker as usize);
                if let Err(error) = serve(point, station, worker, (deck, stop), orders, answers) {
                    drop(answers.send(Err(error)));
                }
            }
        };
        let followers = Crew::start(scope, 1, workers.map(follow))?;
        let mut driven = Driven::begin(point, (station.rank, station.worker), worker)?;
        let own = Work::new(point, station, driven.engine(), worker, &stop)?;
        followers.collect()?;
        let mut lead = Lead {
            point,
            points,
            bound: Bound::new(point, &open.opened),
            rank,
            cpu,
            paths,
            own,
            deck: &deck,
            followers,
            moves_bytes: open.moves_bytes,
            route: &open.route,
            is_recorded: record.is_some(),
            intervals,
            limits: [None, None],
            watch: None,
            pairs: PairSums::default(),
            times: PairTimes::default(),
            background: None,
            own_sums: RankSums::default(),
            found: measured,
        };
        let result = lead.run(course);
        if let Err(StepFailure::Run(error)) = &result {
            // The other ranks and this rank's own followers are still polling; the stop flag ends them.
            await_first_cause(lead.rank);
            lead.rank.fail(error);
            lead.deck.finish(Vec::new());
        }
        if result.is_err() {
            lead.found.broken_off = lead.intervals.break_off();
        }
        drop(lead);
        driven.end(worker);
        result
    })
}

/// The leader: worker 0 with the ranks' control channel.
pub(super) struct Lead<'a, 'b> {
    pub(super) point: &'a TransferPoint,
    pub(super) points: &'a WorkerPoints<'a>,
    pub(super) rank: &'a mut Rank,
    pub(super) cpu: &'a mut CpuTime,
    paths: &'a mut PathWatch,
    pub(super) own: Work<'b>,
    pub(super) deck: &'a Deck,
    pub(super) followers: Crew,
    pub(super) moves_bytes: bool,
    bound: Bound<'a>,
    route: &'a RouteShare,
    /// Only the path of a recorded point is proven.
    is_recorded: bool,
    pub(super) intervals: Intervals,
    /// Measured before the trials and after them.
    limits: [Option<Measurement>; 2],
    pub(super) watch: Option<Watch<'a>>,
    pub(super) pairs: PairSums,
    pub(super) times: PairTimes,
    /// That of the last trial.
    pub(super) background: Option<TrialBackground>,
    /// Sums of this rank's own workers.
    pub(super) own_sums: RankSums,
    pub(super) found: &'a mut Measured,
}

impl Lead<'_, '_> {
    fn run(&mut self, course: Course<'_>) -> Result<(), StepFailure> {
        self.rank.barrier("begin the point", DEADLINES.step)?;
        course(self)?;
        let [before, after] = std::mem::take(&mut self.limits);
        self.found.why_no_limit = self.bound.why_no_limit();
        self.found.limit = self.bound.limit(self.rank.hosts(), before, after);
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

    /// Lets the following workers carry out an order that the leader has carried out itself.
    pub(super) fn everybody(&mut self, order: &CrewOrder) -> Result<Vec<CrewReport>> {
        self.followers.order(|_| order.clone())?;
        self.followers.collect()
    }

    /// One trial on all ranks.
    fn one_trial(
        &mut self,
        trial: u64,
        length: TrialLength,
        name: &str,
    ) -> Result<TrialTotals, StepFailure> {
        if self.point.background.is_some() {
            return self.trial_of_halves(trial, length, name);
        }
        let rounds = 0..self.point.roles.rounds();
        self.stretch(&RoundStretch::trial(trial, rounds, length), name)
    }

    /// Serves peers until `over`, a following worker's failure, or the deadline; the caller's own wait then names who
    /// is missing.
    pub(super) fn serve_peers(
        &mut self,
        deadline: Instant,
        over: impl Fn(&Deck) -> bool,
    ) -> Result<()> {
        let (deck, mut rounds) = (self.deck, 0u32);
        // The clock is looked at now and then only: this loop answers peers. A sleeper has few rounds.
        let looks_each = self.own.look_rounds();
        self.own.serve_peers(|| {
            rounds = rounds.wrapping_add(1);
            let late = rounds.is_multiple_of(looks_each) && Instant::now() > deadline;
            late || deck.has_failed() || over(deck)
        })?;
        deck.check_failed()
    }

    /// Proves that the payload crossed the devices that the engines named, by what their hosts read.
    fn prove(&mut self) -> Result<Option<WireProof>> {
        let Some(watch) = self.watch.take() else {
            return Ok(None);
        };
        self.rank.phase("reading the devices' counters");
        let mut loads = watch.loads(self.point, &self.own.operations());
        let reports = self.everybody(&CrewOrder::Operations)?;
        for (worker, report) in (1..).zip(&reports) {
            loads.merge(watch.loads(self.points.of(worker), &report.operations));
        }
        let loads = self
            .rank
            .reduce("payload of devices", loads, DEADLINES.step)?;
        let mine = watch.judge(&loads);
        let all = self
            .rank
            .reduce("counters of devices", mine, DEADLINES.step)?;
        Ok(Some(watch.conclude(all)))
    }

    /// Merges the latencies of all workers of all ranks.
    fn gather_latencies(&mut self) -> Result<()> {
        let mut histogram = self.own.latencies().of_point().clone();
        let mut phases = self.own.latencies().phases().cloned();
        for report in self.everybody(&CrewOrder::Latencies)? {
            if let Some(latencies) = &report.latencies {
                histogram.merge(latencies);
            }
            if let (Some(phases), Some(others)) = (&mut phases, &report.phases) {
                phases.merge(others);
            }
        }
        let mut merged = |own| merge_all(self.rank, "merge histograms", own, DEADLINES.step);
        self.found.histogram = merged(&histogram)?;
        if let Some(phases) = &phases {
            self.found.phases = Some(PhaseHistograms {
                prepare: merged(&phases.prepare)?,
                post: merged(&phases.post)?,
                complete: merged(&phases.complete)?,
            });
        }
        Ok(())
    }

    /// Leaves nothing posted behind for the next point.
    fn close_flows(&mut self) -> Result<()> {
        self.rank.phase("closing a point");
        self.rank.barrier("close the point", DEADLINES.step)?;
        self.deck.reset(self.point.workers.saturating_sub(1));
        self.followers.order(|_| CrewOrder::Close)?;
        let closed = self.own.close();
        let deck = self.deck;
        self.own
            .poll_until(|| deck.all_driven() || deck.has_failed())?;
        deck.check_failed()?;
        closed?;
        let pending = self.rank.start_barrier("point closed")?;
        let deadline = Instant::now() + DEADLINES.step;
        let (mut rounds, looks_each) = (0u32, self.own.look_rounds());
        self.own.poll_until(|| {
            rounds = rounds.wrapping_add(1);
            let late = rounds.is_multiple_of(looks_each) && Instant::now() > deadline;
            late || deck.has_failed() || pending.is_done()
        })?;
        deck.check_failed()?;
        self.rank.finish(pending, left(deadline))?;
        self.deck.finish(Vec::new());
        self.followers.collect().map(|_| ())
    }
}

impl Steps for Lead<'_, '_> {
    fn limit(&mut self, when: When) -> Result<(), StepFailure> {
        let measured = self
            .bound
            .measure(self.rank, &mut self.own, &self.followers)?;
        self.limits[usize::from(when == When::After)] = measured;
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), StepFailure> {
        if self.is_recorded {
            self.watch = Watch::begin(self.point, self.route, self.rank.id());
        }
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
            let totals = self.one_trial(WARM_UP, TrialLength::DurationNs(warmup_ns), "warm-up")?;
            if totals.unsettled == 0 {
                break;
            }
        }
        self.own.forget();
        self.everybody(&CrewOrder::Forget)?;
        Ok(())
    }

    fn trial(&mut self) -> Result<(), StepFailure> {
        let number = WARM_UP + 1 + self.found.trials.len() as u64;
        let length = self.point.length.trial;
        let totals = self.one_trial(number, length, &format!("trial {number}"))?;
        self.found.trials.push(Trial {
            directions: self.point.roles.bidirectional.then(|| totals.directions()),
            // Intervals end with what moved bytes: a flush behind it moves none.
            series: self
                .intervals
                .finish(totals.window_ns.saturating_sub(totals.flush_ns))?,
            background: self.background.take(),
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
        self.close_flows()?;
        self.paths.look();
        self.found.wire_proof = self.prove()?;
        Ok(())
    }

    fn gather(&mut self) -> Result<(), StepFailure> {
        self.gather_latencies()?;
        if self.point.per_rank || self.point.loads.is_some() {
            let what = "figures of ranks";
            let all = self.rank.collect(what, &self.own_sums, DEADLINES.step)?;
            self.found.initiators = initiators(self.point, &all);
        }
        self.collect_pairs()?;
        let chosen = Json(self.own.chosen());
        let all = self
            .rank
            .collect("engine choices", &chosen, DEADLINES.step)?;
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
