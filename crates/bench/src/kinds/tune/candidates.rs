//! Candidates of a race with their open engines. Opens engines, and runs one trial of a candidate at a time.

use crate::failure::StepFailure;
use crate::kinds::kind::{Stage, StepRunner};
use crate::kinds::transfer::effective::{canary_cpus, effective};
use crate::kinds::transfer::flows::is_delivered;
use crate::kinds::transfer::open::{EngineKey, check, open_or_fail};
use crate::kinds::transfer::point::{self, PointResults};
use crate::kinds::transfer::summary::latency_kind;
use crate::opening::engine::OpenEngine;
use tonnage_plan::transfer::TransferPoint;
use tonnage_plan::tune::accepted_start::{all_refused_error, find_accepted_start};
use tonnage_plan::tune::{Goal, TunePoint};
use tonnage_ranks::Distinct;
use tonnage_record::{Effective, Latency, LatencyKind};
use tonnage_units::{Error, Nanos, Result};

/// Meaning of a latency sample: its kind, and whether the bytes have arrived when it ends. `None` if this does not
/// apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyMeaning(LatencyKind, Option<bool>);

impl LatencyMeaning {
    fn new(candidate: &TransferPoint, engine: &OpenEngine) -> Self {
        Self(latency_kind(candidate), is_delivered(candidate, engine))
    }
}

/// The values with which a search starts. The engine could be opened for them.
pub struct SearchStart {
    /// For each option, the index of its value.
    pub values: Vec<usize>,
    /// Meaning of latency samples with these values.
    pub meaning: LatencyMeaning,
    /// CPUs of the first pair of workers.
    pub cpus: Result<[u32; 2], String>,
    /// Configurations that the engines chose.
    pub effective: Vec<Effective>,
}

impl SearchStart {
    /// Finds values to start with, by opening the engine for one candidate after the other.
    ///
    /// # Errors
    /// [`StepFailure::Point`] with the reasons, if every candidate is refused.
    pub fn find(point: &TunePoint, stage: &mut Stage<'_>) -> Result<Self, StepFailure> {
        let mut last = None;
        let mut admits = |values: &[usize]| match open_candidate(point, values, stage) {
            Ok(found) => {
                // The search returns the last candidate that was accepted.
                last = Some(found);
                Ok(Ok(()))
            }
            Err(StepFailure::Point(error)) => Ok(Err(error)),
            Err(failure) => Err(failure),
        };
        let found = find_accepted_start(point, &mut admits)?;
        let values = found.map_err(|refused| StepFailure::Point(all_refused_error(&refused)))?;
        let found = last.ok_or_else(|| Error::Failed("nothing was opened".into()))?;
        Ok(Self { values, ..found })
    }
}

/// Opens the engine for a candidate, and closes it again.
fn open_candidate(
    point: &TunePoint,
    values: &[usize],
    stage: &mut Stage<'_>,
) -> Result<SearchStart, StepFailure> {
    let lists = &stage.settings.lists;
    let candidate = point.candidate(values, lists).map_err(StepFailure::Point)?;
    let engine = open_or_fail(&[&candidate], stage)?;
    check(&engine, &candidate, stage)?;
    let allowed = &stage.host.topology.allowed;
    Ok(SearchStart {
        values: values.to_vec(),
        meaning: LatencyMeaning::new(&candidate, &engine),
        cpus: canary_cpus(&candidate, &engine, stage.rank, allowed),
        effective: effective(&engine, &Distinct::default()),
    })
}

/// Candidates of a race, and the engines that are open for them.
pub struct Candidates {
    goal: Goal,
    meaning: LatencyMeaning,
    points: Vec<Result<TransferPoint>>,
    opened: Vec<(EngineKey, OpenEngine)>,
}

impl Candidates {
    /// Creates the candidates. No engine is open yet.
    pub fn new(goal: Goal, meaning: LatencyMeaning, points: Vec<Result<TransferPoint>>) -> Self {
        Self {
            goal,
            meaning,
            points,
            opened: Vec::new(),
        }
    }

    /// Returns why the candidate `at` is refused; `None` if it is not.
    pub fn refused(&self, at: usize) -> Option<&Error> {
        self.points.get(at)?.as_ref().err()
    }

