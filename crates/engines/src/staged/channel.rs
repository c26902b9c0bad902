//! The state of one peer: operations to be cut into pieces, pieces in flight, arrived pieces, and receives that wait
//! for sends.

use std::collections::VecDeque;
use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{Completion, Ending, Engine, Lane, Op, Peer, RegionId, RegionTable};
use tonnage_sys::cuda::CudaEvent;
use tonnage_units::{Error, Result};

use super::message::{MessageKind, NO_OPERATION, StagedMessage};
use super::ring::{
    ACKS, CopyError, DEPTH_MAX, INCOMING_SLOTS, PIECE_BYTES, RingSlot, SLOTS, StagingRing, Tag,
};
use crate::rings::MESSAGE_TOO_LONG;

/// Registered memories by number.
pub(super) type StagedRegions = RegionTable<Arc<dyn Memory>>;

/// A position in registered memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionOffset {
    pub(super) region: u32,
    pub(super) offset: u64,
}

/// Data to be cut into pieces and sent: the bytes of an operation, the bytes for a peer's read, or a read request.
pub(super) struct Outgoing {
    /// Header of the next piece, except for the length of the piece.
    pub(super) next: StagedMessage,
    pub(super) from: RegionOffset,
}

/// An unfinished operation of this side.
pub(super) struct PendingOperation {
    done: Completion,
    pieces_left: u32,
    /// Where the bytes of a read will be stored.
    pub(super) into: RegionOffset,
}

/// A slot for an outgoing piece.
pub(super) struct OutgoingSlot {
    pub(super) event: Option<CudaEvent>,
    pub(super) is_copied: bool,
    pub(super) payload_bytes: u32,
}

/// A piece that has arrived.
pub(super) struct IncomingPiece {
    pub(super) index: u32,
    pub(super) message: StagedMessage,
    pub(super) is_copied: bool,
    /// Error code for refusing the piece, or 0.
    pub(super) code: i32,
    /// Tag of the receive that the piece matches.
    pub(super) tag: u32,
}

/// A receive that waits for a send.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingReceive {
    pub(super) spot: RegionOffset,
    pub(super) len: u32,
    pub(super) tag: u32,
}

/// The state of one peer.
pub(super) struct StagedChannel {
    pub(super) peer: Peer,
    pub(super) ring: Arc<StagingRing>,
    /// Index of the peer in the ring.
    pub(super) index: usize,
    /// Index of the channel in the worker.
    pub(super) number: u32,
    /// Lanes of the engine below, for sending and for receiving.
    pub(super) lanes: Option<(Lane, Lane)>,
    /// Number of pieces that may be sent before an acknowledgement must arrive.
    pub(super) credits: u32,
    pub(super) queue: VecDeque<Outgoing>,
    pub(super) leaving: Vec<OutgoingSlot>,
    pub(super) free: Vec<u32>,
    /// Outgoing slots in the order in which they will be sent.
    pub(super) filled: VecDeque<u32>,
    /// Acknowledgements to send. If one has an arrival, the arrival is reported only after the acknowledgement has left
    /// this side, because a worker that has seen its last arrival may never poll again.
    pub(super) acks: VecDeque<(StagedMessage, Option<Completion>)>,
    /// Arrivals in order. Each has the slot of its acknowledgement, and whether that has left this side.
    pub(super) unreported: VecDeque<(u32, Completion, bool)>,
    pub(super) free_acks: Vec<u32>,
    /// Events for the copies out of the incoming slots.
    pub(super) arriving: Vec<Option<CudaEvent>>,
    /// Incoming slots that must be posted again.
    pub(super) unposted: VecDeque<u32>,
    /// Posted incoming slots, oldest first, and whether a message has arrived in each.
    pub(super) posted: VecDeque<(u32, bool)>,
    pub(super) incoming: VecDeque<IncomingPiece>,
    /// Number of pieces in `incoming` with a started copy. These are the oldest.
    pub(super) copies_begun: usize,
    pub(super) receives: VecDeque<WaitingReceive>,
    /// The receive of a partly arrived send. `Some(None)` if the send is refused.
    pub(super) receiving: Option<Option<WaitingReceive>>,
    pending: Vec<Option<PendingOperation>>,
    free_pending: Vec<u32>,
}

