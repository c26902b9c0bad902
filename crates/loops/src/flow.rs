//! A flow: the operations of one worker towards one peer, and the receives for a peer's sends.

use crate::flow_walk::{FlowSlots, FlowWalk};
use tonnage_engine::carried::CarriedFlow;
use tonnage_engine::{Lane, Op, Verb};

/// The operations of one worker towards one peer.
#[derive(Debug, Clone)]
pub struct Flow {
    /// The target rank.
    pub peer: u32,
    /// The lane that carries the operations.
    pub lane: Lane,
    /// Offset of the flow's slice in this worker's memory.
    pub local_origin: u64,
    /// Offset of the flow's slice in the peer's memory.
    pub remote_origin: u64,
    /// Operations issued since the flow was created. The low 32 bits are the immediate of the next operation.
    pub issued: u64,
    walk: FlowWalk,
    local_stride_bytes: u64,
    stride_bytes: u64,
    size_bytes: u32,
    /// Operand of fetch-adds; other operations carry their number as the immediate.
    addend: Option<u32>,
}

impl Flow {
    /// Creates a flow from `initiator` to `target` on a resolved lane.
    pub fn new(
        slots: &FlowSlots,
        initiator: u32,
        target: u32,
        lane: Lane,
        local_origin: u64,
        remote_origin: u64,
    ) -> Self {
        Self {
            peer: target,
            lane,
            local_origin,
            remote_origin,
            issued: 0,
            walk: FlowWalk::new(slots, initiator, target),
            local_stride_bytes: match slots.op.is_atomic() {
                true => slots.op.local_words_bytes().into(),
                false => slots.stride_bytes,
            },
            stride_bytes: slots.stride_bytes,
            size_bytes: slots.size_bytes,
            addend: (slots.op == Verb::FetchAdd).then_some(1),
        }
    }

    /// Describes the flow for an engine that runs trials itself.
    pub fn carried(&self, slots: &FlowSlots, initiator: u32) -> CarriedFlow {
        CarriedFlow {
            lane: self.lane,
            local: self.local_origin,
            remote: self.remote_origin,
            seed: slots.seed_of(initiator, self.peer),
            issued: self.issued,
        }
    }

    /// Advances past operations that an engine carried out in a trial of its own.
    pub fn skip(&mut self, operations: u64) {
        self.walk.skip(operations);
        self.issued += operations;
    }

    /// Returns the next operation.
    #[inline]
    pub fn next_op(&mut self, tag: u32) -> Op {
        let (local, remote) = self.walk.next_slots();
        let imm = self.addend.unwrap_or(self.issued as u32);
        self.issued += 1;
        Op {
            lane: self.lane,
            tag,
            local: self.local_origin + local * self.local_stride_bytes,
            remote: self.remote_origin + remote * self.stride_bytes,
            len: self.size_bytes,
            imm,
        }
    }

    /// Returns an operation of one byte at the first slot. The operation uses up one receive of the peer and doesn't
    /// advance the walk.
    pub fn filler_op(&self) -> Op {
        Op {
            lane: self.lane,
            tag: 0,
            local: self.local_origin,
            remote: self.remote_origin,
            len: 1,
            imm: 0,
        }
    }
}

/// The receives for one peer's sends, posted in the order of that peer's walk.
#[derive(Debug, Clone)]
pub struct Receives {
    lane: Lane,
    origin: u64,
    walk: FlowWalk,
    stride_bytes: u64,
    size_bytes: u32,
}

impl Receives {
    /// Creates the receives at `target` for sends of `initiator`.
    pub fn new(slots: &FlowSlots, initiator: u32, target: u32, lane: Lane, origin: u64) -> Self {
        Self {
            lane,
            origin,
            walk: FlowWalk::new(slots, initiator, target),
            stride_bytes: slots.stride_bytes,
            size_bytes: slots.size_bytes,
        }
    }

    /// Returns the lane that the receives are posted on.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Returns the next receive. `tag` is the peer's index in the port's list.
    #[inline]
    pub fn next_op(&mut self, tag: u32) -> Op {
        let (_, slot) = self.walk.next_slots();
        Op {
            lane: self.lane,
            tag,
            local: self.origin + slot * self.stride_bytes,
            remote: 0,
            len: self.size_bytes,
            imm: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::slots;
    use tonnage_engine::Access;

    #[test]
    fn skipped_operations_count_as_issued() {
        let (mut skipped, mut stepped) = (flow_of_permuted_slots(), flow_of_permuted_slots());
        for count in [0, 5, 2] {
            skipped.skip(count);
            for _ in 0..count {
                stepped.next_op(0);
            }
            assert_eq!(skipped.issued, stepped.issued);
            let next = [&mut skipped, &mut stepped].map(|flow| format!("{:?}", flow.next_op(9)));
            assert_eq!(next[0], next[1]);
        }
    }

    fn flow_of_permuted_slots() -> Flow {
        Flow::new(&slots(Access::Permuted, 64), 0, 1, Lane(3), 0, 1 << 12)
    }

    #[test]
    fn operations_and_receives_lie_a_stride_apart_behind_their_origins() {
        let slots = FlowSlots {
            stride_bytes: 24,
            ..slots(Access::Sequential, 3)
        };
        let mut flow = Flow::new(&slots, 0, 1, Lane(2), 1000, 5000);
        let mut receives = Receives::new(&slots, 0, 1, Lane(3), 7000);
        assert_eq!(receives.lane(), Lane(3));
        let written = |op: Op| format!("{op:?}");
        for (number, offset) in [(0, 0), (1, 24), (2, 48), (3, 0)] {
            let expected = Op {
                lane: Lane(2),
                tag: 9,
                local: 1000 + offset,
                remote: 5000 + offset,
                len: 8,
                imm: number,
            };
            assert_eq!(written(flow.next_op(9)), written(expected));
            let expected = Op {
                lane: Lane(3),
                tag: 4,
                local: 7000 + offset,
                remote: 0,
                len: 8,
                imm: 0,
            };
            assert_eq!(written(receives.next_op(4)), written(expected));
        }
    }
}
