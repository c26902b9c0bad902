//! Wire form of the list of all ranks. If ranks of a host share names, the names are stored once.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::RankInfo;
use crate::rank_info::shared_text;
use tonnage_units::{Error, Result};

/// All ranks of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RankList {
    places: Vec<ListedLocation>,
    /// In rank order.
    ranks: Vec<ListedRank>,
}

/// Names that several ranks can share, as in [`RankInfo`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct ListedLocation {
    #[serde(with = "shared_text")]
    host: Arc<str>,
    #[serde(with = "shared_text")]
    boot_id: Arc<str>,
    #[serde(with = "shared_text")]
    network_namespace: Arc<str>,
    #[serde(with = "shared_text")]
    pid_namespace: Arc<str>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ListedRank {
    place: u32,
    pid: u32,
    local_rank: u32,
    local_size: Option<u32>,
}

impl RankList {
    /// Builds the list from all ranks of a run.
    pub(crate) fn from_infos(mut infos: Vec<RankInfo>) -> Self {
        infos.sort_by_key(|info| info.rank);
        let (mut known, mut places, mut ranks) = (HashMap::new(), Vec::new(), Vec::new());
        for info in infos {
            let place = ListedLocation {
                host: info.host,
                boot_id: info.boot_id,
                network_namespace: info.network_namespace,
                pid_namespace: info.pid_namespace,
            };
            let next = places.len() as u32;
            let at = *known.entry(place.clone()).or_insert(next);
            if at == next {
                places.push(place);
            }
            ranks.push(ListedRank {
                place: at,
                pid: info.pid,
                local_rank: info.local_rank,
                local_size: info.local_size,
            });
        }
        Self { places, ranks }
    }

    /// Returns the ranks in order. Ranks of the same place share the allocations of its names.
    pub(crate) fn infos(self, size: u32) -> Result<Vec<RankInfo>> {
        let incomplete = || Error::Failed("the list of ranks is incomplete".into());
        if self.ranks.len() != size as usize {
            return Err(incomplete());
        }
        let info = |(rank, listed): (u32, ListedRank)| {
            let place = self.places.get(listed.place as usize);
            let place = place.ok_or_else(incomplete)?.clone();
            Ok(RankInfo {
                rank,
                host: place.host,
                pid: listed.pid,
                boot_id: place.boot_id,
                network_namespace: place.network_namespace,
                pid_namespace: place.pid_namespace,
                local_rank: listed.local_rank,
                local_size: listed.local_size,
            })
        };
        (0u32..).zip(self.ranks).map(info).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pack, unpack};

    fn infos(size: u32) -> Vec<RankInfo> {
        let info = |rank: u32| RankInfo {
            rank,
            host: format!("host-{}", rank / 8).into(),
            pid: 1000 + rank,
            boot_id: "0123-4567-89ab".repeat(2 + rank as usize / 8 % 2).into(),
            network_namespace: "net:[4026531840]".into(),
            pid_namespace: "pid:[4026531836]".into(),
            local_rank: rank % 8,
            local_size: Some(8),
        };
        (0..size).map(info).collect()
    }

    #[test]
    fn the_list_round_trips_in_rank_order() {
        let all = infos(20);
        let reversed = all.iter().rev().cloned().collect();
        let bytes = pack(&RankList::from_infos(reversed)).unwrap();
        let list: RankList = unpack(&bytes).unwrap();
        assert_eq!(list.infos(20).unwrap(), all);
    }

    /// Ranks of a host must share the allocations of its names. Each rank keeps the whole list, and with many ranks,
    /// separate copies would dominate the cost of joining.
    #[test]
    fn ranks_of_a_host_share_its_names() {
        let list = pack(&RankList::from_infos(infos(17))).unwrap();
        let all = unpack::<RankList>(&list).unwrap().infos(17).unwrap();
        let next = all.iter().zip(&all[1..]);
        let apart: Vec<u32> = next
            .filter(|(one, next)| !one.shares_allocations(next))
            .map(|(_, next)| next.rank)
            .collect();
        assert_eq!(apart, [8, 16]);
        assert!(!infos(2)[0].shares_allocations(&infos(2)[0]));
    }

    #[test]
    fn a_rank_adds_few_bytes_and_a_host_its_names_once() {
        let bytes = |size| pack(&RankList::from_infos(infos(size))).unwrap().len();
        assert!(bytes(8) - bytes(4) <= 4 * 8);
        assert!(bytes(8000) < 8000 * 20);
    }

    #[test]
    fn a_list_of_the_wrong_length_is_refused() {
        assert!(RankList::from_infos(infos(3)).infos(4).is_err());
        let mut list = RankList::from_infos(infos(3));
        list.places.clear();
        assert!(list.infos(3).is_err());
    }
}
