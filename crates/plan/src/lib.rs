//! What a user asks for, and the list of points it expands to.
//!
//! A [`Plan`] is the one way in: a plan file is read into it ([`mod@file`]), a command line is compiled to it (in the
//! `tonnage` crate), and [`Plan::points`] and [`Plan::file_points`] turn it into [`point::Point`]s and
//! [`file_point::FilePoint`]s after checking everything that can be checked before a rank starts.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`mod@file`] | a plan as TOML, read and written |
//! | [`sweep`] | the grammar of several values for one option |
//! | [`names`] | names of verbs, traffic, memory, …, and the nearest one to a name that is none of them |
//! | [`expand`] | the points of a plan, and the checks of engines, verbs and ranks |
//! | [`pacing`], [`length`], [`layout`] | the checks and defaults of one group of options each |
//! | [`point`] | one cell of a sweep, with everything fixed |
//! | [`files`], [`file_point`] | the same for experiments with files |
//!
//! How a point is measured is not known here; see the timed loops and `run`.

#![forbid(unsafe_code)]

pub mod expand;
pub mod file;
pub mod file_point;
pub mod files;
pub mod layout;
pub mod length;
pub mod names;
pub mod pacing;
pub mod point;
pub mod sweep;
mod text;

#[cfg(test)]
mod fixture;

use serde::Deserialize;

use files::FileJob;
use point::{Addresses, LimitChoice, Traffic};
use sweep::Sweep;
use tonnage_engine::memory::MemoryKind;
use tonnage_engine::{EngineOptions, Verb};
use tonnage_units::{Bytes, Count, Fraction, Nanos, PerSecond};
use tonnage_units::{Error, Result};

/// Everything that one run is asked to measure.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Short name, repeated in every record.
    pub name: String,
    /// One line for the head of a report.
    #[serde(default)]
    pub title: Option<String>,
    /// Ranks that the plan is made for; the command line may ask for others.
    #[serde(default, deserialize_with = "text::optional_u32")]
    pub ranks: Option<u32>,
    /// The experiments between memories, in order.
    #[serde(default, rename = "transfer")]
    pub transfers: Vec<Transfer>,
    /// The experiments with files, in order; they come after those between memories.
    #[serde(default, rename = "file")]
    pub files: Vec<FileJob>,
}

/// One experiment: a `[[transfer]]` table, or one `tonnage transfer` command line. Each field is the option of the
/// same name; what is absent gets its default when the plan is expanded. Several values multiply.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Transfer {
    /// Heading for its points.
    #[serde(default)]
    pub label: Option<String>,
    /// Names of engines, with what follows their colon.
    #[serde(deserialize_with = "text::one_or_many")]
    pub engine: Vec<String>,
    /// Options of the engines' own, by name; each must be known to all engines of the transfer.
    #[serde(default)]
    pub engine_options: EngineOptions,
    /// What each operation does.
    #[serde(deserialize_with = "text::one_or_many")]
    pub op: Vec<Verb>,
    /// Who talks to whom; `pair` by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub traffic: Option<Traffic>,
    /// Payload bytes of one operation.
    #[serde(deserialize_with = "text::sweep")]
    pub sizes: Sweep,
    /// Operations in flight on each lane; 64 by default.
    #[serde(default, deserialize_with = "text::optional_sweep")]
    pub window: Option<Sweep>,
    /// Operations of one batch: post all, wait for all.
    #[serde(default, deserialize_with = "text::optional_sweep")]
    pub batch: Option<Sweep>,
    /// One operation, then wait for the answer.
    #[serde(default)]
    pub ping_pong: bool,
    /// Open loop: operations per second of each initiating rank.
    #[serde(default, deserialize_with = "text::optional")]
    pub rate: Option<PerSecond>,
    /// Pinned threads in each rank; 1 by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub workers: Option<Count>,
    /// Where the bytes live; `host` by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub memory: Option<MemoryKind>,
    /// Bytes over which the operations of one lane walk.
    #[serde(default, deserialize_with = "text::optional")]
    pub footprint: Option<Bytes>,
    /// Distance between the starts of two neighbouring slots.
    #[serde(default, deserialize_with = "text::optional")]
    pub stride: Option<Bytes>,
    /// In which order slots are used; `sequential` by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub addresses: Option<Addresses>,
    /// Seeds addresses and data; 1 by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub seed: Option<Count>,
    /// Whether latencies are recorded; they are by default.
    #[serde(default)]
    pub latency: Option<bool>,
    /// Whether every trial's bytes are checked, outside the clock.
    #[serde(default)]
    pub verify: bool,
    /// What the bandwidth is set beside; `auto` by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub limit: Option<LimitChoice>,
    /// Timed repetitions of each point; 5 by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub trials: Option<Count>,
    /// Length of one trial; 200 ms by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub trial_time: Option<Nanos>,
    /// Operations of each worker in one trial, instead of a time.
    #[serde(default, deserialize_with = "text::optional")]
    pub iters: Option<Count>,
    /// Measured time of a point, split evenly over its trials.
    #[serde(default, deserialize_with = "text::optional")]
    pub duration: Option<Nanos>,
    /// Untimed operations before the first trial; 50 ms by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub warmup: Option<Nanos>,
    /// Go on until the 95 % confidence interval of the mean bandwidth is this narrow.
    #[serde(default, deserialize_with = "text::optional")]
    pub until_ci: Option<Fraction>,
    /// With `until_ci`: the longest measured time of a point; 60 s by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub max_duration: Option<Nanos>,
}

