//! Messages between the two ends of an operation: requests of its initiator and replies of its target. The measured
//! engine itself writes them into host memory, where the CPU polls them.
//!
//! A worker has cells for each peer, in both directions. A cell carries one message at a time, and its reader answers
//! before the next one is written, so no message is overwritten unread. Engines do not promise in which order the bytes
//! of a write become visible. Therefore each message ends with a checksum of its other words, including the sequence
//! number.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use tonnage_engine::memory::{Memory, MemoryEntry, Request};
use tonnage_engine::pattern::mix_bits;
use tonnage_engine::{
    Caps, Descriptor, Engine, Lane, LaneKind, LaneSpec, Lists, Op, Peer, RegionId, Verb,
};
use tonnage_sys::mapping::Arena;
use tonnage_units::{Error, Result};

use super::{ComparisonFindings, DEFECT};

/// A location in a worker's memory that one peer writes to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlaceInMemory {
    /// The memory, as peers name it.
    pub memory: Descriptor,
    /// Offset in that memory.
    pub offset: u64,
}

/// Maximum number of operations towards one peer that are compared at the same time.
pub(super) const CELLS: usize = 64;

/// Distance between two cells, so that no two share a cache line.
const CELL_BYTES: u64 = 64;

/// Length of a message.
const MESSAGE_BYTES: u32 = 40;

/// Meaning of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// Request: prepare for an operation.
    Prepare = 0,
    /// Request: compare an operation that has arrived.
    Compare = 1,
    /// Reply: the operation may begin.
    Ready = 2,
    /// Reply: the operation was compared.
    Compared = 3,
}

/// A message about one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MailboxMessage {
    pub(super) kind: MessageKind,
    /// Number of the operation in its flow.
    pub(super) number: u64,
    /// Offset of the operation's data at the target.
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) imm: u32,
}

impl MailboxMessage {
    fn words(&self, sequence: u64) -> [u64; 5] {
        let stamp = sequence << 2 | self.kind as u64;
        let amounts = u64::from(self.len) << 32 | u64::from(self.imm);
        let words = [stamp, self.number, self.offset, amounts];
        let seal = words.iter().fold(0, |seal, word| mix_bits(seal ^ word));
        [stamp, self.number, self.offset, amounts, seal]
    }

    /// Decodes the message with this sequence number; `None` if it hasn't arrived, or only in part.
    fn read(words: [u64; 5], sequence: u64) -> Option<Self> {
        let [stamp, number, offset, amounts, _] = words;
        let kind = match stamp & 3 {
            0 => MessageKind::Prepare,
            1 => MessageKind::Compare,
            2 => MessageKind::Ready,
            _ => MessageKind::Compared,
        };
        let message = Self {
            kind,
            number,
            offset,
            len: (amounts >> 32) as u32,
            imm: amounts as u32,
        };
        (message.words(sequence) == words).then_some(message)
    }
}

/// Rows of cells that a peer writes to.
#[derive(Debug, Clone, Copy)]
pub(super) enum CellRow {
    /// Requests from the peer.
    Requests = 0,
    /// Replies from the peer.
    Replies = 1,
}

/// Index of the first source row. Source rows hold outgoing messages and follow the rows that peers write to.
const SOURCE_ROWS: u64 = 2;

/// Bytes of all rows for one peer.
const PEER_BYTES: u64 = 2 * SOURCE_ROWS * CELLS as u64 * CELL_BYTES;

fn cell_at(row: u64, cell: usize) -> u64 {
    (row * CELLS as u64 + cell as u64) * CELL_BYTES
}

/// Number of messages written to the peer's cell, and read from this worker's cell.
#[derive(Debug, Clone, Copy, Default)]
struct MessageCounts {
    written: u64,
    read: u64,
}

/// The cells shared with one peer.
#[derive(Debug)]
struct PeerCells {
    peer: Peer,
    memory: Descriptor,
    /// Offset of this worker's cells in the peer's memory.
    remote: u64,
    /// Message counts per cell: first for requests, then for replies.
    passed: [[MessageCounts; CELLS]; 2],
}

/// All cells of one worker. Cells and their sequence numbers are kept from point to point.
pub struct Mailboxes {
    arena: Arc<Arena>,
    region: RegionId,
    descriptor: Descriptor,
    peers: Vec<PeerCells>,
    pub(super) findings: Arc<ComparisonFindings>,
}

impl Mailboxes {
    /// Allocates and registers the cells for `peers` peers.
    ///
    /// # Errors
    /// If no memory type in the list is CPU-addressable, or the device cannot register it.
    pub fn new(engine: &mut dyn Engine, lists: &Lists, caps: &Caps, peers: usize) -> Result<Self> {
        let visible = |entry: &&MemoryEntry| entry.host_addressable;
        let entry = lists.memories.iter().find(visible);
        let none = || {
            Error::Failed(
                "--verify=each: no host memory for its messages; use --verify without =each".into(),
            )
        };
        let memory: Arc<dyn Memory> = (entry.ok_or_else(none)?.allocate)(&Request {
            bytes: PEER_BYTES * peers.max(1) as u64,
            shared: caps.shared_memory,
            ..Request::default()
        })?;
        let arena = Arc::clone(memory.mapped("messages")?);
        let region = engine.register(&memory)?;
        Ok(Self {
            arena,
            region: region.id,
            descriptor: region.descriptor,
            peers: Vec::with_capacity(peers),
            findings: Arc::default(),
        })
    }

