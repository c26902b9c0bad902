//! Types for the timed loops: operations, their completions, and the lanes that carry them.

use serde::{Deserialize, Serialize};

use crate::engine::json;

/// Number of a peer: within a run, its rank.
pub type Peer = u32;

tonnage_units::names! {
    /// Kind of an operation.
    pub enum Verb: "op" {
        /// Copy local bytes into the peer's memory; the peer is not notified.
        Write = "write" | "put",
        /// A write after which the peer gets a completion with a 32-bit immediate.
        WriteImm = "write-imm" | "writedata",
        /// Copy bytes from the peer's memory to this side.
        Read = "read" | "get",
        /// Copy local bytes into the next receive that the peer posted.
        Send = "send",
        /// Add the immediate to a word of the peer's memory, and return its old value.
        FetchAdd = "fetch-add",
        /// Replace a word of the peer's memory if it holds an expected value, and return its old value.
        CompareSwap = "compare-swap",
    }
}

tonnage_units::names! {
    /// Order in which the slots of a footprint are used.
    pub enum Access: "access order" {
        /// One slot after the other, then again from the first.
        Sequential = "sequential",
        /// A seeded pseudo-random slot for each operation.
        Random = "random",
        /// Each slot once per round, in a seeded order that differs at the two ends and from round to round.
        Permuted = "permuted",
        /// Always the first slot.
        Fixed = "fixed",
    }
}

/// Size of the word that an atomic operation changes.
pub const WORD_BYTES: u32 = 8;

impl Verb {
    /// Whether the target gets its own completion for every operation.
    pub fn notifies_target(self) -> bool {
        matches!(self, Self::WriteImm | Self::Send)
    }

    /// Verbs that copy bytes, which every engine between memories has.
    pub const COPYING: [Self; 4] = [Self::Write, Self::WriteImm, Self::Read, Self::Send];

    /// Verbs that do not notify the peer, and that change no word atomically.
    pub const ONE_SIDED: [Self; 2] = [Self::Write, Self::Read];

    /// Whether the verb atomically changes a word of the peer's memory.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }

    /// Whether the verb returns bytes from the peer, so that its completion also serves as the peer's answer.
    pub fn returns_bytes(self) -> bool {
        self == Self::Read || self.is_atomic()
    }

    /// Bytes at [`Op::local`] that an atomic operation uses. [`Self::CompareSwap`] uses three words: the expected
    /// value, the new value and the returned old value. [`Self::FetchAdd`] uses one: the old value.
    pub fn local_words_bytes(self) -> u32 {
        match self {
            Self::CompareSwap => 3 * WORD_BYTES,
            _ => WORD_BYTES,
        }
    }
}

/// Purpose of a lane: operations of one verb, or receives for a peer's sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneKind {
    /// Operations of this verb towards the peer.
    Initiate(Verb),
    /// Receives for the peer's sends: `post` posts the buffers.
    Receive,
}

impl LaneKind {
    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initiate(verb) => verb.name(),
            Self::Receive => "receive",
        }
    }
}

/// Handle of a lane, unique within its engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Lane(pub u32);

impl Lane {
    /// Lane of an arrival for which the transport does not report the sender.
    pub const UNNAMED: Self = Self(u32::MAX);
}

/// Handle of a registered memory, unique within its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct RegionId(pub u32);

/// A registered memory, described for a peer. Only the engine can decode it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor(pub Vec<u8>);

impl Descriptor {
    /// Encodes a description as JSON.
    pub fn encode(description: &impl Serialize) -> Self {
        Self(json(description))
    }
}

/// A memory as one worker's engine knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Identifies the memory in lanes of this worker.
    pub id: RegionId,
    /// Identifies the memory in lanes of its peers.
    pub descriptor: Descriptor,
}

