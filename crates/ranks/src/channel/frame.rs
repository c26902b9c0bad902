//! Bounded length-prefixed frames: the only parser of unauthenticated bytes.
//!
//! A frame is a 32-bit little-endian length, followed by the payload of this length. The decoder only maps bytes to
//! frames, so it can be fuzzed. It refuses a length above its limit as soon as it has the four bytes of the length.
//! Every connection has two decoders: one for encrypted frames, and one for the messages of the control channel inside
//! them.

use tonnage_units::{Error, Result};

/// Size of the length prefix of each frame.
pub const LENGTH_BYTES: usize = 4;

/// Appends one frame with this payload to `out`.
pub fn encode(payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let len = u32::try_from(payload.len())
        .map_err(|_| Error::Failed(format!("a frame of {} bytes is too long", payload.len())))?;
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(payload);
    Ok(())
}

/// Capacity that an empty buffer keeps. It is small, because every connection has at least one buffer.
const KEPT_BYTES_MAX: usize = 4 << 10;

/// Empties a buffer and frees capacity above [`KEPT_BYTES_MAX`].
pub(crate) fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEPT_BYTES_MAX);
}

/// Splits arriving bytes into whole frames.
#[derive(Debug)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    start: usize,
    frame_bytes_max: usize,
    broken: bool,
}

impl FrameDecoder {
    /// Creates a decoder that refuses payloads above `frame_bytes_max` bytes.
    pub fn new(frame_bytes_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            frame_bytes_max,
            broken: false,
        }
    }

    /// Changes the limit, starting with the next frame.
    pub fn set_max(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// Adds arrived bytes. Memory grows only with the bytes received, not with the length that a frame claims.
    pub fn push(&mut self, bytes: &[u8]) {
        // After an invalid length, no further bytes can be decoded, so they are dropped.
        if self.broken {
            return;
        }
        if self.start > 0 && self.start >= self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole frame, or `None` if more bytes are needed.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>> {
        if self.broken {
            return Err(Error::Failed(
                "the connection sent a frame above the bound before".into(),
            ));
        }
        let waiting = self.buffer.get(self.start..).unwrap_or_default();
        let Some((length, rest)) = waiting.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*length) as usize;
        if len > self.frame_bytes_max {
            let max = self.frame_bytes_max;
            self.broken = true;
            self.buffer = Vec::new();
            self.start = 0;
            return Err(Error::Failed(format!(
                "a frame claims {len} bytes where at most {max} are allowed"
            )));
        }
        let Some(frame) = rest.get(..len) else {
            return Ok(None);
        };
        let frame = frame.to_vec();
        self.start += LENGTH_BYTES + len;
        if self.start == self.buffer.len() {
            empty(&mut self.buffer);
            self.start = 0;
        }
        Ok(Some(frame))
    }

    /// Returns the number of buffered bytes that have not been returned as frames.
    pub fn held_bytes(&self) -> usize {
        self.buffer.len() - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(decoder: &mut FrameDecoder) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        while let Some(frame) = decoder.next_frame()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    #[test]
    fn a_length_above_the_bound_is_refused_before_its_bytes_come() {
        let mut decoder = FrameDecoder::new(64);
        decoder.push(&65u32.to_le_bytes());
        assert!(decoder.next_frame().is_err());
        decoder.push(&[0; 4096]);
        assert_eq!(decoder.held_bytes(), 0);
        assert!(decoder.next_frame().is_err());
    }

    #[test]
    fn a_long_frame_leaves_no_memory_behind() {
        let mut decoder = FrameDecoder::new(1 << 20);
        let mut bytes = Vec::new();
        encode(&[7; 1 << 20], &mut bytes).unwrap();
        decoder.push(&bytes);
        assert_eq!(drain(&mut decoder).unwrap(), [[7; 1 << 20]]);
        assert!(decoder.buffer.capacity() <= KEPT_BYTES_MAX);
    }

    #[test]
    fn an_empty_frame_is_a_frame() {
        let mut decoder = FrameDecoder::new(0);
        decoder.push(&[0; 8]);
        assert_eq!(drain(&mut decoder).unwrap(), vec![Vec::<u8>::new(); 2]);
    }

    proptest! {
        #[test]
        fn arbitrary_splits_give_the_same_frames(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20),
            cuts in prop::collection::vec(1usize..64, 1..40),
        ) {
            let mut bytes = Vec::new();
            for frame in &frames {
                encode(frame, &mut bytes).unwrap();
            }
            let mut decoder = FrameDecoder::new(200);
            let mut got = Vec::new();
            let mut rest = &bytes[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                decoder.push(now);
                got.extend(drain(&mut decoder).unwrap());
                rest = later;
            }
            prop_assert_eq!(got, frames);
            prop_assert_eq!(decoder.held_bytes(), 0);
        }

        #[test]
        fn garbage_never_panics_and_never_holds_more_than_a_frame(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..30),
            max in 0usize..128,
        ) {
            let mut decoder = FrameDecoder::new(max);
            for piece in &pieces {
                decoder.push(piece);
                while let Ok(Some(frame)) = decoder.next_frame() {
                    prop_assert!(frame.len() <= max);
                }
                prop_assert!(decoder.held_bytes() < max + LENGTH_BYTES);
                prop_assert!(decoder.buffer.capacity() <= 4 * (max + LENGTH_BYTES + 100));
            }
        }
    }
}
