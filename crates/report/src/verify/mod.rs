//! The tables of `tonnage verify`: one row per engine or backend and operation, with the amount of verified data and
//! the result.
//!
//! | file | output |
//! | --- | --- |
//! | `transfers` | operations of engines |
//! | `collectives` | operations of backends of collectives |
//! | `rows` | rows and lines below the table, used by both |

mod collectives;
mod rows;
mod transfers;

pub use collectives::VerifyCollectives;
pub use transfers::VerifyTransfers;

/// Name of the plan that uses these reports.
pub const PLAN: &str = "verify";
