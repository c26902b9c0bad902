//! Transfers between the memories of ranks.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`session`] | an engine that is open on all ranks |
//! | [`layout`] | whose part of a worker's memory is where |
//! | [`point`] | one point from warm-up to its figures |
//! | [`crew`], [`work`], `flows` | the workers of a rank, what each does in a trial, and what it drives |
//! | [`verify`] | what should be where after a trial |
//! | [`totals`], [`summary`] | what workers and ranks add up to, and trials to a summary |

pub mod crew;
pub(crate) mod flows;
pub mod layout;
pub mod point;
pub mod session;
pub mod summary;
pub mod totals;
pub mod verify;
pub mod work;
