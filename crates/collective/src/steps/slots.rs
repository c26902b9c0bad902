//! Slots: parts of the receiver's scratch, which the messages of a row use in turn. A slot is reused after the receiver
//! has released it. So a small part of memory, which stays in the caches, suffices for many messages. If there are at
//! least as many slots as messages, no releases are sent.

use super::emitter::{CallContext, Emitter, scratch};
use super::program::Place;

/// Sizes of a row of slots, the same at both ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotRow {
    slot_bytes: u64,
    slots: u64,
    /// Bytes of all slots in use.
    pub bytes: u64,
}

impl SlotRow {
    /// Slots for at most `count` messages. Each message has at most a chunk and at most `longest` bytes.
    pub fn new(context: &CallContext, longest: u64, count: u64) -> Self {
        let element = context.shape.dtype.bytes();
        let longest = longest.min(context.chunk_bytes).max(element);
        let slot_bytes = longest.next_multiple_of(64);
        let slots = (context.tuning.slots_bytes / slot_bytes).max(context.tuning.slots_min);
        let bytes = slot_bytes * slots.min(count);
        Self {
            slot_bytes,
            slots,
            bytes,
        }
    }

    /// Whether the sender of `count` messages receives any slot releases. If it does, releases of call k - 1 prove that
    /// the receiver has left call k - 2.
    pub fn gets_releases(&self, count: u64) -> bool {
        count > self.slots
    }

    /// Number of messages that a rank may put before it takes the first one that was put to it. It is half of the
    /// slots, so that the other half can be in use.
    pub fn lead(&self) -> u64 {
        (self.slots / 2).max(1)
    }
}

/// First message numbers of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowNumbers {
    /// The receiver's number of the first data message.
    pub data: u32,
    /// The sender's number of the first slot release.
    pub free: u32,
}

/// The sending end of a row.
#[derive(Debug, Clone)]
pub(super) struct RowSender {
    row: SlotRow,
    numbers: RowNumbers,
    /// Offset of the slots at the receiver.
    slots: u64,
    /// Offset of the outbox in this rank's scratch. It has one location per slot, from which messages can be put.
    outbox: u64,
    next: u64,
    /// Number of messages with slots that are known to be free.
    free: u64,
}

impl RowSender {
    pub fn new(row: SlotRow, numbers: RowNumbers, slots: u64, outbox: u64) -> Self {
        Self {
            row,
            numbers,
            slots,
            outbox,
            next: 0,
            free: row.slots,
        }
    }

    /// Waits until the next message's slot is free. Then the previous message from the same outbox location has
    /// arrived, too.
    pub fn wait_for_free_slot(&mut self, out: &mut Emitter, peer: u32) {
        if self.next >= self.free {
            let used = self.next - self.row.slots;
            out.wait(peer, self.numbers.free + used as u32);
            self.free = self.next + 1;
        }
    }

    /// Waits until the next message's slot is free, and returns the message's outbox location.
    pub fn next_outbox_place(&mut self, out: &mut Emitter, peer: u32) -> Place {
        self.wait_for_free_slot(out, peer);
        self.outbox_place(self.next)
    }

    /// Outbox location of the message with this index in the row.
    pub fn outbox_place(&self, index: u64) -> Place {
        scratch(self.outbox + index % self.row.slots * self.row.slot_bytes)
    }

    /// Puts the next message.
    pub fn put(&mut self, out: &mut Emitter, peer: u32, from: Place, bytes: u64) {
        self.wait_for_free_slot(out, peer);
        let to = scratch(self.slots + self.next % self.row.slots * self.row.slot_bytes);
        let message = self.numbers.data + self.next as u32;
        out.put(peer, message, (from, to), bytes);
        self.next += 1;
    }
}

/// The receiving end of a row.
#[derive(Debug, Clone)]
pub(super) struct RowReceiver {
    row: SlotRow,
    numbers: RowNumbers,
    slots: u64,
    next: u64,
    total: u64,
}

impl RowReceiver {
    /// A receiving end for `total` messages. Their slots start at offset `slots` in the scratch.
    pub fn new(row: SlotRow, numbers: RowNumbers, slots: u64, total: u64) -> Self {
        Self {
            row,
            numbers,
            slots,
            next: 0,
            total,
        }
    }

    /// Waits for the next message, and returns its location.
    pub fn take(&mut self, out: &mut Emitter, peer: u32) -> Place {
        out.wait(peer, self.numbers.data + self.next as u32);
        self.next += 1;
        scratch(self.slots + (self.next - 1) % self.row.slots * self.row.slot_bytes)
    }

    /// Index of the message that will reuse the slot of the last message taken; `None` if no message will.
    pub fn successor(&self) -> Option<u64> {
        let successor = self.next - 1 + self.row.slots;
        (successor < self.total).then_some(successor)
    }

    /// Releases the slot of the last message taken: signals the peer that uses the slot next.
    pub fn release(&self, out: &mut Emitter, peer: u32) {
        if self.successor().is_some() {
            out.signal(peer, self.numbers.free + (self.next - 1) as u32);
        }
    }
}
