//! The straight line of tonnage: plan → ranks → engine → samples → statistics → record.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`plan`] | what a user asks for, and the list of points it expands to |
//! | [`rank`] | the processes of a run and the control channel between them |
//! | [`engine`] | the traits that an engine implements |
//! | [`memory`] | where the bytes live, and what is written into them to be verified |
//! | [`pattern`], [`layout`], [`walk`] | which byte belongs where, and in which order places are used |
//! | [`files`] | which byte of a file belongs where |
//! | [`drive`] | the timed loops |
//! | [`stats`] | histograms, means and confidence |
//! | [`record`] | one line of results |
//! | [`machine`] | what this host is made of |
//! | [`run`] | the conductor that takes a plan through all of these |
//!
//! Reports are not here: they read records only, and live in the `tonnage` crate.
#![forbid(unsafe_code)]

pub mod drive;
pub mod engine;
pub mod error;
pub mod files;
pub mod layout;
pub mod machine;
pub mod memory;
pub mod number_list;
pub mod pattern;
pub mod plan;
pub mod rank;
pub mod record;
pub mod run;
pub mod stats;
pub mod units;
pub mod walk;

pub use error::{Error, Result};
