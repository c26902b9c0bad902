//! The fraction of elements that depend on each rank's part, for each type, reduction and number of ranks.
//!
//! The fraction is 1 if the type has room for a nonzero part of every rank. Otherwise only some ranks' parts of a sum
//! are nonzero. A minimum or maximum depends on only one rank.

use super::plan::DataPlan;
use crate::{Dtype, Reduction};

/// Fraction of the results that would differ without a given rank's part.
pub fn deciding_share(dtype: Dtype, reduction: Reduction, ranks: u32) -> f64 {
    DataPlan::new(dtype, reduction, ranks.max(1)).share()
}