impl StagedChannel {
    pub(super) fn new(
        peer: Peer,
        (ring, index): (Arc<StagingRing>, usize),
        number: u32,
    ) -> Result<Self> {
        let leaving = |_| {
            Ok(OutgoingSlot {
                event: ring.event()?,
                is_copied: false,
                payload_bytes: 0,
            })
        };
        let leaving: Result<Vec<_>> = (0..SLOTS).map(leaving).collect();
        let arriving: Result<Vec<_>> = (0..INCOMING_SLOTS).map(|_| ring.event()).collect();
        let depth = DEPTH_MAX as usize;
        Ok(Self {
            peer,
            index,
            number,
            lanes: None,
            credits: SLOTS,
            // Room for operations of this side, and for reads of the peer.
            queue: VecDeque::with_capacity(2 * depth),
            leaving: leaving?,
            free: (0..SLOTS).collect(),
            filled: VecDeque::with_capacity(SLOTS as usize),
            acks: VecDeque::with_capacity(2 * ACKS as usize),
            unreported: VecDeque::with_capacity(2 * ACKS as usize),
            free_acks: (0..ACKS).collect(),
            arriving: arriving?,
            unposted: (0..INCOMING_SLOTS).collect(),
            posted: VecDeque::with_capacity(INCOMING_SLOTS as usize),
            incoming: VecDeque::with_capacity(INCOMING_SLOTS as usize),
            copies_begun: 0,
            receives: VecDeque::with_capacity(depth),
            receiving: None,
            pending: (0..DEPTH_MAX).map(|_| None).collect(),
            free_pending: (0..DEPTH_MAX).rev().collect(),
            ring,
        })
    }

    /// Accepts an operation. Returns `false` if the maximum number is in flight.
    pub(super) fn take(
        &mut self,
        message: StagedMessage,
        local: RegionOffset,
        done: Completion,
    ) -> bool {
        let Some(operation) = self.free_pending.pop() else {
            return false;
        };
        self.pending[operation as usize] = Some(PendingOperation {
            done,
            pieces_left: message.whole.div_ceil(PIECE_BYTES).max(1),
            into: local,
        });
        self.queue.push_back(Outgoing {
            next: StagedMessage {
                operation,
                ..message
            },
            from: local,
        });
        true
    }

    /// Returns this side's operation that has the number from a peer's message.
    pub(super) fn pending(&self, operation: u32) -> Result<&PendingOperation> {
        let known = self.pending.get(operation as usize);
        known
            .and_then(Option::as_ref)
            .ok_or_else(|| self.invalid_message())
    }

    /// Counts one piece of an operation as done. If the operation was refused before any piece was sent, counts all
    /// pieces. Returns the completion if the operation has ended.
    pub(super) fn finish_piece(&mut self, message: &StagedMessage) -> Result<Option<Completion>> {
        if message.operation == NO_OPERATION {
            return Ok(None);
        }
        self.pending(message.operation)?;
        let entry = &mut self.pending[message.operation as usize];
        let Some(pending) = entry else {
            return Ok(None);
        };
        if message.kind == MessageKind::Refused {
            pending.done.ending = Ending::Failed(message.code);
        }
        // A refused read has no pieces.
        pending.pieces_left -= match message.is_last() {
            true => pending.pieces_left,
            false => 1.min(pending.pieces_left),
        };
        if pending.pieces_left > 0 {
            return Ok(None);
        }
        let done = pending.done;
        *entry = None;
        self.free_pending.push(message.operation);
        Ok(Some(done))
    }

    /// Returns the error for a message that no peer of this version would send.
    #[cold]
    pub(super) fn invalid_message(&self) -> Error {
        Error::Failed(format!(
            "cannot decode a piece from rank {}: check that both ranks run the same program",
            self.peer
        ))
    }
}

