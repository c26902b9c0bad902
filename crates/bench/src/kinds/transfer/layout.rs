//! Division of a worker's memory among its flows. Both ends compute the same layout from the point alone, so they need
//! not exchange offsets.
//!
//! A worker's memory is a sequence of page-aligned slices of equal length. First come the `out` slices, one per rank
//! that it initiates to. They are sources of writes and sends, and destinations of reads and of atomic operations'
//! results. Then come the `into` slices, one per rank that initiates to it. They hold data that this initiator writes,
//! reads or changes, and are destinations of its sends. A slice is as long as a footprint, or as the local slots if
//! these need more. Initiators that read or use atomics may share one slice of their target.

use std::ops::Range;

use tonnage_plan::transfer::{Pacing, TargetFootprint, TransferPoint};

/// Slices begin at multiples of this, so that no two flows share a page.
const SLICE_ALIGNMENT: u64 = 4096;

/// Minimum length of a slice. With a tiny footprint, the copy bound would otherwise measure the overhead of calls.
pub const SLICE_BYTES_MIN: u64 = 64 << 10;

/// Number of guard bytes after each footprint. No operation may touch them, and verification detects those that did.
pub const GUARD_BYTES: u64 = 64;

/// The slices of one worker for one point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceLayout {
    /// Ranks that this rank initiates to, in ascending order.
    pub out: Vec<u32>,
    /// Ranks that initiate to this rank, in ascending order.
    pub into: Vec<u32>,
    slice_bytes: u64,
    /// True if all initiators share one slice of this rank.
    shares_into: bool,
}

impl SliceLayout {
    /// Computes the layout of the workers of `rank`.
    pub fn new(point: &TransferPoint, rank: u32) -> Self {
        let mut out = point.roles.targets(rank);
        let mut into = point.roles.initiators_of(rank);
        if let Some(loads) = &point.loads {
            // Pairs that move no bytes need no memory.
            out.retain(|&to| loads.operations_of_pair(rank, to) > 0);
            into.retain(|&from| loads.operations_of_pair(from, rank) > 0);
        }
        if answers(point) {
            // Each ping is answered by an operation in the other direction, so peers of both kinds need both slices.
            out.extend(&into);
            out.sort_unstable();
            into.clone_from(&out);
        }
        let slice_bytes = (point.slots.footprint_bytes.max(point.local_bytes()) + GUARD_BYTES)
            .next_multiple_of(SLICE_ALIGNMENT)
            .max(SLICE_BYTES_MIN);
        Self {
            out,
            into,
            slice_bytes,
            shares_into: point.slots.target_footprint == TargetFootprint::Shared,
        }
    }

    /// Returns the indices into `out` of the ranks that `rank` initiates to in a round.
    pub fn in_round(&self, point: &TransferPoint, (rank, round): (u32, u32)) -> Range<usize> {
        let roles = point.roles;
        match (&point.loads, roles.pair_of_round(round)) {
            (None, _) => roles.flows_in_round(rank, round),
            (Some(_), None) => 0..self.out.len(),
            (Some(_), Some((from, to))) if from == rank => {
                let place = self.out.binary_search(&to);
                place.map_or(0..0, |place| place..place + 1)
            }
            (Some(_), Some(_)) => 0..0,
        }
    }

    /// Returns how many bytes a worker needs. There are at least as many incoming slices as outgoing ones, because
    /// copies for the bound go from the outgoing to the incoming.
    pub fn bytes(&self) -> u64 {
        let most = if self.shares_into { 1 } else { usize::MAX };
        let incoming = self.into.len().min(most) as u64;
        (self.out_slices() + self.out_slices().max(incoming)) * self.slice_bytes
    }

    /// Returns the number of outgoing slices, which is at least one.
    pub fn out_slices(&self) -> u64 {
        self.out.len().max(1) as u64
    }

    /// Returns the distance between the beginnings of two slices.
    pub fn slice_bytes(&self) -> u64 {
        self.slice_bytes
    }

