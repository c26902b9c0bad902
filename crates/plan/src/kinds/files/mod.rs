//! Experiments with files: `[[file]]` tables and `tonnage file`, and the points that they expand to.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `options` | the options of a job, in their groups |
//! | `names` | names of layouts, orders, phases, …, and other values of one word |
//! | [`point`] | one cell of a sweep, with everything fixed |
//! | `expand` | the points of a job, and what makes it a kind |
//! | `base` | properties that all points of a job share, and their checks |
//! | `cell` | engine, block, transfer and window of one point, and the checks of these |
//! | `scale` | fewer bytes, and fewer ranks than the plan is made for |
//!
//! Measuring a point is not known here; see `tonnage_bench::kinds::files`.

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
