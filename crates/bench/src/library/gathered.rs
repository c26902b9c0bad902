//! Batches that go through the library in one call: operations of one lane and tag that are posted together are one
//! operation of the library's, whose end is told for each of them.

use std::collections::VecDeque;

use tonnage_engine::{Completion, Ending, Lane, Op};
use tonnage_transfer::Extent;
use tonnage_units::Result;

use crate::drive::BURST;

/// The lane by which a batch's end is known: no lane has this number.
const BATCHES: Lane = Lane(u32::MAX);

/// Batches on their way into the library, in it, and out of it.
pub(super) struct Gathered {
    batches: Vec<GatheredBatch>,
    /// Numbers of batches that are in use by nobody.
    free: Vec<u32>,
    /// Batches that the library has no room for, the oldest first.
    held: VecDeque<u32>,
    /// Ends that were not told yet, and how often each is to be.
    ends: VecDeque<(Completion, u32)>,
    found: Box<[Completion]>,
    /// A batch of the last poll that has failed: as it was told, and as the library's calls know it.
    failed: Option<[Completion; 2]>,
}

/// A batch by its number.
struct GatheredBatch {
    lane: Lane,
    tag: u32,
    extents: Vec<Extent>,
}

/// A call that hands a list over: false where there is no room now.
pub(super) type PostBatch<'a> = dyn FnMut(Lane, u64, &[Extent]) -> Result<bool> + 'a;

impl Gathered {
    pub(super) fn new() -> Self {
        Self {
            batches: Vec::new(),
            free: Vec::new(),
            held: VecDeque::new(),
            ends: VecDeque::new(),
            found: vec![Completion::EMPTY; BURST].into(),
            failed: None,
        }
    }

    /// Takes all operations, and hands over what there is room for.
    pub(super) fn post(&mut self, ops: &[Op], call: &mut PostBatch<'_>) -> Result<usize> {
        let first = self.held.len();
        for op in ops {
            let extent = Extent::new(op.local, op.remote, op.len).with_imm(op.imm);
            let number = self.batch_of(first, op);
            self.batches[number as usize].extents.push(extent);
        }
        self.hand_over(call)?;
        Ok(ops.len())
    }

    /// The batch that an operation of this call goes into.
    fn batch_of(&mut self, first: usize, op: &Op) -> u32 {
        let is_its = |number: &&u32| {
            let batch = &self.batches[**number as usize];
            (batch.lane, batch.tag) == (op.lane, op.tag)
        };
        // Flows take turns, so that the one that is looked for is the oldest of these.
        if let Some(&number) = self.held.range(first..).find(is_its) {
            return number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.batches.push(GatheredBatch {
                lane: op.lane,
                tag: op.tag,
                extents: Vec::new(),
            });
            self.batches.len() as u32 - 1
        });
        let batch = &mut self.batches[number as usize];
        (batch.lane, batch.tag) = (op.lane, op.tag);
        batch.extents.clear();
        self.held.push_back(number);
        number
    }

    /// Hands over batches that wait, as far as there is room.
    pub(super) fn hand_over(&mut self, call: &mut PostBatch<'_>) -> Result<()> {
        while let Some(&number) = self.held.front() {
            let batch = &self.batches[number as usize];
            let token = super::told::token(BATCHES, number);
            if !call(batch.lane, token, &batch.extents)? {
                return Ok(());
            }
            self.held.pop_front();
        }
        Ok(())
    }

    /// Returns whether there is something to do that the library does not know of.
    pub(super) fn has_work(&self) -> bool {
        !(self.held.is_empty() && self.ends.is_empty())
    }

    /// An end as the library's calls know it.
    pub(super) fn known(&self, told: &Completion) -> Completion {
        match self.failed {
            Some([as_told, known]) if (as_told.lane, as_told.tag) == (told.lane, told.tag) => known,
            _ => *told,
        }
    }

    /// Tells ends that were found before; `None` where there are none.
    pub(super) fn tell(&mut self, done: &mut [Completion]) -> Option<usize> {
        let mut count = 0;
        while count < done.len() {
            let Some((end, left)) = self.ends.front_mut() else {
                break;
            };
            done[count] = *end;
            count += 1;
            *left -= 1;
            if *left == 0 {
                self.ends.pop_front();
            }
        }
        (count > 0).then_some(count)
    }

    /// Finds ends by `poll`; returns how many are told, and what `poll` said beside.
    pub(super) fn poll(
        &mut self,
        done: &mut [Completion],
        poll: impl FnOnce(&mut [Completion]) -> Result<(usize, bool)>,
    ) -> Result<(usize, bool)> {
        self.failed = None;
        let (count, polled) = poll(&mut self.found)?;
        for end in &self.found[..count] {
            match end.lane {
                BATCHES => {
                    let batch = &self.batches[end.tag as usize];
                    let of_each = Completion {
                        lane: batch.lane,
                        tag: batch.tag,
                        len: batch.extents.first().map_or(0, |extent| extent.len),
                        ..*end
                    };
                    let mut times = batch.extents.len() as u32;
                    if let Ending::Failed(_) = end.ending {
                        // The loops end with the first.
                        times = 1;
                        // The loops are told the first one.
                        self.failed.get_or_insert([of_each, *end]);
                    }
                    self.ends.push_back((of_each, times));
                    self.free.push(end.tag);
                }
                _ => self.ends.push_back((*end, 1)),
            }
        }
        Ok((self.tell(done).unwrap_or(0), polled))
    }
}
