//! Bruck's algorithms. In round r, each rank puts to the rank 2^r before or after it. The number of rounds is the
//! number of binary digits of the highest rank, even if the number of ranks is not a power of two.
//!
//! Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in multiport
//! message-passing systems", IEEE Transactions on Parallel and Distributed Systems 8 (1997). For the barrier: Hensgen,
//! Finkel and Manber, "Two algorithms for barrier synchronization", International Journal of Parallel Programming 17
//! (1988), who call it dissemination.

use std::ops::Range;

use super::emitter::{CallContext, Emitter, TooManyMessages, input, output, scratch};
use super::program::Place;

/// Number of rounds.
fn rounds(context: &CallContext) -> u32 {
    u32::BITS - (context.ranks() - 1).leading_zeros()
}

/// Emits a barrier.
pub(super) fn barrier(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let rounds = rounds(&out.context);
    let [first] = out.number([u64::from(rounds)])?;
    for round in 0..rounds {
        out.signal(out.context.after(1 << round), first + round);
        out.wait(out.context.before(1 << round), first + round);
    }
    Ok(())
}

/// An all-gather. Blocks are numbered starting with the rank's own. If there are few bytes, blocks are collected at the
/// start of the scratch, in this order. Otherwise they go directly into the outputs. Outputs are in rank order, so a
/// range of blocks can wrap around in them.
struct AllGather {
    is_eager: bool,
}

impl AllGather {
    /// The byte ranges that contain `blocks` of a rank. Blocks are numbered starting with the rank's own.
    fn stretches(&self, context: &CallContext, rank: u32, blocks: Range<u32>) -> Vec<(Place, u64)> {
        if self.is_eager {
            let bytes = context.bytes_of_blocks(blocks.end - blocks.start);
            return vec![(scratch(context.bytes_of_blocks(blocks.start)), bytes)];
        }
        let context = CallContext { rank, ..*context };
        let first = context.after(blocks.start);
        let until_last = (blocks.end - blocks.start).min(context.ranks() - first);
        let rest = blocks.end - blocks.start - until_last;
        let front = (
            output(context.bytes_of_blocks(first)),
            context.bytes_of_blocks(until_last),
        );
        vec![front, (output(0), context.bytes_of_blocks(rest))]
    }

    /// The blocks that a rank puts to its peer in a round.
    fn passed(context: &CallContext, round: u32) -> Range<u32> {
        0..(1 << round).min(context.ranks() - (1 << round))
    }

    /// Emits a round.
    fn exchange(&self, out: &mut Emitter, round: u32, first: u32) {
        let (context, distance) = (out.context, 1 << round);
        let (before, after) = (context.before(distance), context.after(distance));
        let passed = Self::passed(&context, round);
        let received = passed.start + distance..passed.end + distance;
        let mut message = first;
        let from = self.stretches(&context, context.rank, passed);
        let to = self.stretches(&context, before, received.clone());
        for ((from, bytes), (to, _)) in from.into_iter().zip(to) {
            let from = if round == 0 { input(0) } else { from };
            message = out.put_range(before, message, 0..bytes, |at| {
                (from.beyond(at), to.beyond(at))
            });
        }
        if round == 0 {
            // Later rounds put this rank's block from the scratch.
            if self.is_eager && context.ranks() > 2 {
                out.copy(input(0), scratch(0), context.block_bytes());
            }
            out.keep(
                0,
                context.bytes_of_blocks(context.rank),
                context.block_bytes(),
            );
        }
        let mut message = first;
        for (_, bytes) in self.stretches(&context, context.rank, received) {
            message = out.wait_bytes(after, message, bytes);
        }
    }
}

