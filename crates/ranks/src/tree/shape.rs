//! The tree that the ranks form: who is whose parent, the open connections of one rank's place in it, and how long a
//! message may be. It is made in [`crate::join`] and used by [`super::control`].

use std::net::IpAddr;
use std::ops::Range;

use crate::RankInfo;
use crate::channel::Channel;
use crate::join::JoinBytes;
use crate::join::door::LateDoor;

/// A connection to a rank of this run.
pub(crate) struct PeerConnection {
    pub(crate) channel: Channel,
    pub(crate) info: RankInfo,
}

/// One rank's place in the tree.
pub(crate) struct TreePosition {
    pub(crate) parent: Option<PeerConnection>,
    pub(crate) children: Vec<PeerConnection>,
    /// All ranks; only rank 0 has it.
    pub(crate) table: Vec<RankInfo>,
    /// The port at which latecomers are turned away, where rank 0 has one.
    pub(crate) door: Option<LateDoor>,
    /// True where this rank's clock has the same name as rank 0's.
    pub(crate) has_roots_clock: bool,
    /// Number of ranks of the most crowded CPU of all hosts.
    pub(crate) ranks_per_cpu: u32,
    /// Bytes that it took to come here.
    pub(crate) bytes: JoinBytes,
}

impl TreePosition {
    /// The address of this host that its nearest relative is connected to.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        let relative = self.parent.as_ref().or(self.children.first())?;
        let address = relative.channel.local_addr().ok()?;
        Some(address.ip().to_canonical())
    }
}

/// The longest message of the control channel: enough for a gather of what a rank may publish about its workers.
pub(crate) fn message_bytes_max(size: u32) -> usize {
    const EACH: usize = 64 << 10;
    const SLACK: usize = 16 << 20;
    const TOTAL: usize = 1 << 30;
    (size as usize)
        .saturating_mul(EACH)
        .saturating_add(SLACK)
        .min(TOTAL)
}

/// The parent of a rank other than 0.
pub(crate) fn parent_of(rank: u32, fanout: u32) -> u32 {
    rank.saturating_sub(1) / fanout.max(1)
}

/// The ranks between a rank and rank 0, which is the last of them.
pub(crate) fn ancestors(rank: u32, fanout: u32) -> impl Iterator<Item = u32> {
    let parent = move |rank: &u32| (*rank > 0).then(|| parent_of(*rank, fanout));
    std::iter::successors(Some(rank), parent).skip(1)
}

/// The children of a rank.
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
