//! The queue pairs to each peer: making them, telling the peer of them, and connecting.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tonnage_engine::{Card, Neighbor};
use tonnage_sys::verbs::{LinkLayer, PathTo, QueueDepths};
use tonnage_units::{Error, Result};

use super::options::FlowLabel;
use super::pairs::{FarBytes, PairCard, PeerPairs, WorkerPair};
use super::send_queue::SendQueue;
use super::worker::VerbsWorker;

impl VerbsWorker {
    /// Makes the queue pairs to a peer, and the card that tells of them.
    pub(super) fn card(&mut self, rank: u32) -> Result<Card> {
        let port = Arc::clone(&self.port);
        let about = |why| {
            let at = port.in_words();
            Error::Failed(format!(
                "verbs:rc on {at}: a queue pair for rank {rank} cannot be made: {why}"
            ))
        };
        let mut places = Vec::new();
        for &receives in &port.receives {
            let depths = QueueDepths {
                send: self.send_depth,
                receive: if receives { self.receive_depth } else { 1 },
            };
            let made = self.queues.make_pair(depths, port.inline_bytes());
            let handle = made.map_err(about)?;
            let key = port.asked.pkey_index;
            let ready = self
                .queues
                .initialize(handle, port.number(), key, port.atomics);
            ready.map_err(about)?;
            let limits = self.queues.limits(handle);
            let inline = limits.map_or(0, |limits| limits.inline_bytes);
            port.check_inline(inline)?;
            places.push(self.pairs.len());
            self.pairs.push(WorkerPair {
                handle,
                number: self.queues.number(handle),
                peer: rank,
                sends: SendQueue::new(self.send_depth),
                // What was not asked for is not taken, so that the option has its effect.
                inline_bytes: inline.min(port.inline_bytes()),
                receives_posted: 0,
                used_up: 0,
                broken: None,
            });
        }
        let one_sided = places[0];
        let pairs = PeerPairs {
            rank,
            device: String::new(),
            one_sided,
            messages: places.last().copied().unwrap_or(one_sided),
            // Packets of an earlier run between queue pairs of the same numbers must not be taken for this one's.
            first_packet: RandomState::new().hash_one(rank) as u32 & 0xff_ffff,
            mailbox: None,
            mtu: 0,
            is_connected: false,
            address: None,
        };
        let mut card = self.card_of(&pairs, &places)?;
        card.cm = self.card_by_cm(rank)?;
        self.peers.push(pairs);
        // Numbers and texts: writing them as JSON cannot fail.
        Ok(Card(serde_json::to_vec(&card).unwrap_or_default()))
    }

    fn card_of(&self, pairs: &PeerPairs, places: &[usize]) -> Result<PairCard> {
        let mailbox = self.queues.remote(self.contact_region);
        let mailbox =
            mailbox.ok_or_else(|| Error::Failed("the mailbox is not registered".into()))?;
        let port = &self.port;
        Ok(PairCard {
            device: port.in_words(),
            numbers: places
                .iter()
                .map(|&place| self.pairs[place].number)
                .collect(),
            first_packet: pairs.first_packet,
            mtu: port.mtu(),
            gid: port.gid(),
            lid: port.chosen.port.lid,
            over_ethernet: port.chosen.port.link_layer == LinkLayer::Ethernet,
            reads_as_target: port.limits.reads_as_target,
            reads_as_initiator: port.reads(),
            mailbox: FarBytes::from(&mailbox),
            peer: pairs.rank,
            cm: None,
        })
    }

    /// Connects the queue pairs of a peer with its own.
    pub(super) fn connect_one(&mut self, neighbor: &Neighbor) -> Result<()> {
        let (rank, own) = (neighbor.peer, self.config.rank);
        let failed =
            |why: String| Error::Failed(format!("verbs:rc between ranks {own} and {rank}: {why}"));
        let card: PairCard = serde_json::from_slice(&neighbor.card.0)
            .map_err(|error| failed(format!("its address cannot be read ({error})")))?;
        if card.peer != own {
            return Err(failed("it does not expect this rank".into()));
        }
        let at = self
            .peers
            .iter()
            .position(|peer| peer.rank == rank && !peer.is_connected);
        let at = at.ok_or_else(|| failed("no card was made for it".into()))?;
        let path = self
            .path(&card, self.peers[at].first_packet)
            .map_err(failed)?;
        let mut places = vec![self.peers[at].one_sided, self.peers[at].messages];
        places.dedup();
        if places.len() != card.numbers.len() {
            return Err(failed(
                "one of them wants a queue pair for messages and the other does not".into(),
            ));
        }
        for (&place, &number) in places.iter().zip(&card.numbers) {
            self.fill_with_receives(place).map_err(failed)?;
            let label = match self.port.asked.flow_label {
                FlowLabel::Auto => 0,
                FlowLabel::Fixed(label) => label,
                FlowLabel::Spread => spread(self.pairs[place].number, number),
            };
            let path = PathTo {
                number,
                flow_label: label,
                ..path
            };
            let handle = self.pairs[place].handle;
            let connected = match self.cm.is_some() {
                true => self.begin_by_cm(at, place, path, &card),
                false => self.queues.connect(handle, &path, self.port.asked.patience),
            };
            connected.map_err(|why| failed(format!("{why}; {}", self.both_ends(&card))))?;
        }
        let mailbox = card.mailbox.keyed().map_err(failed)?;
        let peer = &mut self.peers[at];
        peer.device = card.device;
        peer.mailbox = Some(mailbox);
        peer.mtu = path.mtu;
        peer.is_connected = true;
        self.mtu = Some(self.mtu.map_or(path.mtu, |mtu| mtu.min(path.mtu)));
        self.reads = Some(
            self.reads
                .map_or(path.reads_out, |it| it.min(path.reads_out)),
        );
        Ok(())
    }

    fn both_ends(&self, card: &PairCard) -> String {
        self.port.both_ends(&card.device)
    }

    /// The way to a peer; the queue pair's number and the flow label are the caller's to fill in.
    fn path(&self, card: &PairCard, first_packet: u32) -> Result<PathTo, String> {
        let port = &self.port;
        let gids = port.gids_with(card.over_ethernet, card.gid, &card.device)?;
        Ok(PathTo {
            port: port.number(),
            pkey_index: port.asked.pkey_index,
            number: 0,
            first_packet_out: first_packet,
            first_packet_in: card.first_packet,
            mtu: port.mtu().min(card.mtu),
            gids,
            lid: card.lid,
            service_level: port.asked.service_level,
            traffic_class: port.asked.traffic_class,
            flow_label: 0,
            reads_out: port.reads().min(card.reads_as_target).max(1),
            reads_in: port
                .limits
                .reads_as_target
                .min(card.reads_as_initiator)
                .max(1),
        })
    }
}

/// A flow label of 20 bits, alike on both sides and another for other queue pairs.
pub(super) fn spread(one: u32, other: u32) -> u32 {
    let product = u64::from(one).wrapping_mul(u64::from(other));
    let label = (product ^ product >> 20 ^ product >> 40) as u32 & 0xf_ffff;
    label.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_labels_are_alike_on_both_sides_and_differ_between_queue_pairs() {
        let labels: std::collections::BTreeSet<u32> = (17..81).map(|n| spread(n, n + 1)).collect();
        assert!(labels.len() > 60, "{labels:?}");
        assert!(labels.iter().all(|label| (1..=0xf_ffff).contains(label)));
        assert_eq!(spread(0x1234, 0x77), spread(0x77, 0x1234));
    }
}
