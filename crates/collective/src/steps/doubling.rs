//! Recursive doubling. In round r, each rank exchanges all data known so far with the rank whose number differs only in
//! binary digit r. There are few rounds and many bytes, so it suits small messages.

use super::emitter::{Chunk, Emitter, TooManyMessages, input, output, scratch};
use super::pairing::Core;
use super::program::Place;
use super::ring::copy_others;
use super::slots::{RowNumbers, RowReceiver, RowSender, SlotRow};

/// An all-reduce at a core rank. Round r processes a chunk `lead` chunks later than round r - 1. Meanwhile other chunks
/// are in transit, which hides the latency of each chunk.
struct AllReduce {
    senders: Vec<RowSender>,
    receivers: Vec<RowReceiver>,
    /// The excess rank that this rank works for, the receiver of that rank's messages, and the number of the first
    /// message that puts a result to that rank.
    excess_partner: Option<(u32, RowReceiver, u32)>,
}

impl AllReduce {
    /// Puts this rank's chunk to the partner of the first round, after combining it with the excess rank's chunk.
    fn begin(&mut self, out: &mut Emitter, chunk: Chunk) {
        let (own, partner) = (input(chunk.at), out.context.rank ^ 1);
        let sender = &mut self.senders[0];
        let from = match &mut self.excess_partner {
            // In place, the result overwrites the input. The result may arrive while the put is still in progress, so
            // the put uses a copy.
            None if out.context.in_place => {
                let from = sender.next_outbox_place(out, partner);
                out.copy(own, from, chunk.bytes);
                from
            }
            None => own,
            Some((peer, receiver, _)) => {
                let from = sender.next_outbox_place(out, partner);
                let received = receiver.take(out, *peer);
                out.combine(received, own, from, chunk.bytes);
                receiver.release(out, *peer);
                from
            }
        };
        sender.put(out, partner, from, chunk.bytes);
    }

    /// Location of this rank's sum of a chunk before a round.
    fn before(&self, out: &Emitter, round: usize, index: u64, chunk: Chunk) -> Place {
        match round == 0 && self.excess_partner.is_none() && !out.context.in_place {
            true => input(chunk.at),
            false => self.senders[round].outbox_place(index),
        }
    }

    /// Waits for the partner's sum of a chunk, combines it with this rank's, and puts the result to the next round's
    /// partner.
    fn take(&mut self, out: &mut Emitter, round: usize, index: u64, chunk: Chunk) {
        let own = self.before(out, round, index, chunk);
        let (peer, next) = (
            out.context.rank ^ (1 << round),
            out.context.rank ^ (2 << round),
        );
        let is_last = round + 1 == self.receivers.len();
        let to = match is_last {
            true => output(chunk.at),
            false => self.senders[round + 1].next_outbox_place(out, next),
        };
        let received = self.receivers[round].take(out, peer);
        out.combine(received, own, to, chunk.bytes);
        self.receivers[round].release(out, peer);
        if !is_last {
            self.senders[round + 1].put(out, next, to, chunk.bytes);
            return;
        }
        out.complete(to, chunk.bytes);
        if let Some((excess_partner, _, result)) = self.excess_partner {
            out.put(excess_partner, result + index as u32, (to, to), chunk.bytes);
        }
    }
}

