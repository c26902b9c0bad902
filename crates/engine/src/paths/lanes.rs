//! A lane of each path, and whose turn it is.

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
    pub(super) ways: Vec<LanePath>,
    pub(super) flushing: Option<Flushing>,
    /// Operations are cut.
    pub(super) cuts: bool,
    /// Parts that no path has taken yet.
    pub(super) staged: usize,
    turn: usize,
}

impl PathLane {
    pub(super) fn new(ways: Vec<LanePath>, cuts: bool) -> Self {
        Self {
            cuts,
            ways,
            flushing: None,
            staged: 0,
            turn: 0,
        }
    }

    /// The way of the next part.
    #[inline]
    pub(super) fn next_way(&mut self) -> LanePath {
        let way = &mut self.ways[self.turn];
        way.used = true;
        let way = *way;
        self.turn += 1;
        if self.turn == self.ways.len() {
            self.turn = 0;
        }
        way
    }
}
