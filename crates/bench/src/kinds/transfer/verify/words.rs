//! Words that atomic operations change: their initial values, and the check after a trial. Each word must have counted
//! up by exactly the steps that the initiators' answers report.
//!
//! Words begin a trial at 0 and only count up. A fetch-add adds 1. A compare-swap expects the number of its flow's
//! earlier operations on that word, and replaces it by the next number. Each operation has its own result slot at the
//! initiator, so that all old values are available after the trial. A word with value `n` must have been incremented
//! exactly once from each value from 0 to `n` − 1, by any initiator. Initiators report how many steps their answers
//! show, and a sum over these steps that does not depend on their order. The sum has 64 bits, so that a wrong set of
//! steps passes by chance once in 2^64 cases.

use serde::{Deserialize, Serialize};
use tonnage_engine::memory::Memory;
use tonnage_engine::pattern::{Key, Mismatches, mix_bits};
use tonnage_engine::{Verb, WORD_BYTES};
use tonnage_plan::transfer::TransferPoint;
use tonnage_units::{Error, Result};

use super::{ExpectedOperations, data_key, worker_seed};
use crate::kinds::transfer::layout::{GUARD_BYTES, SliceLayout};
use crate::kinds::transfer::trial::IssuedOperations;
use crate::loop_parameters::flow_slots;
use tonnage_loops::flow::Flow;
use tonnage_loops::flow_walk::FlowWalk;

const WORD: u64 = WORD_BYTES as u64;

/// Number of result slots that are written or read at a time.
const RESULT_SLOTS_AT_ONCE: u64 = 4096;

/// Initial content of a result slot. No word reaches this number.
const UNANSWERED: u64 = u64::MAX;

/// Digest of the steps by which words counted up, as the initiators' answers show them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtomicDigest {
    /// Number of steps.
    pub count: u64,
    /// Sum over the steps, which does not depend on their order.
    pub digest: u64,
}

impl AtomicDigest {
    /// Adds one step: the word in `slot` counted up from the value `from`.
    pub fn step(&mut self, slot: u64, from: u64) {
        self.count += 1;
        self.digest = self.digest.wrapping_add(mix_bits(mix_bits(slot) ^ from));
    }

    /// Adds all steps of another digest.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.digest = self.digest.wrapping_add(other.digest);
    }
}

/// The result slots of one of this worker's flows.
struct OutgoingWords {
    target: u32,
    origin: u64,
    walk: FlowWalk,
    /// Number of operations up to the last report.
    issued: u64,
    /// First operation that got no old value, since the words were last reset.
    unanswered: Option<u64>,
}

/// Words of this worker that are changed by one initiator, or by all initiators if they share a slice.
struct IncomingWords {
    initiator: u32,
    origin: u64,
}

/// Words that concern one worker: words of targets, which its flows change, and its own words, which initiators change.
pub struct WordWalks {
    out: Vec<OutgoingWords>,
    into: Vec<IncomingWords>,
    op: Verb,
    verify: bool,
    rank: u32,
    seed: u64,
    slots: u64,
    stride_bytes: u64,
    footprint_bytes: u64,
    result_slots: u64,
    result_slot_bytes: u64,
}

impl WordWalks {
    /// Covers the words of worker `worker` of `rank`.
    pub fn new(point: &TransferPoint, (rank, worker): (u32, u32), layout: &SliceLayout) -> Self {
        let out = layout.out.iter().enumerate();
        let into = layout.into.iter().enumerate();
        let mut into: Vec<IncomingWords> = into
            .map(|(index, &from)| IncomingWords {
                initiator: data_key(point, from, rank).0,
                origin: layout.into_origin(index),
            })
            .collect();
        into.dedup_by_key(|words| words.origin);
        let slots = flow_slots(point);
        Self {
            out: out
                .map(|(index, &target)| OutgoingWords {
                    target,
                    origin: layout.out_origin(index),
                    walk: FlowWalk::new(&slots, rank, target),
                    issued: 0,
                    unanswered: None,
                })
                .collect(),
            into,
            op: point.op,
            verify: point.verify.is_on(),
            rank,
            seed: worker_seed(point, worker),
            slots: point.slots.count(),
            stride_bytes: point.slots.stride_bytes,
            footprint_bytes: point.slots.footprint_bytes,
            result_slots: point.word_places(),
            result_slot_bytes: point.op.local_words_bytes().into(),
        }
    }

