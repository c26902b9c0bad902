//! Bytes of a stranger through the frame decoder, and whole frames through the message decoder.
//!
//! The first byte chooses the bound and the second where the rest is split, so that both are explored too.
use tonnage_ranks::frame::{FrameDecoder, LENGTH_BYTES};
use tonnage_ranks::message::Message;

pub fn try_input(data: &[u8]) {
    let [bound, step, bytes @ ..] = data else {
        return;
    };
    let frame_bytes_max = usize::from(*bound) * 16;
    let mut decoder = FrameDecoder::new(frame_bytes_max);
    for piece in bytes.chunks(usize::from(*step) + 1) {
        decoder.push(piece);
        while let Ok(Some(frame)) = decoder.next_frame() {
            assert!(frame.len() <= frame_bytes_max);
            if let Ok(message) = Message::decode(&frame) {
                let again = Message::encode(&message.head, &message.payload);
                let again = again.and_then(|bytes| Message::decode(&bytes));
                assert_eq!(again.ok().as_ref(), Some(&message));
            }
        }
        assert!(decoder.held_bytes() < frame_bytes_max + LENGTH_BYTES);
    }
    // A message that came in a frame of any size must not panic either.
    let _ = Message::decode(bytes);
}
