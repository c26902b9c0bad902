//! A simulator: carries out the programs of all ranks for several calls in a row, on sets of contributors instead of
//! numbers.
//!
//! It does not only see what happens in the order in which it happens to take steps. Each rank knows how far all others
//! are at least, by what messages and grants have told it; and each access to an element has an end that must be known
//! to whoever accesses it next, if one of both writes. A put is such an access, at both its ends, from when it is
//! issued until the receiver has awaited it. So what could go wrong in any order of things is found in each.

mod clock;
mod memory;
mod rank;
mod value;
mod world;

use crate::steps::Program;
use crate::{Reduction, Shape};

pub use world::{Order, run};

/// Programs of all ranks, and the call that they are for.
#[derive(Debug, Clone)]
pub struct Case {
    pub shape: Shape,
    pub reduction: Reduction,
    pub in_place: bool,
    pub programs: Vec<Program>,
    /// Calls in a row.
    pub calls: u32,
}
