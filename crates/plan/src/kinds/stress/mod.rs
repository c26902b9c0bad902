//! Experiments that test an engine with random transfers: `[[stress]]` tables and `tonnage stress`, and the points that
//! they expand to.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `options` | the options of an experiment |
//! | [`point`] | one cell, with everything fixed |
//! | `expand` | the point of an experiment, the checks of its options, and what makes it a kind |
//! | [`draw`] | random transfers from a seed, each repeatable by a command line |
//! | `random` | pseudorandom numbers from a seed |
//!
//! `tonnage_bench` measures a draw like any transfer.

pub mod draw;
mod expand;
mod options;
pub mod point;
mod random;

pub use draw::DrawnTransfer;
pub use options::{DrawOptions, Stress, StressLength};
pub use point::StressPoint;
