//! The options of a search: its own, and those of a transfer, which fix a value or list the values that compete.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::point::Goal;
use crate::options::{Group, one_of, with_default};
use crate::transfer::{
    BatchingOptions, IssuingOptions, LibraryOptions, MemoryOptions, OperationOptions, PacedOptions,
    PacingOptions,
};
use tonnage_units::Nanos;

/// One experiment that searches for the best options of a transfer.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct Tune {
    /// Goal and length of the search.
    #[command(flatten)]
    pub search: SearchOptions,
    /// Operations to tune.
    #[command(flatten)]
    pub what: OperationOptions,
    /// Pacing, if fixed or listed.
    #[command(flatten)]
    pub pacing: PacingOptions,
    /// Rate of operations.
    #[command(flatten)]
    pub paced: PacedOptions,
    /// Batches.
    #[command(flatten)]
    pub batching: BatchingOptions,
    /// Queue pairs, chunks and rails, if fixed or listed.
    #[command(flatten)]
    pub issuing: IssuingOptions,
    /// Calls between the loops and an engine.
    #[command(flatten)]
    pub library: LibraryOptions,
    /// Kind of memory.
    #[command(flatten)]
    pub memory: MemoryOptions,
}

crate::options::groups! {
    Tune: "tune", "a search", needs &[("engine", "shm"), ("op", "write")];
    search, what, pacing, paced, batching, issuing, library, memory
}

/// Goal and length of the search.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Search", mut_args = with_default::<Self>)]
pub struct SearchOptions {
    /// Figure to optimize: payload per second, operations per second, or the median latency of one operation.
    #[arg(long, value_name = "GOAL", value_parser = one_of::<Goal>())]
    pub goal: Option<Goal>,

    /// Length of each trial.
    #[arg(long, value_name = "TIME")]
    pub trial_time: Option<Nanos>,
}

pub(super) const GOAL_DEFAULT: Goal = Goal::Bandwidth;
pub(super) const TRIAL_TIME_DEFAULT: Nanos = Nanos(50_000_000);

impl Group for SearchOptions {
    fn defaults() -> Self {
        Self {
            goal: Some(GOAL_DEFAULT),
            trial_time: Some(TRIAL_TIME_DEFAULT),
        }
    }
}
