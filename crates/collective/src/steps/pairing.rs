//! The core of a group: its first ranks, as many as the largest power of two not above its size. Algorithms that pair
//! ranks by the binary digits of their numbers use it. Each excess rank has a partner in the core, which works for
//! both.

use std::ops::Range;

use super::emitter::CallContext;

/// Division of a group into core ranks, which come first, and excess ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Core {
    /// Number of core ranks: a power of two.
    pub size: u32,
    /// Number of excess ranks.
    pub excess: u32,
}

impl Core {
    pub fn new(context: &CallContext) -> Self {
        let size = 1 << context.ranks().ilog2();
        Self {
            size,
            excess: context.ranks() - size,
        }
    }

    /// Number of binary digits of a core rank.
    pub fn rounds(&self) -> u32 {
        self.size.ilog2()
    }

    /// The core rank that works for this excess rank.
    pub fn core_partner(&self, rank: u32) -> Option<u32> {
        rank.checked_sub(self.size)
    }

    /// The excess rank that this core rank works for.
    pub fn excess_partner(&self, rank: u32) -> Option<u32> {
        (rank < self.excess).then_some(rank + self.size)
    }

    /// Blocks of some core ranks and of the excess ranks that they work for: two ranges, the second often empty.
    pub fn blocks(&self, ranks: &Range<u32>) -> [Range<u32>; 2] {
        let excess = |rank: u32| self.size + rank.min(self.excess);
        [ranks.clone(), excess(ranks.start)..excess(ranks.end)]
    }

    /// The core ranks whose numbers differ from this one's only below a digit: 2^digit ranks.
    pub fn near(rank: u32, digit: u32) -> Range<u32> {
        let begin = rank >> digit << digit;
        begin..begin + (1 << digit)
    }
}
