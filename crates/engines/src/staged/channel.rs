//! One peer: operations that wait to be cut into pieces, pieces on their way, what has arrived, and what is posted for
//! what arrives.

use std::collections::VecDeque;
use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{Completion, Ending, Engine, Lane, Op, Peer, RegionId, Regions};
use tonnage_sys::cuda::CudaEvent;
use tonnage_units::{Error, Result};

use super::message::{MessageKind, NO_OPERATION, StagedMessage};
use super::ring::{
    ARRIVING, DEPTH_MAX, NOTES, NotCopied, PIECE_BYTES, PLACES, RingPlace, StagingRing, Tag,
};
use crate::rings::MESSAGE_TOO_LONG;

/// Registered memory by its number.
pub(super) type StagedRegions = Regions<Arc<dyn Memory>>;

/// A stretch of registered memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    pub(super) region: u32,
    pub(super) offset: u64,
}

/// Something to be cut into pieces and sent: bytes of an operation, those that a peer asked for, or a request.
pub(super) struct Outgoing {
    /// Header of the next piece, but for its length.
    pub(super) next: StagedMessage,
    pub(super) from: Spot,
}

/// An operation of this side's that is not done.
pub(super) struct PendingOperation {
    done: Completion,
    pieces_left: u32,
    /// Place where the bytes of a read go.
    pub(super) into: Spot,
}

/// A place whose piece leaves.
pub(super) struct Leaving {
    pub(super) event: Option<CudaEvent>,
    pub(super) is_copied: bool,
    pub(super) payload_bytes: u32,
}

/// A piece that has arrived.
pub(super) struct LandingPiece {
    pub(super) index: u32,
    pub(super) message: StagedMessage,
    pub(super) is_copied: bool,
    /// Reason why it is refused; 0 for none.
    pub(super) code: i32,
    /// Tag of the receive that it is for.
    pub(super) tag: u32,
}

/// A receive that waits for a send.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingReceive {
    pub(super) spot: Spot,
    pub(super) len: u32,
    pub(super) tag: u32,
}

