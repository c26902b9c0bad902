//! All-reduce by recursive halving and doubling. In each halving round, a rank puts half of its current range to a
//! partner, and adds the partner's data for the other half. In the doubling rounds, partners exchange complete ranges
//! in the opposite order.
//!
//! If the number of ranks is not a power of two, each excess rank first puts its input to a core rank. The core rank
//! later puts the result to the excess rank. Reduce-scatter by halving is in `scattering`.
//!
//! Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", International
//! Journal of High Performance Computing Applications 19 (2005).

use std::ops::Range;

use super::emitter::{Chunk, Emitter, Parts, TooManyMessages, input, output};
use super::pairing::Core;
use super::slots::{RowNumbers, RowReceiver, RowSender, SlotRow};

/// A halving round, and the doubling round with the same partner.
struct Round {
    partner: u32,
    row: SlotRow,
    slots: u64,
    halving: RowNumbers,
    doubling: u32,
    /// Bytes that are put to the partner when halving, and received as results when doubling.
    given: Range<u64>,
    kept: Range<u64>,
}

/// Parts of the data, one per core rank.
#[derive(Clone, Copy)]
struct Division {
    core: Core,
    parts: Parts,
}

impl Division {
    /// The range that a core rank keeps after the rounds of the highest digits, down to `digit`.
    fn kept(&self, rank: u32, digit: u32) -> Range<u64> {
        self.parts.range(Core::near(rank, digit))
    }

    /// The range that a core rank puts to its partner in the round of `digit`.
    fn given(&self, rank: u32, digit: u32) -> Range<u64> {
        self.kept(rank ^ (1 << digit), digit)
    }

    /// Digits in the order of the halving rounds: highest first.
    fn digits(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        (0..self.core.rounds()).rev()
    }

    /// Ranges of the result, in the order in which a core rank completes or receives them.
    fn results(&self, rank: u32) -> impl Iterator<Item = Range<u64>> {
        let back = self.digits().rev();
        std::iter::once(self.kept(rank, 0)).chain(back.map(move |digit| self.given(rank, digit)))
    }
}

/// Emits the all-reduce. From the first round on, sums are in the output. A range that arrives from a partner proves
/// two things: the partner has entered the call, and it no longer needs its own data of that range. So results go
/// directly into outputs, even in place.
pub(super) fn all_reduce(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let core = Core::new(&context);
    let parts = Parts::split_block(&context, core.size);
    let division = Division { core, parts };
    let all = context.chunk_count(context.block_bytes());
    let longest = |digit| context.chunk_count(division.kept(0, digit).end);
    let sum = division.digits().map(longest).sum();
    let result_max = all + u64::from(core.rounds());
    let [data, free, halved, halved_free, doubled, result] =
        out.number([all, all, sum, sum, sum, result_max])?;
    let row = SlotRow::new(&context, context.block_bytes(), all);
    let slots = out.reserve(if core.excess > 0 { row.bytes } else { 0 });
    let numbers = RowNumbers { data, free };
    if let Some(core_partner) = core.core_partner(context.rank) {
        let mut sender = RowSender::new(row, numbers, slots, 0);
        for chunk in context.cut(0..context.block_bytes()) {
            sender.put(out, core_partner, input(chunk.at), chunk.bytes);
        }
        let pieces = division
            .results(core_partner)
            .flat_map(|range| context.cut(range));
        for (message, _) in (result..).zip(pieces) {
            out.wait(core_partner, message);
        }
        return Ok(());
    }
    let mut excess_partner = core.excess_partner(context.rank).map(|peer| (peer, result));
    if let Some((peer, _)) = excess_partner {
        let mut receiver = RowReceiver::new(row, numbers, slots, all);
        for chunk in context.cut(0..context.block_bytes()) {
            let received = receiver.take(out, peer);
            out.merge(received, input(chunk.at), output(chunk.at), chunk.bytes);
            receiver.release(out, peer);
        }
    }
    let halving = RowNumbers {
        data: halved,
        free: halved_free,
    };
    let rounds = rounds(out, &division, halving, doubled);
    for (index, round) in rounds.iter().enumerate() {
        halve(out, round, index == 0 && excess_partner.is_none());
    }
    for chunk in context.cut(division.kept(context.rank, 0)) {
        out.complete(output(chunk.at), chunk.bytes);
        pass_on(out, &mut excess_partner, chunk);
    }
    for round in rounds.iter().rev() {
        double(out, round, &mut excess_partner);
    }
    Ok(())
}

/// The rounds of a core rank, with slots and message numbers.
fn rounds(out: &mut Emitter, division: &Division, halving: RowNumbers, doubled: u32) -> Vec<Round> {
    let (context, mut before) = (out.context, 0);
    let digits = division.digits();
    let round = |digit| {
        let longest = division.kept(0, digit).end;
        let row = SlotRow::new(&context, longest, context.chunk_count(longest));
        let offset = before;
        before += context.chunk_count(longest) as u32;
        Round {
            partner: context.rank ^ (1 << digit),
            row,
            slots: out.reserve(row.bytes),
            halving: RowNumbers {
                data: halving.data + offset,
                free: halving.free + offset,
            },
            doubling: doubled + offset,
            given: division.given(context.rank, digit),
            kept: division.kept(context.rank, digit),
        }
    };
    digits.map(round).collect()
}

/// Emits a halving round. The first round puts from the input, unless the output already contains the sum with an
/// excess rank's data.
fn halve(out: &mut Emitter, round: &Round, is_first: bool) {
    let given: Vec<Chunk> = out.context.cut(round.given.clone()).collect();
    let kept: Vec<Chunk> = out.context.cut(round.kept.clone()).collect();
    let mut sender = RowSender::new(round.row, round.halving, round.slots, 0);
    let mut receiver = RowReceiver::new(round.row, round.halving, round.slots, kept.len() as u64);
    let lead = round.row.lead() as usize;
    for turn in 0..given.len().max(kept.len() + lead) {
        if let Some(chunk) = given.get(turn) {
            let from = match is_first {
                true => input(chunk.at),
                false => output(chunk.at),
            };
            sender.put(out, round.partner, from, chunk.bytes);
        }
        let Some(chunk) = turn.checked_sub(lead).and_then(|turn| kept.get(turn)) else {
            continue;
        };
        let received = receiver.take(out, round.partner);
        let to = output(chunk.at);
        match is_first {
            true => out.merge(received, input(chunk.at), to, chunk.bytes),
            false => out.fold(received, to, chunk.bytes),
        }
        receiver.release(out, round.partner);
    }
}

/// Emits a doubling round.
fn double(out: &mut Emitter, round: &Round, excess_partner: &mut Option<(u32, u32)>) {
    out.put_range(round.partner, round.doubling, round.kept.clone(), |at| {
        (output(at), output(at))
    });
    for (message, chunk) in (round.doubling..).zip(out.context.cut(round.given.clone())) {
        out.wait(round.partner, message);
        pass_on(out, excess_partner, chunk);
    }
}

/// Puts a chunk of the result to the excess rank, if there is one.
fn pass_on(out: &mut Emitter, excess_partner: &mut Option<(u32, u32)>, chunk: Chunk) {
    if let Some((peer, message)) = excess_partner {
        let place = output(chunk.at);
        out.put(*peer, *message, (place, place), chunk.bytes);
        *message += 1;
    }
}
