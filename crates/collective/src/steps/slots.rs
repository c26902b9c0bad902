//! Slots: a stretch of the receiver's scratch that the messages of a row go through in turn. A slot is used again when
//! the receiver has said that it is free, so that many messages need little memory, which stays in the caches. Where
//! there are at least as many slots as messages nothing is said.

use super::emitter::{CallSeat, Emitter, scratch};
use super::program::Place;

/// Dimensions of a row of slots, the same at both its ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotRow {
    slot_bytes: u64,
    slots: u64,
    /// Bytes of all slots that are ever used.
    pub bytes: u64,
}

impl SlotRow {
    /// Slots for at most `count` messages of at most a chunk and at most `longest` bytes.
    pub fn new(seat: &CallSeat, longest: u64, count: u64) -> Self {
        let element = seat.shape.dtype.bytes();
        let longest = longest.min(seat.chunk_bytes).max(element);
        let slot_bytes = longest.next_multiple_of(64);
        let slots = (seat.tuning.slots_bytes / slot_bytes).max(seat.tuning.slots_min);
        let bytes = slot_bytes * slots.min(count);
        Self {
            slot_bytes,
            slots,
            bytes,
        }
    }

    /// Returns whether the sender of so many messages is told of any that its slot is free: then it knows from call k -
    /// 1 that the receiver has left call k - 2.
    pub fn is_told(&self, count: u64) -> bool {
        count > self.slots
    }

    /// Messages that a rank may put before it takes the first that is put to it in the same pattern: half of the
    /// slots, so that the other half is in use meanwhile.
    pub fn lead(&self) -> u64 {
        (self.slots / 2).max(1)
    }
}

/// Numbers of the messages of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowNumbers {
    /// The first one's at the receiver.
    pub data: u32,
    /// The sender's number of the word that the first message's slot is free.
    pub free: u32,
}

/// The sender's end of a row.
#[derive(Debug, Clone)]
pub(super) struct Outlet {
    row: SlotRow,
    numbers: RowNumbers,
    /// Offset of the slots at the receiver.
    slots: u64,
    /// Offset of as many places of this rank's, for what is put from there.
    outbox: u64,
    next: u64,
    /// Messages whose slot is known to be free.
    free: u64,
}

impl Outlet {
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

    /// Waits until the next message's slot is free. Then the message that was put from the same place of the outbox
    /// has arrived, too.
    pub fn free(&mut self, out: &mut Emitter, peer: u32) {
        if self.next >= self.free {
            let used = self.next - self.row.slots;
            out.wait(peer, self.numbers.free + used as u32);
            self.free = self.next + 1;
        }
    }

    /// Place in the outbox for the next message, once its slot is free.
    pub fn place(&mut self, out: &mut Emitter, peer: u32) -> Place {
        self.free(out, peer);
        self.place_of(self.next)
    }

    /// Place in the outbox of the message with a number, counted from the first.
    pub fn place_of(&self, index: u64) -> Place {
        scratch(self.outbox + index % self.row.slots * self.row.slot_bytes)
    }

    /// Puts the next message.
    pub fn put(&mut self, out: &mut Emitter, peer: u32, from: Place, bytes: u64) {
        self.free(out, peer);
        let to = scratch(self.slots + self.next % self.row.slots * self.row.slot_bytes);
        let message = self.numbers.data + self.next as u32;
        out.put(peer, message, (from, to), bytes);
        self.next += 1;
    }
}

/// The receiver's end of a row.
#[derive(Debug, Clone)]
pub(super) struct Inlet {
    row: SlotRow,
    numbers: RowNumbers,
    slots: u64,
    next: u64,
    total: u64,
}

impl Inlet {
    /// The end of a row of `total` messages whose slots lie at an offset of the scratch.
    pub fn new(row: SlotRow, numbers: RowNumbers, slots: u64, total: u64) -> Self {
        Self {
            row,
            numbers,
            slots,
            next: 0,
            total,
        }
    }

    /// Waits for the next message, and returns its place.
    pub fn take(&mut self, out: &mut Emitter, peer: u32) -> Place {
        out.wait(peer, self.numbers.data + self.next as u32);
        self.next += 1;
        scratch(self.slots + (self.next - 1) % self.row.slots * self.row.slot_bytes)
    }

    /// Number, counted from the first, of the message that will use the slot taken last; none if no other does.
    pub fn successor(&self) -> Option<u64> {
        let successor = self.next - 1 + self.row.slots;
        (successor < self.total).then_some(successor)
    }

    /// Says that the slot taken last is free, to the peer that uses it next.
    pub fn release(&self, out: &mut Emitter, peer: u32) {
        if self.successor().is_some() {
            out.signal(peer, self.numbers.free + (self.next - 1) as u32);
        }
    }
}
