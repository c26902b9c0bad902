//! Slots for pieces in pinned memory, and copies between these slots and registered memory.

use std::sync::Arc;

use tonnage_engine::memory::{Memory, Request};
use tonnage_sys::copy::Method;
use tonnage_sys::cuda::{CudaContext, CudaEvent, CudaFailure, CudaStream, PinnedArena};
use tonnage_sys::mapping::{Arena, OutOfRange};
use tonnage_units::{Error, Result};

use super::message::{HEADER_BYTES, StagedMessage};
use crate::memory::HOST;
use crate::memory::cuda_region::{DriverMemory, gpu_failed};

/// Maximum payload of a piece, in bytes.
pub(super) const PIECE_BYTES: u32 = 128 << 10;

/// Maximum number of pieces in flight to one peer.
pub(super) const SLOTS: u32 = 8;

/// Size of a slot: the header and the payload. The payload begins at a cache line.
pub(super) const SLOT_BYTES: u64 = PAYLOAD + PIECE_BYTES as u64;
const PAYLOAD: u64 = 64;

/// Size of a slot for an acknowledgement.
const ACK_BYTES: u64 = 64;

/// Bytes for one peer: slots for outgoing pieces, for all incoming messages, and for outgoing acknowledgements.
const PEER_BYTES: u64 = SLOTS as u64 * (3 * SLOT_BYTES + 2 * ACK_BYTES);

/// Number of slots for incoming messages from one peer: its pieces and its acknowledgements.
pub(super) const INCOMING_SLOTS: u32 = 2 * SLOTS;

/// Maximum number of acknowledgements in flight to one peer.
pub(super) const ACKS: u32 = 2 * SLOTS;

/// A slot of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingSlot {
    Outgoing(u32),
    Incoming(u32),
    Ack(u32),
}

/// Reason why a copy failed.
pub(super) enum CopyError {
    Outside(OutOfRange),
    Other(Error),
}

/// Pinned memory for several peers, and the streams that copy.
pub(super) struct StagingRing {
    memory: Arc<dyn Memory>,
    arena: Arc<Arena>,
    gpu: Option<GpuCopies>,
}

/// Copies between the ring and GPU memory. Each direction has its own stream, because the link to a GPU can carry data
/// in both directions at once.
struct GpuCopies {
    leaving: CudaStream,
    arriving: CudaStream,
    pinned: PinnedArena,
}

impl StagingRing {
    /// Allocates memory for this number of peers. If GPU memory is registered, the ring is pinned for that GPU.
    pub(super) fn new(peers: usize, context: Option<&Arc<CudaContext>>) -> Result<Self> {
        let bytes = peers.max(1) as u64 * PEER_BYTES;
        let memory = (HOST.allocate)(&Request {
            bytes,
            ..Request::default()
        })?;
        let arena = Arc::clone(memory.mapped("staging")?);
        let gpu = match context {
            None => None,
            Some(context) => {
                let failed = |failure: CudaFailure| gpu_failed("staging", context, &failure);
                let pinned = PinnedArena::pin(context, Arc::clone(&arena)).map_err(failed)?;
                Some(GpuCopies {
                    leaving: CudaStream::new(context).map_err(failed)?,
                    arriving: CudaStream::new(context).map_err(failed)?,
                    pinned,
                })
            }
        };
        Ok(Self { memory, arena, gpu })
    }

    /// Returns the memory, which the engine below registers.
    pub(super) fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// Creates an event for copies of one slot; `None` if there is no GPU.
    pub(super) fn event(&self) -> Result<Option<CudaEvent>> {
        let Some(gpu) = &self.gpu else {
            return Ok(None);
        };
        let context = gpu.pinned.context();
        let event = CudaEvent::new(context);
        event
            .map(Some)
            .map_err(|failure| gpu_failed("staging", context, &failure))
    }

    /// Returns the offset and size of a slot for the peer with this index.
    pub(super) fn at(peer: usize, slot: RingSlot) -> (u64, u64) {
        let base = peer as u64 * PEER_BYTES;
        match slot {
            RingSlot::Outgoing(index) => (base + u64::from(index) * SLOT_BYTES, SLOT_BYTES),
            RingSlot::Incoming(index) => (base + u64::from(SLOTS + index) * SLOT_BYTES, SLOT_BYTES),
            RingSlot::Ack(index) => {
                let notes = base + 3 * u64::from(SLOTS) * SLOT_BYTES;
                (notes + u64::from(index) * ACK_BYTES, ACK_BYTES)
            }
        }
    }

    /// Returns the size of a message with this payload.
    pub(super) fn message_bytes(payload: u32) -> u32 {
        match payload {
            0 => HEADER_BYTES as u32,
            bytes => PAYLOAD as u32 + bytes,
        }
    }

    pub(super) fn write_header(&self, at: u64, message: &StagedMessage) -> Result<()> {
        let written = self.arena.write(at, &message.encode());
        written.map_err(|error| Error::Failed(error.to_string()))
    }

    pub(super) fn read_header(&self, at: u64) -> Result<Option<StagedMessage>> {
        let mut bytes = [0; HEADER_BYTES as usize];
        let read = self.arena.read(at, &mut bytes);
        read.map_err(|error| Error::Failed(error.to_string()))?;
        Ok(StagedMessage::decode(&bytes).filter(|message| message.len <= PIECE_BYTES))
    }