/// Everything that stays the same from one operation to the next.
#[derive(Debug, Clone, Copy)]
pub struct LaneSpec<'a> {
    /// Verb or receive.
    pub kind: LaneKind,
    /// The other end: a peer that `connect` was given.
    pub peer: Peer,
    /// This worker's region, to which [`Op::local`] is an offset.
    pub local: RegionId,
    /// The peer's region, to which [`Op::remote`] is an offset. For a send, the region that holds the peer's receives
    /// for this sender. Ignored for receives.
    pub remote: &'a Descriptor,
    /// True if the last byte of a write must become visible last, because the peer waits for it by polling its memory.
    /// Only set if [`Caps::ordered_writes`](crate::Caps::ordered_writes) is.
    pub ordered: bool,
    /// True if writes must become visible in the order in which they were posted, which they always do on a single
    /// path. With [several paths](crate::paths), this lane uses only one of them and does not cut operations.
    pub in_order: bool,
    /// True if completion must mean that the bytes are visible to the peer, because the measured result depends on it.
    /// Only set if [`Caps::delivery_on_request`](crate::Caps::delivery_on_request) is.
    pub delivered: bool,
}

impl<'a> LaneSpec<'a> {
    /// A lane without special promises.
    pub fn new(kind: LaneKind, peer: Peer, local: RegionId, remote: &'a Descriptor) -> Self {
        Self {
            kind,
            peer,
            local,
            remote,
            ordered: false,
            in_order: false,
            delivered: false,
        }
    }
}

/// One operation: 32 bytes. It holds offsets only, so that no pointer crosses a process boundary.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Op {
    /// The lane to use.
    pub lane: Lane,
    /// Returned in the operation's completion.
    pub tag: u32,
    /// Offset of the local bytes in the lane's local region; for an atomic operation, offset of its words
    /// ([`Verb::local_words_bytes`]).
    pub local: u64,
    /// Offset of the remote bytes in the lane's remote region; ignored by sends and receives.
    pub remote: u64,
    /// Payload bytes; [`WORD_BYTES`] for an atomic operation.
    pub len: u32,
    /// Immediate value of a write-imm, or the addend of a fetch-add.
    pub imm: u32,
}

const _: () = assert!(size_of::<Op>() == 32);

/// Kind of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// An operation that this side posted has completed. Receives report `Arrived` instead.
    Done,
    /// Something arrived from the peer: a write-imm, or a send that filled a posted receive.
    Arrived,
    /// The operation failed with this code of the engine; [`Engine::failure`](crate::Engine::failure) explains the
    /// code.
    Failed(i32),
}

/// One completion, as `poll` reports it.
#[derive(Debug, Clone, Copy)]
pub struct Completion {
    /// The tag of the operation, or of the receive that was filled; 0 for an arrived write-imm.
    pub tag: u32,
    /// The lane of a completed or failed operation. For an arrival, `lane.0` is the sending peer, because an arrived
    /// write-imm has no lane on this side. [`Lane::UNNAMED`] if [`Caps::arrivals_named`](crate::Caps::arrivals_named)
    /// is not set.
    pub lane: Lane,
    /// Payload bytes.
    pub len: u32,
    /// The immediate of an arrived write-imm.
    pub imm: u32,
    /// Done, arrived or failed.
    pub ending: Ending,
}

const _: () = assert!(size_of::<Completion>() <= 32);

impl Completion {
    /// Initial value for poll buffers.
    pub const EMPTY: Self = Self {
        tag: 0,
        lane: Lane(0),
        len: 0,
        imm: 0,
        ending: Ending::Done,
    };

    /// The completion of a posted operation.
    #[inline]
    pub fn new(op: &Op, ending: Ending) -> Self {
        Self {
            tag: op.tag,
            lane: op.lane,
            len: op.len,
            imm: op.imm,
            ending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_named_as_serde_names_them() {
        for verb in Verb::ALL {
            assert_eq!(serde_json::to_value(verb).ok(), Some(verb.name().into()));
            assert_eq!(verb.name().parse::<Verb>().ok(), Some(verb));
        }
    }
}
