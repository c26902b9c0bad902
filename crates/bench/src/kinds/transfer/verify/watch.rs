//! Choice of what is checked of a worker's memory: bytes that were copied, or words that were changed.

use tonnage_engine::memory::Memory;
use tonnage_engine::pattern::Mismatches;
use tonnage_plan::transfer::TransferPoint;
use tonnage_units::Result;

use super::words::WordWalks;
use super::{Expected, SliceWalks};
use crate::drive::flow::Flow;
use crate::kinds::transfer::layout::SliceLayout;
use crate::kinds::transfer::trial::Issued;

/// The slices or words of one worker.
pub enum MemoryWatch {
    /// Of verbs that copy.
    Slices(SliceWalks),
    /// Of atomic operations.
    Words(WordWalks),
}

impl MemoryWatch {
    /// Watches the memory of a worker, by its index in `rank`.
    pub fn new(point: &TransferPoint, of: (u32, u32), layout: &SliceLayout) -> Self {
        match point.op.is_atomic() {
            true => Self::Words(WordWalks::new(point, of, layout)),
            false => Self::Slices(SliceWalks::new(point, of, layout)),
        }
    }

    /// Puts in place what trial `number` begins with.
    ///
    /// # Errors
    /// When a slice does not lie in the memory.
    pub fn fill(&mut self, memory: &dyn Memory, number: u64) -> Result<()> {
        match self {
            Self::Slices(slices) => slices.fill(memory, number),
            Self::Words(words) => words.fill(memory, number),
        }
    }

    /// Operations that the flows issued since the last call.
    ///
    /// # Errors
    /// When a slice does not lie in the memory.
    pub fn issued(&mut self, memory: &dyn Memory, flows: &[Flow]) -> Result<Issued> {
        match self {
            Self::Slices(slices) => Ok(Issued {
                ranges: slices.issued(flows),
                ascents: Vec::new(),
            }),
            Self::Words(words) => words.issued(memory, flows),
        }
    }

    /// Checks what landed, and what should be as it was.
    ///
    /// # Errors
    /// Text of what is wrong with words, or when a slice does not lie in the memory.
    pub fn check(
        &self,
        memory: &dyn Memory,
        number: u64,
        expected: &Expected,
        moved: &mut Mismatches,
        untouched: &mut Mismatches,
    ) -> Result<()> {
        match self {
            Self::Slices(slices) => slices.check(memory, number, expected, moved, untouched),
            Self::Words(words) => words.check(memory, number, expected, moved, untouched),
        }
    }

    /// Moves past the trial that just ended.
    pub fn advance(&mut self, expected: &Expected) {
        match self {
            Self::Slices(slices) => slices.advance(expected),
            // They went on when they were asked what was issued.
            Self::Words(_) => {}
        }
    }
}
