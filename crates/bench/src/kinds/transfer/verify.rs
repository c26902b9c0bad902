//! The expected state after a trial: the operations that initiators issued, the slots that these operations used, and
//! the bytes in these slots. Also the arrivals that a target should have seen, with their immediates.

pub mod reports;
mod words;

use self::reports::IssuedReports;
pub use self::words::AtomicDigest;
use self::words::WordWalks;
use super::totals::TrialTotals;
use super::trial::{IssuedOfFlow, IssuedOperations};
use crate::kinds::transfer::layout::{GUARD_BYTES, SliceLayout, answers};
use crate::loop_parameters::flow_slots;
use tonnage_engine::memory::Memory;
use tonnage_engine::pattern::{Key, Mismatches};
use tonnage_engine::{Lane, Verb};
use tonnage_loops::each::ENGINE_AT_FAULT;
use tonnage_loops::flow::Flow;
use tonnage_loops::flow_walk::{FlowEnd, FlowWalk};
use tonnage_loops::port::{Arrivals, arrival_mix};
use tonnage_plan::transfer::{Pacing, TargetFootprint, TransferPoint};
use tonnage_units::{Error, Result};

/// Operations that one worker should have seen in a trial.
#[derive(Debug, Clone, Default)]
pub struct ExpectedOperations {
    /// Number of arrivals. `None` if the target is not notified, or the engine moves no bytes.
    pub arrivals: Option<u64>,
    /// Initiators of write-imms, each with its first operation and the number after its last one.
    pub initiators: Vec<(u32, (u64, u64))>,
    /// Number of operations from each rank in `SliceLayout::into`.
    pub into: Vec<u64>,
    /// Number of operations to each rank in `SliceLayout::out`.
    pub out: Vec<u64>,
    /// Digest of the answers that each rank in `SliceLayout::into` received; empty without atomic operations.
    pub digests: Vec<AtomicDigest>,
}

impl ExpectedOperations {
    /// Returns whether workers must exchange reports of their operations. They must if arrivals or bytes will be
    /// checked.
    pub fn is_needed(point: &TransferPoint, moves_bytes: bool) -> bool {
        moves_bytes && (point.op.notifies_target() || point.verify.is_on())
    }

    /// Adds the operations of a later round. Arrivals are not added, because each round checks its own.
    pub fn add_round(&mut self, later: &Self) {
        for (all, later) in [(&mut self.into, &later.into), (&mut self.out, &later.out)] {
            all.resize(all.len().max(later.len()), 0);
            all.iter_mut()
                .zip(later)
                .for_each(|(all, later)| *all += later);
        }
        let longest = self.digests.len().max(later.digests.len());
        self.digests.resize(longest, AtomicDigest::default());
        let digests = self.digests.iter_mut().zip(&later.digests);
        digests.for_each(|(all, &later)| all.add(later));
    }

    /// Computes the operations that worker `worker` of `rank` should have seen in a round, from the reports about its
    /// flows.
    pub fn new(
        point: &TransferPoint,
        rank: u32,
        worker: usize,
        reports: &IssuedReports,
    ) -> Result<Self> {
        let layout = SliceLayout::new(point, rank);
        let answered = answers(point);
        let flow = |from: u32, to: u32| {
            // A rank sends its report before it issues its answers. Each operation has one answer, so the operations
            // are counted.
            let began = !answered || point.roles.targets(from).contains(&to);
            let ends = if began { (from, to) } else { (to, from) };
            reports.of_flow((rank, &layout), worker, ends)
        };
        let mut expected = Self::default();
        let mut arrivals = 0;
        for &initiator in &layout.into {
            let IssuedOfFlow {
                range: (first, end),
                digest,
            } = flow(initiator, rank)?;
            expected.into.push(end - first);
            arrivals += end - first;
            if point.op == Verb::WriteImm {
                expected.initiators.push((initiator, (first, end)));
            }
            if point.op.is_atomic() {
                expected.digests.push(digest);
            }
        }
        for &target in &layout.out {
            let (first, end) = flow(rank, target)?.range;
            expected.out.push(end - first);
        }
        expected.arrivals = point.op.notifies_target().then_some(arrivals);
        Ok(expected)
    }
}

