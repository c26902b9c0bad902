//! Batches: so many operations are handed over, and all of them are waited for; a few batches may be in flight
//! together. The latency is that of a batch.

use std::collections::VecDeque;

use super::flow::Flow;
use super::port::{Port, own};
use super::recorder::Recorder;
use super::until::Until;
use super::{BURST, BatchSlot, Scratch};
use tonnage_engine::{Completion, Ending, Op};
use tonnage_plan::transfer::BatchCall;
use tonnage_units::Result;

/// Batches of a loop.
#[derive(Debug, Clone, Copy)]
pub struct BatchLoop {
    /// Operations of a batch on each flow.
    pub size: u32,
    /// Batches in flight together.
    pub in_flight: u32,
    /// Calls that hand a batch over.
    pub call: BatchCall,
    /// The most bytes that neighbours are merged into; `None` where they stay apart.
    pub merged_bytes_max: Option<u32>,
}

/// Operations of a loop of batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batched {
    /// Operations that completed.
    pub completed: u64,
    /// Operations that the engine took for them: fewer where neighbours were merged.
    pub handed_over: u64,
}

/// A batch that is being handed over.
struct Building {
    slot: u32,
    /// Operations that were built, before merging.
    built: u64,
    /// The flow whose turn it is.
    turn: usize,
}

/// Runs batches on each flow until `until` says so and all have completed.
///
/// A batch that is larger than the engine's queue is handed over as room appears, as an application would.
///
/// # Errors
/// When the engine fails or the run is stopped.
pub fn batch<R: Recorder>(
    port: &mut Port,
    flows: &mut [Flow],
    batching: &BatchLoop,
    scratch: &mut Scratch,
    until: &mut Until,
    recorder: &mut R,
) -> Result<Batched> {
    scratch.reset_batches();
    let Scratch {
        ready,
        batches,
        staged,
        ..
    } = scratch;
    let mut places = Places {
        ready,
        batches,
        operations: u64::from(batching.size) * flows.len() as u64,
        in_flight: 0,
        completed: 0,
    };
    let mut done = [Completion::EMPTY; BURST];
    let (mut taken, mut handed_over, mut over) = (0, 0, false);
    let mut building: Option<Building> = None;
    loop {
        if building.is_none() && !over {
            // A free place is what the clock is read for.
            over = places.are_free() && until.grant(1) == 0;
            if !over {
                building = places.begin(recorder).map(Building::new);
            }
        }
        if places.in_flight == 0 && over {
            let completed = places.completed;
            return Ok(Batched {
                completed,
                handed_over,
            });
        }
        if let Some(batch) = &mut building {
            if taken == staged.len() {
                staged.clear();
                taken = 0;
                batch.build(flows, batching, places.operations, staged);
                places.batches[batch.slot as usize].left += staged.len() as u64;
                handed_over += staged.len() as u64;
            }
            taken += hand_over(port, &staged[taken..], batching.call)?;
            if taken == staged.len() && batch.built == places.operations {
                building = None;
            }
        }
        let count = port.poll(&mut done)?;
        let unbuilt = building.as_ref().map(|batch| batch.slot);
        if batching.in_flight == 1 {
            // All are of the one batch: they need not be told apart.
            places.end(0, own(&done[..count]) as u64, unbuilt, recorder);
            continue;
        }
        for completion in &done[..count] {
            if completion.ending == Ending::Done {
                places.end(completion.tag, 1, unbuilt, recorder);
            }
        }
    }
}

/// Places of batches in flight.
struct Places<'a> {
    /// Those that are free.
    ready: &'a mut VecDeque<u32>,
    batches: &'a mut [BatchSlot],
    /// Operations of a batch on all flows.
    operations: u64,
    in_flight: u64,
    completed: u64,
}

impl Places<'_> {
    #[inline]
    fn are_free(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Begins a batch; returns its place, if one is free.
    #[inline]
    fn begin<R: Recorder>(&mut self, recorder: &R) -> Option<u32> {
        let slot = self.ready.pop_front()?;
        self.batches[slot as usize].start_ns = recorder.now_ns();
        self.in_flight += 1;
        Some(slot)
    }

    /// Counts operations that completed, and with the last one the batch, unless it is the one that is still built.
    #[inline]
    fn end<R: Recorder>(&mut self, slot: u32, count: u64, unbuilt: Option<u32>, recorder: &mut R) {
        let batch = &mut self.batches[slot as usize];
        batch.left -= count;
        if count > 0 && batch.left == 0 && unbuilt != Some(slot) {
            recorder.sample(recorder.now_ns().saturating_sub(batch.start_ns));
            self.ready.push_back(slot);
            self.in_flight -= 1;
            self.completed += self.operations;
        }
    }
}

/// Hands operations over, in one call or in a call each, until the engine has no room; returns how many it took.
#[inline]
fn hand_over(port: &mut Port, staged: &[Op], call: BatchCall) -> Result<usize> {
    if call == BatchCall::One {
        return port.post(staged);
    }
    for (taken, op) in staged.iter().enumerate() {
        if port.post(std::slice::from_ref(op))? == 0 {
            return Ok(taken);
        }
    }
    Ok(staged.len())
}

impl Building {
    fn new(slot: u32) -> Self {
        Self {
            slot,
            built: 0,
            turn: 0,
        }
    }

    /// Builds the batch's next operations: all that are left, if there is room for them.
    #[inline]
    fn build(&mut self, flows: &mut [Flow], batching: &BatchLoop, size: u64, staged: &mut Vec<Op>) {
        match batching.merged_bytes_max {
            Some(bytes_max) => self.merge(flows, (batching.size, bytes_max), staged),
            None => self.take_turns(flows, size, staged),
        }
    }

    fn take_turns(&mut self, flows: &mut [Flow], size: u64, staged: &mut Vec<Op>) {
        let count = (size - self.built).min(staged.capacity() as u64);
        let mut turn = self.turn;
        for _ in 0..count {
            staged.push(flows[turn].next_op(self.slot));
            turn = if turn + 1 == flows.len() { 0 } else { turn + 1 };
        }
        self.turn = turn;
        self.built += count;
    }

    /// One flow after the other, so that neighbours follow each other.
    fn merge(&mut self, flows: &mut [Flow], (size, bytes_max): (u32, u32), staged: &mut Vec<Op>) {
        while self.turn < flows.len() {
            let end = (self.turn as u64 + 1) * u64::from(size);
            while self.built < end {
                if staged.len() == staged.capacity() {
                    return;
                }
                let op = flows[self.turn].next_op(self.slot);
                self.built += 1;
                match staged.last_mut() {
                    Some(last) if follows(last, &op, bytes_max) => last.len += op.len,
                    _ => staged.push(op),
                }
            }
            self.turn += 1;
        }
    }
}

/// Returns whether an operation begins where the last one ends, at both ends, and both fit into one.
#[inline]
fn follows(last: &Op, op: &Op, bytes_max: u32) -> bool {
    let len = u64::from(last.len);
    last.lane == op.lane
        && last.local + len == op.local
        && last.remote + len == op.remote
        && len + u64::from(op.len) <= u64::from(bytes_max)
}

#[cfg(test)]
mod tests;
