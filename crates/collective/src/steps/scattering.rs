//! Reduce-scatter by recursive halving, and by pairs. Halving keeps data that arrives, and sums of half of the data, in
//! the scratch. Together they are as large as a rank's input.

use std::ops::Range;

use super::emitter::{Emitter, Parts, TooManyMessages, input, output, scratch};
use super::pairing::Core;
use super::program::Place;
use super::slots::{RowNumbers, RowReceiver, RowSender, SlotRow};

/// Sums of the blocks of some core ranks, and of the excess ranks that they work for.
#[derive(Clone)]
struct PartialSums {
    /// Offset of the sums in the scratch; `None` while the sums are the input itself.
    at: Option<u64>,
    ranks: Range<u32>,
}

impl PartialSums {
    /// Location of a block's sum.
    fn place(&self, out: &Emitter, core: &Core, block: u32) -> Place {
        let Some(at) = self.at else {
            return input(out.context.bytes_of_blocks(block));
        };
        let [first, second] = core.blocks(&self.ranks);
        let index = match first.contains(&block) {
            true => block - first.start,
            false => first.end - first.start + (block - second.start),
        };
        scratch(at + out.context.bytes_of_blocks(index))
    }
}

/// Emits a reduce-scatter by halving. An excess rank puts its whole input to its core partner, which later puts the
/// result to it.
pub(super) fn halving(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let core = Core::new(&context);
    let all = context.chunk_count(context.bytes_of_blocks(context.ranks()));
    // A round has two ranges, which are cut into chunks separately.
    let longest = |digit| context.chunk_count(blocks_bytes(out, &core, 0..1u32 << digit)) + 1;
    let sum = (0..core.rounds()).map(longest).sum();
    let [excess, halved, result] =
        out.number([all, sum, context.chunk_count(context.block_bytes())])?;
    let area = out.reserve(if core.excess > 0 {
        context.bytes_of_blocks(context.ranks())
    } else {
        0
    });
    if let Some(core_partner) = core.core_partner(context.rank) {
        out.put_range(
            core_partner,
            excess,
            0..context.bytes_of_blocks(context.ranks()),
            |at| (input(at), scratch(area + at)),
        );
        out.wait_bytes(core_partner, result, context.block_bytes());
        return Ok(());
    }
    let ranks = 0..core.size;
    let mut sums = PartialSums { at: None, ranks };
    if let Some(peer) = core.excess_partner(context.rank) {
        for (message, chunk) in
            (excess..).zip(context.cut(0..context.bytes_of_blocks(context.ranks())))
        {
            out.wait(peer, message);
            out.fold(input(chunk.at), scratch(area + chunk.at), chunk.bytes);
        }
        sums.at = Some(area);
    }
    let mut first = halved;
    for digit in (0..core.rounds()).rev() {
        let area = out.reserve(blocks_bytes(out, &core, 0..1 << digit));
        sums = halve(out, &core, (sums, area), (first, result), digit);
        first += context.chunk_count(blocks_bytes(out, &core, 0..1 << digit)) as u32 + 1;
    }
    Ok(())
}

/// Bytes of the blocks of some core ranks, and of the excess ranks that they work for.
fn blocks_bytes(out: &Emitter, core: &Core, ranks: Range<u32>) -> u64 {
    let [first, second] = core.blocks(&ranks);
    out.context
        .bytes_of_blocks(first.end - first.start + second.end - second.start)
}

/// Emits a round, which halves the number of blocks that a rank sums. The sums are stored in the scratch at `area`;
/// those of the last round are stored in the outputs.
fn halve(
    out: &mut Emitter,
    core: &Core,
    (sums, area): (PartialSums, u64),
    (first, result): (u32, u32),
    digit: u32,
) -> PartialSums {
    let context = out.context;
    let partner = context.rank ^ (1 << digit);
    let half = |rank| PartialSums {
        at: Some(area),
        ranks: Core::near(rank, digit),
    };
    let (given, kept) = (half(partner), half(context.rank));
    let mut message = first;
    for range in core.blocks(&given.ranks) {
        let from = sums.place(out, core, range.start);
        let to = given.place(out, core, range.start);
        let bytes = context.bytes_of_blocks(range.end - range.start);
        message = out.put_range(partner, message, 0..bytes, |at| {
            (from.beyond(at), to.beyond(at))
        });
    }
    let mut message = first;
    for range in core.blocks(&kept.ranks) {
        let own = sums.place(out, core, range.start);
        let received = kept.place(out, core, range.start);
        for (index, chunk) in
            (0..).zip(context.cut(0..context.bytes_of_blocks(range.end - range.start)))
        {
            out.wait(partner, message);
            message += 1;
            let (own, received) = (own.beyond(chunk.at), received.beyond(chunk.at));
            if digit > 0 {
                out.fold(own, received, chunk.bytes);
            } else if range.start == context.rank {
                let to = output(chunk.at);
                match sums.at {
                    None => out.merge(received, own, to, chunk.bytes),
                    Some(_) => out.combine(received, own, to, chunk.bytes),
                }
                out.complete(to, chunk.bytes);
            } else {
                out.fold(own, received, chunk.bytes);
                out.complete(received, chunk.bytes);
                let places = (received, output(chunk.at));
                out.put(range.start, result + index, places, chunk.bytes);
            }
        }
    }
    kept
}

/// Emits a reduce-scatter by pairs. In step s, a rank puts to the rank s after it, and adds data from the rank s before
/// it. The messages of all peers use one row of slots. When a slot becomes free, the peer that uses the slot next is
/// notified.
pub(super) fn pairwise(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let chunks = context.chunk_count(context.block_bytes());
    let count = chunks * u64::from(context.ranks() - 1);
    let [data, free] = out.number([count; 2])?;
    let row = SlotRow::new(&context, Parts::blocks(&context).longest(), count);
    let slots = out.reserve(row.bytes);
    let numbers = RowNumbers { data, free };
    let mut sender = RowSender::new(row, numbers, slots, 0);
    let mut receiver = RowReceiver::new(row, numbers, slots, count);
    let pairs = || {
        let chunks = move |step| {
            context
                .cut(0..context.block_bytes())
                .map(move |chunk| (step, chunk))
        };
        (1..context.ranks()).flat_map(chunks)
    };
    let mut later = pairs();
    let mut put = |out: &mut Emitter| {
        if let Some((step, chunk)) = later.next() {
            let (peer, block) = (
                context.after(step),
                context.bytes_of_blocks(context.after(step)),
            );
            sender.put(out, peer, input(block + chunk.at), chunk.bytes);
        }
    };
    (0..row.lead()).for_each(|_| put(out));
    for (step, chunk) in pairs() {
        put(out);
        let received = receiver.take(out, context.before(step));
        let to = output(chunk.at);
        let own = input(context.bytes_of_blocks(context.rank) + chunk.at);
        match step {
            1 => out.merge(received, own, to, chunk.bytes),
            _ => out.fold(received, to, chunk.bytes),
        }
        if let Some(successor) = receiver.successor() {
            receiver.release(out, context.before((successor / chunks + 1) as u32));
        }
        if step == context.ranks() - 1 {
            out.complete(to, chunk.bytes);
        }
    }
    Ok(())
}
