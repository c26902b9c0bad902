//! The tables of `tonnage verify`: one row for each engine or backend and operation, with what was checked and what was
//! found.
//!
//! | file | what it draws |
//! | --- | --- |
//! | `transfers` | operations of engines |
//! | `collectives` | operations of backends of collectives |
//! | `rows` | the table of either, and what stands below it |

mod collectives;
mod rows;
mod transfers;

pub use collectives::VerifyCollectives;
pub use transfers::VerifyTransfers;

/// The name of the plan whose records are drawn this way.
pub const PLAN: &str = "verify";
