//! The processes of a run and the control channel between them.
//!
//! A run has `size` ranks. [`detect()`] finds out which one this process is, [`Rank::join`] finds the others, and the
//! [`Rank`] that it gives is what the rest of the program sees: exchanges between all ranks, the knowledge that a rank
//! is lost, and a common start. Payload never travels here: bytes that are measured belong to engines.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`bootstrap`] | this process's rank, the meeting place of the ranks, and the secret that proves that they belong together |
//! | [`spawn`] | starting ranks, and looking after them |
//! | `join` | ranks find each other and become a tree |
//! | `channel` | one encrypted connection, its frames ([`frame`]) and its messages ([`message`]) |
//! | `tree` | the control thread's side: collectives, clocks, missing ranks |
//! | [`hosts`] | who shares a host, a network, CPUs |
//! | `handle`, `agreement`, `start_lead` | [`Rank`], the main thread's side |
//! | `patience` | time-outs where many ranks share a CPU |
//! | `threads` | ranks that are threads of one process |
//! | `rank_set`, `rank_info`, `rank_list` | sets of ranks; what is known of each; all ranks as they are told to each |
//! | `signals` | SIGINT and SIGTERM as something to wait for |
//!
//! The measurements of a run, and the messages of its ranks about them, are in `tonnage_bench`; the form of a place in
//! a run is in [`tonnage_units::identity`].

#![forbid(unsafe_code)]

mod agreement;
pub mod bootstrap;
mod channel;
mod handle;
pub mod hosts;
mod join;
mod patience;
mod rank_info;
mod rank_list;
mod rank_set;
mod signals;
mod sleepers;
pub mod spawn;
mod start_lead;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod threads;
mod tree;

pub use bootstrap::detect::{Explicit, detect};
pub use bootstrap::launchers::is_of_launcher;
pub use bootstrap::options::JoinOptions;
pub use bootstrap::rendezvous::{Met, meet};
pub use bootstrap::secret::{Secret, plan_hash};
pub use channel::pack::{pack, unpack};
pub use channel::{frame, message};
pub use handle::{Alarm, Alike, Circle, Notes, Pending, Rank, STEP_MARK};
pub use hosts::Hosts;
pub use join::{JoinBytes, RankFailure};
pub use rank_info::RankInfo;
use serde::{Deserialize, Serialize};
pub use signals::Signals;
pub use sleepers::{Sleeper, Sleepers};
pub use threads::{ThreadRank, thread_ranks};
pub use tonnage_units::identity::{AddressSource, Exchange, Identity, Meeting};

/// Difference between this rank's `CLOCK_MONOTONIC` and rank 0's. Exactly 0 and 0 for a rank of the same boot and time
/// namespace, if an exchange with rank 0 agrees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Subtract it from a local time to get rank 0's.
    pub offset_ns: i64,
    /// The estimate cannot be off by more.
    pub uncertainty_ns: u64,
}
