//! Operations as callers hand them over, and their ends as callers are told of them.

use tonnage_engine::{Lane, Op};

use crate::error::TransferError;

/// Bytes of one operation, by their offsets in the two memories of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the local memory.
    pub local: u64,
    /// Offset in the remote memory.
    pub remote: u64,
    /// Payload bytes.
    pub len: u32,
    /// Immediate value, of account to a write-imm only.
    pub imm: u32,
}

impl Extent {
    /// Bytes at these offsets.
    pub fn new(local: u64, remote: u64, len: u32) -> Self {
        Self {
            local,
            remote,
            len,
            imm: 0,
        }
    }

    /// These bytes with an immediate value.
    pub fn with_imm(self, imm: u32) -> Self {
        Self { imm, ..self }
    }

    #[inline]
    pub(crate) fn op(&self, lane: Lane, tag: u32) -> Op {
        Op {
            lane,
            tag,
            local: self.local,
            remote: self.remote,
            len: self.len,
            imm: self.imm,
        }
    }
}

/// Returns whether an immediate value fits into so many bits.
#[inline]
pub(crate) fn carries(bits: u32, imm: u32) -> bool {
    bits >= u32::BITS || imm >> bits == 0
}

/// End of an operation whose ticket was queued.
#[derive(Debug, Clone)]
pub struct TicketEnd {
    /// The number that its ticket was queued with.
    pub token: u64,
    /// The operation's error, when it has failed.
    pub error: Option<TransferError>,
}

impl TicketEnd {
    /// Value that a list is filled with before it is used.
    pub const NONE: Self = Self {
        token: 0,
        error: None,
    };
}

/// One operation of a list, and the number that tells its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueuedExtent {
    /// The bytes that it moves.
    pub extent: Extent,
    /// The number that it is queued with.
    pub token: u64,
}
