//! The steps of a collective point. All backends are prepared, warm up, and then take turns with their trials. A
//! backend that fails drops out with its reason, and the others continue.

use super::OpenBackend;
use super::backend::{Backend, CallOrder};
use super::contestant::{Contestant, RankFigures};
use super::data::RankData;
use super::trial_times::{combine, slowest};
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree, outcome};
use crate::kinds::kind::{LimitMoment, Stage, Steps};
use crate::observer::TrialCalls;
use tonnage_loops::calls::CallSpan;
use tonnage_plan::collective::{Align, CollectivePoint, Refill};
use tonnage_plan::point::BoundChoice;
use tonnage_plan::transfer::TrialLength;
use tonnage_ranks::{Rank, RankGroup};
use tonnage_record::spread::spread;
use tonnage_record::{CollectiveBody, Outcome};
use tonnage_units::{Error, Result};

/// Maximum number of iterations in a trial with a given duration. More iterations would add no information, but the
/// time of each one takes memory.
const ITERATIONS_MAX: u64 = 20_000;

/// The last run of a warm-up takes at least 1/`PART` of a trial, if data are written once per trial.
const PART: u64 = 8;

/// Factor by which the iterations of a run grow, until the run takes 1/`PART` of a trial.
const GROWTH: u64 = 8;

/// Number of call times per message, if each call is printed. The control channel limits a message to 64 KiB per rank.
const CALLS_PER_MESSAGE: usize = 2048;

/// The backends of a point.
pub struct BackendContest<'a, 'b> {
    point: &'a CollectivePoint,
    stage: &'a mut Stage<'b>,
    contestants: Vec<Contestant<'a>>,
    /// Start and end of each iteration in the running trial.
    spans: Vec<CallSpan>,
    /// Total time of all trials so far. It is the same on all ranks.
    taken_ns: u64,
}

impl<'a, 'b> BackendContest<'a, 'b> {
    /// The contest of a point's backends.
    pub fn new(
        point: &'a CollectivePoint,
        open: &'a mut [OpenBackend],
        stage: &'a mut Stage<'b>,
    ) -> Self {
        let contestant = |it: &'a mut OpenBackend| {
            let backend = match &mut it.backend {
                Ok(backend) => Ok(&mut **backend as &mut dyn Backend),
                Err(ended) => Err(ended.clone()),
            };
            Contestant::new(&it.name, backend)
        };
        Self {
            contestants: open.iter_mut().map(contestant).collect(),
            spans: Vec::new(),
            taken_ns: 0,
            point,
            stage,
        }
    }

    /// Returns the record's body. Also returns the point's failure, if no backend completed or one gave wrong results.
    pub fn into_parts(self) -> (CollectiveBody, Option<Error>) {
        let failed = failure(&self.contestants);
        let point = self.point;
        let records = self.contestants.into_iter();
        let body = CollectiveBody {
            point: point.clone(),
            backends: records.map(|it| it.into_record(point)).collect(),
        };
        (body, failed)
    }

    /// Lets each remaining backend take a step. A backend that fails drops out.
    fn step_each_backend(
        &mut self,
        what: &str,
        mut step: impl FnMut(&mut BackendTurn<'_, 'a, 'b>) -> Result<(), StepFailure>,
    ) -> Result<(), StepFailure> {
        for contestant in &mut self.contestants {
            if contestant.ended.is_some() {
                continue;
            }
            let (op, name) = (self.point.op, contestant.name);
            self.stage
                .rank
                .set_phase(&format!("{what} of {op} by {name}"));
            let mut turn = BackendTurn {
                point: self.point,
                stage: self.stage,
                contestant,
                spans: &mut self.spans,
            };
            match step(&mut turn) {
                Err(StepFailure::Point(error)) => {
                    contestant.ended = Some(outcome(&error));
                    contestant.backend = None;
                }
                other => other?,
            }
        }
        if self.contestants.iter().all(|it| it.ended.is_some()) {
            let none = || Error::Failed("the point has no backend".into());
            return Err(StepFailure::Point(
                failure(&self.contestants).unwrap_or_else(none),
            ));
        }
        Ok(())
    }

    /// Whether the confidence interval of every remaining backend is as narrow as the user requested.
    fn converged(&self, until_ci: f64) -> bool {
        let left = self.contestants.iter().filter(|it| it.ended.is_none());
        let mut fractions = left.map(|it| {
            let times = spread(&it.times_ns(self.point.across));
            times.ci95_fraction()
        });
        fractions.all(|fraction| fraction.is_some_and(|fraction| fraction <= until_ci))
    }
}