    /// Sets words to 0, and result slots to the operands of the next operations.
    pub fn fill(&mut self, memory: &dyn Memory, number: u64) -> Result<()> {
        for out in &mut self.out {
            out.unanswered = None;
        }
        for out in &self.out {
            self.fill_result_slots(memory, out)?;
            let guard = out.origin + self.result_slots * self.result_slot_bytes;
            let key = Key::new(self.seed, number, self.rank, out.target);
            memory.fill(out.origin, guard, GUARD_BYTES, key)?;
        }
        for into in &self.into {
            let key = Key::new(self.seed, number, into.initiator, self.rank);
            memory.fill(
                into.origin,
                into.origin,
                self.footprint_bytes + GUARD_BYTES,
                key,
            )?;
            for slot in 0..self.slots {
                memory.write(into.origin + slot * self.stride_bytes, &[0; WORD as usize])?;
            }
        }
        Ok(())
    }

    /// Fills the result slots of a flow. Without verification, operations reuse result slots, and each compare-swap
    /// replaces 0 by 0. So all of them succeed.
    fn fill_result_slots(&self, memory: &dyn Memory, out: &OutgoingWords) -> Result<()> {
        let swaps = self.op == Verb::CompareSwap;
        let mut walk = out.walk.clone();
        let mut visits = vec![0u64; if swaps { self.slots as usize } else { 0 }];
        let mut bytes =
            Vec::with_capacity((RESULT_SLOTS_AT_ONCE * self.result_slot_bytes) as usize);
        let mut first = None;
        for _ in 0..self.result_slots {
            let (result_slot, slot) = walk.next_slots();
            first.get_or_insert(result_slot);
            let before = match visits.get_mut(slot as usize) {
                Some(count) => std::mem::replace(count, *count + 1),
                None => 0,
            };
            let words = match (swaps, self.verify) {
                (true, true) => [before, before + 1, UNANSWERED],
                (false, true) => [UNANSWERED; 3],
                (_, false) => [0; 3],
            };
            let words = words.iter().take((self.result_slot_bytes / WORD) as usize);
            bytes.extend(words.flat_map(|word| word.to_ne_bytes()));
            let is_last = result_slot + 1 == self.result_slots;
            if is_last || bytes.len() == bytes.capacity() {
                let at = first.take().unwrap_or(0) * self.result_slot_bytes;
                memory.write(out.origin + at, &bytes)?;
                bytes.clear();
            }
        }
        if let Some(first) = first {
            memory.write(out.origin + first * self.result_slot_bytes, &bytes)?;
        }
        Ok(())
    }

    /// Returns the operations that the flows issued since the last call. If answers are verified, also returns their
    /// digests.
    pub fn issued(&mut self, memory: &dyn Memory, flows: &[Flow]) -> Result<IssuedOperations> {
        let mut issued = IssuedOperations::default();
        let (result_slots, result_slot_bytes, swaps) = (
            self.result_slots,
            self.result_slot_bytes,
            self.op == Verb::CompareSwap,
        );
        for (out, flow) in self.out.iter_mut().zip(flows) {
            let before = std::mem::replace(&mut out.issued, flow.issued);
            issued.ranges.push((before, flow.issued));
            let count = flow.issued - before;
            if !self.verify {
                out.walk.skip(count);
                continue;
            }
            if count > result_slots {
                return Err(Error::Failed(format!(
                    "{count} operations towards rank {} had only {result_slots} result slots",
                    out.target
                )));
            }
            if count == 0 {
                // The flow is not driven in this round. If an answer was missing in an earlier round, this stays
                // recorded.
                issued.digests.push(AtomicDigest::default());
                continue;
            }
            let mut digest = AtomicDigest::default();
            let mut held = ResultSlotChunk::new(out.origin, result_slots, result_slot_bytes);
            for number in 0..count {
                let (result_slot, slot) = out.walk.next_slots();
                let words = held.words(memory, result_slot)?;
                let old = words[if swaps { 2 } else { 0 }];
                if old == UNANSWERED {
                    out.unanswered.get_or_insert(number);
                } else if !swaps || old == words[0] {
                    digest.step(slot, old);
                }
            }
            issued.digests.push(digest);
        }
        Ok(issued)
    }

    /// Checks three things. Every operation got its answer. This worker's words counted up by the steps that their
    /// initiators report. The bytes around the words are unchanged.
    pub fn check(
        &self,
        memory: &dyn Memory,
        number: u64,
        expected: &ExpectedOperations,
        moved: &mut Mismatches,
        untouched: &mut Mismatches,
    ) -> Result<()> {
        for (index, out) in self.out.iter().enumerate() {
            if let Some(missing) = out.unanswered {
                return Err(Error::Failed(format!(
                    "operation {missing} towards rank {} completed, and the old value did not arrive",
                    out.target
                )));
            }
            moved.checked_bytes += WORD * expected.out.get(index).copied().unwrap_or(0);
            let guard = out.origin + self.result_slots * self.result_slot_bytes;
            let key = Key::new(self.seed, number, self.rank, out.target);
            memory.verify(out.origin, guard, GUARD_BYTES, key, untouched)?;
        }
        let shared = self.into.len() < expected.digests.len();
        for (index, into) in self.into.iter().enumerate() {
            let of = if shared {
                0..expected.digests.len()
            } else {
                index..index + 1
            };
            self.check_words(memory, into, expected, of)?;
            self.check_gaps(memory, number, into, untouched)?;
        }
        Ok(())
    }

