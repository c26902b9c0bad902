//! Card of `verbs:dc`: the address of a worker's target, and what its initiators have to have in common with it.

use serde::{Deserialize, Serialize};
use tonnage_engine::Card;
use tonnage_units::{Error, Result};

use super::pairs::FarBytes;

/// The largest number of a queue pair.
const NUMBER_MAX: u32 = 0xff_ffff;

/// Key that lets initiators in to a target.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AccessKey(u64);

impl AccessKey {
    /// One that nobody knows yet.
    pub(super) fn fresh() -> Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::Failed(format!("no random bytes from the system: {error}")))?;
        Ok(Self(u64::from_ne_bytes(bytes)))
    }

    /// The number that devices are told.
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// Not for logs.
impl std::fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessKey(…)")
    }
}

/// The target of a worker, as initiators reach it.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnTarget {
    pub(super) number: u32,
    pub(super) access_key: AccessKey,
}

/// Card of a worker for one peer. It holds the key that lets initiators in: cards travel over a channel that nobody
/// else reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TargetCard {
    /// Device and port, in words.
    pub(super) device: String,
    /// Number of the target.
    pub(super) target: u32,
    /// Its access key.
    pub(super) access_key: AccessKey,
    /// Payload of a packet.
    pub(super) mtu: u32,
    pub(super) gid: Option<[u8; 16]>,
    pub(super) lid: u16,
    pub(super) over_ethernet: bool,
    /// Bytes that first contact reads.
    pub(super) mailbox: FarBytes,
    /// The rank that it is for.
    pub(super) peer: u32,
}

impl TargetCard {
    pub(super) fn card(&self) -> Card {
        // Numbers and texts: writing them as JSON cannot fail.
        Card(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Reads a card for rank `own`, whose initiators have packets of `mtu` bytes.
    pub(super) fn parse(card: &Card, own: u32, mtu: u32) -> Result<Self, String> {
        let card: Self = serde_json::from_slice(&card.0)
            .map_err(|error| format!("its address cannot be read ({error})"))?;
        if card.peer != own {
            return Err("it does not expect this rank".into());
        }
        if card.target == 0 || card.target > NUMBER_MAX {
            return Err(format!("its target cannot have the number {}", card.target));
        }
        if card.mtu != mtu {
            return Err(format!(
                "its packets carry {} bytes and those of this side {mtu}: initiators of DC need one MTU for all their \
                 targets; give all ranks the engine-option mtu={}",
                card.mtu,
                card.mtu.min(mtu)
            ));
        }
        Ok(card)
    }
}

#[cfg(test)]
mod tests {
    use tonnage_sys::verbs::{KeyedRegion, RegionKeys};

    use super::*;

    fn card() -> TargetCard {
        TargetCard {
            device: "mlx5_0:1".into(),
            target: 0x1234,
            access_key: AccessKey(u64::MAX - 1),
            mtu: 4096,
            gid: Some([7; 16]),
            lid: 9,
            over_ethernet: true,
            mailbox: FarBytes::from(&KeyedRegion {
                base: 1 << 40,
                keys: RegionKeys::one(77),
                len: 8192,
            }),
            peer: 3,
        }
    }

    #[test]
    fn a_card_is_read_as_it_was_written() {
        assert_eq!(TargetCard::parse(&card().card(), 3, 4096), Ok(card()));
        let without = TargetCard {
            gid: None,
            ..card()
        };
        assert_eq!(TargetCard::parse(&without.card(), 3, 4096), Ok(without));
    }

    #[test]
    fn a_card_that_does_not_fit_is_refused() {
        let refused = |card: &Card| TargetCard::parse(card, 3, 4096).unwrap_err();
        assert!(refused(&Card(b"{}".to_vec())).contains("cannot be read"));
        assert!(refused(&Card(vec![0xff; 9])).contains("cannot be read"));
        let other = TargetCard { peer: 4, ..card() };
        assert!(refused(&other.card()).contains("does not expect"));
        for target in [0, 1 << 24] {
            let nowhere = TargetCard { target, ..card() };
            assert!(refused(&nowhere.card()).contains("number"));
        }
        let small = TargetCard {
            mtu: 1024,
            ..card()
        };
        assert!(refused(&small.card()).contains("mtu=1024"));
    }
}
