//! An engine that refuses the operations of one lane after the other for a while, and completes all that it takes.

use std::collections::VecDeque;
use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{
    Card, Completion, Descriptor, Ending, Engine, Failure, Flush, Lane, LaneSpec, Neighbor, Op,
    Peer, Region, RegionId,
};
use tonnage_units::Result;

/// Calls in which the same lane is refused.
const CALLS: u64 = 200;

pub struct Refusing {
    calls: u64,
    /// Calls that refused an operation.
    pub refused: u64,
    in_flight: VecDeque<Op>,
}

impl Refusing {
    /// An engine with at most `operations` in flight.
    pub fn new(operations: usize) -> Self {
        Self {
            calls: 0,
            refused: 0,
            in_flight: VecDeque::with_capacity(operations),
        }
    }
}

impl Engine for Refusing {
    fn register(&mut self, _memory: &Arc<dyn Memory>) -> Result<Region> {
        Ok(Region {
            id: RegionId(0),
            descriptor: Descriptor::default(),
        })
    }

    fn deregister(&mut self, _region: RegionId) -> Result<()> {
        Ok(())
    }

    fn cards(&mut self, peers: &[Peer]) -> Result<Vec<Card>> {
        Ok(vec![Card(Vec::new()); peers.len()])
    }

    fn connect(&mut self, _peers: &[Neighbor]) -> Result<()> {
        Ok(())
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        Ok(Lane(spec.peer))
    }

    fn release(&mut self, _lane: Lane) {}

    /// Refuses lanes 0 to 2 in turn, then none.
    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let refused = Lane((self.calls / CALLS % 4) as u32);
        self.calls += 1;
        let taken = ops.iter().position(|op| op.lane == refused);
        self.refused += u64::from(taken.is_some());
        let taken = taken.unwrap_or(ops.len());
        self.in_flight.extend(&ops[..taken]);
        Ok(taken)
    }

    fn flush(&mut self, _lane: Lane, _tag: u32) -> Result<Flush> {
        Ok(Flush::Delivered)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        let count = done.len().min(self.in_flight.len());
        for (slot, op) in done.iter_mut().zip(self.in_flight.drain(..count)) {
            *slot = Completion {
                tag: op.tag,
                lane: op.lane,
                len: op.len,
                imm: op.imm,
                ending: Ending::Done,
            };
        }
        Ok(count)
    }

    fn failure(&self, _done: &Completion) -> Failure {
        Failure::default()
    }
}