    /// Begins a copy between a memory and the payload of a slot. Returns true if the copy is already done. Otherwise
    /// the event will pass when the copy is done.
    pub(super) fn copy(
        &self,
        (memory, offset): (&dyn Memory, u64),
        (slot_offset, is_out): (u64, bool),
        len: u32,
        event: Option<&CudaEvent>,
    ) -> Result<bool, CopyError> {
        let payload = slot_offset + PAYLOAD;
        if let Some(arena) = memory.host() {
            let copied = match is_out {
                true => arena.copy_to(offset, &self.arena, payload, len, Method::Memcpy),
                false => self
                    .arena
                    .copy_to(payload, arena, offset, len, Method::Memcpy),
            };
            return copied.map(|()| true).map_err(CopyError::Outside);
        }
        let (Some(bytes), Some(gpu), Some(event)) =
            (DriverMemory::from_memory(memory), &self.gpu, event)
        else {
            let kind = memory.report().kind;
            return Err(CopyError::Other(Error::Failed(format!(
                "staging does not know memory {kind}, although it was registered"
            ))));
        };
        let stream = if is_out { &gpu.leaving } else { &gpu.arriving };
        let failed = |failure: CudaFailure| match failure {
            CudaFailure::Outside(range) => CopyError::Outside(range),
            other => CopyError::Other(gpu_failed("staging", stream.context(), &other)),
        };
        let far = bytes.part(offset, len.into()).map_err(failed)?;
        let near = gpu.pinned.part(payload, len.into()).map_err(failed)?;
        let (from, to) = if is_out { (far, near) } else { (near, far) };
        stream.copy(from, to).map_err(failed)?;
        event.record(stream).map_err(failed)?;
        Ok(false)
    }

    /// Returns whether an event has passed.
    pub(super) fn is_passed(&self, event: Option<&CudaEvent>) -> Result<bool> {
        let (Some(event), Some(gpu)) = (event, &self.gpu) else {
            return Ok(true);
        };
        let passed = event.is_passed();
        passed.map_err(|failure| gpu_failed("staging", gpu.pinned.context(), &failure))
    }
}

/// Tag of an operation of the engine below: contains the channel and the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u32);

impl Tag {
    pub(super) fn new(channel: u32, slot: RingSlot) -> Self {
        let (kind, index) = match slot {
            RingSlot::Outgoing(index) => (0, index),
            RingSlot::Incoming(index) => (1, index),
            RingSlot::Ack(index) => (2, index),
        };
        Self(channel << 8 | kind << 6 | index)
    }

    pub(super) fn channel(self) -> usize {
        (self.0 >> 8) as usize
    }

    pub(super) fn slot(self) -> RingSlot {
        let index = self.0 & 0x3f;
        match self.0 >> 6 & 3 {
            0 => RingSlot::Outgoing(index),
            1 => RingSlot::Incoming(index),
            _ => RingSlot::Ack(index),
        }
    }
}

/// Name of the option that turns staging on.
pub(super) const STAGING: &str = "staging";

/// Maximum depth of a lane of this engine.
pub(super) const DEPTH_MAX: u32 = 256;

#[cfg(test)]
mod tests {
    use tonnage_engine::Libraries;

    use super::*;
    use crate::memory::CUDA;
    use crate::registration::double::Double;

    /// Each query of this simulated driver executes one operation of the queried stream. So if one stream served both
    /// directions, the outgoing copy would have to wait for the incoming one.
    #[test]
    fn outgoing_copies_do_not_wait_for_incoming_ones() {
        let Some(double) = Double::with("slow 1") else {
            return;
        };
        let libraries = Libraries::from([("libcuda".to_owned(), double.path())]);
        let memory = (CUDA.allocate)(&Request {
            bytes: 8192,
            libraries: Some(&libraries),
            ..Request::default()
        });
        let memory = memory.unwrap();
        let bytes = DriverMemory::from_memory(&*memory).unwrap();
        let ring = StagingRing::new(1, Some(bytes.context())).unwrap();
        let events = [0, 1].map(|_| ring.event().unwrap());
        let slots = [RingSlot::Incoming(0), RingSlot::Outgoing(0)];
        for (at, (slot, event)) in [0, 4096].into_iter().zip(slots.into_iter().zip(&events)) {
            let is_out = matches!(slot, RingSlot::Outgoing(_));
            let (start, _) = StagingRing::at(0, slot);
            let copied = ring.copy((&*memory, at), (start, is_out), 4096, event.as_ref());
            assert!(matches!(copied, Ok(false)));
        }
        let passed = |at: usize| ring.is_passed(events[at].as_ref()).unwrap();
        // The first query executes the copy, the second executes the event that follows it, and the third finds that
        // the event has passed.
        for at in [1, 0] {
            let queries = std::iter::repeat_with(|| passed(at));
            assert_eq!(queries.take(3).collect::<Vec<_>>(), [false, false, true]);
        }
    }

    #[test]
    fn slots_of_all_peers_are_adjacent() {
        let mut ranges = Vec::new();
        for peer in 0..2 {
            ranges.extend((0..SLOTS).map(|index| StagingRing::at(peer, RingSlot::Outgoing(index))));
            ranges.extend(
                (0..INCOMING_SLOTS).map(|index| StagingRing::at(peer, RingSlot::Incoming(index))),
            );
            ranges.extend((0..ACKS).map(|index| StagingRing::at(peer, RingSlot::Ack(index))));
        }
        ranges.sort_unstable();
        let mut end = 0;
        for (offset, bytes) in ranges {
            assert_eq!(offset, end);
            end = offset + bytes;
        }
        assert_eq!(end, 2 * PEER_BYTES);
    }

    #[test]
    fn tags_name_channel_and_slot() {
        for channel in [0, 3, 9999] {
            for slot in [
                RingSlot::Outgoing(7),
                RingSlot::Incoming(15),
                RingSlot::Ack(0),
            ] {
                let tag = Tag::new(channel, slot);
                assert_eq!((tag.channel(), tag.slot()), (channel as usize, slot));
            }
        }
    }
}
