//! Expands a search to its points: one for each engine, operation and size.

use super::accepted_start::{all_refused_error, find_accepted_start};
use super::dimensions;
use super::options::{GOAL_DEFAULT, TRIAL_TIME_DEFAULT, Tune};
use super::point::{Goal, TunePoint};
use crate::bounds::POINTS_MAX;
use crate::cells::{Cell, Cells};
use crate::conflicts;
use crate::kind::{AnyExperiment, Kind, Scale};
use crate::options::{Many, command_line, pairs};
use crate::refuse::{check_one_process, usage_error, value_within};
use crate::sweep::Sweep;
use crate::transfer::{self, Transfer};
use tonnage_engine::{EngineOptions, Lists, Verb, split_name};
use tonnage_units::{Error, Nanos, Result};

const TRIAL_NS_MIN: u64 = 1_000_000;
const TRIAL_NS_MAX: u64 = 60_000_000_000;

impl Kind for Tune {
    type Point = TunePoint;

    const ABOUT: &'static str = "Find the options of a transfer that serve a goal best";
    const AFTER_HELP: &'static str = "Depth or batch, queue pairs, chunk, rails and the engine's own options compete, \
    one after the other, in rounds of short trials. An option with one value is fixed; a list is searched. The \
    cheapest value that is certainly within 3 % of the best wins. If that is uncertain, the best one wins, and the \
    output shows how much better others may be. The last line is the winner's command line.\n\n\
    Examples:\n  \
    tonnage tune --engine fabric:tcp --op write --sizes 64k --goal bandwidth --ranks 2\n  \
    tonnage tune --engine shm --op read --sizes 8 --goal rate --depth 1,16,256 --ranks 2";

    /// Returns the cells of a search.
    fn cells(&self, ranks: u32, lists: &Lists, points_max: usize) -> Result<Vec<Cell<TunePoint>>> {
        let what = &self.what;
        let engines = Many::all(&what.engine);
        if engines.is_empty() {
            return Err(lists.no_engine());
        }
        if what.traffic_file.is_some() {
            return usage_error(
                "a traffic file fixes the bytes to move and leaves nothing to tune: leave it out",
            );
        }
        let (Some(ops), Some(sizes)) = (&what.op, &what.sizes) else {
            return usage_error("a search needs --op and --sizes, e.g. --op write --sizes 64k");
        };
        let mut cells = Cells::new();
        for engine in engines {
            for &op in ops.values() {
                for &size_bytes in sizes.values() {
                    if cells.len() >= points_max {
                        return usage_error(format!("the plan has more than {POINTS_MAX} points"));
                    }
                    let cell = (engine.as_str(), op, size_bytes);
                    match build_point(self, cell, ranks, lists) {
                        Ok(point) => cells.add(point, Ok(()))?,
                        Err(error) => {
                            cells.add(point_as_requested(self, cell, ranks, lists), Err(error))?
                        }
                    }
                }
            }
        }
        cells.all()
    }
}

impl AnyExperiment for Tune {
    fn label(&self) -> Option<&str> {
        self.what.label.as_deref()
    }

    fn use_engines(&mut self, engines: &[String]) -> bool {
        self.what.engine = Some(engines.to_vec().into());
        true
    }

    /// Multiplies the time of a trial.
    fn scale(&mut self, scale: Scale) {
        let Nanos(trial_ns) = self.search.trial_time.unwrap_or(TRIAL_TIME_DEFAULT);
        // `f64` is precise enough below 2^53, and casts of floats saturate.
        let scaled = (trial_ns as f64 * scale.time).round() as u64;
        self.search.trial_time = Some(Nanos(scaled.max(1)));
    }
}

/// Returns the point with the requested values only. The other values are filled in later.
fn point_as_requested(
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
        threads: 1,
        memory: lists.default_memory().to_owned(),
        goal: tune.search.goal.unwrap_or(GOAL_DEFAULT),
        trial_ns,
        verify: false,
        fixed: Vec::new(),
        dimensions: Vec::new(),
    }
}

