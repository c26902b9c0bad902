//! The races of a point: one option after the other, the others as they stand.

use std::time::Instant;

use super::race::Race;
use crate::deadlines::DEADLINES;
use crate::failure::{StepFailure, agree};
use crate::kinds::kind::{Course, Stage};
use crate::kinds::repeat::command_line;
use crate::kinds::transfer::effective::effective;
use crate::kinds::transfer::measured::{Kept, Measured};
use crate::kinds::transfer::open::{EngineKey, check, open_unchecked};
use crate::kinds::transfer::point;
use crate::opening::engine::OpenEngine;
use tonnage_plan::transfer::TransferPoint;
use tonnage_plan::tune::point::{PASSES_MAX, ROUNDS_MAX};
use tonnage_plan::tune::{Goal, TunePoint};
use tonnage_record::spread::spread;
use tonnage_record::tune::{TuneTry, TuneWinner};
use tonnage_record::{Body, Effective, LatencyKind, TuneBody};
use tonnage_units::message::bounded;
use tonnage_units::{Error, Result};

/// A search on its way.
pub struct Search<'a, 'b> {
    point: &'a TunePoint,
    stage: &'a mut Stage<'b>,
    body: TuneBody,
    effective: Vec<Effective>,
    /// Places of the values that hold now.
    values: Vec<usize>,
    begun: Instant,
}

/// An engine that is open for some candidates of a race.
type Opened = Vec<(EngineKey, OpenEngine)>;

impl<'a, 'b> Search<'a, 'b> {
    /// It begins with the values that a transfer has where nothing is said.
    pub fn new(point: &'a TunePoint, stage: &'a mut Stage<'b>) -> Self {
        let starts = point.dimensions.iter().map(|it| it.start as usize);
        Self {
            body: TuneBody::new(point.clone()),
            effective: Vec::new(),
            values: starts.collect(),
            begun: Instant::now(),
            point,
            stage,
        }
    }

    /// Choices of the engines, and everything that was tried.
    pub fn into_parts(mut self) -> (Vec<Effective>, Body) {
        self.body.elapsed_ns = self.begun.elapsed().as_nanos() as u64;
        (self.effective, self.body.into())
    }

    /// Searches until a pass changes nothing that the pass before it could have known.
    ///
    /// # Errors
    /// `Usage` with each reason where every candidate of a race was refused; else the failure of a rank.
    pub fn run(&mut self, course: Course<'_>) -> Result<(), StepFailure> {
        let mut last = None;
        for pass in 1..=PASSES_MAX {
            let before = self.values.clone();
            for dimension in 0..self.point.dimensions.len() {
                if self.point.dimensions[dimension].values.len() > 1 || pass == 1 && dimension == 0
                {
                    last = self.race((pass, dimension), &mut *course)?;
                }
            }
            // What was searched first was searched beside what came after it.
            if self.values.iter().skip(1).eq(before.iter().skip(1)) {
                break;
            }
        }
        if self.point.verify {
            self.check_winner(course)?;
        }
        let arguments = self.point.arguments(&self.values);
        let (engine, ranks) = (&self.point.engine, self.point.ranks);
        let command = command_line(arguments, (engine, ranks), self.stage.settings)?;
        self.body.winner = Some(TuneWinner {
            goal_mean: last,
            command,
        });
        Ok(())
    }

    /// Moves the winner's bytes once more, every one of them checked: the races have no time for that.
    fn check_winner(&mut self, course: Course<'_>) -> Result<(), StepFailure> {
        let lists = &self.stage.settings.lists;
        let mut winner = self.point.candidate(&self.values, lists)?;
        winner.verify = true;
        let points = [Some(winner.clone())];
        self.trial(&winner, &points, &mut Opened::new(), course)?;
        Ok(())
    }

