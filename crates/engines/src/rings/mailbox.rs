//! The rings through which two workers report arrivals and posted receives to each other.
//!
//! Each worker owns a mailbox with one slot per peer. A slot contains two rings, each with one writer and one reader:
//!
//! - *arrivals*, written by the peer: operations that it has delivered;
//! - *receives*, written by the owner: where the peer's next sends will be stored.
//!
//! The last word written of an entry contains the entry's sequence number. So a new entry moves one cache line, and no
//! shared index is needed on the fast path. The reader publishes how far it has read, and the writer checks this only
//! when the ring seems full. A peer that writes invalid entries can garble data and completions. It cannot make this
//! process access memory outside its arenas, because every offset is checked before use.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tonnage_engine::{Completion, Ending, Lane, Peer};
use tonnage_sys::mapping::{Arena, OutOfRange};

use super::OTHER_REGION;
use crate::rings::MESSAGE_TOO_LONG;

/// Number of entries of each ring. It limits the posted receives and the unread arrivals of one peer.
pub(crate) const DEPTH: u32 = 1024;

/// Distance between counters with different writers. It is two cache lines, because CPUs fetch lines in pairs.
const LINE: u64 = 128;
const ARRIVALS_READ: u64 = 0;
const RECEIVES_READ: u64 = LINE;
/// Flag that the peer sets after it has closed all of the owner's memory. It shares a cache line with
/// [`RECEIVES_READ`], which the peer writes too.
const CLOSED: u64 = LINE + 8;
const ARRIVALS: u64 = 2 * LINE;
const ARRIVAL_BYTES: u64 = 16;
const RECEIVES: u64 = ARRIVALS + DEPTH as u64 * ARRIVAL_BYTES;
const RECEIVE_BYTES: u64 = 32;
const PLACE_BYTES: u64 = RECEIVES + DEPTH as u64 * RECEIVE_BYTES;

/// Returns the size of a mailbox for `peers` peers.
pub(crate) fn bytes(peers: usize) -> usize {
    (peers.max(1) as u64 * PLACE_BYTES) as usize
}

/// An operation that a peer has delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Tag of the receive that was filled; 0 for a write-imm.
    pub(crate) tag: u32,
    pub(crate) len: u32,
    pub(crate) imm: u32,
}

/// A receive, where a send may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receive {
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) tag: u32,
    /// The region of the owner that contains the receive.
    pub(crate) region: u32,
}

impl Receive {
    /// Returns the error code if a send cannot be stored here; `None` if it can.
    pub(crate) fn refuses(&self, len: u32, region: u32) -> Option<i32> {
        match (self.len >= len, self.region == region) {
            (false, _) => Some(MESSAGE_TOO_LONG),
            (true, false) => Some(OTHER_REGION),
            (true, true) => None,
        }
    }
}

/// An arrival that has reserved its entry but not written it yet. Writing the second of the two words makes it visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrivalEntry {
    /// Offset of the first word in the rings' memory; the second follows.
    pub(crate) offset: u64,
    pub(crate) words: [u64; 2],
}

/// One slot of a mailbox, used by the owner or by the peer.
struct Place {
    arena: Arc<Arena>,
    base: u64,
}

impl Place {
    fn new(arena: Arc<Arena>, place: usize) -> Self {
        Self {
            arena,
            base: place as u64 * PLACE_BYTES,
        }
    }

    #[inline]
    fn word(&self, offset: u64) -> Result<&std::sync::atomic::AtomicU64, OutOfRange> {
        let offset = self.base + offset;
        self.arena.word(offset).ok_or(OutOfRange {
            offset,
            len: 8,
            size: self.arena.len() as u64,
        })
    }
}

#[inline]
fn arrival_at(index: u64) -> u64 {
    ARRIVALS + index % u64::from(DEPTH) * ARRIVAL_BYTES
}

#[inline]
fn receive_at(index: u64) -> u64 {
    RECEIVES + index % u64::from(DEPTH) * RECEIVE_BYTES
}

/// Returns the sequence number of an entry. It is never 0, the value in a new ring, and changes with each lap of the
/// ring.
#[inline]
fn sequence(index: u64) -> u32 {
    (index / u64::from(DEPTH)) as u32 | 0x8000_0000
}

/// The owner's end of a slot: reads arrivals and writes receives.
pub(crate) struct Inbox {
    ring: Place,
    arrivals: u64,
    receives: u64,
    /// Number of receives that the peer had read when this was last checked.
    receives_read: u64,
}

impl Inbox {
    /// Creates the owner's end of one peer's rings. `arena` is this worker's mailbox, with room for at least `place +
    /// 1` peers.
    pub(crate) fn new(arena: Arc<Arena>, place: usize) -> Self {
        Self {
            ring: Place::new(arena, place),
            arrivals: 0,
            receives: 0,
            receives_read: 0,
        }
    }

