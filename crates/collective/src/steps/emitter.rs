//! Emission of steps: message numbers, scratch allocation, chunks, and sequences that several algorithms use.

use std::ops::Range;

use super::program::{Buffer, Place, Program, Step};
use crate::{Reduction, Shape};

/// Alignment of ranges in the scratch. It is the size of a cache line, so two ranges never share a line.
const ALIGN_BYTES: u64 = 64;

/// Smallest part of an all-reduce that is aligned to cache lines. In shorter parts, padding would be too large a
/// fraction.
const PART_ALIGN_BYTES_MIN: u64 = 4 << 10;

/// Sizes that select variants of an algorithm. They are the same at all ranks in a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tuning {
    /// The most bytes that a rank receives in its scratch and copies from there. More bytes go directly into its
    /// output, after it has signalled that it is ready.
    pub eager_bytes_max: u64,
    /// Total size of the slots in which messages of one peer wait until they are used.
    pub slots_bytes: u64,
    /// The fewest slots in a row, even if long chunks then need more than `slots_bytes`. Must be at least four, because
    /// two chunks are put ahead of the chunk in use.
    pub slots_min: u64,
}

impl Tuning {
    /// Copying 8 KiB takes about as long as a signal between two cores (half a microsecond). Slots of 1 MiB in total
    /// fit in a second-level cache, and cover the latency of a 10 Gb/s network. With eight slots, four chunks can be in
    /// transit while four are in use.
    pub const DEFAULT: Self = Self {
        eager_bytes_max: 8 << 10,
        slots_bytes: 1 << 20,
        slots_min: 8,
    };
}

/// A call with too many messages.
#[derive(Debug)]
pub(super) struct TooManyMessages {
    pub messages: u64,
}

/// One rank in a call: its number, and everything about the call that is the same at all ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallContext {
    pub shape: Shape,
    pub reduction: Reduction,
    pub rank: u32,
    /// Bytes of a chunk: a multiple of the element size, and not 0.
    pub chunk_bytes: u64,
    pub in_place: bool,
    pub tuning: Tuning,
}

/// A part of a message, at most `chunk_bytes` long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Offset in the range that was cut.
    pub at: u64,
    pub bytes: u64,
}

impl CallContext {
    pub fn ranks(&self) -> u32 {
        self.shape.ranks
    }

    /// The rank `distance` after this one. Rank 0 follows the last rank.
    pub fn after(&self, distance: u32) -> u32 {
        let ranks = u64::from(self.ranks());
        ((u64::from(self.rank) + u64::from(distance)) % ranks) as u32
    }

    /// The rank `distance` before this one.
    pub fn before(&self, distance: u32) -> u32 {
        self.after(self.ranks() - distance % self.ranks())
    }

    /// Number of this rank if ranks are counted from the root.
    pub fn root_distance(&self) -> u32 {
        self.before(self.shape.root)
    }

    /// Bytes of one block.
    pub fn block_bytes(&self) -> u64 {
        self.shape.block_bytes()
    }

    /// Bytes of the blocks of this number of ranks.
    pub fn bytes_of_blocks(&self, ranks: u32) -> u64 {
        self.block_bytes() * u64::from(ranks)
    }

    /// Number of chunks needed for `bytes` bytes.
    pub fn chunk_count(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.chunk_bytes)
    }

    /// Cuts a range of bytes into chunks.
    pub fn cut(&self, range: Range<u64>) -> impl Iterator<Item = Chunk> + use<> {
        let chunk_bytes = self.chunk_bytes;
        (0..self.chunk_count(range.end - range.start)).map(move |index| {
            let at = range.start + index * chunk_bytes;
            let bytes = chunk_bytes.min(range.end - at);
            Chunk { at, bytes }
        })
    }

    /// Whether the bytes that a rank receives are few enough to go through the scratch.
    pub fn is_eager(&self, bytes: u64) -> bool {
        bytes <= self.tuning.eager_bytes_max
    }
}

/// Contiguous parts of a range of bytes. The last parts may be shorter or empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    total: u64,
    part: u64,
}

impl Parts {
    /// Splits the call's data into `count` parts.
    pub fn split_block(context: &CallContext, count: u32) -> Self {
        let (total, element) = (context.block_bytes(), context.shape.dtype.bytes());
        let part = context.shape.block.div_ceil(u64::from(count)) * element;
        let part = match part >= PART_ALIGN_BYTES_MIN {
            true => part.next_multiple_of(ALIGN_BYTES),
            false => part,
        };
        Self { total, part }
    }

    /// The blocks of all ranks, as parts.
    pub fn blocks(context: &CallContext) -> Self {
        Self {
            total: context.bytes_of_blocks(context.ranks()),
            part: context.block_bytes(),
        }
    }

    /// Bytes of the longest part, which is the first.
    pub fn longest(&self) -> u64 {
        self.part
    }

    /// The bytes of a range of parts.
    pub fn range(&self, parts: Range<u32>) -> Range<u64> {
        let at = |part: u32| (u64::from(part) * self.part).min(self.total);
        at(parts.start)..at(parts.end)
    }
}

pub(super) fn input(offset: u64) -> Place {
    let buffer = Buffer::Input;
    Place { buffer, offset }
}

pub(super) fn output(offset: u64) -> Place {
    let buffer = Buffer::Output;
    Place { buffer, offset }
}

