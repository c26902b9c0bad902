//! Operations as a caller posts them, and the reports of their ends.

use tonnage_engine::{Lane, Op};

use crate::error::TransferError;

/// The bytes of one operation, by their offsets in the two memories of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the local memory.
    pub local: u64,
    /// Offset in the remote memory.
    pub remote: u64,
    /// Payload bytes.
    pub len: u32,
    /// Immediate value, used only by write-imms.
    pub imm: u32,
}

impl Extent {
    /// Returns an extent at these offsets.
    pub fn new(local: u64, remote: u64, len: u32) -> Self {
        Self {
            local,
            remote,
            len,
            imm: 0,
        }
    }

    /// Returns this extent with an immediate value.
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

/// Returns whether an immediate value fits into this many bits.
#[inline]
pub(crate) fn carries(bits: u32, imm: u32) -> bool {
    bits >= u32::BITS || imm >> bits == 0
}

/// End of an operation with a queued ticket.
#[derive(Debug, Clone)]
pub struct TicketEnd {
    /// The token under which the ticket was queued.
    pub token: u64,
    /// The error, if the operation failed.
    pub error: Option<TransferError>,
}

impl TicketEnd {
    /// Initial value for lists that are filled later.
    pub const NONE: Self = Self {
        token: 0,
        error: None,
    };
}

/// One operation of a list, with the token under which its end will be reported.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueuedExtent {
    /// The operation's bytes.
    pub extent: Extent,
    /// The token under which the operation is queued.
    pub token: u64,
}
