//! One peer: operations that wait to be cut into pieces, pieces on their way, what has arrived, and what is posted for
//! what arrives. The steps between these are in `pieces`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{Completion, Ending, Lane, Peer};
use tonnage_sys::cuda::CudaEvent;
use tonnage_units::{Error, Result};

use super::bounds::DEPTH_MAX;
use super::message::{MessageKind, NO_OPERATION, StagedMessage};
use super::ring::{ARRIVING, NOTES, PIECE_BYTES, PLACES, StagingRing};

/// Registered memory by its number.
pub(super) type StagedRegions = BTreeMap<u32, Arc<dyn Memory>>;

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
