//! What a user asks of files: `[[file]]` tables and `tonnage file`, and the points that they expand to.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`point`] | one cell of a sweep, with everything fixed |
//! | `names` | names of layouts, orders, phases, …, and what else is written as one word |
//! | `toml` | a [`FileJob`] as it is written in a plan |
//! | `base` | what all points of a job share, and the checks of it |
//! | `cell` | engine, block, transfer and window of one point, and the checks of these |
//! | `scale` | fewer bytes, and fewer ranks than the plan is made for |
//! | `nodes` | what is asked for in nodes, once it is known who shares one |
//!
//! How a point is measured is not known here; see `run/files.rs`.

mod base;
mod cell;
mod names;
mod nodes;
pub mod point;
mod scale;
mod toml;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::expand::{POINTS_MAX, RANKS_MAX};
use crate::point::{LimitChoice, Reading};
use crate::sweep::Sweep;
use crate::text;
pub use names::{ReadShift, StripeCount, Verify};
pub(crate) use nodes::ranks_of_node;
pub use point::{
    DataKind, FileLayout, FileOrder, FilePoint, Fsync, Phase, Published, ReadFrom, Stonewall,
    Striping,
};
pub(crate) use scale::move_files;
pub(crate) use toml::{FILE_KEYS, FILE_NEEDS};
use tonnage_engine::{EngineOptions, Lists};
use tonnage_units::{Bytes, Count, Nanos};
use tonnage_units::{Error, Result};

/// One file experiment: a `[[file]]` table, or one `tonnage file` command line. Each field is the option of the same
/// name; what is absent gets its default when the plan is expanded. Several engines, blocks, transfers and windows
/// multiply.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileJob {
    /// Heading for its points.
    #[serde(default)]
    pub label: Option<String>,
    /// Names of engines; `posix` when there are none.
    #[serde(default, deserialize_with = "text::one_or_many")]
    pub engine: Vec<String>,
    /// Options of the engines' own, by name; each must be known to all engines of the job.
    #[serde(default)]
    pub engine_options: EngineOptions,
    /// Hints for the engine's library, by name.
    #[serde(default, deserialize_with = "text::by_name")]
    pub hints: BTreeMap<String, String>,
    /// Where the files are. With several, each rank takes one in turn.
    #[serde(deserialize_with = "text::whole_texts")]
    pub path: Vec<String>,
    /// One file for all ranks or one for each; `shared` by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub layout: Option<FileLayout>,
    /// Each rank's file is in a directory of its own.
    #[serde(default)]
    pub directory_per_rank: bool,
    /// Each trial has files of its own.
    #[serde(default)]
    pub file_per_trial: bool,
    /// Bytes of one rank in one segment; 1 MiB by default.
    #[serde(default, deserialize_with = "text::optional_sweep")]
    pub block: Option<Sweep>,
    /// Bytes of one read or write; 256 KiB by default.
    #[serde(default, deserialize_with = "text::optional_sweep")]
    pub transfer: Option<Sweep>,
    /// How often the sequence of all ranks' blocks is repeated; 1 by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub segments: Option<Count>,
    /// In which order a rank's transfers are made; `sequential` by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub order: Option<FileOrder>,
    /// Seeds the order and the choice between read and write; 1 by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub seed: Option<Count>,
    /// What is measured, in order; write and then read when there are none.
    #[serde(default, deserialize_with = "text::one_or_many")]
    pub phases: Vec<Phase>,
    /// How many of 100 transfers of a mixed phase are reads.
    #[serde(default, deserialize_with = "text::optional")]
    pub read_percent: Option<Count>,
    /// Read what the rank this many ranks or nodes behind wrote; 0 by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub read_shift: Option<ReadShift>,
    /// Read what another rank wrote, by a permutation with this seed.
    #[serde(default, deserialize_with = "text::optional")]
    pub read_shuffled: Option<Count>,
    /// When written data is forced to stable storage; `none` by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub fsync: Option<Fsync>,
    /// Without the page cache.
    #[serde(default)]
    pub direct: bool,
    /// All ranks make each transfer together.
    #[serde(default)]
    pub collective: bool,
    /// Each rank sees only its own parts of the shared file.
    #[serde(default)]
    pub file_view: bool,
    /// All ranks wait for each other between open, transfers and close.
    #[serde(default)]
    pub barriers: bool,
    /// Files stay when the run is over.
    #[serde(default)]
    pub keep: bool,
    /// Existing files are not removed before they are written.
    #[serde(default)]
    pub existing: bool,
    /// Threads of each rank that make transfers; 1 by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub threads: Option<Count>,
    /// Transfers in flight for each thread.
    #[serde(default, deserialize_with = "text::optional_sweep")]
    pub window: Option<Sweep>,
    /// A phase makes no new transfers after this time.
    #[serde(default, deserialize_with = "text::optional")]
    pub stonewall: Option<Nanos>,
    /// After the stonewall all ranks go on until each has made as many transfers as the fastest had.
    #[serde(default)]
    pub wear_out: bool,
    /// With `wear-out`: at least so many transfers of each rank.
    #[serde(default, deserialize_with = "text::optional")]
    pub wear_out_transfers: Option<Count>,
    /// The file that keeps how many transfers of each rank were written, for a run that reads them.
    #[serde(default)]
    pub stonewall_status: Option<String>,
    /// Files are filled before the first phase, outside the clock.
    #[serde(default)]
    pub prefill: bool,
    /// What is written; `random` by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub data: Option<DataKind>,
    /// Seeds what is written; each write phase takes a random one by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub data_seed: Option<Count>,
    /// Whether bytes are checked, and after which phases, outside the clock.
    #[serde(default, deserialize_with = "names::verify")]
    pub verify: Option<Verify>,
    /// Cached bytes of the files are dropped before each phase that reads.
    #[serde(default)]
    pub drop_caches: bool,
    /// Over how many targets new files are spread.
    #[serde(default, deserialize_with = "text::optional")]
    pub stripe_count: Option<StripeCount>,
    /// Bytes on one target before the next one's turn.
    #[serde(default, deserialize_with = "text::optional")]
    pub stripe_size: Option<Bytes>,
    /// A rank is an outlier when it needs this much longer than the mean.
    #[serde(default, deserialize_with = "text::optional")]
    pub outlier: Option<Nanos>,
    /// Repetitions of all phases; 1 by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub trials: Option<Count>,
    /// Pause before each phase but the first.
    #[serde(default, deserialize_with = "text::optional")]
    pub delay: Option<Nanos>,
    /// No further repetition begins after this time.
    #[serde(default, deserialize_with = "text::optional")]
    pub max_duration: Option<Nanos>,
    /// What the bandwidth is set beside; `auto` by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub limit: Option<LimitChoice>,
    /// What others measured with the same options.
    #[serde(default)]
    pub published: Vec<Published>,
}

