//! Batches that go through the library in one call. Operations of one lane and tag that are posted together become one
//! library operation. The end of that operation is reported once per original operation.

use std::collections::VecDeque;

use tonnage_engine::{Completion, Ending, Lane, Op};
use tonnage_transfer::Extent;
use tonnage_units::Result;

use crate::{BURST, CALL_MAX};

/// Marks completions of batches: no lane has this number.
const BATCHES: Lane = Lane(u32::MAX);

/// Initial room for the batches of one lane; more are allocated as needed.
#[derive(Debug, Clone, Copy)]
pub struct BatchCapacity {
    /// Batches in flight together.
    pub batches: u32,
    /// Operations per batch.
    pub operations: u32,
}

impl BatchCapacity {
    /// Creates an empty extent list for a batch.
    pub(super) fn extent_list(self) -> Vec<Extent> {
        Vec::with_capacity((self.operations as usize).min(CALL_MAX))
    }
}

/// Batches that wait for room, are in flight, or have ended.
pub(super) struct GatheredBatches {
    room: BatchCapacity,
    batches: Vec<GatheredBatch>,
    /// Indices of unused batches.
    free: Vec<u32>,
    /// Batches not yet handed to the library, oldest first.
    held: VecDeque<u32>,
    /// The last batch of each lane, indexed by lane number.
    of_lanes: Vec<LaneBatch>,
    /// Number of post calls so far.
    calls: u64,
    /// Completions not yet reported, each with the number of times to report it.
    ends: VecDeque<(Completion, u32)>,
    found: Box<[Completion]>,
    /// The first failed batch of the last poll: the completion reported to the loop, and the library's own completion.
    failed: Option<[Completion; 2]>,
}

/// The last batch of a lane, and the post call that it belongs to.
#[derive(Clone, Copy, Default)]
struct LaneBatch {
    call: u64,
    number: u32,
}

/// The operations of one batch.
struct GatheredBatch {
    lane: Lane,
    tag: u32,
    extents: Vec<Extent>,
}

/// Posts a list of extents in one call; returns false if the queue is full.
pub(super) type PostBatch<'a> = dyn FnMut(Lane, u64, &[Extent]) -> Result<bool> + 'a;

impl GatheredBatches {
    /// Creates an empty value; [`Self::add`] makes room for lanes.
    pub(super) fn new(room: BatchCapacity) -> Self {
        Self {
            room,
            batches: Vec::new(),
            free: Vec::new(),
            held: VecDeque::new(),
            of_lanes: Vec::new(),
            calls: 0,
            ends: VecDeque::with_capacity(BURST),
            found: vec![Completion::EMPTY; BURST].into(),
            failed: None,
        }
    }

    /// Makes room for the batches of one more lane.
    pub(super) fn add(&mut self, lane: Lane) {
        for _ in 0..self.room.batches {
            self.free.push(self.batches.len() as u32);
            self.batches.push(GatheredBatch {
                lane,
                tag: 0,
                extents: self.room.extent_list(),
            });
        }
        let room = self.batches.len();
        self.held.reserve(room);
        self.ends.reserve(room);
        let lanes = self.of_lanes.len().max(lane.0 as usize + 1);
        self.of_lanes.resize(lanes, LaneBatch::default());
    }

    /// Accepts all operations, and posts batches while the library has room.
    pub(super) fn post(&mut self, ops: &[Op], call: &mut PostBatch<'_>) -> Result<usize> {
        self.calls += 1;
        for op in ops {
            let extent = Extent::new(op.local, op.remote, op.len).with_imm(op.imm);
            let number = self.batch_of(op);
            self.batches[number as usize].extents.push(extent);
        }
        self.hand_over(call)?;
        Ok(ops.len())
    }

    /// Returns the batch that an operation of this call belongs to.
    #[inline]
    fn batch_of(&mut self, op: &Op) -> u32 {
        let lane = op.lane.0 as usize;
        if let Some(last) = self.of_lanes.get(lane)
            && last.call == self.calls
            && self.batches[last.number as usize].tag == op.tag
        {
            return last.number;
        }
        let number = self.begin(op);
        if let Some(last) = self.of_lanes.get_mut(lane) {
            *last = LaneBatch {
                call: self.calls,
                number,
            };
        }
        number
    }

    /// Begins a batch with an operation's lane and tag.
    fn begin(&mut self, op: &Op) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.batches.push(GatheredBatch {
                lane: op.lane,
                tag: op.tag,
                extents: self.room.extent_list(),
            });
            self.batches.len() as u32 - 1
        });
        let batch = &mut self.batches[number as usize];
        (batch.lane, batch.tag) = (op.lane, op.tag);
        batch.extents.clear();
        self.held.push_back(number);
        number
    }

    /// Posts waiting batches while the library has room.
    pub(super) fn hand_over(&mut self, call: &mut PostBatch<'_>) -> Result<()> {
        while let Some(&number) = self.held.front() {
            let batch = &self.batches[number as usize];
            let token = super::token(BATCHES, number);
            if !call(batch.lane, token, &batch.extents)? {
                return Ok(());
            }
            self.held.pop_front();
        }
        Ok(())
    }

    /// Returns whether completions found earlier have not been reported yet. Batches that wait for room don't count,
    /// because they can be posted only after another batch completes.
    pub(super) fn has_work(&self) -> bool {
        !self.ends.is_empty()
    }

    /// Converts a completion reported to the loop to the library's own completion.
    pub(super) fn with_library_id(&self, told: &Completion) -> Completion {
        match self.failed {
            Some([as_told, known]) if (as_told.lane, as_told.tag) == (told.lane, told.tag) => known,
            _ => *told,
        }
    }

    /// Reports completions found earlier; `None` if there are none.
    pub(super) fn take_found(&mut self, done: &mut [Completion]) -> Option<usize> {
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

    /// Calls `poll` and reports the completions it finds. Returns the number reported, and the second result of `poll`.
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
                        // A loop ends at the first failure, so the failure is reported once.
                        times = 1;
                        // Keep only the first failure, because loops report no other.
                        self.failed.get_or_insert([of_each, *end]);
                    }
                    self.ends.push_back((of_each, times));
                    self.free.push(end.tag);
                }
                _ => self.ends.push_back((*end, 1)),
            }
        }
        Ok((self.take_found(done).unwrap_or(0), polled))
    }
}