    /// Returns the location that the `index`-th peer writes to.
    pub fn place(&self, index: usize) -> PlaceInMemory {
        PlaceInMemory {
            memory: self.descriptor.clone(),
            offset: index as u64 * PEER_BYTES,
        }
    }

    /// Returns the findings, which the worker's verification reads.
    pub fn findings(&self) -> Arc<ComparisonFindings> {
        Arc::clone(&self.findings)
    }

    /// Adds the next peer, with the location that it assigned to this worker.
    pub fn connect(&mut self, peer: Peer, place: Option<PlaceInMemory>) -> Result<()> {
        let none = || {
            Error::Failed(format!(
                "rank {peer} sent no location for messages; {DEFECT}"
            ))
        };
        let PlaceInMemory { memory, offset } = place.ok_or_else(none)?;
        self.peers.push(PeerCells {
            peer,
            memory,
            remote: offset,
            passed: [[MessageCounts::default(); CELLS]; 2],
        });
        Ok(())
    }

    /// Returns the index of a peer.
    pub(super) fn index_of(&self, peer: Peer) -> Result<usize> {
        let found = self.peers.iter().position(|cells| cells.peer == peer);
        let none = || {
            Error::Failed(format!(
                "rank {peer} has no messages with this thread; {DEFECT}"
            ))
        };
        found.ok_or_else(none)
    }

    /// Number of peers.
    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }

    /// Returns the rank of the peer with this index.
    pub(super) fn rank_of(&self, index: usize) -> Peer {
        self.peers[index].peer
    }

    /// Returns the lane that carries messages to a peer. With `delivered`, completion proves that the message has
    /// arrived.
    pub(super) fn lane(
        &self,
        index: usize,
        delivered: bool,
        engine: &mut dyn Engine,
    ) -> Result<Lane> {
        let PeerCells { peer, memory, .. } = &self.peers[index];
        let write = LaneKind::Initiate(Verb::Write);
        engine.lane(&LaneSpec {
            delivered,
            ..LaneSpec::new(write, *peer, self.region, memory)
        })
    }

    /// Stores a message in its source cell and returns the operation that writes it to the peer. The bytes must not
    /// change until the operation has completed. Call [`Self::count_written`] once the operation was posted.
    pub(super) fn message(
        &self,
        (index, row, cell): (usize, CellRow, usize),
        message: &MailboxMessage,
        (lane, tag): (Lane, u32),
    ) -> Op {
        let cells = &self.peers[index];
        let sequence = cells.passed[row as usize][cell].written + 1;
        let local = index as u64 * PEER_BYTES + cell_at(SOURCE_ROWS + row as u64, cell);
        for (word, at) in message
            .words(sequence)
            .into_iter()
            .zip((local..).step_by(8))
        {
            if let Some(place) = self.arena.word(at) {
                place.store(word, Ordering::Release);
            }
        }
        Op {
            lane,
            tag,
            local,
            remote: cells.remote + cell_at(row as u64, cell),
            len: MESSAGE_BYTES,
            imm: 0,
        }
    }

    /// Counts a posted message.
    pub(super) fn count_written(&mut self, (index, row, cell): (usize, CellRow, usize)) {
        self.peers[index].passed[row as usize][cell].written += 1;
    }

    /// Returns the next message of a peer in a cell. Each message is returned once.
    #[inline]
    pub(super) fn read(
        &mut self,
        (index, row, cell): (usize, CellRow, usize),
    ) -> Option<MailboxMessage> {
        let at = index as u64 * PEER_BYTES + cell_at(row as u64, cell);
        let passed = &mut self.peers[index].passed[row as usize][cell];
        let load = |at: u64| {
            self.arena
                .word(at)
                .map_or(0, |word| word.load(Ordering::Acquire))
        };
        if load(at) >> 2 != passed.read + 1 {
            return None;
        }
        let words = [0, 8, 16, 24, 32].map(|further| load(at + further));
        let message = MailboxMessage::read(words, passed.read + 1)?;
        passed.read += 1;
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_only_when_complete_and_in_sequence() {
        let message = MailboxMessage {
            kind: MessageKind::Compare,
            number: 7,
            offset: 4096,
            len: 64,
            imm: 9,
        };
        let words = message.words(3);
        assert_eq!(MailboxMessage::read(words, 3), Some(message));
        assert_eq!(MailboxMessage::read(words, 4), None);
        for at in 0..5 {
            let mut partial = words;
            partial[at] = message.words(2)[at] ^ 1;
            assert_eq!(MailboxMessage::read(partial, 3), None, "{at}");
        }
    }
}
