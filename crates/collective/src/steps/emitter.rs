//! Emission of steps: numbers of messages, scratch, chunks, and the few sequences that many algorithms share.

use std::ops::Range;

use super::program::{Buffer, Place, Program, Step};
use crate::{Reduction, Shape};

/// Boundary that stretches of the scratch begin at: that of a cache line, so that two of them never share one.
const ALIGN_BYTES: u64 = 64;

/// Bytes above which the parts of an all-reduce begin at cache lines: below, a line is too much of a part.
const PART_ALIGN_BYTES_MIN: u64 = 4 << 10;

/// Sizes that decide between variants of an algorithm. They are the same at all ranks of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tuning {
    /// The most bytes that are put into a peer's scratch and copied from there, although they could be put into its
    /// output once it has said that it is there.
    pub eager_bytes_max: u64,
    /// Bytes of slots that messages of one peer lie in until they are used.
    pub slots_bytes: u64,
    /// The fewest slots, where chunks are long; four at least, because two chunks are put ahead of the one that is
    /// used.
    pub slots_min: u64,
}

impl Tuning {
    /// Copying 8 KiB takes about as long as a signal between two cores (half a microsecond). Slots of 1 MiB stay in a
    /// cache of the second level, and cover the latency of a network of 10 Gb/s; eight of them keep four chunks under
    /// way while four are used.
    pub const DEFAULT: Self = Self {
        eager_bytes_max: 8 << 10,
        slots_bytes: 1 << 20,
        slots_min: 8,
    };
}

/// Number of messages of a call that has too many.
#[derive(Debug)]
pub(super) struct TooMany {
    pub messages: u64,
}

/// Seat of one rank in a call: its number, and everything about the call that all ranks know.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallSeat {
    pub shape: Shape,
    pub reduction: Reduction,
    pub rank: u32,
    /// Bytes of a chunk: a multiple of an element's, at least one element.
    pub chunk_bytes: u64,
    pub in_place: bool,
    pub tuning: Tuning,
}

/// A part of a message: at most a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Bytes from the beginning of whatever is cut.
    pub at: u64,
    pub bytes: u64,
}

impl CallSeat {
    pub fn ranks(&self) -> u32 {
        self.shape.ranks
    }

    /// The rank that is `distance` after this one, the first following the last.
    pub fn after(&self, distance: u32) -> u32 {
        let ranks = u64::from(self.ranks());
        ((u64::from(self.rank) + u64::from(distance)) % ranks) as u32
    }

    /// The rank that is `distance` before this one.
    pub fn before(&self, distance: u32) -> u32 {
        self.after(self.ranks() - distance % self.ranks())
    }

    /// Number of the rank counted from the root.
    pub fn root_distance(&self) -> u32 {
        self.before(self.shape.root)
    }

    /// Bytes of a block.
    pub fn block(&self) -> u64 {
        self.shape.block_bytes()
    }

    /// Bytes of the blocks of so many ranks.
    pub fn blocks(&self, ranks: u32) -> u64 {
        self.block() * u64::from(ranks)
    }

    /// Chunks of so many bytes.
    pub fn count(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.chunk_bytes)
    }

    /// Cuts a range of bytes into chunks.
    pub fn cut(&self, range: Range<u64>) -> impl Iterator<Item = Chunk> + use<> {
        let chunk_bytes = self.chunk_bytes;
        (0..self.count(range.end - range.start)).map(move |index| {
            let at = range.start + index * chunk_bytes;
            let bytes = chunk_bytes.min(range.end - at);
            Chunk { at, bytes }
        })
    }

    /// Returns whether so little arrives at a rank that it goes through the scratch.
    pub fn is_eager(&self, bytes: u64) -> bool {
        bytes <= self.tuning.eager_bytes_max
    }
}

/// Contiguous parts of some bytes; the last of them may be shorter or empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    total: u64,
    part: u64,
}

impl Parts {
    /// All of the data of the call in `count` parts.
    pub fn of_block(seat: &CallSeat, count: u32) -> Self {
        let (total, element) = (seat.block(), seat.shape.dtype.bytes());
        let part = seat.shape.block.div_ceil(u64::from(count)) * element;
        let part = match part >= PART_ALIGN_BYTES_MIN {
            true => part.next_multiple_of(ALIGN_BYTES),
            false => part,
        };
        Self { total, part }
    }

