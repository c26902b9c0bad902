//! A point of a search: a transfer as a user would request it, and the values that compete.

use std::time::Duration;

use clap::{Args, Command};
use serde::{Deserialize, Serialize};

use crate::kind::{AnyPoint, Kind};
use crate::options::from_command_line;
use crate::refuse::usage_error;
use crate::transfer::{Transfer, TransferPoint};
use tonnage_engine::{EngineOptions, Lists, Verb};
use tonnage_units::{Bytes, Error, Nanos, Result};

/// Maximum number of trials of a race, divided by the number of values. Trials that an eliminated value does not need
/// go to the remaining values.
pub const TRIALS_PER_VALUE: u32 = 10;
/// Maximum number of passes over all dimensions.
pub const PASSES_MAX: u32 = 2;

tonnage_units::names! {
    /// Figure that a search decides by.
    pub enum Goal: "goal" {
        /// Payload bytes per second.
        Bandwidth = "bandwidth",
        /// Operations per second.
        Rate = "rate",
        /// Median latency of one operation: less is better.
        Latency = "latency",
    }
}

/// Values of one option that compete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TuneDimension {
    /// The option.
    pub name: String,
    /// Arguments of each value, the cheapest first. A value without arguments is the option's default.
    pub values: Vec<Vec<String>>,
    /// Position of the value that the search begins with.
    pub start: u32,
}

/// One search. Every field is explicit: defaults were filled in when the plan was expanded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TunePoint {
    /// Heading under which tables list the point, if the plan gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Engine, as in `--engine`.
    pub engine: String,
    /// The engine's own options that are fixed and differ from their defaults.
    #[serde(default, skip_serializing_if = "EngineOptions::is_empty")]
    pub engine_options: EngineOptions,
    /// Operation.
    pub op: Verb,
    /// Payload bytes of one operation.
    pub size_bytes: u64,
    /// Ranks of the run.
    pub ranks: u32,
    /// Pinned threads in each rank.
    #[serde(alias = "workers")]
    pub threads: u32,
    /// Kind of memory.
    pub memory: String,
    /// Figure to optimize.
    pub goal: Goal,
    /// Length of each trial.
    pub trial_ns: u64,
    /// True when the bytes of the winner are checked.
    pub verify: bool,
    /// Arguments that do not compete.
    pub fixed: Vec<String>,
    /// Options that are searched, one after another.
    pub dimensions: Vec<TuneDimension>,
}

impl TunePoint {
    /// Returns the positions of the values that the search begins with.
    pub fn start_values(&self) -> Vec<usize> {
        let starts = self.dimensions.iter().map(|it| it.start as usize);
        starts.collect()
    }

    /// Returns the arguments of the transfer with these values, given by their positions in the dimensions. A position
    /// past the last value adds no argument.
    pub fn arguments(&self, values: &[usize]) -> Vec<String> {
        let mut words = self.fixed.clone();
        for (dimension, &value) in self.dimensions.iter().zip(values) {
            words.extend(dimension.values.get(value).into_iter().flatten().cloned());
        }
        words
    }

    /// Returns the transfer point of one trial with these values.
    pub fn candidate(&self, values: &[usize], lists: &Lists) -> Result<TransferPoint> {
        let mut words = self.arguments(values);
        let trial = format!("{}ns", self.trial_ns);
        let warm_up = format!("{}ns", (self.trial_ns / 5).max(1_000_000));
        let measured = [
            "--trials",
            "1",
            "--trial-time",
            &trial,
            "--warmup",
            &warm_up,
        ];
        words.extend(measured.map(str::to_owned));
        words.extend(["--bound", "none"].map(str::to_owned));
        let refused = |error: clap::Error| Error::Usage(error.to_string());
        let command = Transfer::augment_args(Command::new("transfer"));
        let matches = command.try_get_matches_from(words).map_err(refused)?;
        let transfer: Transfer = from_command_line(&matches).map_err(refused)?;
        let mut cells = transfer.cells(self.ranks, lists, usize::MAX)?;
        match (cells.pop(), cells.is_empty()) {
            (Some(cell), true) => Ok(cell.point),
            _ => usage_error(
                "a search tunes one transfer: give one value of each option that it does not search",
            ),
        }
    }

    /// Returns the maximum time of all trials, not counting the time between them.
    pub fn trials_ns_max(&self) -> u64 {
        let values = self.dimensions.iter().map(|it| it.values.len() as u64);
        let trials = values.sum::<u64>() * u64::from(TRIALS_PER_VALUE * PASSES_MAX);
        self.trial_ns
            .saturating_add(self.trial_ns / 5)
            .saturating_mul(trials)
    }

    /// Returns the fixed arguments other than engine, operation, size and label.
    pub fn other_fixed_arguments(&self) -> Vec<&str> {
        const NAMED: [&str; 5] = ["--engine", "--engine-option", "--op", "--sizes", "--label"];
        let mut words = self.fixed.iter().skip(1).map(String::as_str);
        let mut beside = Vec::new();
        while let Some(word) = words.next() {
            if NAMED.contains(&word) {
                words.next();
            } else {
                beside.push(word);
            }
        }
        beside
    }
}

impl AnyPoint for TunePoint {
    /// Returns the longest possible time; a search may end earlier.
    fn planned_time(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.trials_ns_max()))
    }

    fn engines(&self) -> Vec<&str> {
        vec![&self.engine]
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn name(&self) -> String {
        let (engine, op, size) = (&self.engine, self.op.name(), self.size_bytes);
        format!(
            "engine {engine}, search for {}, op {op}, size {size}",
            self.goal
        )
    }

    fn crosses_devices(&self) -> bool {
        true
    }

    fn progress(&self) -> String {
        let (engine, op, size) = (&self.engine, self.op.name(), Bytes(self.size_bytes));
        let most = Nanos(self.trials_ns_max() / 1_000_000 * 1_000_000);
        format!(
            "search for {} of {engine} {op} {size}, trials of at most {most}",
            self.goal
        )
    }
}