/// Emits an all-reduce.
pub(super) fn all_reduce(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let core = Core::new(&context);
    let count = context.chunk_count(context.block_bytes());
    let all = count * u64::from(core.rounds());
    let [data, free, excess, excess_free, result] = out.number([all, all, count, count, count])?;
    let row = SlotRow::new(&context, context.block_bytes(), count);
    let slots = out.reserve(row.bytes * u64::from(core.rounds()));
    let of_excess = RowNumbers {
        data: excess,
        free: excess_free,
    };
    let excess_slots = out.reserve(if core.excess > 0 { row.bytes } else { 0 });
    let chunks: Vec<Chunk> = context.cut(0..context.block_bytes()).collect();
    if let Some(core_partner) = core.core_partner(context.rank) {
        let mut sender = RowSender::new(row, of_excess, excess_slots, 0);
        for chunk in &chunks {
            sender.put(out, core_partner, input(chunk.at), chunk.bytes);
        }
        out.wait_bytes(core_partner, result, context.block_bytes());
        return Ok(());
    }
    let outbox = out.reserve(row.bytes * u64::from(core.rounds()));
    let of_round = |round: u32| {
        let numbers = RowNumbers {
            data: data + round * count as u32,
            free: free + round * count as u32,
        };
        let before = u64::from(round) * row.bytes;
        let sender = RowSender::new(row, numbers, slots + before, outbox + before);
        (
            sender,
            RowReceiver::new(row, numbers, slots + before, count),
        )
    };
    let (senders, receivers) = (0..core.rounds()).map(of_round).unzip();
    let from_excess = || RowReceiver::new(row, of_excess, excess_slots, count);
    let excess_partner = |peer| (peer, from_excess(), result);
    let mut call = AllReduce {
        senders,
        receivers,
        excess_partner: core.excess_partner(context.rank).map(excess_partner),
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

/// An all-gather at a core rank.
struct AllGather {
    core: Core,
    is_eager: bool,
    /// Number of the first message of each round.
    first: Vec<u32>,
}

impl AllGather {
    /// Location where a block is collected: the output, or an image of the output in the scratch.
    fn place(&self, out: &Emitter, block: u32) -> Place {
        let at = out.context.bytes_of_blocks(block);
        match self.is_eager {
            true => scratch(at),
            false => output(at),
        }
    }

    /// Emits a round: exchanges all blocks known so far with the partner.
    fn exchange(&self, out: &mut Emitter, round: u32) {
        let context = out.context;
        let partner = context.rank ^ (1 << round);
        let mut message = self.first[round as usize];
        for blocks in self.core.blocks(&Core::near(context.rank, round)) {
            let place = self.place(out, blocks.start);
            let is_own = round == 0 && blocks.start == context.rank;
            let from = if is_own { input(0) } else { place };
            let bytes = context.bytes_of_blocks(blocks.end - blocks.start);
            message = out.put_range(partner, message, 0..bytes, |at| {
                (from.beyond(at), place.beyond(at))
            });
        }
        if round == 0 {
            self.keep(out);
        }
        let mut message = self.first[round as usize];
        for blocks in self.core.blocks(&Core::near(partner, round)) {
            let bytes = context.bytes_of_blocks(blocks.end - blocks.start);
            message = out.wait_bytes(partner, message, bytes);
        }
    }

    /// Copies this rank's own block to its location among the other blocks.
    fn keep(&self, out: &mut Emitter) {
        let context = out.context;
        // Later rounds put this block from there, and so does the final message to the excess rank.
        if self.is_eager
            && (self.core.rounds() > 1 || self.core.excess_partner(context.rank).is_some())
        {
            out.copy(
                input(0),
                self.place(out, context.rank),
                context.block_bytes(),
            );
        }
        out.keep(
            0,
            context.bytes_of_blocks(context.rank),
            context.block_bytes(),
        );
    }
}

/// Chunks of the blocks of all ranks except one.
fn without(out: &Emitter, block: u32) -> impl Iterator<Item = Chunk> + use<> {
    let context = out.context;
    let (own, end) = (
        context.bytes_of_blocks(block),
        context.bytes_of_blocks(context.ranks()),
    );
    context
        .cut(0..own)
        .chain(context.cut(own + context.block_bytes()..end))
}

/// Emits an all-gather. An excess rank puts its block to its core partner, which later puts all other blocks to it.
pub(super) fn all_gather(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let core = Core::new(&context);
    let (rounds, chunks) = (core.rounds(), context.chunk_count(context.block_bytes()));
    let of_round = |round: u32| 2 * context.chunk_count(context.bytes_of_blocks(1u32 << round));
    let all = (0..rounds).map(of_round).sum();
    let result_max = context.chunk_count(context.bytes_of_blocks(context.ranks())) + 1;
    let [data, excess, result, ready] =
        out.number([all, chunks, result_max, u64::from(rounds) + 1])?;
    let is_eager = context.is_eager(context.bytes_of_blocks(context.ranks()));
    let before = |round: u32| data + (0..round).map(of_round).sum::<u64>() as u32;
    let call = AllGather {
        core,
        is_eager,
        first: (0..rounds).map(before).collect(),
    };
    if is_eager {
        out.reserve(context.bytes_of_blocks(context.ranks()));
    }
    if let Some(core_partner) = core.core_partner(context.rank) {
        if !is_eager {
            out.wait(core_partner, ready + rounds);
        }
        let to = call.place(out, context.rank);
        out.put_range(core_partner, excess, 0..context.block_bytes(), |at| {
            (input(at), to.beyond(at))
        });
        out.keep(
            0,
            context.bytes_of_blocks(context.rank),
            context.block_bytes(),
        );
        for (message, _) in (result..).zip(without(out, context.rank)) {
            out.wait(core_partner, message);
        }
        return Ok(());
    }
    let excess_partner = core.excess_partner(context.rank);
    if !is_eager {
        if let Some(peer) = excess_partner {
            out.signal(peer, ready + rounds);
        }
        (0..rounds).for_each(|round| out.signal(context.rank ^ (1 << round), ready + round));
    }
    if let Some(peer) = excess_partner {
        out.wait_bytes(peer, excess, context.block_bytes());
    }
    for round in 0..rounds {
        if !is_eager {
            out.wait(context.rank ^ (1 << round), ready + round);
        }
        call.exchange(out, round);
    }
    if let Some(peer) = excess_partner {
        // A block of the excess rank has arrived, which proves that this rank has entered the call.
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
