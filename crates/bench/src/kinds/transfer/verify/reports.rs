//! Reports of a round about the flows that begin or end at one rank. They come from the rank's own workers, and from
//! the ranks with which it exchanges bytes. These ranks report only their flows to this rank.

use std::collections::{BTreeMap, BTreeSet};

use crate::kinds::transfer::layout::SliceLayout;
use crate::kinds::transfer::trial::{IssuedOfFlow, IssuedOperations};
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{RankGroup, pack, unpack};
use tonnage_units::{Error, Result};

/// A rank's message to another rank. For each worker of the sender, it has the operations that were issued to the
/// receiver; `None` if there is no such flow.
type PeerReport = Vec<Option<IssuedOfFlow>>;

/// Reports that one rank has.
#[derive(Debug)]
pub struct IssuedReports {
    /// Reports of the rank's own workers.
    own: Vec<IssuedOperations>,
    /// Reports of other ranks, about their flows to this one.
    received: BTreeMap<u32, PeerReport>,
    /// The ranks that took part in the round.
    group: RankGroup,
}

/// Returns the messages of `rank` to the members of a round's group to which it has flows. Worker `w` drives
/// `points[w]` and has issued `issued[w]`.
pub fn messages(
    points: &[&TransferPoint],
    rank: u32,
    issued: &[IssuedOperations],
    group: &RankGroup,
) -> Result<Vec<(u32, Vec<u8>)>> {
    let layouts = points.iter().map(|point| SliceLayout::new(point, rank));
    let layouts: Vec<_> = layouts.collect();
    let workers = || layouts.iter().zip(issued);
    let to_one = |to: u32| -> PeerReport {
        let flow = |(layout, issued): (&SliceLayout, &IssuedOperations)| {
            issued.of_flow(layout.out.binary_search(&to).ok()?)
        };
        workers().map(flow).collect()
    };
    // Only targets need a message. In a round of pairs, a rank has one target, regardless of the group's size.
    let targets: BTreeSet<u32> = layouts
        .iter()
        .flat_map(|layout| layout.out.clone())
        .collect();
    let targets = targets.into_iter().filter(|to| group.contains(*to));
    let outgoing = targets.map(|to| (to, to_one(to)));
    let outgoing = outgoing.filter(|(_, flows)| flows.iter().any(Option::is_some));
    outgoing
        .map(|(to, flows)| Ok((to, pack(&flows)?)))
        .collect()
}

impl IssuedReports {
    /// Combines the reports of this rank's workers with the messages from other members of the round's group.
    pub fn new(
        own: Vec<IssuedOperations>,
        group: RankGroup,
        received: &[(u32, Vec<u8>)],
    ) -> Result<Self> {
        let read = |(from, bytes): &(u32, Vec<u8>)| Ok((*from, unpack(bytes)?));
        let received = received.iter().map(read).collect::<Result<_>>()?;
        Ok(Self {
            own,
            received,
            group,
        })
    }

    /// Returns the operations of a flow that begins or ends at `rank`, for one worker. A rank that took no part has
    /// issued none.
    pub fn of_flow(
        &self,
        (rank, layout): (u32, &SliceLayout),
        worker: usize,
        (from, to): (u32, u32),
    ) -> Result<IssuedOfFlow> {
        let is_own = from == rank;
        let took_no_part = if is_own {
            self.own.is_empty()
        } else {
            !self.group.contains(from)
        };
        let issued = if took_no_part {
            Some(IssuedOfFlow::default())
        } else if is_own {
            let place = layout.out.binary_search(&to).ok();
            place.and_then(|place| self.own.get(worker)?.of_flow(place))
        } else {
            let workers = self.received.get(&from);
            workers.and_then(|workers| *workers.get(worker)?)
        };
        issued.ok_or_else(|| {
            Error::Failed(format!(
                "rank {from} reported flows that its plan does not have"
            ))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tonnage_plan::point::Traffic;
    use tonnage_plan::testing::slots_point as point;
    use tonnage_plan::transfer::Access;

    /// Returns the reports that `rank` has after a round in which worker `w` of rank `r` issued `issued[r][w]`.
    pub(crate) fn reports(
        point: &TransferPoint,
        rank: u32,
        issued: &[Vec<IssuedOperations>],
    ) -> IssuedReports {
        let ranks = || {
            (0u32..)
                .zip(issued)
                .filter(|(_, issued)| !issued.is_empty())
        };
        let group = RankGroup::new(1, ranks().map(|(rank, _)| rank));
        let mut received = Vec::new();
        for (from, issued) in ranks() {
            let points = vec![point; issued.len()];
            let outgoing = messages(&points, from, issued, &group).unwrap();
            let outgoing = outgoing.into_iter().find(|(to, _)| *to == rank);
            received.extend(outgoing.map(|(_, bytes)| (from, bytes)));
        }
        let own = issued[rank as usize].clone();
        IssuedReports::new(own, group, &received).unwrap()
    }

    #[test]
    fn a_target_gets_reports_of_its_own_flows_only() {
        let bytes_of_the_last = |ranks: u32| {
            let mut point = point(Access::Sequential, 4);
            (point.roles.traffic, point.roles.ranks) = (Traffic::AllToAll, ranks);
            let issued = IssuedOperations {
                ranges: (1..ranks).map(|to| (u64::from(to), 1000)).collect(),
                digests: Vec::new(),
            };
            let outgoing = messages(&[&point], 0, &[issued], &RankGroup::new(1, 0..ranks)).unwrap();
            assert_eq!(outgoing.len(), ranks as usize - 1);
            outgoing.last().map(|(_, bytes)| bytes.len())
        };
        assert_eq!(bytes_of_the_last(3), bytes_of_the_last(60));
    }
}