/// Returns the set of arrivals for operations `first` to `end` − 1 of one initiator, in the form of [`Arrivals::set`].
/// Immediates are the low 32 bits of the operation numbers, so they repeat after 2^32 operations.
fn arrival_set(initiator: u32, (first, end): (u64, u64)) -> u64 {
    const LAP: u64 = 1 << 32;
    let sum = |numbers: std::ops::Range<u64>| {
        numbers.fold(0u64, |sum, number| {
            sum.wrapping_add(arrival_mix(initiator, number as u32))
        })
    };
    let count = end.saturating_sub(first);
    let rest = sum(first..first + count % LAP);
    match count / LAP {
        0 => rest,
        laps => rest.wrapping_add(sum(0..LAP).wrapping_mul(laps)),
    }
}

/// Checks that a target saw exactly the operations that were sent to it. For write-imms, also checks which operations
/// arrived and how often. If arrivals are `named`, also checks from which initiators they came. The time of the check
/// grows with the number of operations, so no rank may wait for bytes meanwhile.
pub fn check_arrivals(
    point: &TransferPoint,
    expected: &ExpectedOperations,
    seen: &Arrivals,
    named: bool,
) -> Result<()> {
    let Some(count) = expected.arrivals else {
        return Ok(());
    };
    if seen.count != count {
        return Err(Error::Failed(format!(
            "{} operations arrived of the {count} that the initiators completed; {ENGINE_AT_FAULT}",
            seen.count
        )));
    }
    let unnamed = if named { 0 } else { Lane::UNNAMED.0 };
    let sets = expected.initiators.iter();
    let sets = sets.map(|&(initiator, range)| arrival_set(initiator | unnamed, range));
    if point.op == Verb::WriteImm && seen.set != sets.fold(0, u64::wrapping_add) {
        return Err(Error::Failed(format!(
            "{count} write-imm operations arrived, but not those that were sent: the immediates differ, or one came \
             twice and another never; {ENGINE_AT_FAULT}"
        )));
    }
    Ok(())
}

/// Returns the fraction of compare-swaps that found the expected word; `None` if trials are not verified.
pub(super) fn swapped_fraction(point: &TransferPoint, trials: &[TrialTotals]) -> Option<f64> {
    if point.op != Verb::CompareSwap || !point.verify.is_on() {
        return None;
    }
    let swapped: u64 = trials.iter().map(|totals| totals.swapped).sum();
    let operations: u64 = trials.iter().map(|totals| totals.operations).sum();
    Some(swapped as f64 / operations.max(1) as f64)
}

/// A slice of this worker's memory that operations of a trial fill or read.
struct MemorySlice {
    origin: u64,
    /// Index of the slice's peer in `ExpectedOperations::into` or `ExpectedOperations::out`.
    index: usize,
    outgoing: bool,
    walk: FlowWalk,
    key: (u32, u32),
}

/// Returns the key of a slice's data: initiator and target. For data that all initiators share, both are the target,
/// because no flow has such a key.
fn data_key(point: &TransferPoint, initiator: u32, target: u32) -> (u32, u32) {
    match point.slots.target_footprint {
        TargetFootprint::Own => (initiator, target),
        TargetFootprint::Shared => (target, target),
    }
}

/// An odd constant that gives each worker of a rank a different seed.
const WORKER_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the seed of a worker's data. All workers of a pair have the same layout, but one worker's data must be found
/// wrong in another worker's memory.
pub(super) fn worker_seed(point: &TransferPoint, worker: u32) -> u64 {
    point.slots.seed ^ u64::from(worker).wrapping_mul(WORKER_SEED)
}

