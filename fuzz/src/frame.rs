//! Feeds arbitrary bytes to the frame decoder, and whole frames to the message decoder.
//!
//! The first byte sets the maximum frame size, and the second byte sets the size of the pieces. The fuzzer thus varies
//! both.
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
    // Decoding a message must not panic either, even if its bytes are longer than any frame.
    let _ = Message::decode(bytes);
}
