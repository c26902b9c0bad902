//! The engines of a stress run, which are open at the same time, and their transfers in turn. Each engine is reopened
//! after a group of transfers, and after a transfer that failed.

use std::time::{Duration, Instant};

use super::tally::Tally;
use crate::deadlines::DEADLINES;
use crate::failure::StepFailure;
use crate::kinds::kind::{Stage, StepRunner};
use crate::kinds::repeat::command_line;
use crate::kinds::transfer::effective::effective;
use crate::kinds::transfer::open::{check, open_or_fail};
use crate::kinds::transfer::point::{self, PointResults};
use crate::observer::Progress;
use crate::opening::engine::OpenEngine;
use crate::settings::Settings;
use tonnage_plan::stress::{DrawnTransfer, StressPoint};
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::Distinct;
use tonnage_record::Effective;
use tonnage_units::{Error, Result};

/// Opens each engine for a simple point and closes it again. Returns the configurations that the engines chose.
///
/// # Errors
/// [`StepFailure::Point`] if an engine cannot be opened for any of its operations.
pub fn open_each_once(
    point: &StressPoint,
    stage: &mut Stage<'_>,
) -> Result<Vec<Effective>, StepFailure> {
    let mut all = Vec::new();
    for engine in point.engines() {
        let ops = point.ops_of(engine, &stage.settings.lists)?.len() as u64;
        let mut refused = None;
        for number in 0..ops {
            let draws = point.draw_group(engine, number, &stage.settings.lists)?;
            match open(&draws, stage).and_then(|open| open_if_usable(open, &draws, stage)) {
                Ok(open) => {
                    all.extend(effective(&open, &Distinct::default()));
                    refused = None;
                    break;
                }
                Err(StepFailure::Point(error)) => drop(refused.get_or_insert(error)),
                Err(failure) => return Err(failure),
            }
        }
        if let Some(error) = refused {
            return Err(StepFailure::Point(error));
        }
    }
    Ok(all)
}

/// Returns the open engine if its devices support at least one of `draws`.
fn open_if_usable(
    open: OpenEngine,
    draws: &[DrawnTransfer],
    stage: &mut Stage<'_>,
) -> Result<OpenEngine, StepFailure> {
    let mut refused = Ok(());
    for draw in draws {
        refused = check(&open, &draw.point, stage);
        if !matches!(refused, Err(StepFailure::Point(_))) {
            break;
        }
    }
    refused.map(|()| open)
}

/// Opens an engine for a group of transfers.
fn open(draws: &[DrawnTransfer], stage: &mut Stage<'_>) -> Result<OpenEngine, StepFailure> {
    let points: Vec<&TransferPoint> = draws.iter().map(|draw| &draw.point).collect();
    open_or_fail(&points, stage)
}

/// A group of consecutive transfers with one open engine.
struct DrawGroup {
    draws: std::vec::IntoIter<DrawnTransfer>,
    /// The engine. `None` after a transfer failed, because the engine's state is then unknown.
    open: Option<OpenEngine>,
}

/// A stress run in progress.
pub struct StressRun<'a, 'b> {
    point: &'a StressPoint,
    stage: &'a mut Stage<'b>,
    tally: &'a mut Tally,
    begun: Instant,
}

impl<'a, 'b> StressRun<'a, 'b> {
    /// Starts the clock of a stress run.
    pub fn new(point: &'a StressPoint, stage: &'a mut Stage<'b>, tally: &'a mut Tally) -> Self {
        Self {
            point,
            stage,
            tally,
            begun: Instant::now(),
        }
    }

    /// Runs transfers until the time is over.
    ///
    /// # Errors
    /// [`StepFailure::Run`] if an engine or a rank failed. If a transfer had wrong bytes, it is only counted.
    pub fn run(mut self, run_steps: StepRunner<'_>) -> Result<(), StepFailure> {
        let mut number = 0;
        let ended = loop {
            match self.run_groups(number, &mut *run_steps) {
                Ok(true) => number += 1,
                Ok(false) => break Ok(()),
                Err(failure) => break Err(failure),
            }
        };
        self.tally.elapsed_ns = self.begun.elapsed().as_nanos() as u64;
        ended
    }

    /// Runs group `number` of every engine. Returns whether there is time for more groups.
    fn run_groups(&mut self, number: u64, run_steps: StepRunner<'_>) -> Result<bool, StepFailure> {
        let mut groups = Vec::new();
        for engine in self.point.engines() {
            let lists = &self.stage.settings.lists;
            groups.push(self.open_group(self.point.draw_group(engine, number, lists)?)?);
        }
        loop {
            let mut took = false;
            for group in &mut groups {
                let Some(draw) = group.next() else {
                    continue;
                };
                if !self.has_time()? {
                    return Ok(false);
                }
                took = true;
                self.run_draw(&draw, &mut group.open, &mut *run_steps)?;
            }
            if !took {
                return self.has_time();
            }
        }
    }

