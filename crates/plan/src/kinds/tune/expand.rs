//! The points of a search: one for each engine, operation and size.

use super::dimensions;
use super::foothold::{all_refused, foothold};
use super::options::{GOAL_DEFAULT, TRIAL_TIME_DEFAULT, Tune};
use super::point::{Goal, TunePoint};
use crate::bounds::POINTS_MAX;
use crate::cells::{Cell, Cells};
use crate::options::{Many, command_line, pairs};
use crate::refuse::{one_process, usage};
use crate::sweep::Sweep;
use crate::transfer::{self, Transfer};
use tonnage_engine::{EngineOptions, Lists, Verb, split_name};
use tonnage_units::{Error, Nanos, Result};

const TRIAL_NS_MIN: u64 = 1_000_000;
const TRIAL_NS_MAX: u64 = 60_000_000_000;

/// The cells of an experiment.
///
/// # Errors
/// `Usage` for everything that can be found wrong without starting a rank, unless only some cells are.
pub(super) fn expand(
    tune: &Tune,
    ranks: u32,
    lists: &Lists,
    points_max: usize,
) -> Result<Vec<Cell<TunePoint>>> {
    let what = &tune.what;
    let engines = what.engine.as_ref().map_or(&[][..], Many::values);
    if engines.is_empty() {
        return Err(lists.no_engine());
    }
    if what.traffic_file.is_some() {
        return usage(
            "a traffic file says how much is moved and leaves nothing to tune: leave it out",
        );
    }
    let (Some(ops), Some(sizes)) = (&what.op, &what.sizes) else {
        return usage("a search needs op and sizes: write op write and sizes 64k");
    };
    let mut cells = Cells::new();
    for engine in engines {
        for &op in ops.values() {
            for &size_bytes in sizes.values() {
                if cells.len() >= points_max {
                    return usage(format!("the plan has more than {POINTS_MAX} points"));
                }
                let cell = (engine.as_str(), op, size_bytes);
                match one(tune, cell, ranks, lists) {
                    Ok(point) => cells.add(point, Ok(()))?,
                    Err(error) => cells.add(blank(tune, cell, ranks, lists), Err(error))?,
                }
            }
        }
    }
    cells.all()
}

/// The point before anything is known of it but what was asked for.
fn blank(
    tune: &Tune,
    (engine, op, size_bytes): (&str, Verb, u64),
    ranks: u32,
    lists: &Lists,
) -> TunePoint {
    let Nanos(trial_ns) = tune.search.trial_time.unwrap_or(TRIAL_TIME_DEFAULT);
    TunePoint {
        label: tune.what.label.clone(),
        engine: engine.to_owned(),
        engine_options: EngineOptions::new(),
        op,
        size_bytes,
        ranks,
        workers: 1,
        memory: lists.default_memory().to_owned(),
        goal: tune.search.goal.unwrap_or(GOAL_DEFAULT),
        trial_ns,
        verify: false,
        fixed: Vec::new(),
        dimensions: Vec::new(),
    }
}

fn one(
    tune: &Tune,
    (engine, op, size_bytes): (&str, Verb, u64),
    ranks: u32,
    lists: &Lists,
) -> Result<TunePoint> {
    let entry = lists.engine(engine)?;
    one_process(entry, "a search")?;
    let asked = pairs::map(&tune.what.engine_options);
    let engine_options = entry.check_options(&asked, split_name(engine).1)?;
    let goal = tune.search.goal.unwrap_or(GOAL_DEFAULT);
    contradictions(tune, goal)?;
    if goal == Goal::Bandwidth && !entry.moves_bytes {
        return usage(format!(
            "engine {} moves no bytes, so that it has no bandwidth: write goal rate, or use another engine",
            entry.name
        ));
    }
    let mut own = tune.clone();
    own.what.engine = Some(Many(vec![engine.to_owned()]));
    own.what.op = Some(Many(vec![op]));
    own.what.sizes = Some(Sweep::one(size_bytes));
    let dimensions = dimensions::of(&own, size_bytes, goal, entry);
    (own.pacing.window, own.pacing.batch, own.pacing.ping_pong) = (None, None, false);
    (own.issuing.qps, own.issuing.chunk, own.issuing.rails) = (None, None, None);
    let fixed = command_line::arguments(&Transfer {
        what: own.what,
        pacing: own.pacing,
        batching: own.batching,
        issuing: own.issuing,
        library: own.library,
        memory: own.memory,
        ..Transfer::default()
    })?;
    let Nanos(trial_ns) = tune.search.trial_time.unwrap_or(TRIAL_TIME_DEFAULT);
    if !(TRIAL_NS_MIN..=TRIAL_NS_MAX).contains(&trial_ns) {
        return usage(format!(
            "trial-time {} is not possible: write trial-time {} to trial-time {}",
            Nanos(trial_ns),
            Nanos(TRIAL_NS_MIN),
            Nanos(TRIAL_NS_MAX)
        ));
    }
    let point = TunePoint {
        engine_options,
        verify: entry.moves_bytes,
        fixed,
        dimensions,
        ..blank(tune, (engine, op, size_bytes), ranks, lists)
    };
    admitted(point, lists)
}

/// Refuses options that contradict each other, or the goal.
fn contradictions(tune: &Tune, goal: Goal) -> Result<()> {
    let pacing = &tune.pacing;
    // Windows and batches compete where nothing else is said.
    if pacing.ping_pong || pacing.rate.is_some() {
        transfer::contradictions(pacing, None)?;
    }
    if let Some(rate) = pacing.rate.filter(|_| goal != Goal::Latency) {
        return usage(format!(
            "rate {rate} decides the {goal} itself: leave it out, or write goal latency"
        ));
    }
    if goal == Goal::Latency && pacing.window.is_some() && pacing.batch.is_some() {
        return usage(
            "a window has the latency of an operation and a batch that of all of its operations, which cannot \
             compete: leave one of them out, or write goal bandwidth",
        );
    }
    Ok(())
}

/// The point with values to begin with that are not refused, and with what these say of workers and memory.
fn admitted(mut point: TunePoint, lists: &Lists) -> Result<TunePoint> {
    let mut admits = |values: &[usize]| Ok::<_, Error>(point.candidate(values, lists).map(drop));
    let starts = match foothold(&point, &mut admits)? {
        Ok(starts) => starts,
        Err(refused) => return Err(all_refused(&refused)),
    };
    for (dimension, &start) in point.dimensions.iter_mut().zip(&starts) {
        dimension.start = start as u32;
    }
    let candidate = point.candidate(&starts, lists)?;
    (point.workers, point.memory) = (candidate.workers, candidate.memory);
    Ok(point)
}
