//! Joining: the ranks of a run find each other and become a tree.
//!
//! Everybody but rank 0 connects to rank 0 and says who it is. When all have come and fit together, rank 0 tells each
//! its parent; a rank whose parent is not rank 0 connects there. What is made here is a [`TreePosition`] of open
//! connections, which the control thread ([`crate::tree::control`]) then owns.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`admission`] | rank 0's side |
//! | [`door`] | rank 0's port when the run has begun |
//! | [`membership`] | the side of all others |
//! | [`address`] | addresses that ranks listen on |
//! | [`connection`] | connecting to one of them |
//! | [`open_files`] | the limit on open files, where others connect to this rank |
//! | [`introduction`] | connecting to a rank that listens and saying who this one is, until that was heard |
//! | [`handshake`] | connections that have yet to prove who they are; last words on those that fail |
//! | [`refusals`] | connections that were shown out, by reason |

pub(crate) mod address;
pub(crate) mod admission;
mod connection;
pub(crate) mod door;
mod handshake;
mod introduction;
mod membership;
mod open_files;
mod refusals;

pub(crate) use handshake::MARGIN;

use crate::RankInfo;
use crate::bootstrap::options::JoinOptions;
use crate::signals::Signals;
use crate::tree::shape::TreePosition;
use tonnage_units::Error;
use tonnage_units::identity::Identity;

/// Bytes of the control channel until a rank has its place in the tree, those of the encryption included. Those of later
/// exchanges are counted in `crate::tree::node`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JoinBytes {
    /// From rank 0; at rank 0, from all others.
    pub got: u64,
    /// To them.
    pub said: u64,
    /// From a parent that is not rank 0.
    pub got_of_parent: u64,
    /// To it.
    pub said_to_parent: u64,
}

/// Failure of a rank to join, or to end in order.
#[derive(Debug)]
pub struct RankFailure {
    pub error: Error,
    /// True where another rank or the supervisor says it, so that it is said once.
    pub is_told: bool,
}

impl RankFailure {
    /// Failure that rank 0 has told the rank `me` of. One that is about this rank alone rank 0 says only where the run
    /// fails by it, and not to who comes too late.
    fn heard(error: Error, me: u32) -> Self {
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

/// A rank that joins, as all steps of joining see it.
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
