//! The steps of one rank in one call, and their properties.

use std::collections::BTreeSet;

/// Grants that each rank has given to each peer before the first call: one for each half of the scratch.
pub const GRANTS_INITIAL: u32 = 2;

/// The most messages of a call at one rank: their numbers fit into 20 bits of an immediate.
pub const MESSAGES_MAX: u64 = 1 << 20;

/// Memory that a step reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// Data that the rank provides. In place it shares a buffer with the output, as [`InPlace`](super::InPlace)
    /// describes.
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
    /// The location `bytes` bytes further on.
    pub fn beyond(self, bytes: u64) -> Self {
        let offset = self.offset + bytes;
        Self { offset, ..self }
    }
}

/// One step of a rank. Steps are executed strictly in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Writes bytes into the peer's memory without waiting for completion; the peer's `Await` returns once they have
    /// arrived. With zero bytes it is only a signal. When the call ends, all its puts have left their source.
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
        /// Its number at this rank, below [`Program::messages`].
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
    /// Reduces two rows of elements into a third: `to` = `one` op `other`.
    Combine {
        /// Elements that are read.
        one: Place,
        /// Elements that are read.
        other: Place,
        /// Elements that are written; they overlap neither of the others.
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
    /// Waits for a grant from the peer and consumes it. Each rank has given [`GRANTS_INITIAL`] grants before the first
    /// call.
    Claim {
        /// The rank that will be the target of puts.
        peer: u32,
    },
}

/// The steps of one rank in a call. Consecutive calls have the same shape and algorithm. Before either changes, every
/// rank must be known to have left the last call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Bytes of one half of the scratch; calls use the two halves in turn.
    pub scratch_bytes: u64,
    /// Upper bound of this rank's message numbers, exclusive. Not all numbers below it need be in use.
    pub messages: u32,
    /// Ranks that send messages or grants to this one, in ascending order.
    pub gets_from: Vec<u32>,
}

impl Program {
    /// Ranks that this one sends puts or grants to, in ascending order.
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