fn build_point(
    tune: &Tune,
    (engine, op, size_bytes): (&str, Verb, u64),
    ranks: u32,
    lists: &Lists,
) -> Result<TunePoint> {
    let entry = lists.engine(engine)?;
    check_one_process(entry, "a search")?;
    let asked = pairs::map(&tune.what.engine_options);
    let engine_options = entry.check_options(&asked, split_name(engine).1)?;
    let goal = tune.search.goal.unwrap_or(GOAL_DEFAULT);
    check_contradictions(tune, goal)?;
    if goal == Goal::Bandwidth && !entry.moves_bytes {
        return usage_error(format!(
            "--engine {} moves no bytes, so it has no bandwidth: use --goal rate, or use another engine",
            entry.name
        ));
    }
    let mut own = tune.clone();
    own.what.engine = Some(Many(vec![engine.to_owned()]));
    own.what.op = Some(Many(vec![op]));
    own.what.sizes = Some(Sweep::single(size_bytes));
    let dimensions = dimensions::dimensions(&own, size_bytes, goal, entry);
    (own.pacing.depth, own.pacing.batch, own.pacing.ping_pong) = (None, None, false);
    (
        own.issuing.queue_pairs,
        own.issuing.chunk,
        own.issuing.rails,
    ) = (None, None, None);
    let fixed = command_line::arguments(&Transfer {
        what: own.what,
        pacing: own.pacing,
        paced: own.paced,
        batching: own.batching,
        issuing: own.issuing,
        library: own.library,
        memory: own.memory,
        ..Transfer::default()
    })?;
    let Nanos(trial_ns) = tune.search.trial_time.unwrap_or(TRIAL_TIME_DEFAULT);
    value_within(
        "trial-time",
        Nanos(trial_ns),
        Nanos(TRIAL_NS_MIN)..=Nanos(TRIAL_NS_MAX),
    )?;
    let point = TunePoint {
        engine_options,
        verify: entry.moves_bytes,
        fixed,
        dimensions,
        ..point_as_requested(tune, (engine, op, size_bytes), ranks, lists)
    };
    with_accepted_start(point, lists)
}

/// Refuses options that contradict each other or the goal.
fn check_contradictions(tune: &Tune, goal: Goal) -> Result<()> {
    let pacing = &tune.pacing;
    // By default, depths and batches compete in a search, so the rows that exclude this combination do not apply.
    let rows = [transfer::PACING_CONFLICTS, transfer::PACED_CONFLICTS];
    conflicts::check(tune, &rows)?;
    if let Some(rate) = tune.paced.rate.filter(|_| goal != Goal::Latency) {
        return usage_error(format!(
            "--rate {rate} already fixes the {goal}: leave it out, or use --goal latency"
        ));
    }
    if goal == Goal::Latency && pacing.depth.is_some() && pacing.batch.is_some() {
        return usage_error(
            "the latency of a depth is that of one operation, and that of a batch is that of all its operations, so \
             they cannot compete: leave one of them out, or use --goal bandwidth",
        );
    }
    Ok(())
}

/// Returns the point with start values that are accepted, and with the resulting threads and memory.
fn with_accepted_start(mut point: TunePoint, lists: &Lists) -> Result<TunePoint> {
    let mut admits = |values: &[usize]| Ok::<_, Error>(point.candidate(values, lists).map(drop));
    let starts = match find_accepted_start(&point, &mut admits)? {
        Ok(starts) => starts,
        Err(refused) => return Err(all_refused_error(&refused)),
    };
    for (dimension, &start) in point.dimensions.iter_mut().zip(&starts) {
        dimension.start = start as u32;
    }
    let candidate = point.candidate(&starts, lists)?;
    (point.threads, point.memory) = (candidate.threads, candidate.memories.memory);
    Ok(point)
}