/// The state of one backend while it takes a step.
struct BackendTurn<'t, 'a, 'b> {
    point: &'a CollectivePoint,
    stage: &'t mut Stage<'b>,
    contestant: &'t mut Contestant<'a>,
    spans: &'t mut Vec<CallSpan>,
}

/// Returns the failure of a point: the first backend that failed or gave wrong results. If no backend failed but all
/// have ended, returns the reason of the first one that was skipped.
fn failure(contestants: &[Contestant<'_>]) -> Option<Error> {
    let ended = || {
        contestants
            .iter()
            .filter_map(|it| Some((it.name, it.ended.as_ref()?)))
    };
    let failed = ended().find_map(|(name, ended)| match ended {
        Outcome::Failed { why } => Some(Error::Failed(format!("{name}: {why}"))),
        _ => None,
    });
    let all = contestants.iter().all(|it| it.ended.is_some());
    let skipped = ended().find_map(|(name, ended)| match ended {
        Outcome::Skipped { why } if all => Some(Error::Unavailable {
            what: format!("collectives by {name}"),
            why: why.clone(),
            how: "Choose another --backend".into(),
        }),
        _ => None,
    });
    failed.or(skipped)
}

impl BackendTurn<'_, '_, '_> {
    fn backend(&mut self) -> Result<&mut dyn Backend> {
        let gone = || Error::Failed("a backend was used after its end".into());
        match &mut self.contestant.backend {
            Some(backend) => Ok(&mut **backend),
            None => Err(gone()),
        }
    }

    fn in_place(&self) -> bool {
        self.contestant.prepared.is_some_and(|it| it.in_place)
    }

    fn data(&self) -> Result<RankData> {
        RankData::new(self.point, self.stage.rank.id(), self.in_place())
    }

    /// Measures the bound, and keeps the larger of the values before and after the trials.
    fn bound(&mut self) -> Result<(), StepFailure> {
        let (point, stage) = (self.point, &mut *self.stage);
        let Some(backend) = &mut self.contestant.backend else {
            return Ok(());
        };
        let measured = backend.bound(point, stage)?;
        let all = self.contestant.bound.take().into_iter().chain(measured);
        self.contestant.bound =
            all.max_by(|one, other| one.bytes_per_s.total_cmp(&other.bytes_per_s));
        Ok(())
    }

    /// Prepares the backend, and checks the result of a first call.
    fn prepare(&mut self) -> Result<(), StepFailure> {
        let point = self.point;
        let (stage, contestant) = (&mut *self.stage, &mut *self.contestant);
        if let Some(backend) = &mut contestant.backend {
            contestant.prepared = Some(backend.prepare(point, stage)?);
        }
        self.run(1, true).map(drop)
    }

    /// Lets the backend choose its algorithm. If the backend tried several, checks a result with the choice. Then makes
    /// calls until the warm-up is over.
    fn warm_up(&mut self) -> Result<(), StepFailure> {
        let data = self.data()?;
        let (stage, contestant) = (&mut *self.stage, &mut *self.contestant);
        let tried = contestant.calls;
        if let Some(backend) = &mut contestant.backend {
            let first = contestant.calls;
            let mut calls = first;
            let mut fill = |buffers: &_| {
                calls += 1;
                data.fill(calls, buffers)
            };
            contestant.choice = backend.choose(&mut fill, stage)?;
            // All ranks make the same number of calls while they choose.
            contestant.calls = calls;
        }
        if self.contestant.calls > tried {
            // The first, checked call may have used another algorithm, so another call is checked. Its bytes don't
            // count, so that the number of verified bytes doesn't depend on whether there was a choice.
            let counted = self.contestant.verified_bytes;
            self.run(1, true)?;
            self.contestant.verified_bytes = counted;
        }
        let most = self.repeats_max()?.min(ITERATIONS_MAX);
        let mut warmed_ns = 0;
        let mut iterations = 1;
        loop {
            let took = self.run(iterations, false)?;
            self.contestant.turn_ns = took.turn_ns;
            warmed_ns += took.whole_ns;
            let trial = (self.point.refill, self.point.length.trial);
            let growth = match is_long_enough(trial, iterations, took.turn_ns) || iterations >= most
            {
                true if warmed_ns >= self.point.length.warmup_ns => return Ok(()),
                true => 2,
                false => GROWTH,
            };
            iterations = (iterations * growth).min(most);
        }
    }

    /// Returns the largest number of iterations per run. In place, each iteration continues with the result of the
    /// previous one. The values must then stay within the range of their type.
    fn repeats_max(&self) -> Result<u64> {
        if self.in_place() && self.point.refill == Refill::Trial {
            return Ok(self.data()?.repeats_max().max(1));
        }
        Ok(u64::MAX)
    }

    /// Returns the number of iterations of the next trial.
    fn iterations(&self) -> Result<u64> {
        let asked = match self.point.length.trial {
            TrialLength::Iterations(iterations) => iterations,
            TrialLength::DurationNs(ns) => {
                (ns / self.contestant.turn_ns.max(1)).clamp(1, ITERATIONS_MAX)
            }
        };
        Ok(asked.min(self.repeats_max()?))
    }

    fn trial(&mut self) -> Result<(), StepFailure> {
        let iterations = self.iterations()?;
        // In place, later calls use the results of earlier ones as inputs. The expected result is then unknown, so a
        // single further call is checked below.
        let repeats = self.in_place() && self.point.refill == Refill::Trial && iterations > 1;
        let clock = self.stage.settings.clock;
        let begin_ns = clock.now_ns();
        self.stage.cpu.begin(&[]);
        self.run(iterations, self.point.verify && !repeats)?;
        self.stage.cpu.end(clock.now_ns().saturating_sub(begin_ns));
        let aligned = self.point.align == Align::Barrier;
        let ranks = (self.stage.rank.size(), self.point.shape().ranks);
        let spans = std::mem::take(self.spans);
        let group = self.rank_group();
        let times = combine(&spans, group.as_ref(), self.stage.rank)?;
        let own: u64 = spans.iter().map(CallSpan::took_ns).sum();
        let own_ns = own as f64 / iterations as f64;
        self.contestant
            .add_trial(iterations, ranks, &times, own_ns, aligned);
        if self.point.each {
            self.report_calls(&spans)?;
        }
        *self.spans = spans;
        if self.point.verify && repeats {
            self.run(1, true)?;
        }
        Ok(())
    }

    /// Returns the group of this rank; `None` if all ranks form one group.
    fn rank_group(&self) -> Option<RankGroup> {
        let grouping = self.point.grouping();
        let position = grouping.position(self.stage.rank.id());
        let turn = u64::from(position.group) + 1;
        (grouping.count() > 1).then(|| RankGroup::new(turn, position.members()))
    }

    /// Reports the times of a trial's calls to the observer, for every call and every rank.
    fn report_calls(&mut self, spans: &[CallSpan]) -> Result<()> {
        let has_results = self.contestant.prepared.is_some_and(|it| it.has_results);
        let size_bytes = self.point.shape().size_bytes();
        for block in spans.chunks(CALLS_PER_MESSAGE) {
            let mine: Vec<u64> = block.iter().map(CallSpan::took_ns).collect();
            let rank = &mut *self.stage.rank;
            let took_ns = rank.collect("times of each call", &mine, DEADLINES.step)?;
            if rank.id() != 0 {
                continue;
            }
            let took_ns = took_ns.iter().cloned().collect();
            self.stage.observer.print_calls(&TrialCalls {
                backend: (self.point.backends.len() > 1).then_some(self.contestant.name),
                size_bytes: (has_results && size_bytes > 0).then_some(size_bytes),
                took_ns,
            });
        }
        Ok(())
    }

    /// Carries out iterations on all ranks. If `verify`, checks a result afterwards.
    fn run(&mut self, iterations: u64, verify: bool) -> Result<IterationsTime, StepFailure> {
        let data = self.data()?;
        let prepared = self.contestant.prepared;
        let verify = verify && prepared.is_some_and(|it| it.has_results);
        let first_call = self.contestant.calls + 1;
        let refill = self.point.refill;
        let align = self.point.align == Align::Barrier;
        self.spans.clear();
        self.spans
            .reserve(if align { iterations as usize } else { 1 });
        let clock = self.stage.settings.clock;
        let buffers = self.backend()?.buffers().clone();
        let last_fill = match refill {
            Refill::Iteration => iterations - 1,
            Refill::Trial => 0,
        };
        let mut before = |iteration: u64| {
            if iteration == 0 || refill == Refill::Iteration {
                data.fill(first_call + iteration, &buffers)?;
            }
            if verify && iteration == last_fill {
                data.poison(first_call + iteration, &buffers)?;
            }
            Ok(())
        };
        let settled = self.backend()?.settle();
        agree(self.stage.rank, "begin to call", settled, DEADLINES.step)?;
        let begin_ns = clock.now_ns();
        let spans = std::mem::take(self.spans);
        let mut order = CallOrder {
            iterations,
            align,
            is_checked: verify,
            before: &mut before,
            spans: &mut { spans },
        };
        let ended = self.backend().and_then(|backend| backend.run(&mut order));
        let spans = std::mem::take(order.spans);
        let took_ns = clock.now_ns().saturating_sub(begin_ns);
        *self.spans = spans;
        let stage = &mut *self.stage;
        if let Some(backend) = &mut self.contestant.backend {
            backend.agree(stage, ended)?;
        }
        self.contestant.calls += iterations;
        if verify {
            let checked = data.check(first_call + last_fill, &buffers);
            let checked = checked.map(|bytes| self.contestant.verified_bytes += bytes);
            agree(self.stage.rank, "results", checked, DEADLINES.step)?;
        }
        let whole = CallSpan {
            begin_ns: 0,
            end_ns: took_ns,
        };
        let (turns, count) = recurring_iterations(self.spans, refill, whole, iterations);
        let [whole_ns, turns_ns] = slowest([whole, turns], self.stage.rank)?;
        Ok(IterationsTime {
            whole_ns,
            turn_ns: (turns_ns / count).max(1),
        })
    }
}

