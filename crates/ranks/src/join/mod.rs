//! Joining: the ranks of a run find each other and become a tree.
//!
//! All other ranks connect to rank 0 and introduce themselves. Once all ranks have arrived and are compatible, rank 0
//! sends each its parent. A rank with a parent other than rank 0 then connects to that parent. The result is a
//! [`TreePosition`] of open connections, which the control thread ([`crate::tree::control`]) takes over.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`admission`] | rank 0's side |
//! | [`late_join`] | rank 0's port during the run |
//! | [`membership`] | the side of all other ranks |
//! | [`address`] | addresses on which ranks listen |
//! | [`connection`] | connecting to such an address |
//! | [`open_files`] | the limit on open files of ranks with many connections |
//! | [`introduction`] | connecting and introducing this rank until the peer confirms it |
//! | [`handshake`] | connections that are not authenticated yet; last messages on connections that fail |
//! | [`refusals`] | refused connections, by reason |
//! | [`wait_notice`] | notices while ranks wait for each other |

pub(crate) mod address;
pub(crate) mod admission;
mod connection;
mod handshake;
mod introduction;
pub(crate) mod late_join;
mod membership;
mod open_files;
mod refusals;
mod wait_notice;

pub(crate) use handshake::MARGIN;

use crate::RankInfo;
use crate::bootstrap::options::JoinOptions;
use crate::signals::Signals;
use crate::tree::shape::TreePosition;
use tonnage_units::Error;
use tonnage_units::identity::Identity;

/// Number of control-channel bytes until a rank has its position in the tree, including encryption overhead. Bytes of
/// later collectives are counted in `crate::tree::node`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JoinBytes {
    /// Received from rank 0. On rank 0: received from all other ranks.
    pub got: u64,
    /// Sent to rank 0. On rank 0: sent to all other ranks.
    pub said: u64,
    /// Received from a parent that is not rank 0.
    pub got_of_parent: u64,
    /// Sent to a parent that is not rank 0.
    pub said_to_parent: u64,
}

/// Failure of a rank to join or to end normally.
#[derive(Debug)]
pub struct RankFailure {
    pub error: Error,
    /// Whether another rank or the supervisor reports the failure. If so, this rank must not report it again.
    pub is_told: bool,
}

impl RankFailure {
    /// Creates the failure from a cause that rank 0 sent to rank `me`. If the cause is about `me`, rank `me` reports
    /// it, because rank 0 does not report ranks that are merely too late.
    fn from_root(error: Error, me: u32) -> Self {
        let is_own = matches!(&error, Error::Rank { rank, .. } if *rank == me);
        Self {
            error,
            is_told: !is_own,
        }
    }
}

impl From<RankFailure> for Error {
    fn from(failure: RankFailure) -> Self {
        failure.error
    }
}

impl From<Error> for RankFailure {
    fn from(error: Error) -> Self {
        Self {
            error,
            is_told: false,
        }
    }
}

/// Parameters of a joining rank, which all steps of joining share.
#[derive(Clone, Copy)]
pub(crate) struct Joiner<'a> {
    identity: &'a Identity,
    me: &'a RankInfo,
    options: &'a JoinOptions,
}

/// Joins the run.
pub(crate) fn join(
    identity: &Identity,
    me: &RankInfo,
    options: &mut JoinOptions,
    signals: &mut Signals,
) -> Result<TreePosition, RankFailure> {
    let listener = options.listener.take();
    let joiner = Joiner {
        identity,
        me,
        options,
    };
    match identity.rank {
        0 if identity.size == 1 => Ok(TreePosition {
            parent: None,
            children: Vec::new(),
            table: vec![me.clone()],
            door: None,
            has_roots_clock: true,
            ranks_per_cpu: 1,
            bytes: JoinBytes::default(),
        }),
        0 => admission::admit(joiner, listener, signals),
        _ => membership::become_member(joiner, signals),
    }
}
