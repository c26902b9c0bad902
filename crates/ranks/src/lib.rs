//! The processes of a run and the control channel between them.
//!
//! A run has `size` ranks. [`detect()`] finds this process's rank, and [`Rank::join`] finds the other ranks. The rest
//! of the program uses the resulting [`Rank`]: exchanges between all ranks, failure detection, and a common start. Only
//! control messages are sent here; engines move the measured bytes.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`bootstrap`] | this process's rank, the meeting place of the ranks, and the secret that proves that they belong together |
//! | [`spawn`] | starting ranks and supervising them |
//! | `join` | ranks find each other and become a tree |
//! | `channel` | one encrypted connection, its frames ([`frame`]) and its messages ([`message`]) |
//! | `tree` | a rank's node of the tree and its control thread: collectives, clocks, missing ranks |
//! | [`hosts`] | ranks that share a host, a network, or CPUs |
//! | `handle`, `agreement`, `start_lead` | [`Rank`], the main thread's side |
//! | `shared_cpu_time` | longer time-outs if many ranks share a CPU |
//! | `threads` | ranks that are threads of one process |
//! | `rank_set`, `rank_info`, `rank_list` | sets of ranks; facts about each rank; the list of all ranks that every rank gets |
//! | `signals` | SIGINT and SIGTERM as events to wait for |
//!
//! Measurements, and the ranks' messages about them, are in `tonnage_bench`. The type of a rank's identity is in
//! [`tonnage_units::identity`].

#![forbid(unsafe_code)]

mod agreement;
pub mod bootstrap;
mod channel;
mod handle;
pub mod hosts;
mod join;
mod rank_info;
mod rank_list;
mod rank_set;
mod shared_cpu_time;
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

pub use bootstrap::detect::{ExplicitRank, detect};
pub use bootstrap::launchers::is_launcher_variable;
pub use bootstrap::options::JoinOptions;
pub use bootstrap::rendezvous::{Rendezvous, meet};
pub use bootstrap::secret::{Secret, plan_hash};
pub use channel::pack::{pack, unpack};
pub use channel::{frame, message};
pub use handle::{Alarm, Distinct, Notes, PendingCollective, Rank, RankGroup, STEP_MARK};
pub use hosts::Hosts;
pub use join::{JoinBytes, RankFailure};
pub use rank_info::RankInfo;
use serde::{Deserialize, Serialize};
pub use signals::Signals;
pub use sleepers::{Sleeper, Sleepers};
pub use threads::{ThreadRank, thread_ranks};
pub use tonnage_units::identity::{AddressSource, Exchange, Identity, Meeting};

/// Difference between this rank's `CLOCK_MONOTONIC` and rank 0's. Both fields are exactly 0 if the clocks are the
/// same: the boot IDs and time namespaces are equal, and an exchange confirms it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Subtract this from a local time to get rank 0's time.
    pub offset_ns: i64,
    /// Largest possible error of `offset_ns`.
    pub uncertainty_ns: u64,
}