    #[inline]
    pub(crate) fn next_arrival(&mut self) -> Result<Option<Arrival>, OutOfRange> {
        let at = arrival_at(self.arrivals);
        let last = self.ring.word(at + 8)?.load(Acquire);
        if (last >> 32) as u32 != sequence(self.arrivals) {
            return Ok(None);
        }
        let first = self.ring.word(at)?.load(Relaxed);
        self.arrivals += 1;
        // The number of read entries is published only now and then. The writer needs it only when the ring seems full.
        if self.arrivals.is_multiple_of(u64::from(DEPTH / 8)) {
            self.ring.word(ARRIVALS_READ)?.store(self.arrivals, Release);
        }
        Ok(Some(Arrival {
            tag: last as u32,
            len: (first >> 32) as u32,
            imm: first as u32,
        }))
    }

    /// Whether the peer has closed all of the owner's memory.
    pub(crate) fn is_closed(&self) -> Result<bool, OutOfRange> {
        Ok(self.ring.word(CLOSED)?.load(Acquire) != 0)
    }

    /// Posts a receive. Returns `false` if the ring is full.
    #[inline]
    pub(crate) fn post_receive(
        &mut self,
        offset: u64,
        len: u32,
        tag: u32,
        region: u32,
    ) -> Result<bool, OutOfRange> {
        if self.receives - self.receives_read >= u64::from(DEPTH) {
            // An invalid value from the peer must not make the subtraction wrap.
            self.receives_read = self
                .ring
                .word(RECEIVES_READ)?
                .load(Acquire)
                .min(self.receives);
            if self.receives - self.receives_read >= u64::from(DEPTH) {
                return Ok(false);
            }
        }
        let at = receive_at(self.receives);
        self.ring.word(at)?.store(offset, Relaxed);
        self.ring
            .word(at + 8)?
            .store(u64::from(len) << 32 | u64::from(tag), Relaxed);
        let last = u64::from(region) << 32 | u64::from(sequence(self.receives));
        self.ring.word(at + 16)?.store(last, Release);
        self.receives += 1;
        Ok(true)
    }
}

/// A peer's end of a slot in the owner's mailbox: writes arrivals and reads receives.
pub(crate) struct Outbox {
    ring: Place,
    arrivals: u64,
    /// Number of arrivals that the owner had read when this was last checked.
    arrivals_read: u64,
    receives: u64,
}

impl Outbox {
    pub(crate) fn new(arena: Arc<Arena>, place: usize) -> Self {
        Self {
            ring: Place::new(arena, place),
            arrivals: 0,
            arrivals_read: 0,
            receives: 0,
        }
    }

    /// Returns whether there is room for another arrival.
    #[inline]
    pub(crate) fn has_room(&mut self) -> Result<bool, OutOfRange> {
        if self.arrivals - self.arrivals_read >= u64::from(DEPTH) {
            // An invalid value from the owner must not make the subtraction wrap.
            self.arrivals_read = self
                .ring
                .word(ARRIVALS_READ)?
                .load(Acquire)
                .min(self.arrivals);
        }
        Ok(self.arrivals - self.arrivals_read < u64::from(DEPTH))
    }

    /// Reports an arrival to the owner. The caller must first check [`Self::has_room`].
    #[inline]
    pub(crate) fn push_arrival(&mut self, arrival: Arrival) -> Result<(), OutOfRange> {
        let entry = self.reserve_entry(arrival);
        self.write_entry(&entry)
    }

    /// Reserves the next entry for an arrival that is written later. The caller must first check [`Self::has_room`].
    /// The owner sees arrivals in the order of their entries.
    #[inline]
    pub(crate) fn reserve_entry(&mut self, arrival: Arrival) -> ArrivalEntry {
        let first = u64::from(arrival.len) << 32 | u64::from(arrival.imm);
        let last = u64::from(sequence(self.arrivals)) << 32 | u64::from(arrival.tag);
        let offset = self.ring.base + arrival_at(self.arrivals);
        self.arrivals += 1;
        ArrivalEntry {
            offset,
            words: [first, last],
        }
    }

    /// Writes an arrival into its entry.
    #[inline]
    pub(crate) fn write_entry(&self, entry: &ArrivalEntry) -> Result<(), OutOfRange> {
        let at = entry.offset - self.ring.base;
        self.ring.word(at)?.store(entry.words[0], Relaxed);
        self.ring.word(at + 8)?.store(entry.words[1], Release);
        Ok(())
    }

    /// Reports to the owner that this process has closed all of the owner's memory.
    pub(crate) fn close(&self) -> Result<(), OutOfRange> {
        self.ring.word(CLOSED)?.store(1, Release);
        Ok(())
    }

