//! Reduce-scatter by recursive halving, and by pairs. The former holds sums of half of the data in the scratch, and
//! what comes besides: as much as a rank's input altogether.

use std::ops::Range;

use super::emitter::{Emitter, Parts, TooMany, input, output, scratch};
use super::pairing::Core;
use super::program::Place;
use super::slots::{Inlet, Outlet, RowNumbers, SlotRow};

/// Sums of the blocks of some ranks of the core, and of those that they work for.
#[derive(Clone)]
struct Sums {
    /// Offset in the scratch, or none while they are the input itself.
    at: Option<u64>,
    ranks: Range<u32>,
}

impl Sums {
    /// Place of a block, which the sums hold.
    fn place(&self, out: &Emitter, core: &Core, block: u32) -> Place {
        let Some(at) = self.at else {
            return input(out.seat.blocks(block));
        };
        let [first, second] = core.blocks(&self.ranks);
        let index = match first.contains(&block) {
            true => block - first.start,
            false => first.end - first.start + (block - second.start),
        };
        scratch(at + out.seat.blocks(index))
    }
}

/// Emits a reduce-scatter by halving. Ranks in excess put all of their input to their helper, and get their block.
pub(super) fn halving(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let core = Core::of(&seat);
    let all = seat.count(seat.blocks(seat.ranks()));
    // Both ranges of a round are cut apart.
    let longest = |digit| seat.count(blocks_bytes(out, &core, 0..1u32 << digit)) + 1;
    let sum = (0..core.rounds()).map(longest).sum();
    let [excess, halved, result] = out.number([all, sum, seat.count(seat.block())])?;
    let area = out.reserve(if core.excess > 0 {
        seat.blocks(seat.ranks())
    } else {
        0
    });
    if let Some(helper) = core.helper(seat.rank) {
        out.put_range(helper, excess, 0..seat.blocks(seat.ranks()), |at| {
            (input(at), scratch(area + at))
        });
        out.wait_bytes(helper, result, seat.block());
        return Ok(());
    }
    let ranks = 0..core.size;
    let mut sums = Sums { at: None, ranks };
    if let Some(peer) = core.ward(seat.rank) {
        for (message, chunk) in (excess..).zip(seat.cut(0..seat.blocks(seat.ranks()))) {
            out.wait(peer, message);
            out.fold(input(chunk.at), scratch(area + chunk.at), chunk.bytes);
        }
        sums.at = Some(area);
    }
    let mut first = halved;
    for digit in (0..core.rounds()).rev() {
        let area = out.reserve(blocks_bytes(out, &core, 0..1 << digit));
        sums = halve(out, &core, (sums, area), (first, result), digit);
        first += seat.count(blocks_bytes(out, &core, 0..1 << digit)) as u32 + 1;
    }
    Ok(())
}

/// Bytes of the blocks of some ranks of the core and of those that they work for.
fn blocks_bytes(out: &Emitter, core: &Core, ranks: Range<u32>) -> u64 {
    let [first, second] = core.blocks(&ranks);
    out.seat
        .blocks(first.end - first.start + second.end - second.start)
}

/// Emits a round, which leaves sums of half as many ranks' blocks in an area of the scratch; of the last round in the
/// outputs.
fn halve(
    out: &mut Emitter,
    core: &Core,
    (sums, area): (Sums, u64),
    (first, result): (u32, u32),
    digit: u32,
) -> Sums {
    let seat = out.seat;
    let partner = seat.rank ^ (1 << digit);
    let half = |rank| Sums {
        at: Some(area),
        ranks: Core::near(rank, digit),
    };
    let (given, kept) = (half(partner), half(seat.rank));
    let mut message = first;
    for range in core.blocks(&given.ranks) {
        let from = sums.place(out, core, range.start);
        let to = given.place(out, core, range.start);
        let bytes = seat.blocks(range.end - range.start);
        message = out.put_range(partner, message, 0..bytes, |at| {
            (from.beyond(at), to.beyond(at))
        });
    }
    let mut message = first;
    for range in core.blocks(&kept.ranks) {
        let own = sums.place(out, core, range.start);
        let come = kept.place(out, core, range.start);
        for (index, chunk) in (0..).zip(seat.cut(0..seat.blocks(range.end - range.start))) {
            out.wait(partner, message);
            message += 1;
            let (own, come) = (own.beyond(chunk.at), come.beyond(chunk.at));
            if digit > 0 {
                out.fold(own, come, chunk.bytes);
            } else if range.start == seat.rank {
                let to = output(chunk.at);
                match sums.at {
                    None => out.merge(come, own, to, chunk.bytes),
                    Some(_) => out.combine(come, own, to, chunk.bytes),
                }
                out.complete(to, chunk.bytes);
            } else {
                out.fold(own, come, chunk.bytes);
                out.complete(come, chunk.bytes);
                let way = (come, output(chunk.at));
                out.put(range.start, result + index, way, chunk.bytes);
            }
        }
    }
    kept
}

/// Emits a reduce-scatter by pairs: in step s a rank puts to the one s after it and takes up the one s before it. All
/// peers' messages go through one row of slots; it is the next user of a slot that is told that it is free.
pub(super) fn pairwise(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let chunks = seat.count(seat.block());
    let count = chunks * u64::from(seat.ranks() - 1);
    let [data, free] = out.number([count; 2])?;
    let row = SlotRow::new(&seat, Parts::blocks(&seat).longest(), count);
    let slots = out.reserve(row.bytes);
    let numbers = RowNumbers { data, free };
    let mut outlet = Outlet::new(row, numbers, slots, 0);
    let mut inlet = Inlet::new(row, numbers, slots, count);
    let pairs = || {
        let chunks = move |step| seat.cut(0..seat.block()).map(move |chunk| (step, chunk));
        (1..seat.ranks()).flat_map(chunks)
    };
    let mut later = pairs();
    let mut put = |out: &mut Emitter| {
        if let Some((step, chunk)) = later.next() {
            let (peer, block) = (seat.after(step), seat.blocks(seat.after(step)));
            outlet.put(out, peer, input(block + chunk.at), chunk.bytes);
        }
    };
    (0..row.lead()).for_each(|_| put(out));
    for (step, chunk) in pairs() {
        put(out);
        let come = inlet.take(out, seat.before(step));
        let to = output(chunk.at);
        let own = input(seat.blocks(seat.rank) + chunk.at);
        match step {
            1 => out.merge(come, own, to, chunk.bytes),
            _ => out.fold(come, to, chunk.bytes),
        }
        if let Some(successor) = inlet.successor() {
            inlet.release(out, seat.before((successor / chunks + 1) as u32));
        }
        if step == seat.ranks() - 1 {
            out.complete(to, chunk.bytes);
        }
    }
    Ok(())
}
