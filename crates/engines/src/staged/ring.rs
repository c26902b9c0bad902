//! Places of pieces in pinned memory, and copies between them and the memory that an operation names.

use std::sync::Arc;

use tonnage_engine::memory::{Memory, Request};
use tonnage_sys::copy::Method;
use tonnage_sys::cuda::{CudaContext, CudaEvent, CudaFailure, CudaStream, PinnedArena};
use tonnage_sys::mapping::{Arena, OutOfRange};
use tonnage_units::{Error, Result};

use super::message::{HEADER_BYTES, StagedMessage};
use crate::memory::HOST;
use crate::memory::cuda_region::{DriverMemory, gpu_failed};

/// Payload of a piece, at most.
pub(super) const PIECE_BYTES: u32 = 128 << 10;

/// Pieces on their way to one peer, at most.
pub(super) const PLACES: u32 = 8;

/// Bytes of a place: the header before the payload, which begins on a cache line.
pub(super) const PLACE_BYTES: u64 = PAYLOAD + PIECE_BYTES as u64;
const PAYLOAD: u64 = 64;

/// Bytes of an acknowledgement's place.
const NOTE_BYTES: u64 = 64;

/// Bytes for one peer: pieces that leave, places for whatever arrives, acknowledgements that leave.
const PEER_BYTES: u64 = PLACES as u64 * (3 * PLACE_BYTES + 2 * NOTE_BYTES);

/// Places for what arrives from one peer: its pieces, and its acknowledgements.
pub(super) const ARRIVING: u32 = 2 * PLACES;

/// Acknowledgements on their way to one peer, at most.
pub(super) const NOTES: u32 = 2 * PLACES;

/// Offset of a place, or of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingPlace {
    Leaving(u32),
    Arriving(u32),
    Note(u32),
}

/// The reason why a copy was not made.
pub(super) enum NotCopied {
    Outside(OutOfRange),
    Other(Error),
}

/// Pinned memory for some peers, and the streams that copy.
pub(super) struct StagingRing {
    memory: Arc<dyn Memory>,
    arena: Arc<Arena>,
    gpu: Option<GpuCopies>,
}

/// Copies between the ring and memory of a GPU. What leaves does not wait for what arrives: the link to a GPU goes both
/// ways at once.
struct GpuCopies {
    leaving: CudaStream,
    arriving: CudaStream,
    pinned: PinnedArena,
}

impl StagingRing {
    /// Allocates memory for so many peers, pinned for the GPU whose memory is registered, where there is one.
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

    /// The memory, for the engine below.
    pub(super) fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// An event for the copies of one place.
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

    /// Offset and bytes of a place of the peer with this index.
    pub(super) fn at(peer: usize, place: RingPlace) -> (u64, u64) {
        let base = peer as u64 * PEER_BYTES;
        match place {
            RingPlace::Leaving(index) => (base + u64::from(index) * PLACE_BYTES, PLACE_BYTES),
            RingPlace::Arriving(index) => {
                (base + u64::from(PLACES + index) * PLACE_BYTES, PLACE_BYTES)
            }
            RingPlace::Note(index) => {
                let notes = base + 3 * u64::from(PLACES) * PLACE_BYTES;
                (notes + u64::from(index) * NOTE_BYTES, NOTE_BYTES)
            }
        }
    }

    /// Bytes of a message with so much payload.
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

