//! Experiments that set up connections: `[[connect]]` tables and `tonnage connect`, and the points that they expand to.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `options` | the options of an experiment |
//! | [`point`] | one cell of a sweep, with everything fixed |
//! | `expand` | the points of an experiment, the checks of its options, and what makes it a kind |
//!
//! `tonnage_bench` measures the points.

mod expand;
mod options;
pub mod point;

pub use options::{Connect, ConnectLength, ConnectionOptions};
pub use point::ConnectPoint;
