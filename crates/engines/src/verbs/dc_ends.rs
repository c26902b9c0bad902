//! The ends of `verbs:dc`: a worker's initiators and its target, made once for all peers, and the addresses of their
//! targets.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tonnage_engine::{Card, Neighbor};
use tonnage_sys::verbs::{LinkLayer, PathTo};
use tonnage_units::{Error, Result};

use super::choose::unavailable;
use super::dc_device::DcDevice;
use super::options::FlowLabel;
use super::pairs::{FarBytes, PeerPairs, WorkerPair};
use super::peers::spread;
use super::port::OpenPort;
use super::send_queue::SendQueue;
use super::target_card::{AccessKey, OwnTarget, TargetCard};
use super::worker::VerbsWorker;

/// The peer of an initiator before an operation of it has failed.
const NO_RANK: u32 = u32::MAX;

impl VerbsWorker {
    /// Makes the initiators and the target, where the transport is DC.
    pub(super) fn open_dc(&mut self) -> Result<()> {
        let port = Arc::clone(&self.port);
        let Some(device) = &port.dc else {
            return Ok(());
        };
        let about = |why| Error::Failed(format!("verbs:dc on {}: {why}", port.in_words()));
        self.queues.open_dc(&device.library).map_err(about)?;
        for _ in 0..port.asked.initiators {
            self.add_initiator(&port, device)?;
        }
        // Only who was given the key is let in, whatever else is on the network.
        let access_key = AccessKey::fresh()?;
        let target = self
            .queues
            .make_target(access_key.number())
            .map_err(about)?;
        let path = PathTo {
            gids: port.own_gids(),
            lid: port.chosen.port.lid,
            flow_label: match port.asked.flow_label {
                FlowLabel::Fixed(label) => label,
                FlowLabel::Auto | FlowLabel::Spread => 0,
            },
            ..own_path(&port)
        };
        let started = self.queues.start_target(target, &path, port.asked.patience);
        let number = started.map_err(about)?;
        self.target = Some(OwnTarget { number, access_key });
        self.mtu = Some(port.mtu());
        Ok(())
    }

    fn add_initiator(&mut self, port: &OpenPort, device: &DcDevice) -> Result<()> {
        let about = |why: String| {
            let depth = self.send_depth;
            Error::Failed(format!(
                "verbs:dc on {}: {why}; an initiator was to have {depth} work requests (engine-options dci and sq-depth)",
                port.in_words()
            ))
        };
        let made = self
            .queues
            .make_initiator(self.send_depth, port.inline_bytes());
        let handle = made.map_err(about)?;
        let limits = self.queues.limits(handle);
        let inline = limits.map_or(0, |limits| limits.inline_bytes);
        port.check_inline(inline)?;
        let reads = dc_reads(port, device)?;
        let path = PathTo {
            reads_out: reads,
            // Packets of an earlier run between queue pairs of the same numbers must not be taken for this one's.
            first_packet_out: RandomState::new().hash_one(self.pairs.len()) as u32 & 0xff_ffff,
            ..own_path(port)
        };
        let started = self
            .queues
            .start_initiator(handle, &path, port.asked.patience);
        let granted = started
            .map_err(|why| Error::Failed(format!("verbs:dc on {}: {why}", port.in_words())))?;
        if let Some(asked) = port.asked.reads.filter(|&asked| asked > granted) {
            return Err(too_many_reads(asked, port, granted));
        }
        self.reads = Some(self.reads.map_or(granted, |reads| reads.min(granted)));
        self.pairs.push(WorkerPair {
            handle,
            number: self.queues.number(handle),
            peer: NO_RANK,
            sends: SendQueue::new(self.send_depth),
            inline_bytes: inline.min(port.inline_bytes()),
            receives_posted: 0,
            used_up: 0,
            broken: None,
        });
        Ok(())
    }