fn usage<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Usage(message.into()))
}

/// Refuses a point that is there already.
pub(crate) fn twice(point: &FilePoint) -> Error {
    Error::Usage(format!(
        "the same point is asked for twice (engine {}, block {}, transfer {}): leave one of them out, or give one a \
         label",
        point.engine,
        Bytes(point.block_bytes),
        Bytes(point.transfer_bytes)
    ))
}

/// The points of one job, in each engine, block, window and transfer, the last of these varying fastest; at most
/// `room`. And what stands beside the results of all of them.
///
/// # Errors
/// `Usage` for everything that can be found wrong without starting a rank.
pub(crate) fn expand(
    job: &FileJob,
    ranks: u32,
    lists: &Lists,
    room: usize,
) -> Result<(Vec<FilePoint>, Reading)> {
    if ranks == 0 || ranks > RANKS_MAX {
        return usage(format!(
            "a run of {ranks} ranks is not possible: use --ranks 1 to --ranks {RANKS_MAX}"
        ));
    }
    let base = base::base(job, ranks)?;
    let reading = base::reading(job, &base)?;
    let entries = cell::entries(job, lists)?;
    let axes = cell::Axes::of(job)?;
    let total = axes.count(entries.len());
    if total > room {
        return usage(format!(
            "the plan has more than {POINTS_MAX} points, and this job alone has {total}: use coarser sweeps, or \
             several plans"
        ));
    }
    let mut points = Vec::with_capacity(total);
    for named in &entries {
        for sizes in axes.cells() {
            points.push(cell::point(&base, named, sizes)?);
        }
    }
    Ok((points, reading))
}

#[cfg(test)]
pub(crate) mod arbitrary;
#[cfg(test)]
mod tests;
