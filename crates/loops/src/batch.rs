//! Batches: posts a number of operations and waits for all of them. Several batches may be in flight together. Latency
//! is measured per batch.

mod shared;

use std::collections::VecDeque;

use super::flow::Flow;
use super::port::{Port, count_own};
use super::recorder::{PhaseTimes, Recorder};
use super::until::Until;
use super::{BURST, BatchSlot, Scratch};
use tonnage_engine::{Completion, Ending, Op};
use tonnage_units::Result;

pub use shared::SharedBatches;
use shared::{FollowSchedule, LeadSchedule};

/// Parameters of a batch loop.
#[derive(Debug, Clone, Copy)]
pub struct BatchLoop {
    /// This worker's share of a batch, in operations per flow.
    pub size: u32,
    /// Batches in flight together.
    pub in_flight: u32,
    /// True if one call posts the batch; otherwise each operation has its own call.
    pub one_call: bool,
    /// Maximum length after merging adjacent operations; `None` disables merging.
    pub merged_bytes_max: Option<u32>,
}

/// Operation counts of a batch loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchCounts {
    /// Operations that completed.
    pub completed: u64,
    /// Operations posted after merging adjacent operations.
    pub handed_over: u64,
}

/// A worker's role in batches.
pub enum BatchPart<'a> {
    /// Runs its own batches until `Until` ends the loop.
    Whole(&'a mut Until),
    /// First worker of shared batches. It begins each batch until `Until` ends the loop, and posts its own share.
    Lead(&'a SharedBatches, &'a mut Until),
    /// Any other worker of shared batches. It posts its share of each batch that the first worker begins.
    Follow(&'a SharedBatches),
}

/// A batch that is being built and posted.
struct BatchBuilder {
    place: u32,
    /// Operations built so far, before merging.
    built: u64,
    /// The flow that the next operation is built for.
    turn: usize,
}

/// Runs batches on each flow until `part` ends the loop and all batches have completed. `batching.size` is this
/// worker's share.
///
/// A batch that is larger than the engine's queue is posted in pieces, whenever the queue has room. Applications do the
/// same.
pub fn run_batch_loop<R: Recorder>(
    port: &mut Port,
    flows: &mut [Flow],
    batching: &BatchLoop,
    scratch: &mut Scratch,
    part: BatchPart<'_>,
    recorder: &mut R,
) -> Result<BatchCounts> {
    scratch.reset_batches();
    let Scratch {
        ready,
        batches,
        busy,
        staged,
        ..
    } = scratch;
    let work = (port, flows, batching, &mut batches[..], staged);
    match part {
        BatchPart::Whole(until) => run_batches(work, OwnSchedule::new(ready, until), recorder),
        BatchPart::Lead(shared, until) => {
            let schedule = LeadSchedule::new(shared, (ready, busy), until);
            run_batches(work, schedule, recorder)
        }
        BatchPart::Follow(shared) => run_batches(work, FollowSchedule::new(shared), recorder),
    }
}

/// The port, flows, parameters and buffers of a batch loop.
type BatchLoopParts<'a, 'b, 'c> = (
    &'a mut Port<'c>,
    &'a mut [Flow],
    &'b BatchLoop,
    &'a mut [BatchSlot],
    &'a mut Vec<Op>,
);

fn run_batches<R: Recorder, T: BatchSchedule>(
    (port, flows, batching, batches, staged): BatchLoopParts<'_, '_, '_>,
    schedule: T,
    recorder: &mut R,
) -> Result<BatchCounts> {
    let mut places = BatchesInFlight {
        schedule,
        batches,
        operations: u64::from(batching.size) * flows.len() as u64,
        completed: 0,
    };
    let mut done = [Completion::EMPTY; BURST];
    let (mut taken, mut handed_over) = (0, 0);
    let mut building: Option<BatchBuilder> = None;
    loop {
        if building.is_none() {
            building = places.begin(recorder)?.map(BatchBuilder::new);
            if building.is_none() && places.schedule.is_over() {
                let completed = places.completed;
                return Ok(BatchCounts {
                    completed,
                    handed_over,
                });
            }
        }
        if let Some(batch) = &mut building {
            if taken == staged.len() {
                staged.clear();
                taken = 0;
                let begun_ns = places.time_to_build(batch, recorder);
                batch.build_next(flows, batching, places.operations, staged);
                places.note_built(batch.place, staged.len(), begun_ns, recorder);
                handed_over += staged.len() as u64;
            }
            if taken < staged.len() {
                taken += post_staged(port, &staged[taken..], batching.one_call)?;
            }
            if taken == staged.len() && batch.built == places.operations {
                places.note_posted(batch.place, recorder);
                building = None;
            }
        }
        let count = port.poll(&mut done)?;
        let unbuilt = building.as_ref().map(|batch| batch.place);
        if batching.in_flight == 1 {
            // Only one batch is in flight, so all completions belong to it.
            places.end(0, count_own(&done[..count]) as u64, unbuilt, recorder);
            recorder.progress(places.completed);
            continue;
        }
        for completion in &done[..count] {
            if completion.ending == Ending::Done {
                places.end(completion.tag, 1, unbuilt, recorder);
            }
        }
        places.record_ended(recorder);
        recorder.progress(places.completed);
    }
}

