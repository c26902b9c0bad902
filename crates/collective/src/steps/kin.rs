//! Trees over the ranks of a group, counted from the root.

use super::emitter::CallSeat;

/// A rank's neighbours in a tree.
#[derive(Debug, Clone)]
pub(super) struct Kin {
    /// The neighbour on the way to the root, and this rank's place among its children.
    pub parent: Option<(u32, u32)>,
    /// The others, in their places.
    pub children: Vec<u32>,
    /// The most children that a rank can have.
    pub children_max: u32,
    /// The longest way to the root.
    pub depth: u32,
}

impl Kin {
    /// The binomial tree: a rank's parent has its number without the lowest binary digit that is 1, and place k among
    /// its children has the one 2^k after it.
    pub fn binomial(seat: &CallSeat) -> Self {
        let (ranks, own) = (seat.ranks(), seat.root_distance());
        let rounds = u32::BITS - (ranks - 1).leading_zeros();
        let below = match own {
            0 => rounds,
            _ => own.trailing_zeros(),
        };
        let parent = |place: u32| (seat.before(1 << place), place);
        let children = (0..below).filter(|place| (1 << place) < ranks - own);
        Self {
            parent: (own > 0).then(|| parent(below)),
            children: children.map(|place| seat.after(1 << place)).collect(),
            children_max: rounds,
            depth: rounds,
        }
    }

    /// The chain: each rank's parent is the one before it.
    pub fn chain(seat: &CallSeat) -> Self {
        let (ranks, own) = (seat.ranks(), seat.root_distance());
        Self {
            parent: (own > 0).then(|| (seat.before(1), 0)),
            children: (own + 1 < ranks)
                .then(|| seat.after(1))
                .into_iter()
                .collect(),
            children_max: 1,
            depth: ranks - 1,
        }
    }

    /// Ranks of the part of the binomial tree that hangs on a rank counted from the root: it and those that follow.
    pub fn below(ranks: u32, from_root: u32) -> u32 {
        match from_root {
            0 => ranks,
            _ => (1 << from_root.trailing_zeros()).min(ranks - from_root),
        }
    }
}
