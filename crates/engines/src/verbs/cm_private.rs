//! Private data of connections by rdma_cm: proof to each side that the other is the peer, and the queue pair, that the
//! control channel told it of.
//!
//! What lives here: the bytes, what a card tells for it, and who asks whom. What does not: sending them, in `cm`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tonnage_units::{Error, Result};

/// Bytes by which another program's requests are known, and those of another version.
const MAGIC: [u8; 4] = *b"tcm1";

/// Bytes of all of it. The library takes 56 at most of who asks.
pub(super) const PRIVATE_BYTES: usize = 32;

/// Secret that a card tells one peer, and that this peer has to show when it connects.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct CardSecret([u8; 16]);

impl CardSecret {
    pub(super) fn fresh() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::Failed(format!("no random bytes from the system: {error}")))?;
        Ok(Self(bytes))
    }
}

/// Looks at all bytes, wherever the first difference is.
impl PartialEq for CardSecret {
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(other.0);
        pairs.fold(0, |found, (one, other)| found | (one ^ other)) == 0
    }
}

impl Eq for CardSecret {}

/// Not for logs.
impl std::fmt::Debug for CardSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CardSecret(…)")
    }
}

/// Part of a card that is for connecting by rdma_cm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CmCard {
    /// Address that it is connected to, or from.
    pub(super) address: IpAddr,
    /// Port at which it listens for this peer; `None` where it asks.
    pub(super) port: Option<u16>,
    /// The peer has to show it.
    pub(super) secret: CardSecret,
}

/// Private data of one side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PairIntroduction {
    /// The secret of the other side's card.
    pub(super) secret: CardSecret,
    /// The rank that sends it.
    pub(super) from: u32,
    /// The rank that it is for.
    pub(super) to: u32,
    /// Queue pair of those between both: 0 for that of the one-sided verbs, 1 for that of messages.
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

    /// Reads what came, behind which the library has put zeros; `None` for what is no such thing.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (secret, rest) = rest.split_first_chunk::<16>()?;
        let (from, rest) = rest.split_first_chunk::<4>()?;
        let (to, rest) = rest.split_first_chunk::<4>()?;
        let (purpose, _) = rest.split_first_chunk::<4>()?;
        Some(Self {
            secret: CardSecret(*secret),
            from: u32::from_be_bytes(*from),
            to: u32::from_be_bytes(*to),
            purpose: u32::from_be_bytes(*purpose),
        })
    }
}

/// True for the side that asks: the lower rank of both.
pub(super) fn asks(own: u32, peer: u32) -> bool {
    own < peer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction() -> PairIntroduction {
        PairIntroduction {
            secret: CardSecret([7; 16]),
            from: 3,
            to: 0x0102_0304,
            purpose: 1,
        }
    }

    #[test]
    fn what_was_sent_is_read_also_with_zeros_behind_it() {
        let sent = introduction().bytes();
        assert_eq!(PairIntroduction::parse(&sent), Some(introduction()));
        let padded = [&sent[..], &[0; 24]].concat();
        assert_eq!(padded.len(), 56);
        assert_eq!(PairIntroduction::parse(&padded), Some(introduction()));
    }

    #[test]
    fn what_is_too_short_or_of_others_is_nothing() {
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
    fn secrets_differ_and_stay_out_of_texts() {
        let (one, other) = (CardSecret::fresh().unwrap(), CardSecret::fresh().unwrap());
        assert_ne!(one, other);
        assert_ne!(one, CardSecret([0; 16]));
        assert_eq!(format!("{:?}", CardSecret([7; 16])), "CardSecret(…)");
        let told = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<CardSecret>(&told).unwrap(), one);
    }

    #[test]
    fn one_of_two_asks() {
        for (own, peer) in [(0, 1), (1, 0), (5, 9), (u32::MAX, 0)] {
            assert_ne!(asks(own, peer), asks(peer, own), "{own} {peer}");
        }
        assert!(asks(0, 1));
    }
}
