//! Recursive doubling: in round r the ranks exchange all that they know with the one whose number differs in the r-th
//! binary digit. Few rounds and many bytes: for small messages.

use super::emitter::{Chunk, Emitter, TooMany, input, output, scratch};
use super::pairing::Core;
use super::program::Place;
use super::ring::copy_others;
use super::slots::{Inlet, Outlet, RowNumbers, SlotRow};

/// An all-reduce at a rank of the core. Round r is `lead` chunks behind round r - 1, so that each chunk's latency is
/// hidden behind others.
struct AllReduce {
    outlets: Vec<Outlet>,
    inlets: Vec<Inlet>,
    /// The rank in excess that it works for, its messages, and the number of the first result for it.
    ward: Option<(u32, Inlet, u32)>,
}

impl AllReduce {
    /// Takes this rank's own chunk, and its ward's, into the first round.
    fn begin(&mut self, out: &mut Emitter, chunk: Chunk) {
        let (own, partner) = (input(chunk.at), out.seat.rank ^ 1);
        let outlet = &mut self.outlets[0];
        let from = match &mut self.ward {
            // What is put may still be on its way when the result comes, which in place is written over the input.
            None if out.seat.in_place => {
                let from = outlet.place(out, partner);
                out.copy(own, from, chunk.bytes);
                from
            }
            None => own,
            Some((peer, inlet, _)) => {
                let from = outlet.place(out, partner);
                let come = inlet.take(out, *peer);
                out.combine(come, own, from, chunk.bytes);
                inlet.release(out, *peer);
                from
            }
        };
        outlet.put(out, partner, from, chunk.bytes);
    }

    /// Place of a chunk's sum before a round.
    fn before(&self, out: &Emitter, round: usize, index: u64, chunk: Chunk) -> Place {
        match round == 0 && self.ward.is_none() && !out.seat.in_place {
            true => input(chunk.at),
            false => self.outlets[round].place_of(index),
        }
    }

    /// Takes a partner's sum of a chunk, and puts that of both in the next round.
    fn take(&mut self, out: &mut Emitter, round: usize, index: u64, chunk: Chunk) {
        let own = self.before(out, round, index, chunk);
        let (peer, next) = (out.seat.rank ^ (1 << round), out.seat.rank ^ (2 << round));
        let is_last = round + 1 == self.inlets.len();
        let to = match is_last {
            true => output(chunk.at),
            false => self.outlets[round + 1].place(out, next),
        };
        let come = self.inlets[round].take(out, peer);
        out.combine(come, own, to, chunk.bytes);
        self.inlets[round].release(out, peer);
        if !is_last {
            self.outlets[round + 1].put(out, next, to, chunk.bytes);
            return;
        }
        out.complete(to, chunk.bytes);
        if let Some((ward, _, result)) = self.ward {
            out.put(ward, result + index as u32, (to, to), chunk.bytes);
        }
    }
}

/// Emits an all-reduce.
pub(super) fn all_reduce(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let core = Core::of(&seat);
    let count = seat.count(seat.block());
    let all = count * u64::from(core.rounds());
    let [data, free, excess, excess_free, result] = out.number([all, all, count, count, count])?;
    let row = SlotRow::new(&seat, seat.block(), count);
    let slots = out.reserve(row.bytes * u64::from(core.rounds()));
    let of_excess = RowNumbers {
        data: excess,
        free: excess_free,
    };
    let excess_slots = out.reserve(if core.excess > 0 { row.bytes } else { 0 });
    let chunks: Vec<Chunk> = seat.cut(0..seat.block()).collect();
    if let Some(helper) = core.helper(seat.rank) {
        let mut outlet = Outlet::new(row, of_excess, excess_slots, 0);
        for chunk in &chunks {
            outlet.put(out, helper, input(chunk.at), chunk.bytes);
        }
        out.wait_bytes(helper, result, seat.block());
        return Ok(());
    }
    let outbox = out.reserve(row.bytes * u64::from(core.rounds()));
    let of_round = |round: u32| {
        let numbers = RowNumbers {
            data: data + round * count as u32,
            free: free + round * count as u32,
        };
        let before = u64::from(round) * row.bytes;
        let outlet = Outlet::new(row, numbers, slots + before, outbox + before);
        (outlet, Inlet::new(row, numbers, slots + before, count))
    };
    let (outlets, inlets) = (0..core.rounds()).map(of_round).unzip();
    let of_ward = || Inlet::new(row, of_excess, excess_slots, count);
    let ward = |peer| (peer, of_ward(), result);
    let mut call = AllReduce {
        outlets,
        inlets,
        ward: core.ward(seat.rank).map(ward),
    };
    let lead = row.lead();
    let rounds = u64::from(core.rounds());
    for turn in 0..count + lead * rounds {
        let at = |round: u64| {
            let index = turn.checked_sub(lead * round)?;
            Some((index, *chunks.get(index as usize)?))
        };
        if let Some((_, chunk)) = at(0) {
            call.begin(out, chunk);
        }
        for round in 0..rounds {
            if let Some((index, chunk)) = at(round + 1) {
                call.take(out, round as usize, index, chunk);
            }
        }
    }
    Ok(())
}

