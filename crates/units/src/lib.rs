//! Small types that all crates share: quantities as users write them, names, and the error type.
//!
//! | module | contents |
//! | --- | --- |
//! | [`quantity`] | sizes, times, rates: parsed, printed, and rounded for tables |
//! | [`number_list`] | lists of numbers such as "0-3,8" |
//! | [`mod@names`] | names that options take, and the nearest match for an unknown name |
//! | [`written`] | values in a plan file |
//! | [`message`] | messages on standard error |
//! | [`error`] | the kinds of errors and their exit codes |
//! | [`histogram`] | latencies, which timed loops record |
//! | [`reduce`] | reductions over threads and ranks |
//! | [`identity`] | a rank's place in the run |
//! | [`pair_place`] | sockets of two workers that exchange bytes |
//! | [`wire`] | the name of a device that payload crosses |
//! | [`lock`] | locking a mutex even if its last holder panicked |
//!
//! Nothing here depends on engines, plans or ranks. The operating system is in `tonnage_sys`; the contract of engines
//! is in `tonnage_engine`.
#![forbid(unsafe_code)]

pub mod error;
pub mod histogram;
pub mod identity;
pub mod lock;
pub mod message;
pub mod names;
pub mod number_list;
pub mod pair_place;
pub mod quantity;
pub mod reduce;
pub mod wire;

#[cfg(feature = "schema")]
#[doc(hidden)]
pub use schemars;
pub mod written;

pub use error::{Error, Result};
pub use identity::Identity;
pub use pair_place::PairPlace;
pub use quantity::*;
pub use reduce::Reduce;
pub use wire::{WireDevice, WireKind};
