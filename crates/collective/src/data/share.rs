//! How many elements depend on each rank's part, for each type, reduction and number of ranks.
//!
//! The share is 1 if the type has room for it. Only one rank determines a minimum or maximum. Sums of a type too small
//! to count all ranks have as many nonzero parts as it can count.

use super::plan::DataPlan;
use crate::{Dtype, Reduction};

/// Share of the elements whose result would differ without the part of any one rank.
pub fn deciding_share(dtype: Dtype, reduction: Reduction, ranks: u32) -> f64 {
    DataPlan::new(dtype, reduction, ranks.max(1)).share()
}
