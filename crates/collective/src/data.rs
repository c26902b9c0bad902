//! Inputs of collectives with exactly known results, and comparison with these results.
//!
//! Every element of every rank's input follows from (seed, call, rank, element). So does every result, without adding
//! up the ranks' inputs. Results are exact in their type for any order and grouping of the reduction. They differ from
//! call to call, so that data left over from another call, rank or location is detected. Each file explains how.
//!
//! | file | contents |
//! | --- | --- |
//! | [`call`] | inputs and outputs of one call, and the output buffer before it |
//! | [`memory`] | the same in mapped memory |
//! | [`compare`] | comparison with the expected output |
//! | [`cause`], [`number`] | explanations of wrong elements; elements as numbers |
//! | [`share`] | how many elements of a reduction depend on each rank |
//! | `plan` | data of each reduction, built from `spread`, `balanced`, `extreme` and `power` |
//! | `moved` | data that is moved but not combined |
//! | `hash`, `encode` | random numbers, and encoding of elements |

mod balanced;
pub mod call;
pub mod cause;
pub mod compare;
mod encode;
mod extreme;
mod hash;
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
