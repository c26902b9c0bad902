//! A simulator. It executes the programs of all ranks for several consecutive calls. Elements are sets of contributors
//! instead of numbers.
//!
//! It detects more races than those that occur in its own order of steps. Each rank tracks how far every other rank
//! must have got, according to the messages and grants that it has received. Each access to an element has an end. The
//! next rank to access the element must know that the access has ended, if either of the two accesses is a write.
//!
//! A put is an access at both its source and its target. It lasts from when it is issued until the receiver has awaited
//! it. So a race that could occur in some order of events is found in every order.

mod clock;
mod memory;
mod rank;
mod value;
mod world;

use crate::steps::Program;
use crate::{Reduction, Shape};

pub use world::{Order, run};

/// Programs of all ranks, and the call that they perform.
#[derive(Debug, Clone)]
pub struct Case {
    pub shape: Shape,
    pub reduction: Reduction,
    pub in_place: bool,
    pub programs: Vec<Program>,
    /// Number of consecutive calls.
    pub calls: u32,
}