/// Decides when batches begin and end. A batch is identified by its slot, an index into the batches in flight.
trait BatchSchedule {
    /// Returns the slot of a batch to begin now, if one is due.
    fn next(&mut self) -> Result<Option<u32>>;

    /// Notes that the batch in this slot begins now.
    fn begin(&mut self, place: u32);

    /// Notes that this worker's share of the batch is done.
    fn done(&mut self, place: u32);

    /// Returns the slot of a batch that all workers have finished, once per batch.
    fn take_ended(&mut self) -> Option<u32>;

    /// Returns true once no more batches will begin and all batches of this worker have ended.
    fn is_over(&self) -> bool;
}

/// Schedule of a worker with its own batches.
struct OwnSchedule<'a> {
    free: &'a mut VecDeque<u32>,
    places: usize,
    until: &'a mut Until,
    ended: Option<u32>,
    over: bool,
}

impl<'a> OwnSchedule<'a> {
    fn new(free: &'a mut VecDeque<u32>, until: &'a mut Until) -> Self {
        Self {
            places: free.len(),
            free,
            until,
            ended: None,
            over: false,
        }
    }
}

impl BatchSchedule for OwnSchedule<'_> {
    #[inline]
    fn next(&mut self) -> Result<Option<u32>> {
        // `grant` may read the clock, so call it only if a slot is free.
        if !self.over && !self.free.is_empty() {
            self.over = self.until.grant(1) == 0;
        }
        Ok(match self.over {
            true => None,
            false => self.free.pop_front(),
        })
    }

    #[inline]
    fn begin(&mut self, _place: u32) {}

    #[inline]
    fn done(&mut self, place: u32) {
        self.ended = Some(place);
    }

    #[inline]
    fn take_ended(&mut self) -> Option<u32> {
        let ended = self.ended.take()?;
        self.free.push_back(ended);
        Some(ended)
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.over && self.free.len() == self.places
    }
}

/// Batches in flight, and the schedule that begins and ends them.
struct BatchesInFlight<'a, T> {
    schedule: T,
    batches: &'a mut [BatchSlot],
    /// This worker's share of a batch, in operations on all flows together.
    operations: u64,
    completed: u64,
}

