//! Private data of rdma_cm connections. It proves to each side that the other side is the peer that the control channel
//! announced, with the announced queue pair.
//!
//! This file defines the layout, the rdma_cm part of an endpoint address, and which side sends the request. Sending is
//! in `cm`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tonnage_units::{Error, Result};

/// Distinguishes these requests from those of other programs and versions.
const MAGIC: [u8; 4] = *b"tcm1";

/// Length of the private data. The library allows at most 56 bytes in a request.
pub(super) const PRIVATE_BYTES: usize = 32;

/// Secret in the endpoint address for one peer. The peer must send it when it connects.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct AddressSecret([u8; 16]);

impl AddressSecret {
    pub(super) fn fresh() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::Failed(format!("no random bytes from the system: {error}")))?;
        Ok(Self(bytes))
    }
}

/// Compares all bytes, so that timing does not reveal the first difference.
impl PartialEq for AddressSecret {
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(other.0);
        pairs.fold(0, |found, (one, other)| found | (one ^ other)) == 0
    }
}

impl Eq for AddressSecret {}

/// Hides the secret from logs.
impl std::fmt::Debug for AddressSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AddressSecret(…)")
    }
}

/// The rdma_cm part of an endpoint address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CmAddress {
    /// IP address of this side of the connection.
    pub(super) address: IpAddr,
    /// Port at which this side listens for the peer; `None` if this side sends the request.
    pub(super) port: Option<u16>,
    /// Secret that the peer must send.
    pub(super) secret: AddressSecret,
}

/// Private data of one side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PairIntroduction {
    /// The secret from the endpoint address of the other side.
    pub(super) secret: AddressSecret,
    /// The sending rank.
    pub(super) from: u32,
    /// The receiving rank.
    pub(super) to: u32,
    /// The queue pair between the two ranks: 0 for one-sided verbs, 1 for messages.
    pub(super) purpose: u32,
}

impl PairIntroduction {
    pub(super) fn bytes(&self) -> [u8; PRIVATE_BYTES] {
        let mut bytes = [0; PRIVATE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..20].copy_from_slice(&self.secret.0);
        for (place, number) in [self.from, self.to, self.purpose].into_iter().enumerate() {
            let at = 20 + 4 * place;
            bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// Parses received private data, which the library may have padded with zeros. `None` if the data is not valid.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (secret, rest) = rest.split_first_chunk::<16>()?;
        let (from, rest) = rest.split_first_chunk::<4>()?;
        let (to, rest) = rest.split_first_chunk::<4>()?;
        let (purpose, _) = rest.split_first_chunk::<4>()?;
        Some(Self {
            secret: AddressSecret(*secret),
            from: u32::from_be_bytes(*from),
            to: u32::from_be_bytes(*to),
            purpose: u32::from_be_bytes(*purpose),
        })
    }
}

/// Whether rank `own` sends the request. The lower of the two ranks does.
pub(super) fn asks(own: u32, peer: u32) -> bool {
    own < peer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction() -> PairIntroduction {
        PairIntroduction {
            secret: AddressSecret([7; 16]),
            from: 3,
            to: 0x0102_0304,
            purpose: 1,
        }
    }

    #[test]
    fn sent_data_is_parsed_with_and_without_padding() {
        let sent = introduction().bytes();
        assert_eq!(PairIntroduction::parse(&sent), Some(introduction()));
        let padded = [&sent[..], &[0; 24]].concat();
        assert_eq!(padded.len(), 56);
        assert_eq!(PairIntroduction::parse(&padded), Some(introduction()));
    }

    #[test]
    fn short_and_foreign_data_is_refused() {
        let sent = introduction().bytes();
        for len in 0..PRIVATE_BYTES {
            assert_eq!(PairIntroduction::parse(&sent[..len]), None, "{len}");
        }
        let mut other = sent;
        other[0] ^= 1;
        assert_eq!(PairIntroduction::parse(&other), None);
        assert_eq!(PairIntroduction::parse(&[0; 56]), None);
    }

    #[test]
    fn every_bit_counts() {
        let sent = introduction().bytes();
        for bit in 0..8 * PRIVATE_BYTES {
            let mut other = sent;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(
                PairIntroduction::parse(&other),
                Some(introduction()),
                "{bit}"
            );
        }
    }

    #[test]
    fn secrets_differ_and_are_not_printed() {
        let (one, other) = (
            AddressSecret::fresh().unwrap(),
            AddressSecret::fresh().unwrap(),
        );
        assert_ne!(one, other);
        assert_ne!(one, AddressSecret([0; 16]));
        assert_eq!(format!("{:?}", AddressSecret([7; 16])), "AddressSecret(…)");
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<AddressSecret>(&text).unwrap(), one);
    }

    #[test]
    fn one_of_two_ranks_sends_the_request() {
        for (own, peer) in [(0, 1), (1, 0), (5, 9), (u32::MAX, 0)] {
            assert_ne!(asks(own, peer), asks(peer, own), "{own} {peer}");
        }
        assert!(asks(0, 1));
    }
}