/// A peer.
pub(super) struct StagedChannel {
    pub(super) peer: Peer,
    pub(super) ring: Arc<StagingRing>,
    /// Index in the ring.
    pub(super) index: usize,
    /// Index in the worker's list.
    pub(super) number: u32,
    /// Lanes of the engine below, for sending and for receiving.
    pub(super) lanes: Option<(Lane, Lane)>,
    /// Pieces that may still be sent before one is acknowledged.
    pub(super) credits: u32,
    pub(super) queue: VecDeque<Outgoing>,
    pub(super) leaving: Vec<Leaving>,
    pub(super) free: Vec<u32>,
    /// Places in the order in which they are to be sent.
    pub(super) filled: VecDeque<u32>,
    /// Acknowledgements, each with the arrival that is told once it has left: whoever has seen the last arrival may
    /// never poll again.
    pub(super) notes: VecDeque<(StagedMessage, Option<Completion>)>,
    /// Arrivals in their order, with the places of their acknowledgements, and whether these have left.
    pub(super) told: VecDeque<(u32, Completion, bool)>,
    pub(super) free_notes: Vec<u32>,
    /// Events of the places where pieces arrive.
    pub(super) arriving: Vec<Option<CudaEvent>>,
    /// Places that are to be posted for what arrives next.
    pub(super) unposted: VecDeque<u32>,
    /// Places that are posted, the first one first, and whether something has arrived there.
    pub(super) posted: VecDeque<(u32, bool)>,
    pub(super) landing: VecDeque<LandingPiece>,
    /// Number of those, from the oldest on, whose copy has begun.
    pub(super) begun: usize,
    pub(super) receives: VecDeque<WaitingReceive>,
    /// The receive whose send has arrived in part; `None` as its value for a send that is refused.
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
            Ok(Leaving {
                event: ring.event()?,
                is_copied: false,
                payload_bytes: 0,
            })
        };
        let leaving: Result<Vec<_>> = (0..PLACES).map(leaving).collect();
        let arriving: Result<Vec<_>> = (0..ARRIVING).map(|_| ring.event()).collect();
        let depth = DEPTH_MAX as usize;
        Ok(Self {
            peer,
            index,
            number,
            lanes: None,
            credits: PLACES,
            // Operations of this side, and reads of the other.
            queue: VecDeque::with_capacity(2 * depth),
            leaving: leaving?,
            free: (0..PLACES).collect(),
            filled: VecDeque::with_capacity(PLACES as usize),
            notes: VecDeque::with_capacity(2 * NOTES as usize),
            told: VecDeque::with_capacity(2 * NOTES as usize),
            free_notes: (0..NOTES).collect(),
            arriving: arriving?,
            unposted: (0..ARRIVING).collect(),
            posted: VecDeque::with_capacity(ARRIVING as usize),
            landing: VecDeque::with_capacity(ARRIVING as usize),
            begun: 0,
            receives: VecDeque::with_capacity(depth),
            receiving: None,
            pending: (0..DEPTH_MAX).map(|_| None).collect(),
            free_pending: (0..DEPTH_MAX).rev().collect(),
            ring,
        })
    }

    /// Takes an operation; `false` where as many as can be are in flight.
    pub(super) fn take(&mut self, message: StagedMessage, local: Spot, done: Completion) -> bool {
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

    /// An operation of this side's that a peer names.
    pub(super) fn pending(&self, operation: u32) -> Result<&PendingOperation> {
        let known = self.pending.get(operation as usize);
        known
            .and_then(Option::as_ref)
            .ok_or_else(|| self.nonsense())
    }

    /// Counts a piece of an operation as done, all of them where the operation was refused before any was sent. Returns
    /// the completion of an operation that has ended.
    pub(super) fn ended(&mut self, message: &StagedMessage) -> Result<Option<Completion>> {
        if message.operation == NO_OPERATION {
            return Ok(None);
        }
        self.pending(message.operation)?;
        let place = &mut self.pending[message.operation as usize];
        let Some(pending) = place else {
            return Ok(None);
        };
        if message.kind == MessageKind::Refused {
            pending.done.ending = Ending::Failed(message.code);
        }
        // A read that was refused sends nothing.
        pending.pieces_left -= match message.is_last() {
            true => pending.pieces_left,
            false => 1.min(pending.pieces_left),
        };
        if pending.pieces_left > 0 {
            return Ok(None);
        }
        let done = pending.done;
        *place = None;
        self.free_pending.push(message.operation);
        Ok(Some(done))
    }

    /// An error of a message that no peer of this version sends.
    #[cold]
    pub(super) fn nonsense(&self) -> Error {
        Error::Failed(format!(
            "rank {} sent a piece that cannot be read: see that both ranks run the same program",
            self.peer
        ))
    }
}

/// The system's error number for bytes outside of the peer's memory.
pub(super) const OUTSIDE: i32 = 14;

impl StagedChannel {
    /// Does whatever can be done without waiting. What has ended or arrived is added to `ready`.
    pub(super) fn step(
        &mut self,
        below: &mut dyn Engine,
        regions: &StagedRegions,
        ready: &mut VecDeque<Completion>,
    ) -> Result<()> {
        self.begin_landing(regions)?;
        self.end_landing(ready)?;
        // Before the peer hears that it may send more.
        self.post_receives(below)?;
        self.fill(regions)?;
        self.send(below)?;
        self.send_notes(below)
    }

