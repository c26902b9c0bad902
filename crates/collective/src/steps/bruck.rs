//! Bruck's algorithms: in round r each rank puts to the one 2^r before or after it. As many rounds as the number of
//! ranks has binary digits, whether or not it is a power of two.
//!
//! Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in multiport
//! message-passing systems", IEEE Transactions on Parallel and Distributed Systems 8 (1997). Of the barrier: Hensgen,
//! Finkel and Manber, "Two algorithms for barrier synchronization", International Journal of Parallel Programming 17
//! (1988), who call it dissemination.

use std::ops::Range;

use super::emitter::{CallSeat, Emitter, TooMany, input, output, scratch};
use super::program::Place;

/// Rounds for so many ranks.
fn rounds(seat: &CallSeat) -> u32 {
    u32::BITS - (seat.ranks() - 1).leading_zeros()
}

/// Emits a barrier.
pub(super) fn barrier(out: &mut Emitter) -> Result<(), TooMany> {
    let rounds = rounds(&out.seat);
    let [first] = out.number([u64::from(rounds)])?;
    for round in 0..rounds {
        out.signal(out.seat.after(1 << round), first + round);
        out.wait(out.seat.before(1 << round), first + round);
    }
    Ok(())
}

/// An all-gather. Blocks are counted from the rank's own, and begin the scratch in this order where there are few
/// bytes; otherwise they go into the outputs at once, where the last rank's is followed by the first one's.
struct AllGather {
    is_eager: bool,
}

impl AllGather {
    /// Stretches that `blocks` of a rank, counted from its own, lie in.
    fn stretches(&self, seat: &CallSeat, rank: u32, blocks: Range<u32>) -> Vec<(Place, u64)> {
        if self.is_eager {
            let bytes = seat.blocks(blocks.end - blocks.start);
            return vec![(scratch(seat.blocks(blocks.start)), bytes)];
        }
        let seat = CallSeat { rank, ..*seat };
        let first = seat.after(blocks.start);
        let until_last = (blocks.end - blocks.start).min(seat.ranks() - first);
        let rest = blocks.end - blocks.start - until_last;
        let front = (output(seat.blocks(first)), seat.blocks(until_last));
        vec![front, (output(0), seat.blocks(rest))]
    }

    /// Blocks that a rank passes on in a round.
    fn passed(seat: &CallSeat, round: u32) -> Range<u32> {
        0..(1 << round).min(seat.ranks() - (1 << round))
    }

    /// Emits a round.
    fn exchange(&self, out: &mut Emitter, round: u32, first: u32) {
        let (seat, distance) = (out.seat, 1 << round);
        let (before, after) = (seat.before(distance), seat.after(distance));
        let passed = Self::passed(&seat, round);
        let come = passed.start + distance..passed.end + distance;
        let mut message = first;
        let from = self.stretches(&seat, seat.rank, passed);
        let to = self.stretches(&seat, before, come.clone());
        for ((from, bytes), (to, _)) in from.into_iter().zip(to) {
            let from = if round == 0 { input(0) } else { from };
            message = out.put_range(before, message, 0..bytes, |at| {
                (from.beyond(at), to.beyond(at))
            });
        }
        if round == 0 {
            // It is passed on in the rounds that follow.
            if self.is_eager && seat.ranks() > 2 {
                out.copy(input(0), scratch(0), seat.block());
            }
            out.keep(0, seat.blocks(seat.rank), seat.block());
        }
        let mut message = first;
        for (_, bytes) in self.stretches(&seat, seat.rank, come) {
            message = out.wait_bytes(after, message, bytes);
        }
    }
}

