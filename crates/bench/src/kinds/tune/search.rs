//! The races of a point. Each race varies one option, while all others are fixed. Then the winning values race against
//! the values at the start. Finally, the winner has its final run.

use std::time::{Duration, Instant};

use super::candidates::{Candidates, SearchStart};
use super::race::CandidateRace;
use crate::failure::StepFailure;
use crate::kinds::kind::{AnnotatedPoint, Kind, Stage, StepRunner};
use crate::kinds::repeat::command_line;
use crate::kinds::transfer::Transfers;
use crate::kinds::transfer::open::open_or_fail;
use crate::observer::{Progress, RaceProgress};
use tonnage_plan::PointNotes;
use tonnage_plan::transfer::Verification;
use tonnage_plan::tune::accepted_start::{all_refused_error, format_value};
use tonnage_plan::tune::point::PASSES_MAX;
use tonnage_plan::tune::{Goal, TunePoint};
use tonnage_record::tune::{TuneTry, TuneWinner};
use tonnage_record::{Record, TuneBody};
use tonnage_units::Error;
use tonnage_units::message::truncate_message;

/// Number of trials in the winner's final run.
const LAST_TRIALS: u32 = 5;

/// Time for opening the winner's engine and measuring its bound, on a busy machine.
const LAST_RUN_OVERHEAD: Duration = Duration::from_secs(1);

/// Name of the last race, in which the values of all options compete together.
const TOGETHER: &str = "together";

/// A search in progress.
pub struct OptionSearch<'a, 'b> {
    point: &'a TunePoint,
    start: &'a SearchStart,
    stage: &'a mut Stage<'b>,
    body: TuneBody,
    /// For each option, the index of its current value.
    values: Vec<usize>,
    begun: Instant,
    /// True once the time limit leaves only the time for the winner's run.
    is_cut: bool,
}

/// Competing values, cheapest first. Each has a name, and the indices of all options' values.
struct Contest {
    pass: u32,
    option: String,
    names: Vec<String>,
    values: Vec<Vec<usize>>,
}

impl<'a, 'b> OptionSearch<'a, 'b> {
    /// Starts a search from the values of `start`.
    pub fn new(point: &'a TunePoint, start: &'a SearchStart, stage: &'a mut Stage<'b>) -> Self {
        Self {
            body: TuneBody::new(point.clone()),
            values: start.values.clone(),
            begun: Instant::now(),
            is_cut: false,
            point,
            start,
            stage,
        }
    }

    /// Returns the record's body, with all candidates that were tried.
    pub fn into_body(mut self) -> TuneBody {
        self.body.elapsed_ns = self.begun.elapsed().as_nanos() as u64;
        self.body
    }