    /// Returns the receive for the next send; `None` if the owner has posted none.
    #[inline]
    pub(crate) fn next_receive(&self) -> Result<Option<Receive>, OutOfRange> {
        let at = receive_at(self.receives);
        let last = self.ring.word(at + 16)?.load(Acquire);
        if last as u32 != sequence(self.receives) {
            return Ok(None);
        }
        let middle = self.ring.word(at + 8)?.load(Relaxed);
        let offset = self.ring.word(at)?.load(Relaxed);
        Ok(Some(Receive {
            offset,
            len: (middle >> 32) as u32,
            tag: middle as u32,
            region: (last >> 32) as u32,
        }))
    }

    /// Removes the receive that [`Self::next_receive`] returned.
    #[inline]
    pub(crate) fn take_receive(&mut self) -> Result<(), OutOfRange> {
        self.receives += 1;
        self.ring.word(RECEIVES_READ)?.store(self.receives, Release);
        Ok(())
    }
}

/// This worker's ends of a peer's rings.
pub(crate) struct PeerRings {
    pub(crate) rank: Peer,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
}

/// Fills `done` with the arrivals that peers have reported, and returns their number.
#[inline]
pub(crate) fn take_arrivals(
    peers: &mut [PeerRings],
    done: &mut [Completion],
) -> Result<usize, OutOfRange> {
    let mut count = 0;
    for peer in peers {
        while count < done.len()
            && let Some(arrival) = peer.inbox.next_arrival()?
        {
            done[count] = Completion {
                tag: arrival.tag,
                lane: Lane(peer.rank),
                len: arrival.len,
                imm: arrival.imm,
                ending: Ending::Arrived,
            };
            count += 1;
        }
    }
    Ok(count)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tonnage_sys::mapping::{Pages, Sharing};

    /// Returns the owner's end and the peer's end of one slot.
    pub(crate) fn pair() -> (Inbox, Outbox) {
        let arena =
            Arc::new(Arena::allocate(bytes(2), Pages::Normal, Sharing::Private, None).unwrap());
        (Inbox::new(Arc::clone(&arena), 1), Outbox::new(arena, 1))
    }

    #[test]
    fn arrivals_come_in_order_over_many_laps_and_a_full_ring_has_no_room() {
        let (mut inbox, mut outbox) = pair();
        let (mut reported, mut seen) = (0, 0);
        while seen < 10 * DEPTH {
            while outbox.has_room().unwrap() {
                outbox
                    .push_arrival(Arrival {
                        tag: reported,
                        len: reported ^ 1,
                        imm: reported ^ 2,
                    })
                    .unwrap();
                reported += 1;
            }
            assert!(reported - seen <= DEPTH);
            for _ in 0..DEPTH / 2 {
                let arrival = inbox.next_arrival().unwrap().unwrap();
                assert_eq!(
                    arrival,
                    Arrival {
                        tag: seen,
                        len: seen ^ 1,
                        imm: seen ^ 2
                    }
                );
                seen += 1;
            }
        }
    }

    #[test]
    fn an_empty_ring_has_nothing() {
        let (mut inbox, outbox) = pair();
        assert_eq!(inbox.next_arrival().unwrap(), None);
        assert_eq!(outbox.next_receive().unwrap(), None);
    }

    #[test]
    fn receives_are_taken_in_order_and_a_full_ring_refuses_one() {
        let (mut inbox, mut outbox) = pair();
        let mut posted = 0;
        for taken in 0..5 * DEPTH {
            while inbox
                .post_receive(u64::from(posted) * 8, posted + 1, posted, posted % 3)
                .unwrap()
            {
                posted += 1;
            }
            assert_eq!(posted, taken + DEPTH);
            let receive = outbox.next_receive().unwrap().unwrap();
            assert_eq!(
                receive,
                Receive {
                    offset: u64::from(taken) * 8,
                    len: taken + 1,
                    tag: taken,
                    region: taken % 3,
                }
            );
            outbox.take_receive().unwrap();
        }
    }

    /// The owner sees entries in order, even if they are written in another order.
    #[test]
    fn an_arrival_is_not_seen_before_earlier_entries() {
        let (mut inbox, mut outbox) = pair();
        let reported = [1, 2].map(|tag| Arrival {
            tag,
            len: 8,
            imm: 9,
        });
        let entries = reported.map(|arrival| outbox.reserve_entry(arrival));
        outbox.write_entry(&entries[1]).unwrap();
        assert_eq!(inbox.next_arrival().unwrap(), None);
        outbox.write_entry(&entries[0]).unwrap();
        for arrival in reported {
            assert_eq!(inbox.next_arrival().unwrap(), Some(arrival));
        }
        assert!(!inbox.is_closed().unwrap());
        outbox.close().unwrap();
        assert!(inbox.is_closed().unwrap());
    }
}
