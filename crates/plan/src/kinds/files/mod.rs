//! Experiments with files: options of `[[file]]` tables and of `tonnage file`, and the points that these options expand
//! to.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `options` | the options of a job, in their groups |
//! | `names` | values that are written as one word, such as `read-shift = "node"` |
//! | [`point`] | one cell of a sweep, with everything fixed |
//! | `expand` | the points of a job, and the traits of a kind |
//! | `base` | properties that all points of a job share, and their checks |
//! | `cell` | engine, block, transfer and depth of one point, and the checks of these |
//! | `scale` | jobs with fewer bytes, or with fewer ranks than planned |
//!
//! `tonnage_bench::kinds::files` measures the points.

mod base;
mod cell;
mod expand;
mod names;
mod options;
pub mod point;
mod scale;

pub use names::{ReadShift, StripeCount, Verify};
pub use options::{
    DataOptions, FileJob, FileLengthOptions, FilesOptions, HowOptions, ResultsOptions, WorkOptions,
};
pub use point::{
    DataKind, FileLayout, FileOrder, FilePoint, Fsync, Phase, Published, ReadFrom, Stonewall,
    Striping,
};

#[cfg(test)]
mod tests;
