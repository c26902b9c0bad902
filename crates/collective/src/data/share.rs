//! The fraction of elements that depend on each rank's part, for each type, reduction and number of ranks.
//!
//! The fraction is 1 if the range of the type suffices. A minimum or maximum depends on only one rank. If a type is too
//! small for a sum of all ranks' parts, only some parts are nonzero.

use super::plan::DataPlan;
use crate::{Dtype, Reduction};

/// Fraction of the results that would differ without a given rank's part.
pub fn deciding_share(dtype: Dtype, reduction: Reduction, ranks: u32) -> f64 {
    DataPlan::new(dtype, reduction, ranks.max(1)).share()
}