/// Returns whether the last byte of each operation signals its arrival.
pub(super) fn is_signalled(point: &TransferPoint) -> bool {
    answers(point) && point.op == Verb::Write && point.pacing == Pacing::PingPong
}

/// The slices of one worker, with the current positions of the walks over their slots.
pub struct SliceWalks {
    slices: Vec<MemorySlice>,
    read: bool,
    /// True if every operation was already compared on arrival.
    is_each: bool,
    seed: u64,
    slots: u64,
    stride_bytes: u64,
    footprint_bytes: u64,
    size_bytes: u64,
    /// Number of bytes per slot that are checked: all of them, except the byte that signals arrival.
    checked_bytes: u64,
    issued_before: Vec<u64>,
}

impl SliceWalks {
    /// Covers all slices of worker `worker` of `rank`.
    pub fn new(point: &TransferPoint, (rank, worker): (u32, u32), layout: &SliceLayout) -> Self {
        let slots = flow_slots(point);
        let slice = |index, initiator, target, origin, outgoing| MemorySlice {
            origin,
            index,
            outgoing,
            walk: FlowWalk::new(&slots, initiator, target),
            key: data_key(point, initiator, target),
        };
        let out = layout.out.iter().enumerate();
        let into = layout.into.iter().enumerate();
        let signalled = is_signalled(point);
        Self {
            slices: out
                .map(|(index, &peer)| slice(index, rank, peer, layout.out_origin(index), true))
                .chain(into.map(|(index, &peer)| {
                    slice(index, peer, rank, layout.into_origin(index), false)
                }))
                .collect(),
            read: point.op == Verb::Read,
            seed: worker_seed(point, worker),
            is_each: point.verify.is_each(),
            slots: point.slots.count(),
            stride_bytes: point.slots.stride_bytes,
            footprint_bytes: point.slots.footprint_bytes,
            size_bytes: u64::from(point.slots.size_bytes),
            checked_bytes: u64::from(point.slots.size_bytes) - u64::from(signalled),
            issued_before: vec![0; layout.out.len()],
        }
    }

    fn key(&self, slice: &MemorySlice, number: u64) -> Key {
        let (initiator, target) = slice.key;
        Key::new(self.seed, number, initiator, target)
    }

    /// Fills sources with the trial's data, and destinations with the data's poison, which differs in every byte.
    pub fn fill(&self, memory: &dyn Memory, number: u64) -> Result<()> {
        let mut filled = None;
        self.slices.iter().try_for_each(|slice| {
            if filled.replace(slice.origin) == Some(slice.origin) {
                // All initiators share this slice, so it is already filled.
                return Ok(());
            }
            let key = self.key(slice, number);
            let key = if slice.outgoing != self.read {
                key
            } else {
                key.poison()
            };
            memory.fill(slice.origin, slice.origin, self.footprint_bytes, key)?;
            let guard = slice.origin + self.footprint_bytes;
            memory.fill(slice.origin, guard, GUARD_BYTES, key.poison())
        })
    }

    /// Returns the operations that the flows issued since the last call.
    fn issued(&mut self, flows: &[Flow]) -> IssuedOperations {
        let flows = flows.iter().zip(&mut self.issued_before);
        let range =
            |(flow, before): (&Flow, _)| (std::mem::replace(before, flow.issued), flow.issued);
        IssuedOperations {
            ranges: flows.map(range).collect(),
            digests: Vec::new(),
        }
    }

