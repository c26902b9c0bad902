//! One point from warm-up to summary. The leader's view: every step is taken by all ranks together, and every decision
//! (another trial? verified?) is made from figures that all ranks share, so that all decide alike.

use std::sync::mpsc::Sender;
use std::time::Instant;

use super::background::WorkerPoints;
use super::crew::{Crew, CrewOrder, CrewReport, Deck};
use super::directions;
use super::driven::Driven;
use super::intervals::Intervals;
use super::measured::{Kept, Measured};
use super::pair_times::PairTimes;
use super::pairs::{PairSum, PairSums};
use super::per_rank::{RankSums, initiators};
use super::stations::{serve, stations};
use super::totals::TrialTotals;
use super::trial::{Issued, Schedule, Station, Turn, WARM_UP};
use super::waits::{deadline_of, left, look_rounds};
use super::work::Work;
use crate::deadlines::DEADLINES;
use crate::drive::recorder::PhaseHistograms;
use crate::failure::{StepFailure, agree, await_first_cause};
use crate::json::Json;
use crate::kinds::kind::{Course, Stage, Steps, When};
use crate::kinds::transfer::verify::Expected;
use crate::limit::{Bound, Measurement};
use crate::opening::engine::OpenEngine;
use crate::wire_proof::{Routes, Watch};
use tonnage_engine::Facts;
use tonnage_plan::transfer::{TransferPoint, TrialLength};
use tonnage_ranks::{Rank, pack, unpack};
use tonnage_record::histogram::LatencyHistogram;
use tonnage_record::spread::ci_narrow_enough;
use tonnage_record::transfer::{InitiatorFigures, PairRate, Trial, TrialBackground};
use tonnage_record::{Record, WireProof};
use tonnage_units::{Error, Reduce, Result};

/// Rounds of warming up while an engine is still trying things out.
const WARM_UP_ROUNDS_MAX: u32 = 20;

/// Makes the workers ready for one point on an open engine, and lets `course` take its steps.
///
/// # Errors
/// [`StepFailure::Point`] when the bytes were wrong: the ranks are in step and can go on. [`StepFailure::Run`] for
/// everything else.
pub fn measure(
    point: &TransferPoint,
    open: &mut OpenEngine,
    stage: &mut Stage<'_>,
    (record, kept): (Option<&Record>, &mut Kept),
    course: Course<'_>,
) -> Result<Measured, StepFailure> {
    let intervals = Intervals::of(point, stage, record, open.moves_bytes);
    let rank = &mut *stage.rank;
    let stop = rank.stopped();
    let background = point.background_point();
    let points = &WorkerPoints::new(point, background.as_ref());
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
        let mut driven = Driven::begin(point, station.rank, worker)?;
        let own = Work::new(point, station, driven.engine(), worker, &stop)?;
        followers.collect()?;
        let mut lead = Lead {
            point,
            points,
            bound: Bound::new(point, &open.opened, rank.id()),
            rank,
            own,
            deck: &deck,
            followers,
            moves_bytes: open.moves_bytes,
            routes: &open.routes,
            intervals,
            taken: Taken::default(),
        };
        let result = lead.run(course);
        if let Err(StepFailure::Run(error)) = &result {
            // The other ranks and this rank's own followers are still polling; the stop flag ends them.
            await_first_cause(lead.rank);
            lead.rank.fail(error);
            lead.deck.finish(Vec::new());
        }
        if result.is_err() {
            kept.broken_off = lead.intervals.break_off();
            kept.trials = std::mem::take(&mut lead.taken.trials);
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
    pub(super) own: Work<'b>,
    deck: &'a Deck,
    followers: Crew,
    pub(super) moves_bytes: bool,
    bound: Bound<'a>,
    routes: &'a Routes,
    intervals: Intervals,
    pub(super) taken: Taken<'a>,
}

/// Results of the steps so far.
#[derive(Default)]
pub(super) struct Taken<'a> {
    before: Option<Measurement>,
    after: Option<Measurement>,
    pub(super) watch: Option<Watch<'a>>,
    totals: Vec<TrialTotals>,
    pub(super) trials: Vec<Trial>,
    converged: Option<bool>,
    pub(super) wire_proof: Option<WireProof>,
    pub(super) histogram: Option<LatencyHistogram>,
    pub(super) phases: Option<PhaseHistograms>,
    chosen: Vec<Facts>,
    pub(super) pairs: PairSums,
    pub(super) times: PairTimes,
    pub(super) rates: Vec<PairRate>,
    pub(super) backgrounds: Vec<TrialBackground>,
    pub(super) idle: Option<LatencyHistogram>,
    own: RankSums,
    initiators: Vec<InitiatorFigures>,
}

