//! Inputs of collectives with exactly known results, and comparison with these results.
//!
//! Every element of every rank's input follows from (seed, call, rank, element). Every result is also computed
//! directly, without adding up the inputs. Results are exact in their type for any order and grouping of the reduction.
//! They differ between calls, so that data left over from another call, rank or offset is detected. Each file explains
//! its method.
//!
//! | file | contents |
//! | --- | --- |
//! | [`call`] | inputs and outputs of one call, and the output buffer before it |
//! | [`memory`] | writing these inputs and outputs to mapped memory, and checking them there |
//! | [`compare`] | comparison with the expected output |
//! | [`cause`], [`number`] | explanations of wrong elements; elements as numbers |
//! | [`share`] | how many elements of a reduction depend on each rank |
//! | `plan` | selects the data for each reduction: `spread`, `balanced`, `extreme` or `power` |
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
pub use compare::{WrongElements, WrongGroup};
pub use number::ElementValue;