    /// Begins a copy between a memory and the payload of a place, and returns whether it is done already; else the
    /// event passes when it is.
    pub(super) fn copy(
        &self,
        (memory, offset): (&dyn Memory, u64),
        (place, is_out): (u64, bool),
        len: u32,
        event: Option<&CudaEvent>,
    ) -> Result<bool, NotCopied> {
        let payload = place + PAYLOAD;
        if let Some(arena) = memory.host() {
            let copied = match is_out {
                true => arena.copy_to(offset, &self.arena, payload, len, Method::Memcpy),
                false => self
                    .arena
                    .copy_to(payload, arena, offset, len, Method::Memcpy),
            };
            return copied.map(|()| true).map_err(NotCopied::Outside);
        }
        let (Some(bytes), Some(gpu), Some(event)) = (DriverMemory::of(memory), &self.gpu, event)
        else {
            let kind = memory.report().kind;
            return Err(NotCopied::Other(Error::Failed(format!(
                "memory {kind} was registered for staging and is not known to it"
            ))));
        };
        let stream = if is_out { &gpu.leaving } else { &gpu.arriving };
        let failed = |failure: CudaFailure| match failure {
            CudaFailure::Outside(range) => NotCopied::Outside(range),
            other => NotCopied::Other(gpu_failed("staging", stream.context(), &other)),
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

/// Tag of an operation of the engine below: the channel and the place that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u32);

impl Tag {
    pub(super) fn new(channel: u32, place: RingPlace) -> Self {
        let (kind, index) = match place {
            RingPlace::Leaving(index) => (0, index),
            RingPlace::Arriving(index) => (1, index),
            RingPlace::Note(index) => (2, index),
        };
        Self(channel << 8 | kind << 6 | index)
    }

    pub(super) fn channel(self) -> usize {
        (self.0 >> 8) as usize
    }

    pub(super) fn place(self) -> RingPlace {
        let index = self.0 & 0x3f;
        match self.0 >> 6 & 3 {
            0 => RingPlace::Leaving(index),
            1 => RingPlace::Arriving(index),
            _ => RingPlace::Note(index),
        }
    }
}

/// The option's name.
pub(super) const STAGING: &str = "staging";

/// Operations in flight on a lane, at most.
pub(super) const DEPTH_MAX: u32 = 256;

#[cfg(test)]
mod tests {
    use tonnage_engine::Libraries;

    use super::*;
    use crate::memory::CUDA;
    use crate::registration::double::Double;

    /// A query of this double carries out one piece of its stream's work: on one stream for both ways, the copy that
    /// leaves would come after the one that arrives.
    #[test]
    fn what_leaves_does_not_wait_for_what_arrives() {
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
        let bytes = DriverMemory::of(&*memory).unwrap();
        let ring = StagingRing::new(1, Some(bytes.context())).unwrap();
        let events = [0, 1].map(|_| ring.event().unwrap());
        let places = [RingPlace::Arriving(0), RingPlace::Leaving(0)];
        for (at, (place, event)) in [0, 4096].into_iter().zip(places.into_iter().zip(&events)) {
            let is_out = matches!(place, RingPlace::Leaving(_));
            let (start, _) = StagingRing::at(0, place);
            let copied = ring.copy((&*memory, at), (start, is_out), 4096, event.as_ref());
            assert!(matches!(copied, Ok(false)));
        }
        let passed = |at: usize| ring.is_passed(events[at].as_ref()).unwrap();
        // A query carries out the copy, another one the event behind it, and the third finds it passed.
        for at in [1, 0] {
            let queries = std::iter::repeat_with(|| passed(at));
            assert_eq!(queries.take(3).collect::<Vec<_>>(), [false, false, true]);
        }
    }

    #[test]
    fn places_of_all_peers_lie_beside_each_other() {
        let mut ranges = Vec::new();
        for peer in 0..2 {
            ranges
                .extend((0..PLACES).map(|index| StagingRing::at(peer, RingPlace::Leaving(index))));
            ranges.extend(
                (0..ARRIVING).map(|index| StagingRing::at(peer, RingPlace::Arriving(index))),
            );
            ranges.extend((0..NOTES).map(|index| StagingRing::at(peer, RingPlace::Note(index))));
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
    fn tags_name_channel_and_place() {
        for channel in [0, 3, 9999] {
            for place in [
                RingPlace::Leaving(7),
                RingPlace::Arriving(15),
                RingPlace::Note(0),
            ] {
                let tag = Tag::new(channel, place);
                assert_eq!((tag.channel(), tag.place()), (channel as usize, place));
            }
        }
    }
}
