//! All-reduce by recursive halving and doubling: in each round a rank gives half of what it still works on to a
//! partner, takes up the partner's of the other half, and keeps that. Then complete halves go back the same way. Of a
//! number of ranks that is no power of two, those in excess hand their input to a rank of the core first and get the
//! result from it. The reduce-scatter by halving is in `scattering`.
//!
//! Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", International
//! Journal of High Performance Computing Applications 19 (2005).

use std::ops::Range;

use super::emitter::{Chunk, Emitter, Parts, TooMany, input, output};
use super::pairing::Core;
use super::slots::{Inlet, Outlet, RowNumbers, SlotRow};

/// One round: there by halving, and back by doubling.
struct Round {
    partner: u32,
    row: SlotRow,
    slots: u64,
    halving: RowNumbers,
    doubling: u32,
    /// Bytes that are given, and come back complete.
    given: Range<u64>,
    kept: Range<u64>,
}

/// Parts of the data, one for each rank of the core.
#[derive(Clone, Copy)]
struct Division {
    core: Core,
    parts: Parts,
}

impl Division {
    /// Parts that a rank of the core works on when the digits from `digit` on have been dealt with.
    fn kept(&self, rank: u32, digit: u32) -> Range<u64> {
        self.parts.range(Core::near(rank, digit))
    }

    /// Parts that it gave away then.
    fn given(&self, rank: u32, digit: u32) -> Range<u64> {
        self.kept(rank ^ (1 << digit), digit)
    }

    /// Digits in the order of rounds: the highest first.
    fn digits(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        (0..self.core.rounds()).rev()
    }

    /// The result, as it becomes complete at a rank of the core.
    fn results(&self, rank: u32) -> impl Iterator<Item = Range<u64>> {
        let back = self.digits().rev();
        std::iter::once(self.kept(rank, 0)).chain(back.map(move |digit| self.given(rank, digit)))
    }
}

/// Emits the all-reduce. Sums are in the output from the first round on. When a partner's own of a range has come, the
/// partner has entered the call and done with that range: so complete ranges go into outputs at once, also in place.
pub(super) fn all_reduce(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let core = Core::of(&seat);
    let parts = Parts::of_block(&seat, core.size);
    let division = Division { core, parts };
    let all = seat.count(seat.block());
    let longest = |digit| seat.count(division.kept(0, digit).end);
    let sum = division.digits().map(longest).sum();
    let result_max = all + u64::from(core.rounds());
    let [data, free, halved, halved_free, doubled, result] =
        out.number([all, all, sum, sum, sum, result_max])?;
    let row = SlotRow::new(&seat, seat.block(), all);
    let slots = out.reserve(if core.excess > 0 { row.bytes } else { 0 });
    let numbers = RowNumbers { data, free };
    if let Some(helper) = core.helper(seat.rank) {
        let mut outlet = Outlet::new(row, numbers, slots, 0);
        for chunk in seat.cut(0..seat.block()) {
            outlet.put(out, helper, input(chunk.at), chunk.bytes);
        }
        let pieces = division.results(helper).flat_map(|range| seat.cut(range));
        for (message, _) in (result..).zip(pieces) {
            out.wait(helper, message);
        }
        return Ok(());
    }
    let mut ward = core.ward(seat.rank).map(|peer| (peer, result));
    if let Some((peer, _)) = ward {
        let mut inlet = Inlet::new(row, numbers, slots, all);
        for chunk in seat.cut(0..seat.block()) {
            let come = inlet.take(out, peer);
            out.merge(come, input(chunk.at), output(chunk.at), chunk.bytes);
            inlet.release(out, peer);
        }
    }
    let halving = RowNumbers {
        data: halved,
        free: halved_free,
    };
    let rounds = rounds(out, &division, halving, doubled);
    for (index, round) in rounds.iter().enumerate() {
        halve(out, round, index == 0 && ward.is_none());
    }
    for chunk in seat.cut(division.kept(seat.rank, 0)) {
        out.complete(output(chunk.at), chunk.bytes);
        pass_on(out, &mut ward, chunk);
    }
    for round in rounds.iter().rev() {
        double(out, round, &mut ward);
    }
    Ok(())
}

/// The rounds of a rank of the core, with their slots and numbers.
fn rounds(out: &mut Emitter, division: &Division, halving: RowNumbers, doubled: u32) -> Vec<Round> {
    let (seat, mut before) = (out.seat, 0);
    let digits = division.digits();
    let round = |digit| {
        let longest = division.kept(0, digit).end;
        let row = SlotRow::new(&seat, longest, seat.count(longest));
        let offset = before;
        before += seat.count(longest) as u32;
        Round {
            partner: seat.rank ^ (1 << digit),
            row,
            slots: out.reserve(row.bytes),
            halving: RowNumbers {
                data: halving.data + offset,
                free: halving.free + offset,
            },
            doubling: doubled + offset,
            given: division.given(seat.rank, digit),
            kept: division.kept(seat.rank, digit),
        }
    };
    digits.map(round).collect()
}

/// Emits a round of halving; the first takes what it puts from the input, unless a rank in excess is in the output.
fn halve(out: &mut Emitter, round: &Round, is_first: bool) {
    let given: Vec<Chunk> = out.seat.cut(round.given.clone()).collect();
    let kept: Vec<Chunk> = out.seat.cut(round.kept.clone()).collect();
    let mut outlet = Outlet::new(round.row, round.halving, round.slots, 0);
    let mut inlet = Inlet::new(round.row, round.halving, round.slots, kept.len() as u64);
    let lead = round.row.lead() as usize;
    for turn in 0..given.len().max(kept.len() + lead) {
        if let Some(chunk) = given.get(turn) {
            let from = match is_first {
                true => input(chunk.at),
                false => output(chunk.at),
            };
            outlet.put(out, round.partner, from, chunk.bytes);
        }
        let Some(chunk) = turn.checked_sub(lead).and_then(|turn| kept.get(turn)) else {
            continue;
        };
        let come = inlet.take(out, round.partner);
        let to = output(chunk.at);
        match is_first {
            true => out.merge(come, input(chunk.at), to, chunk.bytes),
            false => out.fold(come, to, chunk.bytes),
        }
        inlet.release(out, round.partner);
    }
}

/// Emits a round of doubling.
fn double(out: &mut Emitter, round: &Round, ward: &mut Option<(u32, u32)>) {
    out.put_range(round.partner, round.doubling, round.kept.clone(), |at| {
        (output(at), output(at))
    });
    for (message, chunk) in (round.doubling..).zip(out.seat.cut(round.given.clone())) {
        out.wait(round.partner, message);
        pass_on(out, ward, chunk);
    }
}

/// Passes a chunk of the result on to the rank in excess, if there is one.
fn pass_on(out: &mut Emitter, ward: &mut Option<(u32, u32)>, chunk: Chunk) {
    if let Some((peer, message)) = ward {
        let place = output(chunk.at);
        out.put(*peer, *message, (place, place), chunk.bytes);
        *message += 1;
    }
}
