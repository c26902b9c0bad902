//! The lead of a synchronized start: how far ahead it must be scheduled so that every rank learns of it in time.

use crate::RankInfo;
use crate::tree::shape::ancestors;

/// Computes the lead. It covers three times: the longest round trip to a rank, the time that nodes take to send to
/// their children one after the other, and the time to wake all participating ranks of a host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartLead {
    longest_rtt_ns: u64,
    /// Number of levels of the tree below rank 0.
    depth: u64,
    fanout: u32,
    /// Largest number of ranks on one host.
    ranks_per_host_max: u32,
}

impl StartLead {
    pub(crate) fn new(longest_rtt_ns: u64, infos: &[RankInfo], fanout: u32) -> Self {
        let last = infos.last().map_or(0, |info| info.rank);
        let ranks_per_host_max = infos.iter().filter_map(|info| info.local_size).max();
        Self {
            longest_rtt_ns,
            depth: ancestors(last, fanout).count() as u64,
            fanout,
            ranks_per_host_max: ranks_per_host_max.unwrap_or(1),
        }
    }

    /// Returns the lead of a start of `members` ranks.
    pub(crate) fn ns(&self, members: u32) -> u64 {
        const LEAD_NS_MIN: u64 = 500_000;
        const SEND_NS: u64 = 20_000;
        const WAKE_NS: u64 = 40_000;
        let sending_ns = self.depth * SEND_NS * u64::from(self.fanout.min(members));
        let ranks_per_host_max = self.ranks_per_host_max.min(members);
        LEAD_NS_MIN
            .max(self.longest_rtt_ns)
            .saturating_add(sending_ns)
            .saturating_add(u64::from(ranks_per_host_max.saturating_sub(1)) * WAKE_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::rank_info;

    #[test]
    fn the_lead_grows_with_tree_depth_round_trip_and_members() {
        let lead_ns = |longest_rtt_ns, size: u32, local| {
            let info = |rank| RankInfo {
                local_size: Some(local),
                ..rank_info(rank, "h")
            };
            let infos: Vec<_> = (0..size).map(info).collect();
            let lead = StartLead::new(longest_rtt_ns, &infos, 32);
            (lead.ns(size), lead.ns(2))
        };
        assert_eq!(lead_ns(0, 1, 1).0, 500_000);
        assert!(lead_ns(0, 1000, 8).0 > lead_ns(0, 33, 8).0);
        assert!(lead_ns(0, 8, 8).0 > lead_ns(0, 8, 1).0);
        assert!(lead_ns(2_000_000, 2, 1).0 >= 2_000_000);
        let (all, two) = lead_ns(0, 64, 64);
        assert!(
            (500_000..700_000).contains(&two) && all > 3_000_000,
            "{two} {all}"
        );
    }
}