/// The error number (EFAULT) for bytes outside of the peer's memory.
pub(super) const OUTSIDE: i32 = 14;

impl StagedChannel {
    /// Does all work that need not wait. Adds completions and arrivals to `ready`.
    pub(super) fn step(
        &mut self,
        below: &mut dyn Engine,
        regions: &StagedRegions,
        ready: &mut VecDeque<Completion>,
    ) -> Result<()> {
        self.begin_incoming(regions)?;
        self.end_incoming(ready)?;
        // Receives are posted before the peer gets credits to send more pieces.
        self.post_receives(below)?;
        self.fill(regions)?;
        self.send(below)?;
        self.send_acks(below)
    }

    fn post(&self, below: &mut dyn Engine, tag: Tag, payload: u32) -> Result<bool> {
        let Some((sending, receiving)) = self.lanes else {
            return Ok(false);
        };
        let slot = tag.slot();
        let (local, room) = StagingRing::at(self.index, slot);
        let (lane, len) = match slot {
            RingSlot::Incoming(_) => (receiving, room as u32),
            RingSlot::Outgoing(_) | RingSlot::Ack(_) => {
                (sending, StagingRing::message_bytes(payload))
            }
        };
        let op = Op {
            lane,
            tag: tag.0,
            local,
            remote: 0,
            len,
            imm: 0,
        };
        Ok(below.post(&[op])? == 1)
    }

    fn post_receives(&mut self, below: &mut dyn Engine) -> Result<()> {
        while let Some(&index) = self.unposted.front() {
            if !self.post(below, Tag::new(self.number, RingSlot::Incoming(index)), 0)? {
                break;
            }
            self.unposted.pop_front();
            self.posted.push_back((index, false));
        }
        Ok(())
    }

    /// Begins copies of queued bytes into free slots.
    fn fill(&mut self, regions: &StagedRegions) -> Result<()> {
        while self.credits > 0
            && let Some(&index) = self.free.last()
            && let Some(outgoing) = self.queue.front_mut()
        {
            let requests = outgoing.next.kind == MessageKind::ReadRequest;
            let left = outgoing.next.whole - outgoing.next.at;
            let message = StagedMessage {
                len: if requests { 0 } else { left.min(PIECE_BYTES) },
                ..outgoing.next
            };
            let Outgoing { from, .. } = *outgoing;
            outgoing.next.at += message.len;
            if requests || message.is_last() {
                self.queue.pop_front();
            }
            let (at, _) = StagingRing::at(self.index, RingSlot::Outgoing(index));
            self.ring.write_header(at, &message)?;
            let leaving = &mut self.leaving[index as usize];
            leaving.payload_bytes = message.len;
            leaving.is_copied = message.len == 0;
            if message.len > 0 {
                let memory = regions.get(RegionId(from.region))?;
                let offset = from.offset + u64::from(message.at);
                let event = leaving.event.as_ref();
                let copied = (self.ring).copy((&**memory, offset), (at, true), message.len, event);
                leaving.is_copied = copied.map_err(local_copy_error)?;
            }
            self.credits -= 1;
            self.free.pop();
            self.filled.push_back(index);
        }
        Ok(())
    }

    /// Sends pieces that have been copied into their slots, in order.
    fn send(&mut self, below: &mut dyn Engine) -> Result<()> {
        while let Some(&index) = self.filled.front() {
            let leaving = &self.leaving[index as usize];
            let copied = leaving.is_copied || self.ring.is_passed(leaving.event.as_ref())?;
            let tag = Tag::new(self.number, RingSlot::Outgoing(index));
            if !copied || !self.post(below, tag, leaving.payload_bytes)? {
                break;
            }
            self.filled.pop_front();
        }
        Ok(())
    }