/// Emits an all-gather.
pub(super) fn all_gather(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let rounds = rounds(&context);
    // A range of blocks can be two ranges of bytes, which are cut into chunks separately.
    let of_round = |round| {
        context.chunk_count(context.bytes_of_blocks(AllGather::passed(&context, round).end)) + 1
    };
    let all = (0..rounds).map(of_round).sum();
    let [mut first, ready] = out.number([all, u64::from(rounds)])?;
    let is_eager = context.is_eager(context.bytes_of_blocks(context.ranks()));
    let call = AllGather { is_eager };
    // Before the last round, a block of the target has already arrived, unless the number of ranks is a power of two.
    // This block proves that the target has entered the call.
    let is_unknown = |round: &u32| context.ranks() >> *round >= 2;
    if is_eager {
        out.reserve(context.bytes_of_blocks(context.ranks()));
    } else {
        let rounds = (0..rounds).filter(is_unknown);
        rounds.for_each(|round| out.signal(context.after(1 << round), ready + round));
    }
    for round in 0..rounds {
        if !is_eager && is_unknown(&round) {
            out.wait(context.before(1 << round), ready + round);
        }
        call.exchange(out, round, first);
        first += of_round(round) as u32;
    }
    if is_eager {
        let until_last = context.ranks() - context.rank;
        let (next, front) = (
            context.bytes_of_blocks(context.rank + 1),
            scratch(context.bytes_of_blocks(until_last)),
        );
        let behind = context.bytes_of_blocks(until_last - 1);
        out.copy(scratch(context.block_bytes()), output(next), behind);
        out.copy(front, output(0), context.bytes_of_blocks(context.rank));
    }
    Ok(())
}

/// An all-to-all. A block is identified by the distance that it must travel. There is one round for each binary digit.
/// If this digit of the distance is 1, the block travels that part of the distance in the round.
struct AllToAll {
    /// Scratch offset of the data that arrives in each round.
    received: Vec<u64>,
}

impl AllToAll {
    /// Number of distances below `below` with a 1 in the given binary digit.
    fn with_digit(below: u32, digit: u32) -> u32 {
        let rest = below & ((2 << digit) - 1);
        (below >> (digit + 1) << digit) + rest.saturating_sub(1 << digit)
    }

    /// Location of the block that must travel `distance`, after it has travelled the binary digits in `gone`.
    fn place(&self, context: &CallContext, distance: u32, gone: u32) -> Place {
        match gone.checked_ilog2() {
            None => input(context.bytes_of_blocks(context.after(distance))),
            Some(digit) => {
                let index = Self::with_digit(distance, digit);
                scratch(self.received[digit as usize] + context.bytes_of_blocks(index))
            }
        }
    }

    /// Emits a round: packs the blocks at distances that contain this digit, and puts each chunk as soon as it is
    /// packed.
    fn exchange(&self, out: &mut Emitter, round: u32, pack: u64, first: u32) {
        let (context, digit) = (out.context, 1u32 << round);
        let bytes = context.bytes_of_blocks(Self::with_digit(context.ranks(), round));
        let mut chunks = (first..).zip(context.cut(0..bytes)).peekable();
        let mut packed = 0;
        for distance in (digit..context.ranks()).filter(|distance| distance & digit > 0) {
            let from = self.place(&context, distance, distance & (digit - 1));
            out.copy(from, scratch(pack + packed), context.block_bytes());
            packed += context.block_bytes();
            while let Some((message, chunk)) =
                chunks.next_if(|(_, chunk)| chunk.at + chunk.bytes <= packed)
            {
                let to = scratch(self.received[round as usize] + chunk.at);
                let places = (scratch(pack + chunk.at), to);
                out.put(context.after(digit), message, places, chunk.bytes);
            }
        }
        out.wait_bytes(context.before(digit), first, bytes);
    }
}

/// Emits an all-to-all. It only reads the input, and writes the output only at the end, so it also works in place.
pub(super) fn all_to_all(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let rounds = rounds(&context);
    let bytes = |round| context.bytes_of_blocks(AllToAll::with_digit(context.ranks(), round));
    let [mut first] = out.number([(0..rounds)
        .map(|round| context.chunk_count(bytes(round)))
        .sum()])?;
    let received = (0..rounds).map(|round| out.reserve(bytes(round)));
    let call = AllToAll {
        received: received.collect(),
    };
    for round in 0..rounds {
        let pack = out.reserve(bytes(round));
        call.exchange(out, round, pack, first);
        first += context.chunk_count(bytes(round)) as u32;
    }
    let own = context.bytes_of_blocks(context.rank);
    out.keep(own, own, context.block_bytes());
    for distance in 1..context.ranks() {
        let from = call.place(&context, distance, distance);
        let to = output(context.bytes_of_blocks(context.before(distance)));
        out.copy(from, to, context.block_bytes());
    }
    Ok(())
}
