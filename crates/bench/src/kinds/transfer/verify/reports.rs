//! Reports of a round about the flows that begin or end at one rank: of its own workers, and of the ranks that it
//! exchanges bytes with, which tell it nothing about their other flows.

use std::collections::BTreeMap;

use crate::kinds::transfer::layout::SliceLayout;
use crate::kinds::transfer::trial::{FlowIssued, Issued};
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{pack, unpack};
use tonnage_units::{Error, Result};

/// A rank's words to one other: what each of its workers issued towards it, where it has a flow to it.
type ToOne = Vec<Option<FlowIssued>>;

/// Reports that one rank has.
#[derive(Debug, Default)]
pub struct Reports {
    /// Of its own workers.
    own: Vec<Issued>,
    /// Of the other ranks that took part; of one that has no flow to this rank an empty list.
    heard: BTreeMap<u32, ToOne>,
}

/// Messages of `rank`, of whose workers each drives one of `points` and `issued` so much, to those of the other `ranks`
/// of a round that it has flows to.
///
/// # Errors
/// When one cannot be written.
pub fn messages(
    points: &[&TransferPoint],
    rank: u32,
    issued: &[Issued],
    ranks: impl Iterator<Item = u32>,
) -> Result<Vec<(u32, Vec<u8>)>> {
    let layouts = points.iter().map(|point| SliceLayout::new(point, rank));
    let layouts: Vec<_> = layouts.collect();
    let workers = || layouts.iter().zip(issued);
    let to_one = |to: u32| -> ToOne {
        let flow = |(layout, issued): (&SliceLayout, &Issued)| {
            issued.of_flow(layout.out.binary_search(&to).ok()?)
        };
        workers().map(flow).collect()
    };
    let told = ranks.filter(|to| *to != rank).map(|to| (to, to_one(to)));
    let told = told.filter(|(_, flows)| flows.iter().any(Option::is_some));
    told.map(|(to, flows)| Ok((to, pack(&flows)?))).collect()
}

impl Reports {
    /// Takes together what `rank`'s workers issued, and what it heard of the other `ranks` of a round.
    ///
    /// # Errors
    /// When a message cannot be read.
    pub fn new(
        rank: u32,
        own: Vec<Issued>,
        ranks: impl Iterator<Item = u32>,
        heard: &[(u32, Vec<u8>)],
    ) -> Result<Self> {
        let others = ranks.filter(|other| *other != rank);
        let mut all: BTreeMap<u32, ToOne> = others.map(|other| (other, ToOne::new())).collect();
        for (from, bytes) in heard {
            all.insert(*from, unpack(bytes)?);
        }
        Ok(Self { own, heard: all })
    }

    /// Operations of a flow that begins or ends at `rank`, of which `layout` is worker `worker`'s. A rank that took no
    /// part issued none.
    ///
    /// # Errors
    /// When a report does not match the layout, as from another plan.
    pub fn of_flow(
        &self,
        (rank, layout): (u32, &SliceLayout),
        worker: usize,
        (from, to): (u32, u32),
    ) -> Result<FlowIssued> {
        let told = match from == rank {
            true if self.own.is_empty() => Some(FlowIssued::default()),
            true => {
                let place = layout.out.binary_search(&to).ok();
                place.and_then(|place| self.own.get(worker)?.of_flow(place))
            }
            false => match self.heard.get(&from) {
                None => Some(FlowIssued::default()),
                Some(workers) => workers.get(worker).copied().flatten(),
            },
        };
        told.ok_or_else(|| {
            Error::Failed(format!(
                "rank {from} reported flows that its plan does not have"
            ))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::drive::walk::tests::point;
    use tonnage_plan::point::Traffic;
    use tonnage_plan::transfer::Addresses;

    /// Reports as `rank` has them of a round of all ranks, of whose workers each `issued[rank][worker]`.
    pub(crate) fn reports(point: &TransferPoint, rank: u32, issued: &[Vec<Issued>]) -> Reports {
        let ranks = || {
            (0u32..)
                .zip(issued)
                .filter(|(_, issued)| !issued.is_empty())
        };
        let numbers = || ranks().map(|(rank, _)| rank);
        let mut heard = Vec::new();
        for (from, issued) in ranks() {
            let points = vec![point; issued.len()];
            let told = messages(&points, from, issued, numbers()).unwrap();
            let told = told.into_iter().find(|(to, _)| *to == rank);
            heard.extend(told.map(|(_, bytes)| (from, bytes)));
        }
        let own = issued[rank as usize].clone();
        Reports::new(rank, own, numbers(), &heard).unwrap()
    }

    #[test]
    fn a_target_hears_of_its_own_flows_alone() {
        let bytes_of_the_last = |ranks: u32| {
            let mut point = point(Addresses::Sequential, 4);
            (point.traffic, point.ranks) = (Traffic::AllToAll, ranks);
            let issued = Issued {
                ranges: (1..ranks).map(|to| (u64::from(to), 1000)).collect(),
                ascents: Vec::new(),
            };
            let told = messages(&[&point], 0, &[issued], 0..ranks).unwrap();
            assert_eq!(told.len(), ranks as usize - 1);
            told.last().map(|(_, bytes)| bytes.len())
        };
        assert_eq!(bytes_of_the_last(3), bytes_of_the_last(60));
    }
}