    fn send_acks(&mut self, below: &mut dyn Engine) -> Result<()> {
        while let (Some((note, arrived)), Some(&index)) = (self.acks.front(), self.free_acks.last())
        {
            let arrived = *arrived;
            let (at, _) = StagingRing::at(self.index, RingSlot::Ack(index));
            self.ring.write_header(at, note)?;
            if !self.post(below, Tag::new(self.number, RingSlot::Ack(index)), 0)? {
                break;
            }
            self.acks.pop_front();
            self.free_acks.pop();
            if let Some(arrived) = arrived {
                self.unreported.push_back((index, arrived, false));
            }
        }
        Ok(())
    }

    /// Frees a slot after the engine below has sent its message. Reports arrivals once their acknowledgements have
    /// left, in the order of the arrivals. The acknowledgements themselves may complete in another order.
    pub(super) fn slot_sent(&mut self, slot: RingSlot, ready: &mut VecDeque<Completion>) {
        match slot {
            RingSlot::Outgoing(index) => self.free.push(index),
            RingSlot::Ack(index) => {
                self.free_acks.push(index);
                let is_of_ack =
                    |(note, _, left): &&mut (u32, Completion, bool)| *note == index && !*left;
                if let Some(entry) = self.unreported.iter_mut().find(is_of_ack) {
                    entry.2 = true;
                }
                while let Some(&(_, arrived, true)) = self.unreported.front() {
                    self.unreported.pop_front();
                    ready.push_back(arrived);
                }
            }
            RingSlot::Incoming(_) => {}
        }
    }

    /// Handles arrived messages in the order in which their slots were posted. Messages match the posted slots in
    /// order, but the engine below may report a short message before an earlier long one.
    pub(super) fn handle_arrival(
        &mut self,
        index: u32,
        regions: &StagedRegions,
        ready: &mut VecDeque<Completion>,
    ) -> Result<()> {
        if let Some(posted) = self.posted.iter_mut().find(|posted| posted.0 == index) {
            posted.1 = true;
        }
        while let Some(&(index, true)) = self.posted.front() {
            self.posted.pop_front();
            self.handle_message(index, regions, ready)?;
        }
        Ok(())
    }

    fn handle_message(
        &mut self,
        index: u32,
        regions: &StagedRegions,
        ready: &mut VecDeque<Completion>,
    ) -> Result<()> {
        let (at, _) = StagingRing::at(self.index, RingSlot::Incoming(index));
        let message = self.ring.read_header(at)?;
        let message = message.ok_or_else(|| self.invalid_message())?;
        match message.kind {
            MessageKind::Acknowledged | MessageKind::Refused => {
                self.credits += 1;
                ready.extend(self.finish_piece(&message)?);
                self.unposted.push_back(index);
            }
            MessageKind::ReadRequest => {
                self.answer_read(&message, regions);
                self.unposted.push_back(index);
            }
            _ => self.incoming.push_back(IncomingPiece {
                index,
                message,
                is_copied: false,
                code: 0,
                tag: 0,
            }),
        }
        Ok(())
    }

    /// Answers a read request.
    fn answer_read(&mut self, message: &StagedMessage, regions: &StagedRegions) {
        let memory = regions.get(RegionId(message.region));
        let end = message.offset.checked_add(message.whole.into());
        let fits = memory.is_ok_and(|memory| end.is_some_and(|end| end <= memory.bytes()));
        if !fits {
            // This answer ends the read, because no piece will follow.
            let refused = StagedMessage {
                at: message.whole,
                ..message.answer(message.operation, OUTSIDE)
            };
            self.acks.push_back((refused, None));
            return;
        }
        self.acks.push_back((message.answer(NO_OPERATION, 0), None));
        self.queue.push_back(Outgoing {
            next: StagedMessage {
                kind: MessageKind::ReadData,
                at: 0,
                ..*message
            },
            from: RegionOffset {
                region: message.region,
                offset: message.offset,
            },
        });
    }

