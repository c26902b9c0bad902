//! Steps of one rank in one call, and figures of them.

use std::collections::BTreeSet;

/// Grants that each rank has given to each peer before the first call: one for each half of the scratch.
pub const GRANTS_INITIAL: u32 = 2;

/// Messages that a call may have at one rank: their numbers fit into 20 bits of an immediate.
pub const MESSAGES_MAX: u64 = 1 << 20;

/// Memory that a step reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// Data that the rank gives. In place it lies in one stretch with the output, as [`InPlace`](super::InPlace) says.
    Input,
    /// Data that the rank gets.
    Output,
    /// The half of the scratch that belongs to this call.
    Scratch,
}

/// Beginning of the bytes that a step reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The memory.
    pub buffer: Buffer,
    /// Bytes from its beginning.
    pub offset: u64,
}

impl Place {
    /// The place so many bytes further.
    pub fn beyond(self, bytes: u64) -> Self {
        let offset = self.offset + bytes;
        Self { offset, ..self }
    }
}

/// One step of a rank. Steps are taken strictly in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Writes bytes into the peer's memory and does not wait for the end of it; the peer's `Await` ends when they are
    /// there. No bytes make a mere signal. All puts of a call have left their source when the call ends.
    Put {
        /// The rank that is written to.
        peer: u32,
        /// The peer's number of the message.
        message: u32,
        /// Source at this rank.
        from: Place,
        /// Target at the peer.
        to: Place,
        /// Length; at most a chunk.
        bytes: u64,
    },
    /// Waits until a message has come.
    Await {
        /// Its number, which is this rank's own and below [`Program::messages`].
        message: u32,
    },
    /// Folds elements into others: `to` = `to` op `from`.
    Fold {
        /// Elements that are read.
        from: Place,
        /// Elements that are read and written.
        to: Place,
        /// Number of elements.
        elements: u64,
    },
    /// Folds two rows of elements into a third: `to` = `one` op `other`.
    Combine {
        /// Elements that are read.
        one: Place,
        /// Elements that are read.
        other: Place,
        /// Elements that are written; they overlap with neither.
        to: Place,
        /// Number of elements.
        elements: u64,
    },
    /// Copies bytes to where they do not overlap with their source.
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
    /// Lets the peer put into this rank's scratch in one more call.
    Grant {
        /// The rank that may put.
        peer: u32,
    },
    /// Waits for a grant of the peer's and uses it up; each has given [`GRANTS_INITIAL`] before the first call.
    Claim {
        /// The rank that will be put to.
        peer: u32,
    },
}

/// Steps of one rank in a call. Calls in a row are of one shape and one algorithm: before another shape or algorithm
/// begins, every rank must be known to have left the last call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The steps in their order.
    pub steps: Vec<Step>,
    /// Bytes of one half of the scratch. There are two, which calls use in turn.
    pub scratch_bytes: u64,
    /// Bound of the numbers of this rank's messages. Not every number below it need be in use.
    pub messages: u32,
    /// Ranks that messages or grants come from, in ascending order.
    pub gets_from: Vec<u32>,
}

impl Program {
    /// Ranks that this one puts to or grants to, in ascending order.
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
