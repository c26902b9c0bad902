//! Trees over the ranks of a group, numbered from the root.

use super::emitter::CallContext;

/// A rank's neighbours in a tree.
#[derive(Debug, Clone)]
pub(super) struct TreeNeighbors {
    /// The parent, and this rank's index among the parent's children.
    pub parent: Option<(u32, u32)>,
    /// The children, ordered by their index.
    pub children: Vec<u32>,
    /// The most children that any rank has.
    pub children_max: u32,
    /// The length of the longest path to the root.
    pub depth: u32,
}

impl TreeNeighbors {
    /// The binomial tree, with ranks numbered from the root. The parent's number is the rank's number without its
    /// lowest 1 bit. Child k of a rank is 2^k after the rank.
    pub fn binomial(context: &CallContext) -> Self {
        let (ranks, own) = (context.ranks(), context.root_distance());
        let rounds = u32::BITS - (ranks - 1).leading_zeros();
        let below = match own {
            0 => rounds,
            _ => own.trailing_zeros(),
        };
        let parent = |place: u32| (context.before(1 << place), place);
        let children = (0..below).filter(|place| (1 << place) < ranks - own);
        Self {
            parent: (own > 0).then(|| parent(below)),
            children: children.map(|place| context.after(1 << place)).collect(),
            children_max: rounds,
            depth: rounds,
        }
    }

    /// A chain: each rank's parent is the previous rank.
    pub fn chain(context: &CallContext) -> Self {
        let (ranks, own) = (context.ranks(), context.root_distance());
        Self {
            parent: (own > 0).then(|| (context.before(1), 0)),
            children: (own + 1 < ranks)
                .then(|| context.after(1))
                .into_iter()
                .collect(),
            children_max: 1,
            depth: ranks - 1,
        }
    }

    /// Number of ranks in the subtree of `from_root` in the binomial tree, including this rank. The ranks are
    /// consecutive.
    pub fn subtree_ranks(ranks: u32, from_root: u32) -> u32 {
        match from_root {
            0 => ranks,
            _ => (1 << from_root.trailing_zeros()).min(ranks - from_root),
        }
    }
}