    /// Returns all ranks that exchange bytes with this rank, in ascending order.
    pub fn peers(&self) -> Vec<u32> {
        let mut peers: Vec<u32> = self.out.iter().chain(&self.into).copied().collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Returns the offset of the slice for the rank with this index in `out`.
    pub fn out_origin(&self, index: usize) -> u64 {
        index as u64 * self.slice_bytes
    }

    /// Returns the offset of the slice for the rank with this index in `into`.
    pub fn into_origin(&self, index: usize) -> u64 {
        let index = if self.shares_into { 0 } else { index as u64 };
        (self.out_slices() + index) * self.slice_bytes
    }

    /// Returns the offset of `initiator`'s slice in this rank's memory. `None` if it does not initiate to this rank.
    pub fn into_origin_of(&self, initiator: u32) -> Option<u64> {
        self.into
            .binary_search(&initiator)
            .ok()
            .map(|index| self.into_origin(index))
    }
}

/// Returns whether the target answers every operation with an operation of its own, so that flows go in both
/// directions.
pub fn answers(point: &TransferPoint) -> bool {
    point.pacing == Pacing::PingPong && !point.op.returns_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_engine::Verb;
    use tonnage_plan::point::Traffic;
    use tonnage_plan::testing::slots_point as point;
    use tonnage_plan::transfer::Access;

    /// If initiators share a slice, they all use the same offset, and more initiators don't need more memory.
    #[test]
    fn initiators_that_share_have_one_slice() {
        let mut point = point(Access::Sequential, 1 << 15);
        (point.roles.ranks, point.op, point.roles.traffic) = (5, Verb::Read, Traffic::FanIn);
        let own = SliceLayout::new(&point, 0);
        point.slots.target_footprint = TargetFootprint::Shared;
        let shared = SliceLayout::new(&point, 0);
        let origins: Vec<_> = (1..5).map(|rank| shared.into_origin_of(rank)).collect();
        assert_eq!(origins, [Some(shared.slice_bytes()); 4]);
        assert_eq!(own.bytes(), 5 * own.slice_bytes());
        assert_eq!(shared.bytes(), 2 * shared.slice_bytes());
        let initiator = SliceLayout::new(&point, 1);
        assert_eq!(initiator.bytes(), 2 * shared.slice_bytes());
    }

    #[test]
    fn both_ends_agree_and_slices_never_overlap() {
        for traffic in Traffic::ALL {
            for pacing in [Pacing::Stream { depth: 1 }, Pacing::PingPong] {
                let mut point = point(Access::Sequential, 1000);
                (point.roles.ranks, point.roles.traffic, point.pacing) = (4, traffic, pacing);
                let layouts: Vec<SliceLayout> =
                    (0..4).map(|rank| SliceLayout::new(&point, rank)).collect();
                for (rank, layout) in layouts.iter().enumerate() {
                    for &target in &layout.out {
                        let origin = layouts[target as usize]
                            .into_origin_of(rank as u32)
                            .unwrap();
                        assert!(
                            origin + point.slots.footprint_bytes
                                <= layouts[target as usize].bytes()
                        );
                    }
                    let mut origins: Vec<u64> = (0..layout.out.len())
                        .map(|index| layout.out_origin(index))
                        .chain((0..layout.into.len()).map(|index| layout.into_origin(index)))
                        .collect();
                    origins.sort_unstable();
                    assert!(
                        origins
                            .windows(2)
                            .all(|pair| pair[1] - pair[0] >= point.slots.footprint_bytes)
                    );
                }
            }
        }
    }

    #[test]
    fn pairs_without_bytes_have_no_slices() {
        let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 8);
        (point.roles.traffic, point.roles.ranks) = (Traffic::File, 3);
        let rows = vec![vec![0, 0, 8], vec![8, 0, 16], vec![0, 0, 0]];
        point.loads = Some(rows.try_into().unwrap());
        let layouts = [0, 1, 2].map(|rank| SliceLayout::new(&point, rank));
        let ends =
            |of: fn(&SliceLayout) -> &Vec<u32>| layouts.each_ref().map(|one| of(one).clone());
        assert_eq!(ends(|one| &one.out), [vec![2], vec![0, 2], vec![]]);
        assert_eq!(ends(|one| &one.into), [vec![1], vec![], vec![0, 1]]);
        let roles = point.roles;
        let in_round = |rank: u32, round| layouts[rank as usize].in_round(&point, (rank, round));
        assert_eq!([0, 1, 2].map(|rank| in_round(rank, 0)), [0..1, 0..2, 0..0]);
        let alone = roles.round_of_pair_alone((1, 2));
        assert_eq!(
            [0, 1, 2].map(|rank| in_round(rank, alone)),
            [0..0, 1..2, 0..0]
        );
    }
}