impl Lead<'_, '_> {
    fn run(&mut self, course: Course<'_>) -> Result<Measured, StepFailure> {
        self.rank.barrier("begin the point", DEADLINES.step)?;
        course(self)?;
        let taken = std::mem::take(&mut self.taken);
        let histogram = taken
            .histogram
            .ok_or_else(|| Error::Failed("the ranks' latencies were not gathered".into()))?;
        Ok(Measured {
            histogram,
            phases: taken.phases,
            idle: taken.idle,
            why_no_limit: self.bound.why_no_limit(),
            limit: self
                .bound
                .limit(self.rank.hosts(), taken.before, taken.after),
            trials: taken.trials,
            totals: taken.totals,
            converged: taken.converged,
            chosen: taken.chosen,
            wire_proof: taken.wire_proof,
            pairs: taken.rates,
            initiators: taken.initiators,
        })
    }

    /// Returns whether the trials suffice: `None` for another one, else whether they converged.
    fn converged(&self) -> Option<Option<bool>> {
        let length = &self.point.length;
        let trials = &self.taken.trials;
        if trials.len() < length.trials as usize {
            return None;
        }
        let Some(fraction) = length.until_ci else {
            return Some(None);
        };
        let means: Vec<f64> = trials
            .iter()
            .map(|trial| trial.message_rate_per_s)
            .collect();
        if ci_narrow_enough(&means, fraction) {
            return Some(Some(true));
        }
        let elapsed_ns = self.taken.totals.last().map_or(0, |last| last.elapsed_ns);
        (elapsed_ns >= length.max_duration_ns.unwrap_or(u64::MAX)).then_some(Some(false))
    }

    /// Lets the following workers carry out an order that the leader has carried out itself.
    pub(super) fn everybody(&mut self, order: &CrewOrder) -> Result<Vec<CrewReport>> {
        self.followers.order(|_| order.clone())?;
        self.followers.collect()
    }

    /// One trial on all ranks: its rounds, one after the other.
    fn one_trial(
        &mut self,
        trial: u64,
        length: TrialLength,
        name: &str,
    ) -> Result<TrialTotals, StepFailure> {
        if self.point.background.is_some() {
            return self.trial_of_halves(trial, length, name);
        }
        let rounds = self.point.roles().rounds();
        let mut all: Option<TrialTotals> = None;
        for round in 0..rounds {
            // Each round has data of its own.
            let number = match trial {
                WARM_UP => WARM_UP,
                trial => (trial - 1) * u64::from(rounds) + u64::from(round) + 1,
            };
            let totals = self.one_round(Turn::trial(number, round), length, name)?;
            match &mut all {
                Some(before) => before.then(totals),
                None => all = Some(totals),
            }
        }
        Ok(all.unwrap_or(TrialTotals::NONE))
    }

    /// One round on all ranks: data in place, aligned start, drive, wait for all, count, check.
    pub(super) fn one_round(
        &mut self,
        turn: Turn,
        length: TrialLength,
        name: &str,
    ) -> Result<TrialTotals, StepFailure> {
        let Turn {
            number,
            round,
            again,
            is_loaded,
        } = turn;
        self.rank.phase(&format!(
            "{name} of {} {} B",
            self.point.op.name(),
            self.point.size_bytes
        ));
        self.deck.reset(self.point.workers);
        // Turns of single pairs fill and check the memory of all, again and again, and move what trials have proven.
        let checked = self.point.verify && !(again && self.point.loads.is_some());
        self.followers
            .order(|_| CrewOrder::Prepare(number, checked))?;
        let prepared = self.own.prepare(number, checked);
        self.followers.collect()?;
        prepared?;
        let start_ns = self
            .rank
            .aligned_start("start of a trial", DEADLINES.step)?;
        let schedule = Schedule {
            start_ns,
            length,
            number,
            round,
            again,
            is_loaded,
            lead_ns: match is_loaded && self.point.background.is_some() {
                true => Schedule::lead_ns(length),
                false => 0,
            },
        };
        self.intervals
            .begin(&schedule, self.own.port.clock, &self.taken.trials)?;
        self.followers.order(|_| CrewOrder::Trial(schedule))?;
        let driven = self.deck.drive(0, &mut self.own, &schedule);
        self.serve_peers(Instant::now() + deadline_of(length), Deck::all_driven)?;
        let mut totals = driven?;
        self.intervals.driven();
        let expected = self.exchange(length, self.own.has_turn(round))?;
        let own_expected = expected.first().cloned().unwrap_or_default();
        self.deck.finish(expected);
        self.own.finish(&schedule, &own_expected, &mut totals)?;
        let reports = self.followers.collect()?;
        merge(&mut totals, &reports);
        if number != WARM_UP && !again {
            self.taken.own.add(&totals);
        }
        self.count_times(&schedule, &reports);
        self.intervals
            .tell_last(totals.operations, totals.window_ns)?;
        if checked && self.moves_bytes {
            self.verify(&mut totals)?;
        }
        let own = PairSum::of(&totals);
        let all = self.rank.reduce("add up a trial", totals, DEADLINES.step)?;
        if number != WARM_UP {
            self.count_pair((round, again), own, &all);
        }
        Ok(all)
    }

