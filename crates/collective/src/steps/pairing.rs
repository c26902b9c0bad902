//! The core of a group: its first 2^k ranks, for the largest possible k. Algorithms that pair ranks by the binary
//! digits of their numbers use only core ranks. Each excess rank has a partner in the core, which works for both.

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

    /// Blocks of these core ranks and of the excess ranks that they work for, as two ranges. The second range is often
    /// empty.
    pub fn blocks(&self, ranks: &Range<u32>) -> [Range<u32>; 2] {
        let excess = |rank: u32| self.size + rank.min(self.excess);
        [ranks.clone(), excess(ranks.start)..excess(ranks.end)]
    }

    /// The 2^digit core ranks with numbers that differ from this rank's only in digits below `digit`.
    pub fn near(rank: u32, digit: u32) -> Range<u32> {
        let begin = rank >> digit << digit;
        begin..begin + (1 << digit)
    }
}