    /// Makes passes over the options until no option needs another race. An option needs one if the value of a later
    /// option has changed since its last race.
    pub fn run(
        &mut self,
        record: &mut Record,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure> {
        let mut until = self.values.len();
        for pass in 1..=PASSES_MAX {
            let before = self.values.clone();
            for dimension in 0..until {
                if self.point.dimensions[dimension].values.len() > 1 && !self.is_out_of_time()? {
                    let contest = self.option_contest(pass, dimension);
                    self.run_contest(contest, &mut *run_steps)?;
                }
            }
            // Options before the last one that changed must race again, because they were searched with its old value.
            let mut places = (0..self.values.len()).rev();
            until = places
                .find(|&at| self.values[at] != before[at])
                .unwrap_or(0);
        }
        if self.values != self.start.values && !self.is_out_of_time()? {
            let contest = self.contest_with_start();
            self.run_contest(contest, &mut *run_steps)?;
        }
        if self.is_cut {
            let limit = self.stage.settings.time_limit;
            record.remarks.extend(limit.map(|limit| limit.remark()));
        }
        self.run_winner(record, run_steps)
    }

    /// Returns a contest of one option's values. The values of all other options are fixed.
    fn option_contest(&self, pass: u32, dimension: usize) -> Contest {
        let option = &self.point.dimensions[dimension];
        let with = |at| {
            let mut values = self.values.clone();
            values[dimension] = at;
            values
        };
        Contest {
            pass,
            option: option.name.clone(),
            names: option
                .values
                .iter()
                .map(|value| format_value(value))
                .collect(),
            values: (0..option.values.len()).map(with).collect(),
        }
    }

    /// Returns a contest of the winning values against the values at the start. The latter win only if they are better.
    fn contest_with_start(&self) -> Contest {
        Contest {
            pass: PASSES_MAX,
            option: TOGETHER.to_owned(),
            names: vec!["winners".to_owned(), "start".to_owned()],
            values: vec![self.values.clone(), self.start.values.clone()],
        }
    }

    /// Races the values of a contest, and keeps the winning ones.
    fn run_contest(
        &mut self,
        contest: Contest,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure> {
        let lists = &self.stage.settings.lists;
        let points = contest.values.iter();
        let points = points.map(|values| self.point.candidate(values, lists));
        let goal = self.point.goal;
        let mut candidates = Candidates::new(goal, self.start.meaning, points.collect());
        let mut race = CandidateRace::new(contest.values.len(), goal == Goal::Latency);
        for at in 0..contest.values.len() {
            if candidates.refused(at).is_some() {
                race.refuse(at);
            }
        }
        log::debug!("race of {}", contest.option);
        let ended = self.run_rounds(&contest, &mut race, &mut candidates, run_steps);
        let winner = race.winner().filter(|_| ended.is_ok());
        self.record_tries(&contest, &race, &candidates, winner);
        ended?;
        let Some(winner) = winner else {
            let refused = candidates.all_refused();
            let refused = refused.map(|(at, error)| (contest.names[at].clone(), error));
            return Err(StepFailure::Point(all_refused_error(
                &refused.collect::<Vec<_>>(),
            )));
        };
        log::debug!(
            "{} won after {} rounds",
            contest.names[winner],
            race.rounds()
        );
        self.values.clone_from(&contest.values[winner]);
        Ok(())
    }

    fn run_rounds(
        &mut self,
        contest: &Contest,
        race: &mut CandidateRace,
        candidates: &mut Candidates,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure> {
        while let Some(order) = race.round() {
            if self.stage.rank.id() == 0 {
                self.stage.observer.progress(&Progress::Race(RaceProgress {
                    pass: contest.pass,
                    option: contest.option.clone(),
                    round: race.rounds(),
                    left: order.len(),
                    of: contest.values.len(),
                }));
            }
            for at in order {
                if self.is_out_of_time()? {
                    return Ok(());
                }
                match candidates.trial(at, self.stage, &mut *run_steps)? {
                    Some(figure) => race.record(at, figure),
                    None => race.refuse(at),
                }
            }
        }
        Ok(())
    }

    /// Whether the time limit leaves only the time for the winner's run.
    fn is_out_of_time(&mut self) -> Result<bool, StepFailure> {
        let Some(limit) = self.stage.settings.time_limit else {
            return Ok(false);
        };
        if !self.is_cut {
            let trials = Duration::from_nanos(self.point.trial_ns) * (LAST_TRIALS + 1);
            let needed = trials + LAST_RUN_OVERHEAD;
            self.is_cut = limit.is_too_short(self.stage.rank, needed)?;
        }
        Ok(self.is_cut)
    }

    fn record_tries(
        &mut self,
        contest: &Contest,
        race: &CandidateRace,
        candidates: &Candidates,
        winner: Option<usize>,
    ) {
        for (at, name) in contest.names.iter().enumerate() {
            let others = winner.filter(|&winner| winner != at);
            self.body.tried.push(TuneTry {
                pass: contest.pass,
                dimension: contest.option.clone(),
                value: name.clone(),
                rounds: race.trials(at),
                goal_mean: race.figure(at),
                gain: others.and_then(|winner| race.gain(at, winner)),
                outcome: race.outcome(at, winner),
                why: candidates
                    .refused(at)
                    .map(|error| truncate_message(&error.to_string()).into_owned()),
            });
        }
    }

    /// Measures the winner as an ordinary transfer. It verifies the last operation on each slot and proves the path,
    /// for which races have no time.
    fn run_winner(
        &mut self,
        record: &mut Record,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure> {
        let lists = &self.stage.settings.lists;
        let mut winner = self.point.candidate(&self.values, lists)?;
        winner.verify = if self.point.verify {
            Verification::Last
        } else {
            Verification::Off
        };
        winner.length.trials = LAST_TRIALS;
        let mut engine = open_or_fail(&[&winner], self.stage)?;
        let reading = PointNotes::default();
        let asked = AnnotatedPoint {
            point: &winner,
            reading: &reading,
            impossible: None,
        };
        Transfers.measure(&mut engine, asked, self.stage, record, run_steps)?;
        let run = record.transfer().cloned();
        let run = run.ok_or_else(|| Error::Failed("the last run left no figures".into()))?;
        let arguments = self.point.arguments(&self.values);
        let (engine, ranks) = (&self.point.engine, self.point.ranks);
        let command = command_line(arguments, (engine, ranks), self.stage.settings)?;
        self.body.winner = Some(TuneWinner { command, run });
        Ok(())
    }
}