/// Times of a run of iterations, on the slowest rank.
struct IterationsTime {
    /// Time of all iterations, including the overhead before the first one and after the last one.
    whole_ns: u64,
    /// Time of one iteration, including the overhead between two iterations.
    turn_ns: u64,
}

/// Returns whether a run of `iterations` is long enough to derive the length of a trial from it. If data are written
/// once per trial, writing can take as long as the warm-up. The first iteration may be slow, so it is left out, and the
/// others must take long enough.
fn is_long_enough((refill, trial): (Refill, TrialLength), iterations: u64, turn_ns: u64) -> bool {
    match (refill, trial) {
        (Refill::Trial, TrialLength::DurationNs(ns)) if iterations == 1 => turn_ns >= ns,
        (Refill::Trial, TrialLength::DurationNs(ns)) => {
            turn_ns.saturating_mul(iterations) >= ns / PART
        }
        _ => true,
    }
}

/// Returns the number of iterations, and their total time including the overhead between them. If data are written once
/// per trial, the first iteration differs from the others and is left out.
fn recurring_iterations(
    spans: &[CallSpan],
    refill: Refill,
    whole: CallSpan,
    iterations: u64,
) -> (CallSpan, u64) {
    let span = |begin_ns, end_ns| CallSpan { begin_ns, end_ns };
    match (refill, spans) {
        (Refill::Trial, [first, .., last]) => (span(first.end_ns, last.end_ns), iterations - 1),
        (Refill::Trial, [all]) => (*all, iterations),
        _ => (whole, iterations),
    }
}