    /// Checks every destination. A slot that operations used must have the data of the last one. All other slots, the
    /// gaps and the guard must have their old bytes. Only used slots count as verified.
    pub fn check(
        &self,
        memory: &dyn Memory,
        number: u64,
        expected: &ExpectedOperations,
        moved: &mut Mismatches,
        untouched: &mut Mismatches,
    ) -> Result<()> {
        for slice in self
            .slices
            .iter()
            .filter(|slice| slice.outgoing == self.read)
        {
            let (origin, data) = (slice.origin, self.checked_bytes);
            let mut used = vec![false; self.slots as usize];
            let key = self.key(slice, number);
            let lands = if self.read {
                FlowEnd::Initiator
            } else {
                FlowEnd::Target
            };
            let count = count(slice, expected);
            slice
                .walk
                .each_landing(count, lands, &mut used, |slot, source| {
                    if self.is_each {
                        return Ok(());
                    }
                    let offset = origin + slot * self.stride_bytes;
                    let ahead = source.wrapping_sub(slot).wrapping_mul(self.stride_bytes);
                    memory.verify(origin, offset, data, key.ahead(ahead), moved)
                })?;
            for (slot, used) in used.into_iter().enumerate() {
                let offset = origin + slot as u64 * self.stride_bytes;
                if !used {
                    memory.verify(origin, offset, data, key.poison(), untouched)?;
                }
                let (end, padding) = (
                    offset + self.size_bytes,
                    self.stride_bytes - self.size_bytes,
                );
                memory.verify(origin, end, padding, key.poison(), untouched)?;
            }
            let guard = slice.origin + self.footprint_bytes;
            // The guard of a destination was filled with the poison of the destination's poison, which is the data
            // again.
            memory.verify(slice.origin, guard, GUARD_BYTES, key, untouched)?;
        }
        Ok(())
    }

    /// Advances the walks to the end of the trial.
    pub fn advance(&mut self, expected: &ExpectedOperations) {
        for slice in &mut self.slices {
            let count = count(slice, expected);
            slice.walk.skip(count);
        }
    }
}

fn count(slice: &MemorySlice, expected: &ExpectedOperations) -> u64 {
    let counts = if slice.outgoing {
        &expected.out
    } else {
        &expected.into
    };
    counts.get(slice.index).copied().unwrap_or(0)
}

/// The checked part of a worker's memory.
pub enum MemoryWatch {
    /// Slices with bytes that were copied.
    Slices(SliceWalks),
    /// Words that atomic operations changed.
    Words(WordWalks),
}

impl MemoryWatch {
    /// Covers the memory of one worker. `of` is its rank and its index on the rank.
    pub fn new(point: &TransferPoint, of: (u32, u32), layout: &SliceLayout) -> Self {
        if point.op.is_atomic() {
            Self::Words(WordWalks::new(point, of, layout))
        } else {
            Self::Slices(SliceWalks::new(point, of, layout))
        }
    }

    /// Writes the initial content for trial `number`.
    pub fn fill(&mut self, memory: &dyn Memory, number: u64) -> Result<()> {
        match self {
            Self::Slices(slices) => slices.fill(memory, number),
            Self::Words(words) => words.fill(memory, number),
        }
    }

    /// Returns the operations that the flows issued since the last call.
    pub fn issued(&mut self, memory: &dyn Memory, flows: &[Flow]) -> Result<IssuedOperations> {
        match self {
            Self::Slices(slices) => Ok(slices.issued(flows)),
            Self::Words(words) => words.issued(memory, flows),
        }
    }

    /// Checks the destinations, and the bytes that must not have changed.
    pub fn check(
        &self,
        memory: &dyn Memory,
        number: u64,
        expected: &ExpectedOperations,
        moved: &mut Mismatches,
        untouched: &mut Mismatches,
    ) -> Result<()> {
        match self {
            Self::Slices(slices) => slices.check(memory, number, expected, moved, untouched),
            Self::Words(words) => words.check(memory, number, expected, moved, untouched),
        }
    }

    /// Advances the expected state to the end of the trial.
    pub fn advance(&mut self, expected: &ExpectedOperations) {
        match self {
            Self::Slices(slices) => slices.advance(expected),
            // Words have already advanced in `issued`.
            Self::Words(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