    fn post(&self, below: &mut dyn Engine, tag: Tag, payload: u32) -> Result<bool> {
        let Some((sending, receiving)) = self.lanes else {
            return Ok(false);
        };
        let place = tag.place();
        let (local, room) = StagingRing::at(self.index, place);
        let (lane, len) = match place {
            RingPlace::Arriving(_) => (receiving, room as u32),
            RingPlace::Leaving(_) | RingPlace::Note(_) => {
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
            if !self.post(below, Tag::new(self.number, RingPlace::Arriving(index)), 0)? {
                break;
            }
            self.unposted.pop_front();
            self.posted.push_back((index, false));
        }
        Ok(())
    }

    /// Begins copies of what waits to be sent.
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
            let (at, _) = StagingRing::at(self.index, RingPlace::Leaving(index));
            self.ring.write_header(at, &message)?;
            let leaving = &mut self.leaving[index as usize];
            leaving.payload_bytes = message.len;
            leaving.is_copied = message.len == 0;
            if message.len > 0 {
                let memory = regions.get(RegionId(from.region))?;
                let offset = from.offset + u64::from(message.at);
                let event = leaving.event.as_ref();
                let copied = (self.ring).copy((&**memory, offset), (at, true), message.len, event);
                leaving.is_copied = copied.map_err(own)?;
            }
            self.credits -= 1;
            self.free.pop();
            self.filled.push_back(index);
        }
        Ok(())
    }

    /// Sends pieces that have been copied, in their order.
    fn send(&mut self, below: &mut dyn Engine) -> Result<()> {
        while let Some(&index) = self.filled.front() {
            let leaving = &self.leaving[index as usize];
            let copied = leaving.is_copied || self.ring.is_passed(leaving.event.as_ref())?;
            let tag = Tag::new(self.number, RingPlace::Leaving(index));
            if !copied || !self.post(below, tag, leaving.payload_bytes)? {
                break;
            }
            self.filled.pop_front();
        }
        Ok(())
    }

    fn send_notes(&mut self, below: &mut dyn Engine) -> Result<()> {
        while let (Some((note, arrived)), Some(&index)) =
            (self.notes.front(), self.free_notes.last())
        {
            let arrived = *arrived;
            let (at, _) = StagingRing::at(self.index, RingPlace::Note(index));
            self.ring.write_header(at, note)?;
            if !self.post(below, Tag::new(self.number, RingPlace::Note(index)), 0)? {
                break;
            }
            self.notes.pop_front();
            self.free_notes.pop();
            if let Some(arrived) = arrived {
                self.told.push_back((index, arrived, false));
            }
        }
        Ok(())
    }

    /// Gives a place back whose message the engine below has sent, and tells the arrivals whose acknowledgements have
    /// left: in their order, which that of the engine's completions need not be.
    pub(super) fn sent(&mut self, place: RingPlace, ready: &mut VecDeque<Completion>) {
        match place {
            RingPlace::Leaving(index) => self.free.push(index),
            RingPlace::Note(index) => {
                self.free_notes.push(index);
                let of_note =
                    |(note, _, left): &&mut (u32, Completion, bool)| *note == index && !*left;
                if let Some(told) = self.told.iter_mut().find(of_note) {
                    told.2 = true;
                }
                while let Some(&(_, arrived, true)) = self.told.front() {
                    self.told.pop_front();
                    ready.push_back(arrived);
                }
            }
            RingPlace::Arriving(_) => {}
        }
    }

    /// Looks at what has arrived, from the place on that was posted first: messages meet receives in their order, but
    /// an engine below may tell a short one before the long one that it followed.
    pub(super) fn arrived(
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
            self.look_at(index, regions, ready)?;
        }
        Ok(())
    }

    fn look_at(
        &mut self,
        index: u32,
        regions: &StagedRegions,
        ready: &mut VecDeque<Completion>,
    ) -> Result<()> {
        let (at, _) = StagingRing::at(self.index, RingPlace::Arriving(index));
        let message = self.ring.read_header(at)?;
        let message = message.ok_or_else(|| self.nonsense())?;
        match message.kind {
            MessageKind::Taken | MessageKind::Refused => {
                self.credits += 1;
                ready.extend(self.ended(&message)?);
                self.unposted.push_back(index);
            }
            MessageKind::ReadRequest => {
                self.requested(&message, regions);
                self.unposted.push_back(index);
            }
            _ => self.landing.push_back(LandingPiece {
                index,
                message,
                is_copied: false,
                code: 0,
                tag: 0,
            }),
        }
        Ok(())
    }

    /// Answers a request for bytes.
    fn requested(&mut self, message: &StagedMessage, regions: &StagedRegions) {
        let memory = regions.get(RegionId(message.region));
        let end = message.offset.checked_add(message.whole.into());
        let fits = memory.is_ok_and(|memory| end.is_some_and(|end| end <= memory.bytes()));
        if !fits {
            // Its answer ends it: no piece follows.
            let refused = StagedMessage {
                at: message.whole,
                ..message.answer(message.operation, OUTSIDE)
            };
            self.notes.push_back((refused, None));
            return;
        }
        self.notes
            .push_back((message.answer(NO_OPERATION, 0), None));
        self.queue.push_back(Outgoing {
            next: StagedMessage {
                kind: MessageKind::ReadData,
                at: 0,
                ..*message
            },
            from: Spot {
                region: message.region,
                offset: message.offset,
            },
        });
    }

    /// Begins the copies of pieces that have arrived, in their order.
    fn begin_landing(&mut self, regions: &StagedRegions) -> Result<()> {
        while let Some(landing) = self.landing.get(self.begun) {
            let (message, index) = (landing.message, landing.index);
            let Some((spot, code, tag)) = self.destination(&message)? else {
                break;
            };
            let memory = regions.get(RegionId(spot.region)).ok();
            let memory = memory.filter(|_| code == 0);
            let (at, _) = StagingRing::at(self.index, RingPlace::Arriving(index));
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
                Err(NotCopied::Outside(_)) => (true, OUTSIDE),
                Err(other) => return Err(own(other)),
            };
            if let Some(landing) = self.landing.get_mut(self.begun) {
                (landing.is_copied, landing.code, landing.tag) = (is_copied, code, tag);
            }
            self.begun += 1;
        }
        Ok(())
    }

    /// Place where a piece belongs, the reason to refuse it or 0, and the tag of its receive; `None` where a send
    /// has to wait for a receive.
    fn destination(&mut self, message: &StagedMessage) -> Result<Option<(Spot, i32, u32)>> {
        let nowhere = Spot {
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
                let receiving = self.receiving.ok_or_else(|| self.nonsense())?;
                Ok(Some(match receiving {
                    Some(receive) => (receive.spot, 0, receive.tag),
                    None => (nowhere, MESSAGE_TOO_LONG, 0),
                }))
            }
            _ => Ok(Some((nowhere, 0, 0))),
        }
    }

    /// Acknowledges pieces that have been copied, and tells what has arrived whole.
    fn end_landing(&mut self, ready: &mut VecDeque<Completion>) -> Result<()> {
        while self.begun > 0
            && let Some(landing) = self.landing.front()
        {
            let event = self.arriving[landing.index as usize].as_ref();
            if !landing.is_copied && !self.ring.is_passed(event)? {
                break;
            }
            let (message, code, tag) = (landing.message, landing.code, landing.tag);
            self.unposted.push_back(landing.index);
            self.landing.pop_front();
            self.begun -= 1;
            if message.kind == MessageKind::ReadData {
                self.notes
                    .push_back((message.answer(NO_OPERATION, 0), None));
                let kind = match code {
                    0 => message.kind,
                    _ => MessageKind::Refused,
                };
                let ended = StagedMessage {
                    kind,
                    code,
                    ..message
                };
                ready.extend(self.ended(&ended)?);
                continue;
            }
            let told = matches!(message.kind, MessageKind::WriteImm | MessageKind::Send);
            let arrived = (told && code == 0 && message.is_last()).then_some(Completion {
                tag,
                lane: Lane(self.peer),
                len: message.whole,
                imm: message.imm,
                ending: Ending::Arrived,
            });
            let answer = message.answer(message.operation, code);
            self.notes.push_back((answer, arrived));
        }
        Ok(())
    }
}

/// An error of a copy at this end, whose ranges were checked before.
fn own(not_copied: NotCopied) -> Error {
    match not_copied {
        NotCopied::Outside(range) => Error::Failed(range.to_string()),
        NotCopied::Other(error) => error,
    }
}
