//! Share of the elements in which a rank's part decides, for each type, reduction and number of ranks.
//!
//! It is 1 wherever a type has room for it. Least and largest elements are decided by one rank, and sums of a type that
//! cannot count all ranks have as many parts as it can count.

use super::plan::DataPlan;
use crate::{Dtype, Reduction};

/// Share of the elements whose result would be another one without the part of any one rank.
pub fn of(dtype: Dtype, reduction: Reduction, ranks: u32) -> f64 {
    DataPlan::new(dtype, reduction, ranks.max(1)).share()
}
