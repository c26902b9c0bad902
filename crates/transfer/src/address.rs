//! Peer addresses and remote memories: what processes exchange before they can transfer anything.
//!
//! Both are encoded as one line of text, which the program can send over any channel. The text is opaque, and is
//! checked when it is used. It is not encrypted: any process that reads a [`RemoteMemory`] can access the memory.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tonnage_engine::{Descriptor, EndpointAddress, Peer};

use crate::error::{ErrorSubject, TransferError, TransferErrorKind, TransferResult};
use crate::place::ProcessPlace;

/// Longest accepted line: up to four characters for each byte of an engine's address, and room for the other fields. An
/// address has at most [`EndpointAddress::BYTES_MAX`] bytes.
const LINE_BYTES_MAX: usize = 5 * EndpointAddress::BYTES_MAX;

/// Address of an endpoint, for one of its peers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerAddress {
    pub(crate) engine: String,
    pub(crate) from: Peer,
    pub(crate) to: Peer,
    pub(crate) place: ProcessPlace,
    #[serde(rename = "card")]
    pub(crate) endpoint_address: EndpointAddress,
}

/// A peer's registered memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteMemory {
    pub(crate) owner: Peer,
    pub(crate) id: u32,
    pub(crate) bytes: u64,
    pub(crate) descriptor: Descriptor,
}

impl PeerAddress {
    /// Returns the endpoint that made the address.
    pub fn from(&self) -> Peer {
        self.from
    }

    /// Returns the endpoint that the address is for.
    pub fn to(&self) -> Peer {
        self.to
    }

    /// Returns the address as a line of text, without the newline.
    pub fn encode(&self) -> String {
        encode(self)
    }

    /// Decodes a line made by [`Self::encode`]. Surrounding white space is ignored.
    ///
    /// # Errors
    /// `Usage` for anything else.
    pub fn decode(line: &str) -> TransferResult<Self> {
        let address: Self = decode("endpoint address", line)?;
        match address.endpoint_address.0.len() {
            0..=EndpointAddress::BYTES_MAX => Ok(address),
            bytes => Err(unreadable(
                "endpoint address",
                &format!("its engine's part has {bytes} bytes"),
            )),
        }
    }
}

impl RemoteMemory {
    /// Describes memory that a peer registered without this library. `number` distinguishes this memory from the peer's
    /// others. `descriptor` is the one that the peer's engine returned.
    pub fn new(owner: Peer, number: u32, bytes: u64, descriptor: Descriptor) -> Self {
        Self {
            owner,
            id: number,
            bytes,
            descriptor,
        }
    }

    /// Returns the endpoint that registered the memory.
    pub fn owner(&self) -> Peer {
        self.owner
    }

    /// Returns the memory's size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the ID by which calls without a session refer to the memory.
    pub fn id(&self) -> RemoteId {
        RemoteId {
            peer: self.owner,
            memory: self.id,
        }
    }

    /// Returns the memory as a line of text, without the newline.
    pub fn encode(&self) -> String {
        encode(self)
    }

    /// Decodes a line made by [`Self::encode`]. Surrounding white space is ignored.
    ///
    /// # Errors
    /// `Usage` for anything else.
    pub fn decode(line: &str) -> TransferResult<Self> {
        decode("remote memory", line)
    }
}

/// Identifies a peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteId {
    /// The endpoint that registered the memory.
    pub peer: Peer,
    /// The memory's number at that endpoint.
    pub memory: u32,
}

fn encode(value: &impl Serialize) -> String {
    // Serializing numbers and strings as JSON cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}

fn decode<T: DeserializeOwned>(what: &str, line: &str) -> TransferResult<T> {
    if line.len() > LINE_BYTES_MAX {
        return Err(unreadable(what, &format!("it has {} bytes", line.len())));
    }
    serde_json::from_str(line).map_err(|error| unreadable(what, &error.to_string()))
}

fn unreadable(what: &str, why: &str) -> TransferError {
    let reason = format!("not a valid {what}: {why}");
    TransferError::new(TransferErrorKind::Usage, ErrorSubject::default(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(bytes: usize) -> PeerAddress {
        PeerAddress {
            engine: "shm".into(),
            from: 1,
            to: 2,
            place: ProcessPlace::own(),
            endpoint_address: EndpointAddress(vec![255; bytes]),
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
    fn a_line_decodes_to_its_original() {
        let longest = address(EndpointAddress::BYTES_MAX);
        let line = longest.encode();
        assert!(!line.contains('\n'));
        assert_eq!(
            PeerAddress::decode(&format!(" {line}\r\n")).unwrap(),
            longest
        );
        assert_eq!(RemoteMemory::decode(&memory().encode()).unwrap(), memory());
        assert_eq!(memory().id(), RemoteId { peer: 4, memory: 9 });
    }

    #[test]
    fn invalid_lines_are_refused_with_a_reason() {
        let refused = |line: &str| PeerAddress::decode(line).unwrap_err();
        for line in ["", "{}", "[1]", "null", &memory().encode()] {
            let error = refused(line);
            assert_eq!(error.kind(), TransferErrorKind::Usage);
            assert!(
                error.to_string().contains("not a valid endpoint address"),
                "{error}"
            );
        }
        let long = refused(&address(EndpointAddress::BYTES_MAX + 1).encode()).to_string();
        assert!(
            long.contains(&format!("{} bytes", EndpointAddress::BYTES_MAX + 1)),
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
        fn no_text_makes_the_decoders_panic(
            line in ".{0,200}",
            cut in 0usize..400,
            at in 0usize..400,
            byte in 0u8..128,
        ) {
            let _ = (PeerAddress::decode(&line), RemoteMemory::decode(&line));
            for whole in [address(3).encode(), memory().encode()] {
                let mut bytes = whole.into_bytes();
                let at = at % bytes.len();
                bytes[at] = byte;
                bytes.truncate(bytes.len() - cut.min(bytes.len() / 2));
                if let Ok(line) = String::from_utf8(bytes) {
                    let _ = (PeerAddress::decode(&line), RemoteMemory::decode(&line));
                }
            }
        }
    }
}