    /// Gives a peer one of the initiators, the next in turn, and returns the card that tells it of the target.
    pub(super) fn target_card(&mut self, rank: u32) -> Result<Card> {
        let (Some(target), false) = (self.target, self.pairs.is_empty()) else {
            return Err(Error::Failed("verbs:dc has no target".into()));
        };
        let mailbox = self.queues.remote(self.contact_region);
        let mailbox =
            mailbox.ok_or_else(|| Error::Failed("the mailbox is not registered".into()))?;
        let place = self.peers.len() % self.pairs.len();
        self.peers.push(PeerPairs {
            rank,
            device: String::new(),
            one_sided: place,
            messages: place,
            first_packet: 0,
            mailbox: None,
            mtu: 0,
            is_connected: false,
            address: None,
        });
        let port = &self.port;
        let card = TargetCard {
            device: port.in_words(),
            target: target.number,
            access_key: target.access_key,
            mtu: port.mtu(),
            gid: port.gid(),
            lid: port.chosen.port.lid,
            over_ethernet: port.chosen.port.link_layer == LinkLayer::Ethernet,
            mailbox: FarBytes::from(&mailbox),
            peer: rank,
        };
        Ok(card.card())
    }

    /// Makes the address of a peer's target.
    pub(super) fn address_one(&mut self, neighbor: &Neighbor) -> Result<()> {
        let (rank, own) = (neighbor.peer, self.config.rank);
        let failed =
            |why: String| Error::Failed(format!("verbs:dc between ranks {own} and {rank}: {why}"));
        let mtu = self.port.mtu();
        let card = TargetCard::parse(&neighbor.card, own, mtu).map_err(failed)?;
        let at = self
            .peers
            .iter()
            .position(|peer| peer.rank == rank && !peer.is_connected);
        let at = at.ok_or_else(|| failed("no card was made for it".into()))?;
        let gids = self
            .port
            .gids_with(card.over_ethernet, card.gid, &card.device)
            .map_err(failed)?;
        let number = self.pairs[self.peers[at].one_sided].number;
        let path = PathTo {
            number: card.target,
            gids,
            lid: card.lid,
            flow_label: match self.port.asked.flow_label {
                FlowLabel::Auto => 0,
                FlowLabel::Fixed(label) => label,
                FlowLabel::Spread => spread(number, card.target),
            },
            ..own_path(&self.port)
        };
        let made = self.queues.make_address(&path, card.access_key.number());
        let mailbox = card.mailbox.keyed().map_err(failed)?;
        let address = made.map_err(|why| {
            let ends = self.port.both_ends(&card.device);
            failed(format!("{why}; {ends}"))
        })?;
        let peer = &mut self.peers[at];
        peer.device = card.device;
        peer.mailbox = Some(mailbox);
        peer.mtu = mtu;
        peer.address = Some(address);
        peer.is_connected = true;
        Ok(())
    }
}

/// This side of every path: port, partition, MTU, service level and traffic class.
fn own_path(port: &OpenPort) -> PathTo {
    PathTo {
        port: port.number(),
        pkey_index: port.asked.pkey_index,
        number: 0,
        first_packet_out: 0,
        first_packet_in: 0,
        mtu: port.mtu(),
        gids: None,
        lid: 0,
        service_level: port.asked.service_level,
        traffic_class: port.asked.traffic_class,
        flow_label: 0,
        reads_out: 0,
        reads_in: 0,
    }
}

/// Reads that an initiator is asked to have in flight.
fn dc_reads(port: &OpenPort, device: &DcDevice) -> Result<u8> {
    let most = device.reads.map_or(u8::MAX, |reads| reads.as_initiator);
    match port.asked.reads {
        Some(asked) if asked > most => Err(too_many_reads(asked, port, most)),
        _ => Ok(port.reads().min(most).max(1)),
    }
}

fn too_many_reads(asked: u8, port: &OpenPort, most: u8) -> Error {
    let name = port.chosen.context.name();
    unavailable(
        format!("rd-atomic={asked}, and an initiator of {name} takes {most}"),
        &format!("Choose rd-atomic=max or at most {most}"),
    )
}