    fn check_words(
        &self,
        memory: &dyn Memory,
        into: &IncomingWords,
        expected: &ExpectedOperations,
        of: std::ops::Range<usize>,
    ) -> Result<()> {
        let mut answered = AtomicDigest::default();
        let mut operations = 0;
        for index in of {
            answered.add(expected.digests.get(index).copied().unwrap_or_default());
            operations += expected.into.get(index).copied().unwrap_or(0);
        }
        if self.op == Verb::FetchAdd && answered.count != operations {
            return Err(Error::Failed(format!(
                "{} of {operations} operations were answered: for the others, the old value did not arrive",
                answered.count
            )));
        }
        let mut words = Vec::with_capacity(self.slots as usize);
        for slot in 0..self.slots {
            let mut bytes = [0; WORD as usize];
            memory.read(into.origin + slot * self.stride_bytes, &mut bytes)?;
            words.push(u64::from_ne_bytes(bytes));
        }
        let sum = words
            .iter()
            .try_fold(0u64, |sum, &word| sum.checked_add(word));
        if sum != Some(answered.count) {
            let sum = sum.map_or_else(
                || "more than 64 bits hold".to_owned(),
                |sum| sum.to_string(),
            );
            return Err(Error::Failed(format!(
                "the words of a slice went up by {sum}, and their initiators received old values for {}",
                answered.count
            )));
        }
        let mut counted = AtomicDigest::default();
        for (slot, &word) in (0..).zip(&words) {
            (0..word).for_each(|from| counted.step(slot, from));
        }
        if counted != answered {
            return Err(Error::Failed(format!(
                "the words of a slice went up by {}, as their initiators expect, but one old value arrived twice, \
                 and another never",
                answered.count
            )));
        }
        Ok(())
    }

    /// Checks the bytes between words, and those after the last word.
    fn check_gaps(
        &self,
        memory: &dyn Memory,
        number: u64,
        into: &IncomingWords,
        untouched: &mut Mismatches,
    ) -> Result<()> {
        let key = Key::new(self.seed, number, into.initiator, self.rank);
        let gap_bytes = self.stride_bytes - WORD;
        if gap_bytes > 0 {
            for slot in 0..self.slots {
                let gap = into.origin + slot * self.stride_bytes + WORD;
                memory.verify(into.origin, gap, gap_bytes, key, untouched)?;
            }
        }
        let guard = into.origin + self.footprint_bytes;
        memory.verify(into.origin, guard, GUARD_BYTES, key, untouched)
    }
}

/// Consecutive result slots of a flow that were read together.
struct ResultSlotChunk {
    origin: u64,
    result_slots: u64,
    result_slot_bytes: u64,
    first: u64,
    bytes: Vec<u8>,
}

impl ResultSlotChunk {
    fn new(origin: u64, result_slots: u64, result_slot_bytes: u64) -> Self {
        Self {
            origin,
            result_slots,
            result_slot_bytes,
            first: 0,
            bytes: Vec::new(),
        }
    }

    /// Returns the words of a result slot. If there are fewer than three, zeros follow.
    fn words(&mut self, memory: &dyn Memory, result_slot: u64) -> Result<[u64; 3]> {
        let held = self.bytes.len() as u64 / self.result_slot_bytes;
        if result_slot < self.first || result_slot >= self.first + held {
            let count = RESULT_SLOTS_AT_ONCE.min(self.result_slots - result_slot);
            self.bytes
                .resize((count * self.result_slot_bytes) as usize, 0);
            self.first = result_slot;
            memory.read(
                self.origin + result_slot * self.result_slot_bytes,
                &mut self.bytes,
            )?;
        }
        let at = ((result_slot - self.first) * self.result_slot_bytes) as usize;
        let own = &self.bytes[at..at + self.result_slot_bytes as usize];
        let mut words = [0; 3];
        for (word, bytes) in words.iter_mut().zip(own.chunks_exact(WORD as usize)) {
            let mut word_bytes = [0; WORD as usize];
            word_bytes.copy_from_slice(bytes);
            *word = u64::from_ne_bytes(word_bytes);
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests;