/// An all-gather at a rank of the core.
struct AllGather {
    core: Core,
    is_eager: bool,
    /// Number of the first message of each round; the last is that of the result for the rank in excess.
    first: Vec<u32>,
}

impl AllGather {
    /// Place of a block while blocks are gathered: in the output, or in an image of it.
    fn place(&self, out: &Emitter, block: u32) -> Place {
        let at = out.seat.blocks(block);
        match self.is_eager {
            true => scratch(at),
            false => output(at),
        }
    }

    /// Emits a round: all that this rank has for all that its partner has.
    fn exchange(&self, out: &mut Emitter, round: u32) {
        let seat = out.seat;
        let partner = seat.rank ^ (1 << round);
        let mut message = self.first[round as usize];
        for blocks in self.core.blocks(&Core::near(seat.rank, round)) {
            let place = self.place(out, blocks.start);
            let is_own = round == 0 && blocks.start == seat.rank;
            let from = if is_own { input(0) } else { place };
            let bytes = seat.blocks(blocks.end - blocks.start);
            message = out.put_range(partner, message, 0..bytes, |at| {
                (from.beyond(at), place.beyond(at))
            });
        }
        if round == 0 {
            self.keep(out);
        }
        let mut message = self.first[round as usize];
        for blocks in self.core.blocks(&Core::near(partner, round)) {
            let bytes = seat.blocks(blocks.end - blocks.start);
            message = out.wait_bytes(partner, message, bytes);
        }
    }

    /// Copies this rank's own block to the others.
    fn keep(&self, out: &mut Emitter) {
        let seat = out.seat;
        // It is passed on in the rounds that follow, and to a rank in excess.
        if self.is_eager && (self.core.rounds() > 1 || self.core.ward(seat.rank).is_some()) {
            out.copy(input(0), self.place(out, seat.rank), seat.block());
        }
        out.keep(0, seat.blocks(seat.rank), seat.block());
    }
}

/// Chunks of all blocks but one.
fn without(out: &Emitter, block: u32) -> impl Iterator<Item = Chunk> + use<> {
    let seat = out.seat;
    let (own, end) = (seat.blocks(block), seat.blocks(seat.ranks()));
    seat.cut(0..own).chain(seat.cut(own + seat.block()..end))
}

/// Emits an all-gather. A rank in excess puts its block to its helper, and gets all others from it.
pub(super) fn all_gather(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let core = Core::of(&seat);
    let (rounds, chunks) = (core.rounds(), seat.count(seat.block()));
    let of_round = |round: u32| 2 * seat.count(seat.blocks(1u32 << round));
    let all = (0..rounds).map(of_round).sum();
    let result_max = seat.count(seat.blocks(seat.ranks())) + 1;
    let [data, excess, result, ready] =
        out.number([all, chunks, result_max, u64::from(rounds) + 1])?;
    let is_eager = seat.is_eager(seat.blocks(seat.ranks()));
    let before = |round: u32| data + (0..round).map(of_round).sum::<u64>() as u32;
    let call = AllGather {
        core,
        is_eager,
        first: (0..rounds).map(before).collect(),
    };
    if is_eager {
        out.reserve(seat.blocks(seat.ranks()));
    }
    if let Some(helper) = core.helper(seat.rank) {
        if !is_eager {
            out.wait(helper, ready + rounds);
        }
        let to = call.place(out, seat.rank);
        out.put_range(helper, excess, 0..seat.block(), |at| {
            (input(at), to.beyond(at))
        });
        out.keep(0, seat.blocks(seat.rank), seat.block());
        for (message, _) in (result..).zip(without(out, seat.rank)) {
            out.wait(helper, message);
        }
        return Ok(());
    }
    let ward = core.ward(seat.rank);
    if !is_eager {
        if let Some(peer) = ward {
            out.signal(peer, ready + rounds);
        }
        (0..rounds).for_each(|round| out.signal(seat.rank ^ (1 << round), ready + round));
    }
    if let Some(peer) = ward {
        out.wait_bytes(peer, excess, seat.block());
    }
    for round in 0..rounds {
        if !is_eager {
            out.wait(seat.rank ^ (1 << round), ready + round);
        }
        call.exchange(out, round);
    }
    if let Some(peer) = ward {
        // Its block has come: it is there.
        for (message, chunk) in (result..).zip(without(out, peer)) {
            let from = call.place(out, 0).beyond(chunk.at);
            out.put(peer, message, (from, output(chunk.at)), chunk.bytes);
        }
    }
    if is_eager {
        copy_others(out);
    }
    Ok(())
}
