//! Experiments that search for the best options of a transfer: `[[tune]]` tables and `tonnage tune`, and their points.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `options` | the options of an experiment |
//! | [`point`] | one search, and its candidates |
//! | `expand` | the points of an experiment, and what makes it a kind |
//! | [`accepted_start`] | values to begin with, and the error if there are none |
//! | `dimensions` | values that compete, the cheapest first |
//!
//! `tonnage_bench` measures a candidate like any transfer.

pub mod accepted_start;
mod dimensions;
mod expand;
mod options;
pub mod point;

pub use options::{SearchOptions, Tune};
pub use point::{Goal, TuneDimension, TunePoint};