/// Emits an all-gather.
pub(super) fn all_gather(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let rounds = rounds(&seat);
    // Two stretches are cut apart.
    let of_round = |round| seat.count(seat.blocks(AllGather::passed(&seat, round).end)) + 1;
    let all = (0..rounds).map(of_round).sum();
    let [mut first, ready] = out.number([all, u64::from(rounds)])?;
    let is_eager = seat.is_eager(seat.blocks(seat.ranks()));
    let call = AllGather { is_eager };
    // The rank that is put to in the last round is one whose block has come, unless their number is a power of two.
    let is_unknown = |round: &u32| seat.ranks() >> *round >= 2;
    if is_eager {
        out.reserve(seat.blocks(seat.ranks()));
    } else {
        let rounds = (0..rounds).filter(is_unknown);
        rounds.for_each(|round| out.signal(seat.after(1 << round), ready + round));
    }
    for round in 0..rounds {
        if !is_eager && is_unknown(&round) {
            out.wait(seat.before(1 << round), ready + round);
        }
        call.exchange(out, round, first);
        first += of_round(round) as u32;
    }
    if is_eager {
        let until_last = seat.ranks() - seat.rank;
        let (next, front) = (seat.blocks(seat.rank + 1), scratch(seat.blocks(until_last)));
        let behind = seat.blocks(until_last - 1);
        out.copy(scratch(seat.block()), output(next), behind);
        out.copy(front, output(0), seat.blocks(seat.rank));
    }
    Ok(())
}

/// An all-to-all. A block is known by the distance that it has to go, and goes each of its binary digits in the round
/// of that digit.
struct AllToAll {
    /// Offset of what arrives in each round.
    come: Vec<u64>,
}

impl AllToAll {
    /// Distances below a bound that have a binary digit.
    fn with_digit(below: u32, digit: u32) -> u32 {
        let rest = below & ((2 << digit) - 1);
        (below >> (digit + 1) << digit) + rest.saturating_sub(1 << digit)
    }

    /// Place of the block with a distance to go, of which the digits in `gone` have been gone.
    fn place(&self, seat: &CallSeat, distance: u32, gone: u32) -> Place {
        match gone.checked_ilog2() {
            None => input(seat.blocks(seat.after(distance))),
            Some(digit) => {
                let index = Self::with_digit(distance, digit);
                scratch(self.come[digit as usize] + seat.blocks(index))
            }
        }
    }

    /// Emits a round: packs the blocks that have its digit, and puts each chunk when it is full.
    fn exchange(&self, out: &mut Emitter, round: u32, pack: u64, first: u32) {
        let (seat, digit) = (out.seat, 1u32 << round);
        let bytes = seat.blocks(Self::with_digit(seat.ranks(), round));
        let mut chunks = (first..).zip(seat.cut(0..bytes)).peekable();
        let mut packed = 0;
        for distance in (digit..seat.ranks()).filter(|distance| distance & digit > 0) {
            let from = self.place(&seat, distance, distance & (digit - 1));
            out.copy(from, scratch(pack + packed), seat.block());
            packed += seat.block();
            while let Some((message, chunk)) =
                chunks.next_if(|(_, chunk)| chunk.at + chunk.bytes <= packed)
            {
                let to = scratch(self.come[round as usize] + chunk.at);
                let way = (scratch(pack + chunk.at), to);
                out.put(seat.after(digit), message, way, chunk.bytes);
            }
        }
        out.wait_bytes(seat.before(digit), first, bytes);
    }
}

/// Emits an all-to-all. The input is only read and the output only written at the end, so that it works in place.
pub(super) fn all_to_all(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let rounds = rounds(&seat);
    let bytes = |round| seat.blocks(AllToAll::with_digit(seat.ranks(), round));
    let [mut first] = out.number([(0..rounds).map(|round| seat.count(bytes(round))).sum()])?;
    let come = (0..rounds).map(|round| out.reserve(bytes(round)));
    let call = AllToAll {
        come: come.collect(),
    };
    for round in 0..rounds {
        let pack = out.reserve(bytes(round));
        call.exchange(out, round, pack, first);
        first += seat.count(bytes(round)) as u32;
    }
    let own = seat.blocks(seat.rank);
    out.keep(own, own, seat.block());
    for distance in 1..seat.ranks() {
        let from = call.place(&seat, distance, distance);
        let to = output(seat.blocks(seat.before(distance)));
        out.copy(from, to, seat.block());
    }
    Ok(())
}
