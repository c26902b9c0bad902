//! The core of a group: as many of its ranks as the largest power of two that it has, for algorithms that pair ranks by
//! the binary digits of their numbers. Each rank in excess has a partner in the core, which works for both.

use std::ops::Range;

use super::emitter::CallSeat;

/// Division of a group into its core, which are the first ranks, and those in excess.
#[derive(Debug, Clone, Copy)]
pub(super) struct Core {
    /// Ranks of the core: a power of two.
    pub size: u32,
    /// Ranks in excess of it.
    pub excess: u32,
}

impl Core {
    pub fn of(seat: &CallSeat) -> Self {
        let size = 1 << seat.ranks().ilog2();
        Self {
            size,
            excess: seat.ranks() - size,
        }
    }

    /// Binary digits of the core's ranks.
    pub fn rounds(&self) -> u32 {
        self.size.ilog2()
    }

    /// The rank of the core that works for this one, which is in excess.
    pub fn helper(&self, rank: u32) -> Option<u32> {
        rank.checked_sub(self.size)
    }

    /// The rank in excess that this one of the core works for.
    pub fn ward(&self, rank: u32) -> Option<u32> {
        (rank < self.excess).then_some(rank + self.size)
    }

    /// Blocks of some ranks of the core and of those that they work for: two ranges, the second often empty.
    pub fn blocks(&self, ranks: &Range<u32>) -> [Range<u32>; 2] {
        let excess = |rank: u32| self.size + rank.min(self.excess);
        [ranks.clone(), excess(ranks.start)..excess(ranks.end)]
    }

    /// The ranks of the core whose numbers differ from this one's only below a digit: 2^digit of them.
    pub fn near(rank: u32, digit: u32) -> Range<u32> {
        let begin = rank >> digit << digit;
        begin..begin + (1 << digit)
    }
}
