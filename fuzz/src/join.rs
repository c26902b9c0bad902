//! Any words of a rank that knows the secret are an introduction or refused; who is let in fits the run, and what is
//! said to others travels to them.
//!
//! The input is the text of the introduction; the head around it, whose bytes the target `frame` explores, is put here.
use tonnage_ranks::message::{EndCause, Message, MessageHead};
use tonnage_ranks::{pack, testing};

/// Number of the introduction among the heads, which is the same in all versions.
const HELLO: u32 = 0;
const SIZE: u32 = 4;

pub fn try_input(input: &[u8]) {
    let text = crate::text(input);
    let bytes = pack(&(HELLO, text)).unwrap();
    let Ok(message) = Message::decode(&bytes) else {
        return;
    };
    let MessageHead::Hello(hello) = &message.head else {
        panic!("another head than an introduction: {:?}", message.head);
    };
    match testing::objection(hello, SIZE) {
        None => assert!((1..SIZE).contains(&hello.info.rank) && hello.size == SIZE),
        Some(error) => {
            // Also to ranks of another version, whatever the introduction put into the words.
            let cause = EndCause::from_error(&error, 0, "h0");
            let bytes =
                Message::encode(&MessageHead::Abort { cause }, &[]).expect("a cause fits a head");
            Message::decode(&bytes).expect("a cause can be read");
        }
    }
}
