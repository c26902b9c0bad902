//! Joining: the ranks of a run find each other and become a tree.
//!
//! Everybody but rank 0 connects to rank 0 and says who it is. When all have come and fit together, rank 0 tells each
//! its parent; a rank whose parent is not rank 0 connects there. What is made here is a [`TreePosition`] of open
//! connections, which the control thread ([`crate::tree::control`]) then owns.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`admission`] | rank 0's side |
//! | [`bytes`] | the count of what that costs |
//! | [`conditions`] | the comparison of a rank with the run |
//! | [`crowd`] | connections to all ranks that have joined, as one thing to wait for |
//! | [`door`] | rank 0's port when the run has begun |
//! | [`membership`] | the side of all others |
//! | [`address`] | addresses that ranks listen on |
//! | [`connection`] | connecting to one of them |
//! | [`failure`] | what a rank that cannot join ends with |
//! | [`open_files`] | the limit on open files, where others connect to this rank |
//! | [`introduction`] | connecting to a rank that listens and saying who this one is, until that was heard |
//! | [`handshake`] | connections that have yet to prove who they are; last words on those that fail |
//! | [`refusals`] | connections that were shown out, by reason |

pub(crate) mod address;
mod admission;
pub(crate) mod bytes;
pub(crate) mod conditions;
mod connection;
mod crowd;
pub(crate) mod door;
mod failure;
mod handshake;
mod introduction;
mod membership;
mod open_files;
mod refusals;

pub use bytes::JoinBytes;
pub(crate) use failure::JoinFailure;
pub(crate) use handshake::MARGIN;

use crate::RankInfo;
use crate::bootstrap::options::JoinOptions;
use crate::signals::Signals;
use crate::tree::shape::TreePosition;
use tonnage_units::identity::Identity;

/// Joins the run.
pub(crate) fn join(
    identity: &Identity,
    me: &RankInfo,
    options: &mut JoinOptions,
    signals: &mut Signals,
) -> Result<TreePosition, JoinFailure> {
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
        0 => admission::admit(identity, me, options, signals),
        _ => membership::become_member(identity, me, options, signals),
    }
}
