//! The traits that define a kind of experiment, and the kind's row in the list of kinds.
//!
//! A kind is a struct of options that implements [`Tables`] (by `groups!`), [`AnyExperiment`] and [`Kind`], and a point
//! that implements [`AnyPoint`]. All kinds are listed in [`crate::kinds`]. The rest of the crate, and the command, use
//! a kind only through these traits.

use std::fmt::Debug;
use std::time::Duration;

use clap::{ArgMatches, Args, Command};
use tonnage_engine::{Library, Lifecycle, Lists};
use tonnage_units::{PairPlace, Result};

use crate::cells::Cell;
use crate::options::{Parsed, Source, Tables, from_command_line};
use crate::point::PointNotes;

/// A kind of experiment, as a concrete type.
pub trait Kind: AnyExperiment + Tables + Args {
    /// One cell of a sweep.
    type Point: AnyPoint;

    /// One-line description of the kind's command, for help.
    const ABOUT: &'static str;
    /// Text below the options in the command's help: sweeps, rules, examples.
    const AFTER_HELP: &'static str;

    /// Returns the experiment's cells, at most `points_max`.
    fn cells(&self, ranks: u32, lists: &Lists, points_max: usize)
    -> Result<Vec<Cell<Self::Point>>>;

    /// Facts that readers of the results need. They apply to all cells of the experiment.
    fn notes(&self) -> Result<PointNotes> {
        Ok(PointNotes::default())
    }
}

/// An experiment of any kind, as requested.
pub trait AnyExperiment: Debug {
    /// Returns the heading of the experiment's points, if it has one.
    fn label(&self) -> Option<&str>;

    /// Replaces the experiment's engines by these. Returns whether the experiment applies to any of them.
    fn use_engines(&mut self, engines: &[String]) -> bool;

    /// Scales the length of its measurement. Invalid values stay invalid, so that scaling does not hide a mistake.
    fn scale(&mut self, scale: Scale);

    /// Adapts the experiment to fewer ranks than its plan was written for.
    fn fit_ranks(&mut self, _ranks: u32) {}

    /// Whether any of its options is counted in nodes.
    fn counts_nodes(&self) -> bool {
        false
    }

    /// Converts options counted in nodes to ranks. Each node has `ranks_of_node` ranks.
    fn resolve_nodes(&mut self, _ranks_of_node: u32, _ranks: u32) -> Result<()> {
        Ok(())
    }

    /// Paths of its files; `None` for a kind without files.
    fn paths(&mut self) -> Option<&mut Vec<String>> {
        None
    }
}

/// Factors by which a plan is scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Factor for times.
    pub time: f64,
    /// Factor for the bytes of each rank in experiments that divide a fixed total among all ranks.
    pub share_of_rank: f64,
}

/// A point of any kind.
pub trait AnyPoint {
    /// The point's engines, each with its variant (the part after the colon). Most points have one engine.
    fn engines(&self) -> Vec<&str>;

    /// Pinned threads in each rank.
    fn threads(&self) -> u32;

    /// Requested socket placement of threads that exchange bytes.
    fn socket_placement(&self) -> Option<PairPlace> {
        None
    }

    /// Names the point among the points of its plan: `engine shm, op write, size 8`.
    fn name(&self) -> String;

    /// Names the point on the progress line.
    fn progress(&self) -> String;

    /// Minimum time of the point's warm-up and trials. `None` if the time depends on the speed, as for a number of
    /// operations.
    fn planned_time(&self) -> Option<Duration>;

    /// Time of the warm-up and one trial. In less time, there can be no result. Zero if the time depends on the speed.
    fn least_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Bytes that the point moves, if its settings alone determine them, as for files.
    fn planned_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether the point's payload crosses devices between ranks, so that device counters can prove the path.
    fn crosses_devices(&self) -> bool {
        false
    }

    /// Whether each thread uses all devices of its rank instead of one.
    fn spans_devices(&self) -> bool {
        false
    }

    /// Whether the point may depend on data left by earlier points, so that its position in a run must not change.
    fn depends_on_earlier_points(&self) -> bool {
        false
    }

    /// Number of positions by which the device lists of ranks that only serve are rotated.
    fn rail_shift(&self) -> u32 {
        0
    }

    /// The setting that leaves the point's bandwidth without a bound, and how to change it. `None` if there is a bound,
    /// which can be the speed of a link.
    fn without_bound(&self) -> Option<&'static str> {
        Some("a run that measures no bandwidth between ranks: leave it out")
    }

    /// Number of ranks of a point, if its engine moves bytes only within one process. These ranks are threads of
    /// rank 0. `None` if the point uses the ranks of the run.
    fn thread_ranks(&self, _lists: &Lists) -> Option<u32> {
        None
    }

    /// Facts about the point's engines, looked up in `lists`.
    fn engine_facts(&self, lists: &Lists) -> Result<Vec<EngineFacts>> {
        let facts = |engine| EngineFacts::for_engine(lists, engine);
        self.engines().into_iter().map(facts).collect()
    }
}

/// Facts about an engine that the command needs before the engine is opened.
#[derive(Clone, Copy)]
pub struct EngineFacts {
    /// Whether `--devices` applies to the engine.
    pub has_devices: bool,
    /// Libraries that `--library` can choose.
    pub libraries: &'static [Library],
    /// Hooks for a library with process-wide state.
    pub lifecycle: &'static Lifecycle,
}

impl EngineFacts {
    /// Looks up the facts about a transfer engine.
    pub fn for_engine(lists: &Lists, engine: &str) -> Result<Self> {
        let entry = lists.engine(engine)?;
        Ok(Self {
            has_devices: entry.has_devices,
            libraries: entry.libraries,
            lifecycle: &entry.lifecycle,
        })
    }
}

/// A row of the list of kinds, for experiments of type `E`.
pub struct KindEntry<E> {
    /// The key of the kind's tables in a plan, which is also the name of its command.
    pub key: &'static str,
    /// The kind's name with its article, for messages.
    pub name: &'static str,
    /// Keys that a table must have, with examples.
    pub needs: &'static [(&'static str, &'static str)],
    /// Every key that a table may have.
    pub keys: fn() -> Vec<&'static str>,
    /// Reads a table after its keys were checked.
    pub read: fn(Source<'_>) -> Parsed<E>,
    /// One-line description of the kind's command.
    pub about: &'static str,
    /// The kind's command, with the options of an experiment and no others.
    pub command: fn() -> Command,
    /// Reads the experiment from a command line.
    pub asked: fn(&ArgMatches) -> Result<E, clap::Error>,
}

impl<E> KindEntry<E> {
    /// Creates the row of a kind.
    pub const fn new<T: Kind + Into<E>>() -> Self {
        Self {
            key: T::KEY,
            name: T::NAME,
            needs: T::NEEDS,
            keys: T::keys,
            read: |source| T::read(source).map(T::into),
            about: T::ABOUT,
            command: || T::augment_args(Command::new(T::KEY)).after_help(T::AFTER_HELP),
            asked: |matches| from_command_line::<T>(matches).map(T::into),
        }
    }
}