    /// Begins copies of arrived pieces out of their slots, in order.
    fn begin_incoming(&mut self, regions: &StagedRegions) -> Result<()> {
        while let Some(piece) = self.incoming.get(self.copies_begun) {
            let (message, index) = (piece.message, piece.index);
            let Some((spot, code, tag)) = self.destination(&message)? else {
                break;
            };
            let memory = regions.get(RegionId(spot.region)).ok();
            let memory = memory.filter(|_| code == 0);
            let (at, _) = StagingRing::at(self.index, RingSlot::Incoming(index));
            let offset = spot.offset.checked_add(message.at.into());
            let event = self.arriving[index as usize].as_ref();
            let copied = match (memory, offset) {
                (Some(_), Some(_)) if message.len == 0 => Ok(true),
                (Some(memory), Some(offset)) => {
                    (self.ring).copy((&**memory, offset), (at, false), message.len, event)
                }
                _ => Ok(true),
            };
            let (is_copied, code) = match copied {
                Ok(copied) if code == 0 && memory.is_none() => (copied, OUTSIDE),
                Ok(copied) => (copied, code),
                Err(CopyError::Outside(_)) => (true, OUTSIDE),
                Err(other) => return Err(local_copy_error(other)),
            };
            if let Some(piece) = self.incoming.get_mut(self.copies_begun) {
                (piece.is_copied, piece.code, piece.tag) = (is_copied, code, tag);
            }
            self.copies_begun += 1;
        }
        Ok(())
    }

    /// Returns where a piece must be stored, an error code for refusing it or 0, and the tag of its receive. `None` if
    /// the piece belongs to a send that must wait for a receive.
    fn destination(&mut self, message: &StagedMessage) -> Result<Option<(RegionOffset, i32, u32)>> {
        let nowhere = RegionOffset {
            region: message.region,
            offset: message.offset,
        };
        match message.kind {
            MessageKind::ReadData => {
                let into = self.pending(message.operation)?.into;
                Ok(Some((into, 0, 0)))
            }
            MessageKind::Send => {
                if message.at == 0 {
                    let Some(&receive) = self.receives.front() else {
                        return Ok(None);
                    };
                    let fits = message.whole <= receive.len;
                    if fits {
                        self.receives.pop_front();
                    }
                    self.receiving = Some(fits.then_some(receive));
                }
                let receiving = self.receiving.ok_or_else(|| self.invalid_message())?;
                Ok(Some(match receiving {
                    Some(receive) => (receive.spot, 0, receive.tag),
                    None => (nowhere, MESSAGE_TOO_LONG, 0),
                }))
            }
            _ => Ok(Some((nowhere, 0, 0))),
        }
    }

    /// Acknowledges copied pieces, and reports complete arrivals.
    fn end_incoming(&mut self, ready: &mut VecDeque<Completion>) -> Result<()> {
        while self.copies_begun > 0
            && let Some(piece) = self.incoming.front()
        {
            let event = self.arriving[piece.index as usize].as_ref();
            if !piece.is_copied && !self.ring.is_passed(event)? {
                break;
            }
            let (message, code, tag) = (piece.message, piece.code, piece.tag);
            self.unposted.push_back(piece.index);
            self.incoming.pop_front();
            self.copies_begun -= 1;
            if message.kind == MessageKind::ReadData {
                self.acks.push_back((message.answer(NO_OPERATION, 0), None));
                let kind = match code {
                    0 => message.kind,
                    _ => MessageKind::Refused,
                };
                let ended = StagedMessage {
                    kind,
                    code,
                    ..message
                };
                ready.extend(self.finish_piece(&ended)?);
                continue;
            }
            let notifies = matches!(message.kind, MessageKind::WriteImm | MessageKind::Send);
            let arrived = (notifies && code == 0 && message.is_last()).then_some(Completion {
                tag,
                lane: Lane(self.peer),
                len: message.whole,
                imm: message.imm,
                ending: Ending::Arrived,
            });
            let answer = message.answer(message.operation, code);
            self.acks.push_back((answer, arrived));
        }
        Ok(())
    }
}

/// Converts the error of a copy at this side. Its ranges were checked before.
fn local_copy_error(not_copied: CopyError) -> Error {
    match not_copied {
        CopyError::Outside(range) => Error::Failed(range.to_string()),
        CopyError::Other(error) => error,
    }
}
