//! The steps of one rank in one call, and their properties.

use std::collections::BTreeSet;

/// Number of grants that each rank has given to each peer before the first call: one for each half of the scratch.
pub const GRANTS_INITIAL: u32 = 2;

/// The most messages that a rank can receive in a call, because message numbers use 20 bits of an immediate.
pub const MESSAGES_MAX: u64 = 1 << 20;

/// Memory that a step reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// Data that the rank provides. In place, it shares a buffer with the output, as described by
    /// [`InPlace`](super::InPlace).
    Input,
    /// Data that the rank receives.
    Output,
    /// The scratch half that belongs to this call.
    Scratch,
}

/// Start of the bytes that a step reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The memory.
    pub buffer: Buffer,
    /// Offset in bytes.
    pub offset: u64,
}

impl Place {
    /// The location `bytes` bytes later.
    pub fn beyond(self, bytes: u64) -> Self {
        let offset = self.offset + bytes;
        Self { offset, ..self }
    }
}

/// One step of a rank. Steps are executed strictly in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Writes bytes into the peer's memory without waiting for completion. The peer's `Await` returns after the bytes
    /// have arrived. A put of zero bytes is only a signal. When the call ends, all puts have left their source.
    Put {
        /// The target rank.
        peer: u32,
        /// The message's number at the peer.
        message: u32,
        /// Source on this rank.
        from: Place,
        /// Target on the peer.
        to: Place,
        /// Length, at most a chunk.
        bytes: u64,
    },
    /// Waits until a message has arrived.
    Await {
        /// The message's number at this rank, below [`Program::messages`].
        message: u32,
    },
    /// Reduces elements into others: `to` = `to` op `from`.
    Fold {
        /// Elements that are read.
        from: Place,
        /// Elements that are read and written.
        to: Place,
        /// Number of elements.
        elements: u64,
    },
    /// Reduces two ranges of elements into a third: `to` = `one` op `other`.
    Combine {
        /// Elements that are read.
        one: Place,
        /// Elements that are read.
        other: Place,
        /// Elements that are written. They do not overlap the elements that are read.
        to: Place,
        /// Number of elements.
        elements: u64,
    },
    /// Copies bytes; source and target do not overlap.
    Copy {
        /// Source.
        from: Place,
        /// Target.
        to: Place,
        /// Length.
        bytes: u64,
    },
    /// Divides elements by the number of ranks.
    Divide {
        /// The elements.
        at: Place,
        /// Number of elements.
        elements: u64,
    },
    /// Allows the peer to put into this rank's scratch in one more call.
    Grant {
        /// The rank that may put.
        peer: u32,
    },
    /// Waits for a grant from the peer and uses it up. Each rank has given [`GRANTS_INITIAL`] grants before the first
    /// call.
    Claim {
        /// The rank that gave the grant.
        peer: u32,
    },
}

/// The steps of one rank in a call. Consecutive calls have the same shape and algorithm. Before the shape or the
/// algorithm changes, every rank must be known to have left the last call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Bytes of one half of the scratch. Consecutive calls alternate between the halves.
    pub scratch_bytes: u64,
    /// Upper bound of this rank's message numbers, exclusive. Some numbers below it may be unused.
    pub messages: u32,
    /// Ranks that send messages or grants to this rank, in ascending order.
    pub gets_from: Vec<u32>,
}

impl Program {
    /// Ranks to which this rank sends puts or grants, in ascending order.
    pub fn puts_to(&self) -> Vec<u32> {
        let mut peers = BTreeSet::new();
        for step in &self.steps {
            if let Step::Put { peer, .. } | Step::Grant { peer } = step {
                peers.insert(*peer);
            }
        }
        peers.into_iter().collect()
    }
}
