//! Layout of a rank's memory. It is the same on all ranks, so a local offset is valid at every peer.

use serde::{Deserialize, Serialize};
use tonnage_collective::Shape;
use tonnage_engine::{Lane, Op};
use tonnage_units::Reduce;

/// Alignment of the parts: one page.
const ALIGNMENT: u64 = 4096;

/// Length of a message that carries only its immediate.
const TOKEN_BYTES: u32 = 8;

/// Sizes of the parts: the maximum over all ranks and points.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryNeeds {
    pub input: u64,
    /// Output bytes. In place, this is the size of the shared input and output range.
    pub output: u64,
    /// Bytes of one half of the scratch.
    pub scratch: u64,
}

impl MemoryNeeds {
    /// Returns the input and output sizes: the maximum over all ranks.
    pub fn for_shape(shape: &Shape, in_place: bool) -> Self {
        let last = shape.ranks.saturating_sub(1);
        let most = |bytes: fn(&Shape, u32) -> u64| {
            let all = [0, shape.root, last].map(|rank| bytes(shape, rank));
            all.into_iter().max().unwrap_or(0)
        };
        let (input, output) = (most(Shape::input_bytes), most(Shape::output_bytes));
        Self {
            input: if in_place { 0 } else { input },
            output: if in_place { input.max(output) } else { output },
            scratch: 0,
        }
    }

    /// Returns the larger value for each part.
    pub fn max(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            scratch: self.scratch.max(other.scratch),
        }
    }
}

impl Reduce for MemoryNeeds {
    fn merge(&mut self, other: Self) {
        *self = self.max(other);
    }
}

/// Offsets of the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLayout {
    pub input: u64,
    pub output: u64,
    /// Offsets of the scratch halves.
    pub scratch: [u64; 2],
    /// Offset of the dummy bytes that messages carry if they only signal.
    token: u64,
    /// Total size.
    pub bytes: u64,
}

impl MemoryLayout {
    /// Lays the parts out one after the other.
    pub fn new(needs: MemoryNeeds) -> Self {
        let mut end = 0u64;
        let mut part = |bytes: u64| {
            let begin = end;
            end = begin.saturating_add(bytes.next_multiple_of(ALIGNMENT));
            begin
        };
        let (input, output) = (part(needs.input), part(needs.output));
        let scratch = [part(needs.scratch), part(needs.scratch)];
        let token = part(TOKEN_BYTES.into());
        Self {
            input,
            output,
            scratch,
            token,
            bytes: end,
        }
    }

    /// Returns a message that only signals. The caller sets its lane and immediate.
    #[inline]
    pub fn token(&self) -> Op {
        Op {
            lane: Lane::UNNAMED,
            tag: 0,
            local: self.token,
            remote: self.token,
            len: TOKEN_BYTES,
            imm: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_collective::{Collective, Dtype};

    #[test]
    fn parts_lie_apart_on_whole_pages() {
        let layout = MemoryLayout::new(MemoryNeeds {
            input: 5,
            output: 4097,
            scratch: 1,
        });
        assert_eq!((layout.input, layout.output), (0, 4096));
        assert_eq!(layout.scratch, [12288, 16384]);
        assert_eq!((layout.token().local, layout.bytes), (20480, 24576));
    }

    #[test]
    fn the_root_needs_most() {
        let shape = Shape::from_size((Collective::Gather, 1), 3, Dtype::Int8, 30);
        let apart = MemoryNeeds::for_shape(&shape, false);
        assert_eq!((apart.input, apart.output), (10, 30));
        let in_place = MemoryNeeds::for_shape(&shape, true);
        assert_eq!((in_place.input, in_place.output), (0, 30));
    }
}
