//! Data of collectives whose result is known exactly, and the comparison with it.
//!
//! Every element of every rank's input follows from (seed, call, rank, element), and so does every result, without
//! adding up what the ranks give. Results are exact in their type whatever the order and grouping of the reduction,
//! and differ from call to call, so that what was left of another call, rank or place is found. Each file says how.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`call`] | one call's inputs, outputs, and outputs before the call |
//! | [`memory`] | the same in mapped memory |
//! | [`compare`] | comparison with the expected |
//! | [`cause`], [`number`] | explanations of wrong elements; elements as numbers |
//! | [`share`] | reductions for which every rank counts in every element |
//! | `plan` | data of each reduction, of `spread`, `balanced`, `extreme` and `power` |
//! | `moved` | data that are moved and not combined |
//! | `hash`, `lane` | random numbers, and elements as bytes |

mod balanced;
pub mod call;
pub mod cause;
pub mod compare;
mod extreme;
mod hash;
mod lane;
pub mod memory;
mod moved;
pub mod number;
mod plan;
mod power;
pub mod share;
mod spread;
#[cfg(test)]
mod tests;

pub use call::{Data, Origin, RANKS_MAX};
pub use cause::WrongCause;
pub use compare::{WrongElement, WrongElements};
pub use number::ElementValue;
