//! Experiments with files: `[[file]]` tables and `tonnage file`, and the points that they expand to.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`point`] | one cell of a sweep, with everything fixed |
//! | `names` | names of layouts, orders, phases, …, and other values of one word |
//! | `options` | the groups of options |
//! | `base` | properties that all points of a job share, and their checks |
//! | `cell` | engine, block, transfer and window of one point, and the checks of these |
//! | `scale` | fewer bytes, and fewer ranks than the plan is made for |
//! | `nodes` | numbers of nodes, once it is known which ranks share one |
//!
//! Measuring a point is not known here; see `tonnage_bench::kinds::files`.

mod base;
mod cell;
mod names;
mod nodes;
mod options;
pub mod point;
mod scale;

use clap::Args;

use crate::expand::{POINTS_MAX, RANKS_MAX};
use crate::point::Reading;
pub use names::{ReadShift, StripeCount, Verify};
pub(crate) use nodes::ranks_of_node;
pub use options::{
    DataOptions, FilesOptions, HowOptions, LengthOptions, ResultsOptions, WorkOptions,
};
pub use point::{
    DataKind, FileLayout, FileOrder, FilePoint, Fsync, Phase, Published, ReadFrom, Stonewall,
    Striping,
};
pub(crate) use scale::move_files;
use tonnage_engine::Lists;
use tonnage_units::Bytes;
use tonnage_units::{Error, Result};

/// One file experiment. What is absent gets its default when the plan is expanded; several engines, blocks, transfers and
/// windows multiply.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct FileJob {
    /// Files to read or write.
    #[command(flatten)]
    pub files: FilesOptions,
    /// Reads and writes.
    #[command(flatten)]
    pub work: WorkOptions,
    /// Engine and its use.
    #[command(flatten)]
    pub how: HowOptions,
    /// Data in the files.
    #[command(flatten)]
    pub data: DataOptions,
    /// Length of the measurement.
    #[command(flatten)]
    pub length: LengthOptions,
    /// Facts that its results stand beside.
    #[command(flatten)]
    pub results: ResultsOptions,
}

crate::groups! {
    FileJob: "file", "a file experiment", needs &[("path", "data/file")];
    files, how, work, data, length, results
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