    /// Serves peers until `over`, a following worker's failure, or the deadline; the caller's own wait then names who
    /// is missing.
    ///
    /// # Errors
    /// A failure of this rank's engine or of a following worker, or that the run was stopped.
    fn serve_peers(&mut self, deadline: Instant, over: impl Fn(&Deck) -> bool) -> Result<()> {
        let (deck, mut rounds) = (self.deck, 0u32);
        // The clock is looked at now and then only: this loop answers peers. A sleeper has few rounds.
        let looks_each = look_rounds(self.point);
        self.own.serve_peers(|| {
            rounds = rounds.wrapping_add(1);
            let late = rounds.is_multiple_of(looks_each) && Instant::now() > deadline;
            late || deck.has_failed() || over(deck)
        })?;
        deck.check_failed()
    }

    /// Waits until all ranks have driven their flows, and returns what the local workers should have seen. A rank that
    /// `serves` polls meanwhile; one that has nothing to do leaves the CPU to those that have.
    fn exchange(&mut self, length: TrialLength, serves: bool) -> Result<Vec<Expected>> {
        let deadline = Instant::now() + deadline_of(length);
        let workers = self.point.workers as usize;
        let points: Vec<_> = (0..workers).map(|worker| self.points.of(worker)).collect();
        let is_needed = |point: &&TransferPoint| Expected::is_needed(point, self.moves_bytes);
        if !points.iter().any(is_needed) {
            let pending = self.rank.start_barrier("end of a trial")?;
            self.serve_peers(deadline, |_| !serves || pending.is_done())?;
            self.rank.finish(pending, left(deadline))?;
            return Ok(vec![Expected::default(); workers]);
        }
        let mine = pack(&self.deck.issued())?;
        let pending = self.rank.start_all_gather("end of a trial", &mine)?;
        self.serve_peers(deadline, |_| !serves || pending.is_done())?;
        let all = self.rank.finish_all_gather(pending, left(deadline))?;
        let issued: Vec<Vec<Issued>> = all
            .iter()
            .map(|bytes| unpack(bytes))
            .collect::<Result<_>>()?;
        let expected = points.into_iter().enumerate();
        expected
            .map(|(worker, point)| Expected::new(point, self.rank.id(), worker, &issued))
            .collect()
    }

    fn verify(&mut self, totals: &mut TrialTotals) -> Result<(), StepFailure> {
        self.followers.order(|_| CrewOrder::Check)?;
        let own = self.deck.check(0, &mut self.own);
        let others = self.followers.collect();
        let mine = own.and_then(|own| {
            totals.merge(own);
            merge(totals, &others?);
            Ok(())
        });
        // A wrong byte ends the point, not the run: all ranks hear of it here and stay in step.
        let agreed = agree(self.rank, "verify a trial", mine, DEADLINES.step);
        if let Err(StepFailure::Point(_)) = agreed {
            // Nobody asks by which way wrong bytes came.
            self.taken.watch = None;
        }
        agreed
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
        let (mut rounds, looks_each) = (0u32, look_rounds(self.point));
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
        match when {
            When::Before => self.taken.before = measured,
            When::After => self.taken.after = measured,
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), StepFailure> {
        self.taken.watch = Watch::begin(self.point, self.routes, self.rank.id());
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
        let number = WARM_UP + 1 + self.taken.trials.len() as u64;
        let length = self.point.length.trial;
        let totals = self.one_trial(number, length, &format!("trial {number}"))?;
        let directions = self
            .point
            .bidirectional
            .then(|| directions::of_trial(&totals));
        self.taken.trials.push(Trial {
            directions,
            series: self.intervals.finish(totals.window_ns)?,
            background: self.taken.backgrounds.pop(),
            ..totals.trial(self.point.verify)
        });
        self.taken.totals.push(totals);
        Ok(())
    }

    fn enough(&mut self) -> Result<bool, StepFailure> {
        let enough = self.converged();
        self.taken.converged = enough.flatten();
        if enough.is_some() {
            self.turns_beside()?;
        }
        Ok(enough.is_some())
    }

    /// Leaves nothing posted behind, and looks at what the devices counted until then.
    fn close(&mut self) -> Result<(), StepFailure> {
        self.close_flows()?;
        self.taken.wire_proof = self.prove()?;
        Ok(())
    }

    fn gather(&mut self) -> Result<(), StepFailure> {
        self.gather_latencies()?;
        if self.point.per_rank || self.point.loads.is_some() {
            let own = self.taken.own;
            let all = self.rank.gather("figures of ranks", &own, DEADLINES.step)?;
            self.taken.initiators = initiators(self.point, &all);
        }
        self.gather_pairs()?;
        let chosen = Json(self.own.chosen());
        let all = self
            .rank
            .gather("engine choices", &chosen, DEADLINES.step)?;
        self.taken.chosen = all.into_iter().map(|Json(chosen)| chosen).collect();
        Ok(())
    }
}

fn merge(totals: &mut TrialTotals, reports: &[CrewReport]) {
    for report in reports.iter().filter_map(|report| report.totals.as_ref()) {
        totals.merge(report.clone());
    }
}