    /// Races the values of one dimension; returns the winner's figure.
    fn race(
        &mut self,
        (pass, dimension): (u32, usize),
        course: Course<'_>,
    ) -> Result<Option<f64>, StepFailure> {
        let values = &self.point.dimensions[dimension].values;
        let mut race = Race::new(values.len(), self.point.goal == Goal::Latency);
        let mut points = Vec::new();
        for at in 0..values.len() {
            let mut chosen = self.values.clone();
            chosen[dimension] = at;
            let candidate = self.point.candidate(&chosen, &self.stage.settings.lists);
            if let Err(error) = &candidate {
                race.refuse(at, bounded(&error.to_string()).into_owned());
            }
            points.push(candidate.ok());
        }
        let mut opened = Opened::new();
        let mut ended = Ok(());
        'rounds: for _ in 0..ROUNDS_MAX {
            for at in race.left() {
                let Some(Some(candidate)) = points.get(at) else {
                    continue;
                };
                match self.trial(candidate, &points, &mut opened, &mut *course) {
                    Ok(figure) => race.runners[at].figures.push(figure),
                    Err(StepFailure::Point(error)) => {
                        let key = EngineKey::of(candidate);
                        opened.retain(|(known, _)| *known != key);
                        race.refuse(at, bounded(&error.to_string()).into_owned());
                    }
                    Err(failure) => {
                        ended = Err(failure);
                        break 'rounds;
                    }
                }
            }
            race.drop_worse();
            if race.is_settled() {
                break;
            }
        }
        let winner = race.end();
        self.keep((pass, dimension), &race);
        ended?;
        let Some(winner) = winner else {
            return Err(StepFailure::Point(self.all_refused(&race, dimension)));
        };
        self.values[dimension] = winner;
        let figures = &race.runners[winner].figures;
        Ok((!figures.is_empty()).then(|| spread(figures).mean))
    }

    /// One trial of a candidate, whose figure is the same on all ranks.
    fn trial(
        &mut self,
        candidate: &TransferPoint,
        points: &[Option<TransferPoint>],
        opened: &mut Opened,
        course: Course<'_>,
    ) -> Result<f64, StepFailure> {
        let key = EngineKey::of(candidate);
        if !opened.iter().any(|(known, _)| *known == key) {
            let engine = self.open(&key, points)?;
            opened.push((key.clone(), engine));
        }
        let engine = opened.iter_mut().find(|(known, _)| *known == key);
        let (_, engine) = engine.ok_or_else(|| Error::Failed("no engine is open".into()))?;
        let fits = check(engine, candidate);
        agree(
            self.stage.rank,
            "what the devices can do",
            fits,
            DEADLINES.step,
        )?;
        let nothing = (None, &mut Kept::default());
        let measured = point::measure(candidate, engine, self.stage, nothing, course)?;
        Ok(figure(self.point.goal, &measured))
    }

    /// Opens an engine for all candidates that can share it.
    fn open(
        &mut self,
        key: &EngineKey,
        points: &[Option<TransferPoint>],
    ) -> Result<OpenEngine, StepFailure> {
        let all = points.iter().flatten();
        let shared: Vec<_> = all.filter(|it| EngineKey::of(it) == *key).collect();
        let stage = &mut *self.stage;
        let opened = open_unchecked(&shared, stage);
        let opened = opened.map_err(|error| StepFailure::known_to_all(stage.rank, error))?;
        if self.effective.is_empty() {
            self.effective.extend(effective(&opened, &[]));
        }
        Ok(opened)
    }

    fn keep(&mut self, (pass, dimension): (u32, usize), race: &Race) {
        let dimension = &self.point.dimensions[dimension];
        for (runner, value) in race.runners.iter().zip(&dimension.values) {
            let Some(outcome) = runner.out else {
                continue;
            };
            let spread = spread(&runner.figures);
            self.body.tried.push(TuneTry {
                pass,
                dimension: dimension.name.clone(),
                value: said(value),
                rounds: runner.figures.len() as u32,
                goal_mean: (!runner.figures.is_empty()).then_some(spread.mean),
                goal_ci95: spread.ci95,
                outcome,
                why: runner.why.clone(),
            });
        }
    }

    fn all_refused(&self, race: &Race, dimension: usize) -> Error {
        let mut reasons: Vec<String> = Vec::new();
        let values = &self.point.dimensions[dimension].values;
        for (runner, value) in race.runners.iter().zip(values) {
            let why = runner.why.as_deref().unwrap_or_default();
            reasons.push(format!("{}: {why}", said(value)));
        }
        Error::Unavailable {
            what: "every candidate of the search".into(),
            why: reasons.join("; "),
            how: "Choose another engine or size, or give the options that it can do".into(),
        }
    }
}

fn said(value: &[String]) -> String {
    match value {
        [] => "default".to_owned(),
        words => words.join(" "),
    }
}

/// The goal's figure of one trial.
fn figure(goal: Goal, measured: &Measured) -> f64 {
    let trial = measured.trials.first();
    match goal {
        Goal::Bandwidth => trial.map_or(0.0, |trial| trial.bandwidth_bytes_per_s),
        Goal::Rate => trial.map_or(0.0, |trial| trial.message_rate_per_s),
        Goal::Latency => {
            let latency = measured.histogram.summary(LatencyKind::Operation);
            latency.map_or(f64::MAX, |latency| latency.latency_ns_p50 as f64)
        }
    }
}