    /// Returns the reasons of all refused candidates, with the candidates' indices.
    pub fn all_refused(self) -> impl Iterator<Item = (usize, Error)> {
        let points = self.points.into_iter().enumerate();
        points.filter_map(|(at, point)| Some((at, point.err()?)))
    }

    /// Runs one trial of a candidate. Returns the figure of the goal, which is equal on all ranks. `None` if it cannot
    /// be measured. The candidate is then refused from now on.
    ///
    /// # Errors
    /// [`StepFailure::Run`] for any other failure.
    pub fn trial(
        &mut self,
        at: usize,
        stage: &mut Stage<'_>,
        run_steps: StepRunner<'_>,
    ) -> Result<Option<f64>, StepFailure> {
        let Some(Ok(candidate)) = self.points.get(at) else {
            return Ok(None);
        };
        let (candidate, key) = (candidate.clone(), EngineKey::new(candidate));
        let measured = self.measured(&candidate, &key, stage, run_steps);
        match measured.and_then(|measured| figure(self.goal, &candidate, &measured)) {
            Ok(figure) => Ok(Some(figure)),
            Err(StepFailure::Point(error)) => {
                // The state of the engine is unknown, so it is closed.
                self.opened.retain(|(known, _)| *known != key);
                self.points[at] = Err(error);
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    fn measured(
        &mut self,
        candidate: &TransferPoint,
        key: &EngineKey,
        stage: &mut Stage<'_>,
        run_steps: StepRunner<'_>,
    ) -> Result<PointResults, StepFailure> {
        self.open(key, stage)?;
        let engine = self.opened.iter_mut().find(|(known, _)| known == key);
        let (_, engine) = engine.ok_or_else(|| Error::Failed("no engine is open".into()))?;
        check(engine, candidate, stage)?;
        if self.goal == Goal::Latency && LatencyMeaning::new(candidate, engine) != self.meaning {
            return Err(StepFailure::Point(Error::Usage(
                "its latency and that of the other values end at different events, such as the arrival of the \
                 bytes, so they cannot be compared"
                    .into(),
            )));
        }
        let mut measured = PointResults::default();
        // Trials of a race have no proof of path, because reading counters takes longer than a trial. The winner's
        // final run has one.
        point::measure(candidate, engine, stage, None, &mut measured, run_steps)?;
        Ok(measured)
    }

    /// Opens the engine for a candidate and for all others that can share it. If this fails while other engines are
    /// open, closes those and tries again.
    fn open(&mut self, key: &EngineKey, stage: &mut Stage<'_>) -> Result<(), StepFailure> {
        if self.opened.iter().any(|(known, _)| known == key) {
            return Ok(());
        }
        let all = self.points.iter().flatten();
        let shared: Vec<_> = all.filter(|it| EngineKey::new(it) == *key).collect();
        let engine = match open_or_fail(&shared, stage) {
            Err(StepFailure::Point(_)) if !self.opened.is_empty() => {
                self.opened.clear();
                open_or_fail(&shared, stage)?
            }
            engine => engine?,
        };
        self.opened.push((key.clone(), engine));
        Ok(())
    }
}

/// Returns the goal's figure in one trial.
fn figure(
    goal: Goal,
    candidate: &TransferPoint,
    measured: &PointResults,
) -> Result<f64, StepFailure> {
    let trial = measured.trials.first();
    let figure = match goal {
        Goal::Bandwidth => trial.map(|trial| trial.bandwidth_bytes_per_s),
        Goal::Rate => trial.map(|trial| trial.message_rate_per_s),
        Goal::Latency => {
            let latency = Latency::summarize(&measured.histogram, latency_kind(candidate));
            let latency = latency.filter(|latency| {
                let bounds = latency.lower_bounds;
                !bounds.is_some_and(|bounds| bounds.has_percentile(latency.latency_ns_p50))
            });
            latency.map(|latency| latency.latency_ns_p50 as f64)
        }
    };
    let measured = figure.filter(|figure| figure.is_finite() && *figure > 0.0);
    measured.ok_or_else(|| {
        StepFailure::Point(Error::Failed(format!(
            "a trial ended without a {goal}: use a trial-time longer than {}",
            Nanos(trial.map_or(0, |trial| trial.window_ns))
        )))
    })
}
