//! What a rank works out when all have joined: who shares a host, and how far ahead a common start must be.

use std::collections::HashMap;

use crate::RankInfo;
use crate::tree::shape::parent_of;

/// Fills in what the launcher did not say: ranks of one boot are ranks of one host.
pub(crate) fn count_local_ranks(infos: &mut [RankInfo]) {
    let hosts: Vec<String> = infos
        .iter()
        .map(|info| {
            if info.boot_id.is_empty() {
                &info.host
            } else {
                &info.boot_id
            }
            .clone()
        })
        .collect();
    let mut seen = HashMap::<&str, u32>::new();
    let mut places = Vec::new();
    for host in &hosts {
        let count = seen.entry(host).or_default();
        places.push(*count);
        *count += 1;
    }
    for ((info, host), place) in infos.iter_mut().zip(&hosts).zip(places) {
        if info.local_size.is_none() {
            info.local_rank = place;
            info.local_size = seen.get(host.as_str()).copied();
        }
    }
}

/// Merges two numbers into the larger.
pub(crate) fn keep_larger(all: &mut Vec<u8>, one: &[u8]) {
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
    if number(one) > number(all) {
        one.clone_into(all);
    }
}

/// How far ahead a common start is set: once the longest way to a rank and back, what the nodes on that way need to tell
/// their children one after the other, and what a host needs to wake all its ranks.
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

    #[test]
    fn local_ranks_are_counted_by_boot() {
        let mut infos = vec![info(0, "a", None), info(1, "b", None), info(2, "a", None)];
        count_local_ranks(&mut infos);
        let places: Vec<_> = infos
            .iter()
            .map(|info| (info.local_rank, info.local_size))
            .collect();
        assert_eq!(places, [(0, Some(2)), (0, Some(1)), (1, Some(2))]);
        let mut told = vec![info(0, "a", Some(4))];
        count_local_ranks(&mut told);
        assert_eq!(told[0].local_size, Some(4));
    }
}
