//! Cards of workers whose operations the kernel posts: the queue pairs of user space that the peer's lanes lead to, and
//! this worker's own lanes.

use serde::{Deserialize, Serialize};
use tonnage_engine::Card;

use super::pairs::PairCard;

/// Card of a worker for one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KernelCard {
    /// Queue pairs of user space, for the peer's lanes: one for each.
    pub(super) pairs: Vec<PairCard>,
    /// Lanes of this worker that lead to the peer: number of the queue pair, and of its first packet. Empty on a rank
    /// that is only a target.
    pub(super) lanes: Vec<(u32, u32)>,
}

impl KernelCard {
    pub(super) fn card(&self) -> Card {
        // Numbers and texts: writing them as JSON cannot fail.
        Card(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Reads a peer's card, which has to be for this rank and for so many queue pairs.
    pub(super) fn parse(card: &Card, own: u32, pairs: u32) -> Result<Self, String> {
        let card: Self = serde_json::from_slice(&card.0)
            .map_err(|error| format!("its address cannot be read ({error})"))?;
        if card.pairs.iter().any(|pair| pair.peer != own) {
            return Err("it does not expect this rank".into());
        }
        let lanes = card.lanes.len();
        if card.pairs.len() != pairs as usize || (lanes != 0 && lanes != pairs as usize) {
            return Err(format!(
                "it has {} queue pairs for this rank, and this side {pairs}",
                card.pairs.len()
            ));
        }
        if card.pairs.iter().any(|pair| pair.numbers.len() != 1) {
            return Err("its queue pairs have no number each".into());
        }
        Ok(card)
    }

    /// Cards of the lanes as if they were queue pairs of user space, so that those of the other side connect to them.
    pub(super) fn as_pairs(&self) -> impl Iterator<Item = PairCard> {
        let lanes = self.lanes.iter().zip(&self.pairs);
        lanes.map(|(&(number, first_packet), pair)| PairCard {
            numbers: vec![number],
            first_packet,
            ..pair.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use tonnage_sys::verbs::{KeyedRegion, RegionKeys};

    use super::super::pairs::FarBytes;
    use super::*;

    fn card() -> KernelCard {
        let pair = |number| PairCard {
            device: "rxeA:1".into(),
            numbers: vec![number],
            first_packet: 7,
            mtu: 4096,
            gid: Some([3; 16]),
            lid: 0,
            over_ethernet: true,
            reads_as_target: 16,
            reads_as_initiator: 16,
            mailbox: FarBytes::from(&KeyedRegion {
                base: 1 << 40,
                keys: RegionKeys::one(5),
                len: 8192,
            }),
            peer: 3,
            cm: None,
        };
        KernelCard {
            pairs: vec![pair(17), pair(18)],
            lanes: vec![(40, 1000), (41, 1001)],
        }
    }

    #[test]
    fn a_card_is_read_as_it_was_written_and_lanes_pass_for_queue_pairs() {
        let read = KernelCard::parse(&card().card(), 3, 2).unwrap();
        assert_eq!(read, card());
        let seen: Vec<(u32, u32, u32)> = read
            .as_pairs()
            .map(|pair| (pair.numbers[0], pair.first_packet, pair.mtu))
            .collect();
        assert_eq!(seen, [(40, 1000, 4096), (41, 1001, 4096)]);
        let target = KernelCard {
            lanes: Vec::new(),
            ..card()
        };
        let read = KernelCard::parse(&target.card(), 3, 2).unwrap();
        assert_eq!(read.as_pairs().count(), 0);
    }

    #[test]
    fn a_card_that_does_not_fit_is_refused() {
        let refused = |card: &KernelCard, own, pairs| {
            KernelCard::parse(&card.card(), own, pairs).unwrap_err()
        };
        assert!(refused(&card(), 4, 2).contains("does not expect"));
        assert!(refused(&card(), 3, 1).contains("2 queue pairs"));
        let mut few = card();
        few.lanes.pop();
        assert!(refused(&few, 3, 2).contains("queue pairs"));
        let mut nameless = card();
        nameless.pairs[1].numbers.clear();
        assert!(refused(&nameless, 3, 2).contains("no number"));
        let garbage = KernelCard::parse(&Card(b"{}".to_vec()), 3, 2).unwrap_err();
        assert!(garbage.contains("cannot be read"));
    }
}