impl Steps for BackendContest<'_, '_> {
    fn rank(&mut self) -> &mut Rank {
        self.stage.rank
    }

    fn bound(&mut self, _: LimitMoment) -> Result<(), StepFailure> {
        if self.point.bound == BoundChoice::Auto {
            self.step_each_backend("the bound", |turn| turn.bound())?;
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), StepFailure> {
        self.step_each_backend("a first call", |turn| turn.prepare())
    }

    fn warm_up(&mut self) -> Result<(), StepFailure> {
        self.step_each_backend("warm-up", |turn| turn.warm_up())
    }

    fn trial(&mut self) -> Result<(), StepFailure> {
        let clock = self.stage.settings.clock;
        let begin_ns = clock.now_ns();
        self.step_each_backend("a trial", |turn| turn.trial())?;
        let took_ns = clock.now_ns().saturating_sub(begin_ns);
        let whole = CallSpan {
            begin_ns: 0,
            end_ns: took_ns,
        };
        let [taken_ns] = slowest([whole], self.stage.rank)?;
        self.taken_ns += taken_ns;
        Ok(())
    }

    fn enough(&mut self) -> Result<bool, StepFailure> {
        let length = &self.point.length;
        let left = self.contestants.iter().filter(|it| it.ended.is_none());
        let trials = left.map(Contestant::trials).min().unwrap_or(0);
        let Some(until_ci) = length.until_ci else {
            return Ok(trials >= length.trials as usize);
        };
        let over = length
            .max_duration_ns
            .is_some_and(|most| self.taken_ns >= most);
        let fewest = trials >= length.trials.max(3) as usize;
        Ok(over || fewest && self.converged(until_ci))
    }

    fn close(&mut self) -> Result<(), StepFailure> {
        Ok(())
    }

    fn gather(&mut self) -> Result<(), StepFailure> {
        let own: Vec<RankFigures> = self
            .contestants
            .iter()
            .map(Contestant::own_figures)
            .collect();
        let rank = &mut *self.stage.rank;
        let all = rank.collect("times of ranks", &own, DEADLINES.step)?;
        // Only rank 0 writes the record.
        if rank.id() != 0 {
            return Ok(());
        }
        for (at, contestant) in self.contestants.iter_mut().enumerate() {
            let of: Vec<RankFigures> = all.iter().filter_map(|own| own.get(at).copied()).collect();
            contestant.set_rank_figures(&of, self.point.grouping());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_is_enough_only_if_it_takes_a_whole_trial() {
        let is_long = |refill, iterations, turn_ns| {
            is_long_enough((refill, TrialLength::DurationNs(800)), iterations, turn_ns)
        };
        assert!(!is_long(Refill::Trial, 1, 799));
        assert!(is_long(Refill::Trial, 1, 800));
        assert!(!is_long(Refill::Trial, 8, 12));
        assert!(is_long(Refill::Trial, 8, 13));
        assert!(is_long(Refill::Iteration, 1, 1));
        assert!(is_long_enough(
            (Refill::Trial, TrialLength::Iterations(5)),
            1,
            1
        ));
    }

    #[test]
    fn data_written_once_is_not_part_of_an_iteration() {
        let span = |(begin_ns, end_ns)| CallSpan { begin_ns, end_ns };
        let spans = [(100, 190), (195, 200), (205, 210)].map(span);
        let whole = span((0, 215));
        let of =
            |spans: &[CallSpan], refill, count| recurring_iterations(spans, refill, whole, count);
        assert_eq!(of(&spans, Refill::Iteration, 3), (whole, 3));
        assert_eq!(of(&spans, Refill::Trial, 3), (span((190, 210)), 2));
        // A single call, and back-to-back calls that share one span.
        assert_eq!(of(&spans[..1], Refill::Trial, 1), (spans[0], 1));
        assert_eq!(of(&spans[..1], Refill::Trial, 50), (spans[0], 50));
        assert_eq!(of(&[], Refill::Trial, 3), (whole, 3));
    }
}