impl Plan {
    /// Scales how long everything is measured. Between memories that is time: trial time, duration, iterations and the
    /// bound of `until-ci`, but never below one iteration or one millisecond of each trial; trials and warm-up stay as
    /// they are. With files it is bytes: those of all the ranks that the plan is made for, times the factor, are shared
    /// out to the `ranks` of the run (see [`FileJob`]'s segments and block); stonewalls stay as they are.
    ///
    /// # Errors
    /// When `factor` is not a number from 1/1,000,000,000 to 100,000.
    pub fn scale(&mut self, factor: f64, ranks: u32) -> Result<()> {
        if !(1e-9..=1e5).contains(&factor) {
            return Err(Error::Usage(format!(
                "scale {factor} makes no sense: write a factor from 0.000000001 to 100000, such as 0.1 or 10"
            )));
        }
        for transfer in &mut self.transfers {
            length::scale(transfer, factor);
        }
        let planned = self.ranks.unwrap_or(ranks).max(1);
        let of_rank = factor * f64::from(planned) / f64::from(ranks.max(1));
        for job in &mut self.files {
            job.scale(of_rank);
        }
        Ok(())
    }

    /// Makes a plan that names its ranks one for this many. Where that is fewer than it was made for, ranks that would
    /// read files of a rank too far behind them read those of the farthest that there is.
    pub fn fit_ranks(&mut self, ranks: u32) {
        if self.ranks.is_some_and(|planned| planned > ranks) {
            for job in &mut self.files {
                job.fit_ranks(ranks);
            }
        }
        self.ranks = self.ranks.map(|_| ranks);
    }

    /// Moves the files of all file experiments to `place`: a directory (one that is there, or a name that ends with a
    /// slash) gets them under their own names, anything else is put before their names with a dash.
    ///
    /// # Errors
    /// `Usage` when that would make one file of two, or the plan has no files.
    pub fn move_files(&mut self, place: &str) -> Result<()> {
        if self.files.is_empty() {
            return Err(Error::Usage(format!(
                "path {place} has no effect on a plan without a [[file]] table: leave it out"
            )));
        }
        files::move_files(&mut self.files, place)
    }

    /// Whether something in the plan is counted in nodes, so that [`Plan::resolve_nodes`] has to be called once it is
    /// known which ranks share one.
    pub fn counts_nodes(&self) -> bool {
        self.files.iter().any(FileJob::counts_nodes)
    }

    /// Turns what is counted in nodes into ranks; `hosts` says of each rank where it is.
    ///
    /// # Errors
    /// `Usage` when a rank would read what it wrote itself.
    pub fn resolve_nodes<H: PartialEq>(&mut self, hosts: &[H]) -> Result<()> {
        let ranks_of_node = files::ranks_of_node(hosts);
        let ranks = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let mut jobs = self.files.iter_mut();
        jobs.try_for_each(|job| job.resolve_nodes(ranks_of_node, ranks))
    }

    /// The text from which the ranks of a run see that they run the same plan with the same version of tonnage.
    pub fn hash_text(&self) -> String {
        format!("tonnage {}\n{}", env!("CARGO_PKG_VERSION"), self.to_toml())
    }
}
