//! The shape of the tree of ranks: parents and children, one rank's position with its open connections, and the limit
//! on messages. [`crate::join`] builds the tree; [`super::node`] uses it.

use std::net::IpAddr;
use std::ops::Range;

use crate::RankInfo;
use crate::channel::Channel;
use crate::join::JoinBytes;
use crate::join::late_join::LateJoinListener;

/// A connection to a rank of this run.
pub(crate) struct PeerConnection {
    pub(crate) channel: Channel,
    pub(crate) info: RankInfo,
}

/// One rank's position in the tree.
pub(crate) struct TreePosition {
    pub(crate) parent: Option<PeerConnection>,
    pub(crate) children: Vec<PeerConnection>,
    /// All ranks. On ranks other than 0, the list is empty.
    pub(crate) table: Vec<RankInfo>,
    /// Rank 0's port for late ranks, if it stays open.
    pub(crate) door: Option<LateJoinListener>,
    /// Whether this rank's clock has the same name as rank 0's.
    pub(crate) has_roots_clock: bool,
    /// Number of ranks on the most crowded CPU of all hosts.
    pub(crate) ranks_per_cpu: u32,
    /// Number of control-channel bytes that joining took.
    pub(crate) bytes: JoinBytes,
}

impl TreePosition {
    /// Returns this host's address on the connection to the parent, or to the first child if there is no parent.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        let relative = self.parent.as_ref().or(self.children.first())?;
        let address = relative.channel.local_addr().ok()?;
        Some(address.ip().to_canonical())
    }
}

/// Returns the limit on a message of the control channel. It suffices to gather the endpoint addresses of all ranks'
/// workers.
pub(crate) fn message_bytes_max(size: u32) -> usize {
    const EACH: usize = 64 << 10;
    const SLACK: usize = 16 << 20;
    const TOTAL: usize = 1 << 30;
    (size as usize)
        .saturating_mul(EACH)
        .saturating_add(SLACK)
        .min(TOTAL)
}

/// Returns the parent of a rank other than 0.
pub(crate) fn parent_of(rank: u32, fanout: u32) -> u32 {
    rank.saturating_sub(1) / fanout.max(1)
}

/// Iterates over the ancestors of a rank, up to and including rank 0.
pub(crate) fn ancestors(rank: u32, fanout: u32) -> impl Iterator<Item = u32> {
    let parent = move |rank: &u32| (*rank > 0).then(|| parent_of(*rank, fanout));
    std::iter::successors(Some(rank), parent).skip(1)
}

/// Returns the children of a rank.
pub(crate) fn children_of(rank: u32, size: u32, fanout: u32) -> Range<u32> {
    let fanout = u64::from(fanout.max(1));
    let first = u64::from(rank) * fanout + 1;
    let bound = |rank: u64| u32::try_from(rank).unwrap_or(u32::MAX).min(size);
    bound(first)..bound(first + fanout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_and_children_agree() {
        for fanout in [1, 2, 32] {
            for size in [1u32, 2, 13, 100] {
                let mut seen = 0;
                for rank in 0..size {
                    for child in children_of(rank, size, fanout) {
                        assert_eq!(parent_of(child, fanout), rank);
                        seen += 1;
                    }
                }
                assert_eq!(seen, size - 1, "fan-out {fanout}, {size} ranks");
            }
        }
        assert!(children_of(u32::MAX - 1, u32::MAX, u32::MAX).is_empty());
    }

    #[test]
    fn a_gather_of_cards_fits() {
        for size in [1u32, 2, 100, 10_000] {
            let cards = size as usize * (8 + (16 << 10));
            assert!(message_bytes_max(size) > cards, "{size}");
        }
        assert_eq!(message_bytes_max(u32::MAX), 1 << 30);
    }
}
