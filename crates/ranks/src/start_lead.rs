//! Lead of a common start, once all ranks have joined.

use crate::RankInfo;
use crate::tree::shape::parent_of;

/// Lead of a common start: once the longest way to a rank and back, what the nodes on that way need to tell their
/// children one after the other, and what a host needs to wake all its ranks.
pub(crate) fn lead_ns(longest_rtt_ns: u64, infos: &[RankInfo], fanout: u32) -> u64 {
    const LEAD_NS_MIN: u64 = 500_000;
    const TELL_NS: u64 = 20_000;
    const WAKE_NS: u64 = 40_000;
    let size = u32::try_from(infos.len()).unwrap_or(u32::MAX);
    let mut depth = 0u64;
    let mut rank = size.saturating_sub(1);
    while rank > 0 {
        rank = parent_of(rank, fanout);
        depth += 1;
    }
    let telling_ns = depth * TELL_NS * u64::from(fanout.min(size));
    let together = infos
        .iter()
        .filter_map(|info| info.local_size)
        .max()
        .unwrap_or(1);
    LEAD_NS_MIN
        .max(longest_rtt_ns)
        .saturating_add(telling_ns)
        .saturating_add(u64::from(together.saturating_sub(1)) * WAKE_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(rank: u32, boot_id: &str, local_size: Option<u32>) -> RankInfo {
        RankInfo {
            rank,
            host: "h".into(),
            pid: 1,
            boot_id: boot_id.into(),
            network_namespace: String::new(),
            pid_namespace: String::new(),
            local_rank: 0,
            local_size,
        }
    }

    #[test]
    fn the_lead_grows_with_the_tree_and_the_way() {
        let hosts = |size: u32, local| -> Vec<_> {
            (0..size).map(|rank| info(rank, "", Some(local))).collect()
        };
        assert_eq!(lead_ns(0, &hosts(1, 1), 32), 500_000);
        assert!(lead_ns(0, &hosts(1000, 8), 32) > lead_ns(0, &hosts(33, 8), 32));
        assert!(lead_ns(0, &hosts(8, 8), 32) > lead_ns(0, &hosts(8, 1), 32));
        assert!(lead_ns(2_000_000, &hosts(2, 1), 32) >= 2_000_000);
    }
}
