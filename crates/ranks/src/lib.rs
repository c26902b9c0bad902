//! The processes of a run and the control channel between them.
//!
//! A run has `size` ranks. [`detect()`] finds out which one this process is, [`Rank::join`] finds the others, and the
//! [`Rank`] that it gives is what the rest of the program sees: exchanges between all ranks, the knowledge that a rank
//! is lost, and a common start. Payload never travels here: bytes that are measured belong to engines.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`mod@detect`], `launchers`, `slurm`, `first_host` | who am I, and how will the ranks meet |
//! | [`rendezvous`], `card`, `pmi1` | ranks that a launcher started agree on a place and a secret |
//! | [`secret`] | what proves that a connection belongs to the run |
//! | [`options`] | deadlines and choices of a run |
//! | [`local`] | starting ranks on this host and looking after them |
//! | `handle`, `agreement`, `settle` | [`Rank`], the main thread's side |
//! | `join`, `membership`, `address`, `handshake` | ranks find each other and become a tree |
//! | `control`, `protocol`, `collective`, `missing`, `clock` | the control thread's side |
//! | `channel`, [`frame`], [`message`] | one encrypted connection, and the bytes on it |
//! | `shared`, `signals` | between the threads, and from outside |

#![forbid(unsafe_code)]

mod address;
mod agreement;
mod card;
mod channel;
mod clock;
mod collective;
mod control;
pub mod detect;
mod first_host;
pub mod frame;
mod handle;
mod handshake;
mod join;
mod launchers;
pub mod local;
mod membership;
pub mod message;
mod missing;
pub mod options;
mod pmi1;
mod protocol;
pub mod rendezvous;
pub mod secret;
mod settle;
mod shared;
mod signals;
mod slurm;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use detect::{Exchange, Explicit, Identity, Meeting, SaidBy, detect};
pub use handle::{Pending, Rank};
pub use options::JoinOptions;
pub use rendezvous::{Met, meet};
pub use secret::Secret;

/// What every rank knows of every rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankInfo {
    /// 0 .. size.
    pub rank: u32,
    /// Its host's name.
    pub host: String,
    /// Its process, as its host counts.
    pub pid: u32,
    /// Changes when its host starts anew; two ranks with the same one share memory, CPUs and clock. Empty if the system
    /// does not say it.
    pub boot_id: String,
    /// Its place among the ranks of its host.
    pub local_rank: u32,
    /// How many ranks its host has; always there once all have joined.
    pub local_size: Option<u32>,
}

/// How this host's `CLOCK_MONOTONIC` differs from rank 0's. Exactly 0 and 0 on the same boot of the same host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockOffset {
    /// Subtract it from a local time to get rank 0's.
    pub offset_ns: i64,
    /// The estimate cannot be off by more.
    pub uncertainty_ns: u64,
}
