//! Experiments with collectives: `[[collective]]` tables and `tonnage collective`, and the points that they expand to.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `options` | the options of an experiment |
//! | [`groups`] | groups of ranks that call at once |
//! | [`point`] | one cell of a sweep, with everything fixed |
//! | `expand` | the points of an experiment, the checks of its options, and what makes it a kind |
//!
//! `tonnage_collective` defines operations, element types and algorithms. `tonnage_bench` measures the points.

mod expand;
pub mod groups;
mod options;
pub mod point;

pub use groups::{GroupPosition, Grouping, Groups};
pub use options::{CallOptions, CheckOptions, CollectiveJob};
pub use point::{Align, CollectivePoint, RankTime, Refill};
