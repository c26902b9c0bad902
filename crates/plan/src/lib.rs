//! The plan of a run, and the list of points that it expands to.
//!
//! A [`Plan`] is the one way in: a plan file is read into it ([`mod@read`]), a command line is compiled to it (in the
//! `tonnage` crate), and [`Plan::points`] turns it into [`Point`]s after checking everything that can be checked
//! before a rank starts. Each kind of experiment is a folder: its options, its points, and how one becomes the other.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`kinds`] | the list of kinds, and a folder for each |
//! | [`kind`] | the traits of a kind |
//! | [`plan`] | a plan, and what changes one as a whole |
//! | [`given`] | points as records have them |
//! | [`mod@read`] | a plan as TOML, read and written |
//! | [`expand`] | the points of a plan, whatever their kind |
//! | [`order`] | points in the order of one of several repetitions |
//! | [`point`] | what points of several kinds share |
//! | [`roles`] | who initiates towards whom: a traffic pattern among so many ranks |
//! | [`options`] | what an option is, and tables of them |
//! | [`sweep`] | the grammar of several values for one option |
//! | [`published`] | tables of figures that others measured |
//! | [`skipping`] | the option by which a machine may lack what an experiment needs |
//! | [`bounds`] | bounds that hold for several kinds |
//! | `testing` | points for tests |
//! | `place` | places of pairs that an experiment is measured in |
//! | `refuse` | the error of a plan that cannot be measured |
//! | `conflicts` | options that cannot be combined, as rows |
//!
//! Measuring a point is not known here; see `tonnage_bench`.

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
pub use plan::Plan;
pub use point::Reading;