    /// Opens the engine for a group. If the machine lacks a requirement that all transfers of the group need, they are
    /// skipped.
    fn open_group(&mut self, draws: Vec<DrawnTransfer>) -> Result<DrawGroup, StepFailure> {
        let open = match open(&draws, self.stage) {
            Ok(open) => Some(open),
            Err(StepFailure::Point(error @ (Error::Unavailable { .. } | Error::Usage(_)))) => {
                draws.iter().for_each(|draw| self.tally.skip(draw, &error));
                None
            }
            Err(StepFailure::Point(error)) => {
                if let Some(draw) = draws.first() {
                    self.tally.begin(draw);
                    self.record_failure(draw, &error)?;
                }
                None
            }
            Err(failure) => return Err(failure),
        };
        let draws = draws.into_iter();
        Ok(DrawGroup { draws, open })
    }

    /// Runs one transfer, with the steps of an ordinary point.
    fn run_draw(
        &mut self,
        draw: &DrawnTransfer,
        open: &mut Option<OpenEngine>,
        run_steps: StepRunner<'_>,
    ) -> Result<(), StepFailure> {
        let Some(engine) = open else {
            return Ok(());
        };
        match check(engine, &draw.point, self.stage) {
            Err(StepFailure::Point(error)) => {
                self.tally.skip(draw, &error);
                return Ok(());
            }
            fits => fits?,
        }
        self.tally.begin(draw);
        if self.stage.rank.id() == 0 && log::log_enabled!(log::Level::Debug) {
            let command = command(draw, self.stage.settings)?;
            log::debug!("transfer {}: {command}", self.tally.draws());
        }
        let mut measured = PointResults::default();
        match point::measure(
            &draw.point,
            engine,
            self.stage,
            None,
            &mut measured,
            run_steps,
        ) {
            Ok(()) => self.tally.add(draw, &measured),
            Err(StepFailure::Point(error)) => {
                *open = None;
                self.record_failure(draw, &error)?;
            }
            Err(StepFailure::Run(error)) => {
                // The first cause is reported, for example that another rank has ended.
                let cause = self.stage.rank.why_stopped();
                if !matches!(cause, Some(Error::Interrupted { .. } | Error::TimeLimit(_))) {
                    self.record_failure(draw, cause.as_ref().unwrap_or(&error))?;
                }
                return Err(StepFailure::Run(error));
            }
        }
        Ok(())
    }

    /// Counts a failed transfer. For the first one, immediately reports the command that repeats it.
    fn record_failure(&mut self, draw: &DrawnTransfer, error: &Error) -> Result<()> {
        let command = command(draw, self.stage.settings)?;
        let is_first = self.tally.fail(draw, error, command);
        // An error that ends the run is reported later, when the run ends.
        let says = self.stage.rank.id() == 0 && self.stage.rank.why_stopped().is_none();
        if let Some(first) = is_first.filter(|_| says) {
            log::error!(
                "transfer {} failed, {} {}: {}; it is repeated by: {}",
                first.draw,
                first.engine,
                first.op,
                first.why,
                first.command
            );
        }
        Ok(())
    }

    /// Returns whether rank 0 has time for another transfer. Each engine gets at least one, even if the time is over.
    fn has_time(&mut self) -> Result<bool, StepFailure> {
        if !self
            .point
            .engines()
            .all(|engine| self.tally.has_tried(engine))
        {
            return Ok(true);
        }
        let rank = &mut *self.stage.rank;
        let duration = Duration::from_nanos(self.point.duration_ns);
        let left = duration.saturating_sub(self.begun.elapsed());
        let limit = self.stage.settings.time_limit;
        let left = limit.map_or(left, |limit| limit.left().min(left));
        let mine = (rank.id() == 0).then(|| vec![u8::from(left > Duration::ZERO)]);
        if rank.id() == 0 {
            self.stage.observer.progress(&Progress::Draws {
                draws: self.tally.draws(),
                failures: self.tally.failures(),
                left,
            });
        }
        let answer = rank.broadcast("time of a stress", mine, DEADLINES.step)?;
        Ok(answer.first().is_some_and(|&left| left == 1))
    }
}

/// Returns the command line that repeats a transfer.
fn command(draw: &DrawnTransfer, settings: &Settings) -> Result<String> {
    let point = &draw.point;
    command_line(
        draw.arguments()?,
        (&point.engine, point.roles.ranks),
        settings,
    )
}

impl DrawGroup {
    /// Returns the next transfer; `None` if the engine is no longer open.
    fn next(&mut self) -> Option<DrawnTransfer> {
        self.open.as_ref().and_then(|_| self.draws.next())
    }
}
