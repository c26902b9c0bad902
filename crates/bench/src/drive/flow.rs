//! A flow: the operations of one worker towards one peer, and the receives that a peer's sends land in.

use crate::drive::walk::Walk;
use tonnage_engine::{Lane, Op};
use tonnage_plan::transfer::TransferPoint;

/// The operations of one worker towards one peer.
#[derive(Debug, Clone)]
pub struct Flow {
    /// The rank at the other end.
    pub peer: u32,
    /// The lane that carries them.
    pub lane: Lane,
    /// Offset of the flow's slice in this worker's memory.
    pub local_origin: u64,
    /// Offset of the slice in the peer's.
    pub remote_origin: u64,
    /// Operations issued since the flow exists. The low 32 bits are the immediate of the next one.
    pub issued: u64,
    walk: Walk,
    stride_bytes: u64,
    size_bytes: u32,
}

impl Flow {
    /// A flow from `initiator` to `target`, whose lane has been resolved.
    pub fn new(
        point: &TransferPoint,
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
            walk: Walk::new(point, initiator, target),
            stride_bytes: point.stride_bytes,
            size_bytes: point.size_bytes,
        }
    }

    /// The next operation.
    #[inline]
    pub fn next_op(&mut self, tag: u32) -> Op {
        let offset = self.walk.next_slot() * self.stride_bytes;
        let imm = self.issued as u32;
        self.issued += 1;
        Op {
            lane: self.lane,
            tag,
            local: self.local_origin + offset,
            remote: self.remote_origin + offset,
            len: self.size_bytes,
            imm,
        }
    }

    /// An operation of one byte at the first slot, which uses up a receive without moving the walk.
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

/// The receives that one peer's sends land in, posted in the order of that peer's walk.
#[derive(Debug, Clone)]
pub struct Receives {
    lane: Lane,
    origin: u64,
    walk: Walk,
    stride_bytes: u64,
    size_bytes: u32,
}

impl Receives {
    /// Receives at `target` for what `initiator` sends.
    pub fn new(
        point: &TransferPoint,
        initiator: u32,
        target: u32,
        lane: Lane,
        origin: u64,
    ) -> Self {
        Self {
            lane,
            origin,
            walk: Walk::new(point, initiator, target),
            stride_bytes: point.stride_bytes,
            size_bytes: point.size_bytes,
        }
    }

    /// The lane that they are posted on.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// The next receive; `tag` names the peer's entry in the port's list.
    #[inline]
    pub fn next_op(&mut self, tag: u32) -> Op {
        let offset = self.walk.next_slot() * self.stride_bytes;
        Op {
            lane: self.lane,
            tag,
            local: self.origin + offset,
            remote: 0,
            len: self.size_bytes,
            imm: 0,
        }
    }
}
