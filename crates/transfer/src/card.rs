//! Words that processes tell each other before they can transfer anything: how to reach an endpoint, and its memory.
//!
//! Both are one line of text each, for whatever channel the program has. What they say is opaque, is checked where it
//! is used, and is not secret: who reads a [`RemoteMemory`] can reach the memory.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tonnage_engine::{Card, Descriptor, Peer};

use crate::error::{Subject, TransferError, TransferErrorKind, TransferResult};
use crate::place::ProcessPlace;

/// Longest line that is read; an engine's card has at most [`Card::BYTES_MAX`] bytes, each at most four characters
/// here.
const LINE_BYTES_MAX: usize = 5 * Card::BYTES_MAX;

/// Address of an endpoint for one of its peers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointCard {
    pub(crate) engine: String,
    pub(crate) from: Peer,
    pub(crate) to: Peer,
    pub(crate) place: ProcessPlace,
    pub(crate) card: Card,
}

/// A peer's registered memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteMemory {
    pub(crate) owner: Peer,
    pub(crate) id: u32,
    pub(crate) bytes: u64,
    pub(crate) descriptor: Descriptor,
}

impl EndpointCard {
    /// The endpoint that made it.
    pub fn from(&self) -> Peer {
        self.from
    }

    /// The endpoint that it is for.
    pub fn to(&self) -> Peer {
        self.to
    }

    /// The card as a line of text, without its end.
    pub fn encode(&self) -> String {
        encode(self)
    }

    /// Reads a line that [`Self::encode`] made; white space around it does not matter.
    ///
    /// # Errors
    /// `Usage` for anything else.
    pub fn decode(line: &str) -> TransferResult<Self> {
        let card: Self = decode("endpoint card", line)?;
        match card.card.0.len() {
            0..=Card::BYTES_MAX => Ok(card),
            bytes => Err(unreadable(
                "endpoint card",
                &format!("its address has {bytes} bytes"),
            )),
        }
    }
}

impl RemoteMemory {
    /// A memory that a peer registered without an endpoint of this library: `number` tells it apart from others of that
    /// peer, and `descriptor` is what its engine returned.
    pub fn new(owner: Peer, number: u32, bytes: u64, descriptor: Descriptor) -> Self {
        Self {
            owner,
            id: number,
            bytes,
            descriptor,
        }
    }

    /// The endpoint that registered it.
    pub fn owner(&self) -> Peer {
        self.owner
    }

    /// Number of its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The name for calls without a session.
    pub fn id(&self) -> RemoteId {
        RemoteId {
            peer: self.owner,
            memory: self.id,
        }
    }

    /// The memory as a line of text, without its end.
    pub fn encode(&self) -> String {
        encode(self)
    }

    /// Reads a line that [`Self::encode`] made; white space around it does not matter.
    ///
    /// # Errors
    /// `Usage` for anything else.
    pub fn decode(line: &str) -> TransferResult<Self> {
        decode("remote memory", line)
    }
}

/// Name of a peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteId {
    /// The endpoint that registered it.
    pub peer: Peer,
    /// Its number there.
    pub memory: u32,
}

fn encode(value: &impl Serialize) -> String {
    // Numbers and texts: writing them as JSON cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}

fn decode<T: DeserializeOwned>(what: &str, line: &str) -> TransferResult<T> {
    if line.len() > LINE_BYTES_MAX {
        return Err(unreadable(what, &format!("it has {} bytes", line.len())));
    }
    serde_json::from_str(line).map_err(|error| unreadable(what, &error.to_string()))
}

fn unreadable(what: &str, why: &str) -> TransferError {
    let reason = format!("this is no {what}: {why}");
    TransferError::new(TransferErrorKind::Usage, Subject::default(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn card(bytes: usize) -> EndpointCard {
        EndpointCard {
            engine: "shm".into(),
            from: 1,
            to: 2,
            place: ProcessPlace::own(),
            card: Card(vec![255; bytes]),
        }
    }

    fn memory() -> RemoteMemory {
        RemoteMemory {
            owner: 4,
            id: 9,
            bytes: u64::MAX,
            descriptor: Descriptor(vec![1, 2, 255]),
        }
    }

    #[test]
    fn a_line_reads_back() {
        let longest = card(Card::BYTES_MAX);
        let line = longest.encode();
        assert!(!line.contains('\n'));
        assert_eq!(
            EndpointCard::decode(&format!(" {line}\r\n")).unwrap(),
            longest
        );
        assert_eq!(RemoteMemory::decode(&memory().encode()).unwrap(), memory());
        assert_eq!(memory().id(), RemoteId { peer: 4, memory: 9 });
    }

    #[test]
    fn other_lines_are_refused_with_a_reason() {
        let refused = |line: &str| EndpointCard::decode(line).unwrap_err();
        for line in ["", "{}", "[1]", "null", &memory().encode()] {
            let error = refused(line);
            assert_eq!(error.kind(), TransferErrorKind::Usage);
            assert!(error.to_string().contains("no endpoint card"), "{error}");
        }
        let long = refused(&card(Card::BYTES_MAX + 1).encode()).to_string();
        assert!(
            long.contains(&format!("{} bytes", Card::BYTES_MAX + 1)),
            "{long}"
        );
        let endless = refused(&" ".repeat(LINE_BYTES_MAX + 1)).to_string();
        assert!(
            endless.contains(&format!("{}", LINE_BYTES_MAX + 1)),
            "{endless}"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_readers_panic(
            line in ".{0,200}",
            cut in 0usize..400,
            at in 0usize..400,
            byte in 0u8..128,
        ) {
            let _ = (EndpointCard::decode(&line), RemoteMemory::decode(&line));
            for whole in [card(3).encode(), memory().encode()] {
                let mut bytes = whole.into_bytes();
                let at = at % bytes.len();
                bytes[at] = byte;
                bytes.truncate(bytes.len() - cut.min(bytes.len() / 2));
                if let Ok(line) = String::from_utf8(bytes) {
                    let _ = (EndpointCard::decode(&line), RemoteMemory::decode(&line));
                }
            }
        }
    }
}