impl<T: BatchSchedule> BatchesInFlight<'_, T> {
    /// Begins a batch if one is due, and returns its slot.
    #[inline]
    fn begin<R: Recorder>(&mut self, recorder: &R) -> Result<Option<u32>> {
        let place = self.schedule.next()?;
        if let Some(place) = place {
            self.batches[place as usize] = BatchSlot {
                start_ns: recorder.now_ns(),
                ..BatchSlot::default()
            };
            self.schedule.begin(place);
        }
        Ok(place)
    }

    /// Returns the time at which building of the next operations begins. For the first operations this is the batch's
    /// start.
    #[inline]
    fn time_to_build<R: Recorder>(&self, batch: &BatchBuilder, recorder: &R) -> u64 {
        match batch.built {
            0 => self.batches[batch.place as usize].start_ns,
            _ => recorder.now_ns(),
        }
    }

    /// Adds the built operations to the batch's count, and the building time to its `prepare_ns`.
    #[inline]
    fn note_built<R: Recorder>(&mut self, place: u32, count: usize, begun_ns: u64, recorder: &R) {
        let batch = &mut self.batches[place as usize];
        batch.left += count as u64;
        batch.prepare_ns += recorder.now_ns().saturating_sub(begun_ns);
    }

    /// Notes that the whole batch was posted. An empty batch is done now, because no completion will follow.
    #[inline]
    fn note_posted<R: Recorder>(&mut self, place: u32, recorder: &mut R) {
        let batch = &mut self.batches[place as usize];
        batch.posted_ns = recorder.now_ns();
        if self.operations == 0 {
            self.schedule.done(place);
            self.record_ended(recorder);
        }
    }

    /// Counts completed operations. The batch is done if no operation is left and the batch isn't still being built.
    #[inline]
    fn end<R: Recorder>(&mut self, place: u32, count: u64, unbuilt: Option<u32>, recorder: &mut R) {
        let batch = &mut self.batches[place as usize];
        batch.left -= count;
        if count > 0 && batch.left == 0 && unbuilt != Some(place) {
            self.completed += self.operations;
            self.schedule.done(place);
        }
        self.record_ended(recorder);
    }

    /// Records the batches that all workers have finished.
    #[inline]
    fn record_ended<R: Recorder>(&mut self, recorder: &mut R) {
        while let Some(place) = self.schedule.take_ended() {
            let BatchSlot {
                start_ns,
                prepare_ns,
                posted_ns,
                ..
            } = self.batches[place as usize];
            let now_ns = recorder.now_ns();
            recorder.sample(now_ns.saturating_sub(start_ns));
            recorder.phases(PhaseTimes {
                prepare_ns,
                post_ns: posted_ns.saturating_sub(start_ns + prepare_ns),
                complete_ns: now_ns.saturating_sub(posted_ns),
            });
        }
    }
}

/// Posts operations, in one call or one by one, until the engine has no room. Returns the number accepted.
#[inline]
fn post_staged(port: &mut Port, staged: &[Op], one_call: bool) -> Result<usize> {
    if one_call {
        return port.post(staged);
    }
    for (taken, op) in staged.iter().enumerate() {
        if port.post(std::slice::from_ref(op))? == 0 {
            return Ok(taken);
        }
    }
    Ok(staged.len())
}

impl BatchBuilder {
    fn new(place: u32) -> Self {
        Self {
            place,
            built: 0,
            turn: 0,
        }
    }

    /// Builds operations until `staged` is full or the batch is complete.
    #[inline]
    fn build_next(
        &mut self,
        flows: &mut [Flow],
        batching: &BatchLoop,
        size: u64,
        staged: &mut Vec<Op>,
    ) {
        match batching.merged_bytes_max {
            Some(bytes_max) => self.merge(flows, (batching.size, bytes_max), staged),
            None => self.take_turns(flows, size, staged),
        }
    }

    fn take_turns(&mut self, flows: &mut [Flow], size: u64, staged: &mut Vec<Op>) {
        let count = (size - self.built).min(staged.capacity() as u64);
        let mut turn = self.turn;
        for _ in 0..count {
            staged.push(flows[turn].next_op(self.place));
            turn = if turn + 1 == flows.len() { 0 } else { turn + 1 };
        }
        self.turn = turn;
        self.built += count;
    }

    /// Builds flow by flow, so that adjacent operations follow each other and can be merged.
    fn merge(&mut self, flows: &mut [Flow], (size, bytes_max): (u32, u32), staged: &mut Vec<Op>) {
        while self.turn < flows.len() {
            let end = (self.turn as u64 + 1) * u64::from(size);
            while self.built < end {
                if staged.len() == staged.capacity() {
                    return;
                }
                let op = flows[self.turn].next_op(self.place);
                self.built += 1;
                match staged.last_mut() {
                    Some(last) if is_contiguous(last, &op, bytes_max) => last.len += op.len,
                    _ => staged.push(op),
                }
            }
            self.turn += 1;
        }
    }
}

/// Returns whether `op` directly follows `last` in local and remote memory, and both together fit in `bytes_max`.
#[inline]
fn is_contiguous(last: &Op, op: &Op, bytes_max: u32) -> bool {
    let len = u64::from(last.len);
    last.lane == op.lane
        && last.local + len == op.local
        && last.remote + len == op.remote
        && len + u64::from(op.len) <= u64::from(bytes_max)
}

#[cfg(test)]
mod tests;
