//! The plan of a run, and the list of points that it expands to.
//!
//! Every run starts with a [`Plan`]: a plan file is read into it ([`mod@read`]), or `tonnage_commands` converts a
//! command line to it. [`Plan::points`] checks everything that can be checked before a rank starts, and expands the
//! plan to [`Point`]s. Each kind of experiment is a folder with its options, its points and the expansion of options to
//! points.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`kinds`] | the list of kinds, and a folder for each |
//! | [`kind`] | the traits of a kind |
//! | [`plan`] | a plan, and changes to a plan as a whole |
//! | [`given`] | points copied from records |
//! | [`mod@read`] | a plan as TOML, read and written |
//! | [`expand`] | the points of a plan, of all kinds |
//! | [`order`] | points in the order of one of several repetitions |
//! | [`point`] | parts that points of several kinds share |
//! | [`roles`] | initiators and their targets: a traffic pattern among the ranks of a run |
//! | [`options`] | options, their groups and their tables |
//! | [`sweep`] | the grammar of several values for one option |
//! | [`published`] | tables of published figures, to compare with |
//! | [`skipping`] | the option to skip points that the machine cannot run |
//! | [`bounds`] | bounds that hold for several kinds |
//! | `testing` | points for tests |
//! | `place` | placements of thread pairs on sockets |
//! | `refuse` | errors for requests that cannot be measured |
//! | `conflicts` | options that cannot be combined, as rows |
//!
//! `tonnage_bench` measures the points.

#![forbid(unsafe_code)]

pub mod bounds;
pub mod cells;
mod conflicts;
mod engine_choice;
pub mod expand;
pub mod given;
mod gpu_options;
pub mod kind;
pub mod kinds;
pub mod options;
pub mod order;
mod place;
pub mod plan;
pub mod point;
pub mod published;
pub mod read;
mod refuse;
pub mod roles;
pub mod skipping;
pub mod sweep;

#[cfg(test)]
mod fixture;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use expand::Planned;
pub use kinds::*;
pub use plan::{Origin, Plan};
pub use point::PointNotes;
