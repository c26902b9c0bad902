//! Any text in an introduction is valid or refused. An introduced rank that is let in must fit the run, and a refusal
//! must be encodable as a message to others.
//!
//! The input is only the text of the introduction. The head before it is fixed, because the target `frame` varies
//! heads.
use tonnage_ranks::message::{EndCause, Message, MessageHead};
use tonnage_ranks::{pack, testing};

/// Number of the introduction among the message heads. It is the same in all versions.
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
            // The error may contain any text of the introduction. It must still reach all ranks, even of another
            // version.
            let cause = EndCause::from_error(&error, 0, "h0");
            let bytes =
                Message::encode(&MessageHead::Abort { cause }, &[]).expect("a cause fits a head");
            Message::decode(&bytes).expect("a cause can be read");
        }
    }
}