    /// The blocks of all ranks.
    pub fn blocks(seat: &CallSeat) -> Self {
        Self {
            total: seat.blocks(seat.ranks()),
            part: seat.block(),
        }
    }

    /// Bytes of the longest part: the first.
    pub fn longest(&self) -> u64 {
        self.part
    }

    /// Bytes of the parts from one up to another.
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

/// The steps of one rank while they are made.
#[derive(Debug)]
pub(super) struct Emitter {
    pub seat: CallSeat,
    steps: Vec<Step>,
    scratch_bytes: u64,
    messages: u64,
    messages_max: u64,
    /// For each rank whether anything comes from it.
    gets: Vec<bool>,
}

impl Emitter {
    pub fn new(seat: CallSeat, messages_max: u64) -> Self {
        Self {
            seat,
            steps: Vec::new(),
            scratch_bytes: 0,
            messages: 0,
            messages_max,
            gets: vec![false; seat.ranks() as usize],
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

    /// Sets numbers of messages apart, and returns where each row of them begins. Called once, before any step, with
    /// the same counts at all ranks: so each knows the numbers of all others.
    pub fn number<const N: usize>(&mut self, counts: [u64; N]) -> Result<[u32; N], TooMany> {
        let begin = |index: usize| {
            counts[..index]
                .iter()
                .fold(0, |sum: u64, n| sum.saturating_add(*n))
        };
        self.messages = begin(N);
        if self.messages > self.messages_max {
            return Err(TooMany {
                messages: self.messages,
            });
        }
        Ok(std::array::from_fn(|index| begin(index) as u32))
    }

    /// Sets a stretch of the scratch apart, and returns its offset.
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

    /// Puts no bytes.
    pub fn signal(&mut self, peer: u32, message: u32) {
        self.put(peer, message, (scratch(0), scratch(0)), 0);
    }

    /// Waits for a message of the peer's.
    pub fn wait(&mut self, peer: u32, message: u32) {
        self.gets[peer as usize] = true;
        self.steps.push(Step::Await { message });
    }

    /// Puts a range of bytes in chunks, whose messages are numbered from `first` on; `way` is that of the range's
    /// beginning. Returns the number after them.
    pub fn put_range(
        &mut self,
        peer: u32,
        first: u32,
        range: Range<u64>,
        way: impl Fn(u64) -> (Place, Place),
    ) -> u32 {
        let mut message = first;
        for chunk in self.seat.cut(range) {
            self.put(peer, message, way(chunk.at), chunk.bytes);
            message += 1;
        }
        message
    }

    /// Waits for as many messages as so many bytes go in. Returns the number after them.
    pub fn wait_bytes(&mut self, peer: u32, first: u32, bytes: u64) -> u32 {
        let end = first + self.seat.count(bytes) as u32;
        (first..end).for_each(|message| self.wait(peer, message));
        end
    }

    pub fn fold(&mut self, from: Place, to: Place, bytes: u64) {
        let elements = bytes / self.seat.shape.dtype.bytes();
        self.steps.push(Step::Fold { from, to, elements });
    }

    pub fn combine(&mut self, one: Place, other: Place, to: Place, bytes: u64) {
        let elements = bytes / self.seat.shape.dtype.bytes();
        self.steps.push(Step::Combine {
            one,
            other,
            to,
            elements,
        });
    }

    /// Combines what has come with this rank's own input into its output, which in place is the same.
    pub fn merge(&mut self, come: Place, own: Place, to: Place, bytes: u64) {
        match self.seat.in_place {
            true => self.fold(come, to, bytes),
            false => self.combine(come, own, to, bytes),
        }
    }

    pub fn copy(&mut self, from: Place, to: Place, bytes: u64) {
        if bytes > 0 {
            self.steps.push(Step::Copy { from, to, bytes });
        }
    }

    /// Copies the rank's own part of its input to where it belongs in its output; in place it is there.
    pub fn keep(&mut self, from: u64, to: u64, bytes: u64) {
        if !self.seat.in_place {
            self.copy(input(from), output(to), bytes);
        }
    }

    /// Ends a reduction: an average is the sum, divided.
    pub fn complete(&mut self, at: Place, bytes: u64) {
        if self.seat.reduction == Reduction::Avg {
            let elements = bytes / self.seat.shape.dtype.bytes();
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