pub(super) fn scratch(offset: u64) -> Place {
    let buffer = Buffer::Scratch;
    Place { buffer, offset }
}

/// Builder for the steps of one rank.
#[derive(Debug)]
pub(super) struct Emitter {
    pub context: CallContext,
    steps: Vec<Step>,
    scratch_bytes: u64,
    messages: u64,
    messages_max: u64,
    /// Whether each rank sends any message or grant to this one.
    gets: Vec<bool>,
}

impl Emitter {
    pub fn new(context: CallContext, messages_max: u64) -> Self {
        Self {
            context,
            steps: Vec::new(),
            scratch_bytes: 0,
            messages: 0,
            messages_max,
            gets: vec![false; context.ranks() as usize],
        }
    }

    pub fn finish(self) -> Program {
        let gets = (0..).zip(&self.gets).filter(|(_, gets)| **gets);
        Program {
            steps: self.steps,
            scratch_bytes: self.scratch_bytes,
            messages: self.messages as u32,
            gets_from: gets.map(|(rank, _)| rank).collect(),
        }
    }

    /// Allocates message numbers for several rows, and returns the first number of each row. Must be called once,
    /// before any step is emitted. All ranks must pass the same counts, so that each rank knows the numbers of all
    /// others.
    pub fn number<const N: usize>(
        &mut self,
        counts: [u64; N],
    ) -> Result<[u32; N], TooManyMessages> {
        let begin = |index: usize| {
            counts[..index]
                .iter()
                .fold(0, |sum: u64, n| sum.saturating_add(*n))
        };
        self.messages = begin(N);
        if self.messages > self.messages_max {
            return Err(TooManyMessages {
                messages: self.messages,
            });
        }
        Ok(std::array::from_fn(|index| begin(index) as u32))
    }

    /// Allocates a range of the scratch, and returns its offset.
    pub fn reserve(&mut self, bytes: u64) -> u64 {
        let at = self.scratch_bytes;
        self.scratch_bytes = at + bytes.next_multiple_of(ALIGN_BYTES);
        at
    }

    pub fn put(&mut self, peer: u32, message: u32, (from, to): (Place, Place), bytes: u64) {
        self.steps.push(Step::Put {
            peer,
            message,
            from,
            to,
            bytes,
        });
    }

    /// Puts zero bytes: a signal.
    pub fn signal(&mut self, peer: u32, message: u32) {
        self.put(peer, message, (scratch(0), scratch(0)), 0);
    }

    /// Waits for a message from the peer.
    pub fn wait(&mut self, peer: u32, message: u32) {
        self.gets[peer as usize] = true;
        self.steps.push(Step::Await { message });
    }

    /// Puts a range of bytes in chunks, with messages numbered from `first`. `places` maps an offset in the range to
    /// its source and target. Returns the next message number.
    pub fn put_range(
        &mut self,
        peer: u32,
        first: u32,
        range: Range<u64>,
        places: impl Fn(u64) -> (Place, Place),
    ) -> u32 {
        let mut message = first;
        for chunk in self.context.cut(range) {
            self.put(peer, message, places(chunk.at), chunk.bytes);
            message += 1;
        }
        message
    }

    /// Waits for the messages that carry `bytes` bytes. Returns the next message number.
    pub fn wait_bytes(&mut self, peer: u32, first: u32, bytes: u64) -> u32 {
        let end = first + self.context.chunk_count(bytes) as u32;
        (first..end).for_each(|message| self.wait(peer, message));
        end
    }

    pub fn fold(&mut self, from: Place, to: Place, bytes: u64) {
        let elements = bytes / self.context.shape.dtype.bytes();
        self.steps.push(Step::Fold { from, to, elements });
    }

    pub fn combine(&mut self, one: Place, other: Place, to: Place, bytes: u64) {
        let elements = bytes / self.context.shape.dtype.bytes();
        self.steps.push(Step::Combine {
            one,
            other,
            to,
            elements,
        });
    }

    /// Combines received data with this rank's own input into its output. In place, input and output are the same
    /// memory.
    pub fn merge(&mut self, received: Place, own: Place, to: Place, bytes: u64) {
        match self.context.in_place {
            true => self.fold(received, to, bytes),
            false => self.combine(received, own, to, bytes),
        }
    }

    pub fn copy(&mut self, from: Place, to: Place, bytes: u64) {
        if bytes > 0 {
            self.steps.push(Step::Copy { from, to, bytes });
        }
    }

    /// Copies the rank's own part of its input to the output. In place, this part is already there.
    pub fn keep(&mut self, from: u64, to: u64, bytes: u64) {
        if !self.context.in_place {
            self.copy(input(from), output(to), bytes);
        }
    }

    /// Finishes a reduction. For an average, this divides the sum.
    pub fn complete(&mut self, at: Place, bytes: u64) {
        if self.context.reduction == Reduction::Avg {
            let elements = bytes / self.context.shape.dtype.bytes();
            self.steps.push(Step::Divide { at, elements });
        }
    }

    pub fn grant(&mut self, peer: u32) {
        self.steps.push(Step::Grant { peer });
    }

    pub fn claim(&mut self, peer: u32) {
        self.gets[peer as usize] = true;
        self.steps.push(Step::Claim { peer });
    }
}
