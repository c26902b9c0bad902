//! A lane of each path, and whose turn it is.

use tonnage_units::Error;

use super::division::Shares;
use crate::Lane;

/// One path of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct LanePath {
    /// Index of the path.
    pub(super) path: usize,
    /// The lane in the path's own engine.
    pub(super) lane: Lane,
    /// It carried something since it was flushed.
    pub(super) used: bool,
}

/// A flush of which some paths have been asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flushing {
    /// The way that is asked next.
    pub(super) next: usize,
    /// Tag of its parts.
    pub(super) tag: u32,
}

/// A lane over several paths.
#[derive(Debug)]
pub(super) struct PathLane {
    /// Its ways, as many of one rail after the other for each.
    pub(super) ways: Vec<LanePath>,
    pub(super) flushing: Option<Flushing>,
    /// Parts that its operations are cut into.
    pub(super) shares: Shares,
    /// It carries operations, and not receives or what keeps senders in step.
    pub(super) counts: bool,
    /// Parts that no path has taken yet.
    pub(super) staged: usize,
    /// The next way of each rail.
    turns: Vec<usize>,
}

impl PathLane {
    pub(super) fn new(ways: Vec<LanePath>, shares: Shares, counts: bool) -> Self {
        Self {
            shares,
            counts,
            ways,
            flushing: None,
            staged: 0,
            turns: vec![0; shares.rails as usize],
        }
    }

    /// The way of the next part on a rail, of which an operation that is not spread has one.
    #[inline]
    pub(super) fn next_way(&mut self, rail: usize) -> LanePath {
        let of_rail = self.ways.len() / self.turns.len();
        let turn = &mut self.turns[rail];
        let way = &mut self.ways[rail * of_rail + *turn];
        way.used = true;
        let way = *way;
        *turn += 1;
        if *turn == of_rail {
            *turn = 0;
        }
        way
    }
}

#[cold]
pub(super) fn never_resolved(lane: Lane) -> Error {
    Error::Failed(format!("lane {} was never resolved", lane.0))
}
