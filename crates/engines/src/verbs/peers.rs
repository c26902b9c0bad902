//! The queue pairs to each peer: creating them, their endpoint addresses, and connecting them.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_engine::{Descriptor, EndpointAddress, Facts, PeerEndpoint};
use tonnage_sys::verbs::{
    AddressHandle, KeyedRegion, LinkLayer, PairHandle, PathTo, QueueDepths, RegionKeys,
};
use tonnage_units::{Error, Result};

use super::cm_private::CmAddress;
use super::send_queue::SendQueue;
use super::worker::Worker;

impl Worker {
    /// Creates the queue pairs to a peer. Returns the endpoint address that contains their numbers.
    pub(super) fn address_for(&mut self, rank: u32) -> Result<EndpointAddress> {
        let port = Arc::clone(&self.port);
        let about = |why| {
            let at = port.in_words();
            Error::Failed(format!(
                "verbs:rc on {at}: cannot create a queue pair for rank {rank}: {why}"
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
            let pair = self.pair(handle, rank)?;
            places.push(self.peers.add_pair(pair));
        }
        let one_sided = places[0];
        let mut pairs = PeerPairs::new(rank, one_sided);
        pairs.messages = places.last().copied().unwrap_or(one_sided);
        pairs.first_packet = first_packet(rank);
        let numbers = places.iter().map(|&place| self.peers.pair(place).number);
        let address = PairAddress {
            device: port.in_words(),
            numbers: numbers.collect(),
            first_packet: pairs.first_packet,
            mtu: port.mtu(),
            gid: port.gid(),
            lid: port.chosen.port.lid,
            over_ethernet: port.chosen.port.link_layer == LinkLayer::Ethernet,
            reads_as_target: port.limits.reads_as_target,
            reads_as_initiator: port.reads(),
            mailbox: self.memories.mailbox(&self.queues)?,
            peer: rank,
            cm: self.cm_address(rank)?,
        };
        self.peers.add(pairs);
        Ok(EndpointAddress::encode(&address))
    }

    /// Wraps a new queue pair.
    ///
    /// # Errors
    /// If its work requests can hold less inline payload than the user requested.
    pub(super) fn pair(&self, handle: PairHandle, peer: u32) -> Result<WorkerQueuePair> {
        let limits = self.queues.limits(handle);
        let inline = limits.map_or(0, |limits| limits.inline_bytes);
        self.port.check_inline(inline)?;
        Ok(WorkerQueuePair {
            handle,
            number: self.queues.number(handle),
            peer,
            sends: SendQueue::new(self.send_depth),
            // The device may grant more than was requested. Using more would make the option pointless.
            inline_bytes: inline.min(self.port.inline_bytes()),
            receives_posted: 0,
            used_up: 0,
            broken: None,
        })
    }

    /// Connects the queue pairs to a peer with the queue pairs in the peer's endpoint address.
    pub(super) fn connect_one(&mut self, neighbor: &PeerEndpoint) -> Result<()> {
        let (rank, own) = (neighbor.peer, self.config.rank);
        let failed =
            |why: String| Error::Failed(format!("verbs:rc between ranks {own} and {rank}: {why}"));
        let address: PairAddress = serde_json::from_slice(&neighbor.address.0)
            .map_err(|error| failed(format!("cannot decode the peer's address ({error})")))?;
        if address.peer != own {
            return Err(failed("the peer does not expect this rank".into()));
        }
        let at = self.peers.unconnected(rank).map_err(failed)?;
        let path = self
            .path(&address, self.peers.at(at).first_packet)
            .map_err(failed)?;
        let places = self.peers.at(at).places();
        if places.len() != address.numbers.len() {
            return Err(failed(
                "only one of them needs a queue pair for messages".into(),
            ));
        }
        for (&place, &number) in places.iter().zip(&address.numbers) {
            self.fill_with_receives(place)
                .map_err(|why| failed(why.into()))?;
            let own_number = self.peers.pair(place).number;
            let path = PathTo {
                number,
                flow_label: self.port.asked.flow_label.between(own_number, number),
                ..path
            };
            let handle = self.peers.pair(place).handle;
            let connected = if self.cm.is_some() {
                self.begin_by_cm(at, place, path, &address)
            } else {
                (self.queues.connect(handle, &path, self.port.asked.patience)).map_err(String::from)
            };
            connected.map_err(|why| {
                let ends = self.port.both_ends(&address.device);
                failed(format!("{why}; {ends}"))
            })?;
        }
        let mailbox = address.mailbox.keyed().map_err(failed)?;
        let peer = self.peers.at_mut(at);
        peer.device = address.device;
        peer.mailbox = Some(mailbox);
        peer.mtu = path.mtu;
        peer.is_connected = true;
        self.peers.agree_on_mtu(path.mtu);
        self.peers.agree_on_reads(path.reads_out);
        Ok(())
    }

    /// Returns the path to a peer. The caller adds the queue pair number and the flow label.
    fn path(&self, address: &PairAddress, first_packet: u32) -> Result<PathTo, String> {
        let port = &self.port;
        let gids = port.gids_with(address.over_ethernet, address.gid, &address.device)?;
        let reads_in = port.limits.reads_as_target;
        Ok(PathTo {
            first_packet_out: first_packet,
            first_packet_in: address.first_packet,
            mtu: port.mtu().min(address.mtu),
            gids,
            lid: address.lid,
            reads_out: port.reads().min(address.reads_as_target).max(1),
            reads_in: reads_in.min(address.reads_as_initiator).max(1),
            ..port.path()
        })
    }
}

/// A worker's peers, and its queue pairs. Both are identified by index.
pub(super) struct Peers {
    pairs: Vec<WorkerQueuePair>,
    peers: Vec<PeerPairs>,
    /// Number of peers that completed first contact.
    met: usize,
    /// Smallest values that were agreed with any peer.
    mtu: Option<u32>,
    reads: Option<u8>,
}

impl Peers {
    pub(super) fn with_room(peers_max: u32) -> Self {
        Self {
            pairs: Vec::new(),
            peers: Vec::with_capacity(peers_max as usize),
            met: 0,
            mtu: None,
            reads: None,
        }
    }

    #[inline]
    pub(super) fn pair(&self, place: usize) -> &WorkerQueuePair {
        &self.pairs[place]
    }

    #[inline]
    pub(super) fn pair_mut(&mut self, place: usize) -> &mut WorkerQueuePair {
        &mut self.pairs[place]
    }

    pub(super) fn pairs(&self) -> &[WorkerQueuePair] {
        &self.pairs
    }

    /// Adds a queue pair, and returns its index.
    pub(super) fn add_pair(&mut self, pair: WorkerQueuePair) -> usize {
        self.pairs.push(pair);
        self.pairs.len() - 1
    }

    pub(super) fn at(&self, place: usize) -> &PeerPairs {
        &self.peers[place]
    }

    pub(super) fn at_mut(&mut self, place: usize) -> &mut PeerPairs {
        &mut self.peers[place]
    }

    pub(super) fn all(&self) -> &[PeerPairs] {
        &self.peers
    }

    pub(super) fn add(&mut self, peer: PeerPairs) {
        self.peers.push(peer);
    }

    pub(super) fn of_rank(&self, rank: u32) -> Option<&PeerPairs> {
        self.peers.iter().find(|peer| peer.rank == rank)
    }

    /// Returns the index of a peer that is not connected yet.
    pub(super) fn unconnected(&self, rank: u32) -> Result<usize, String> {
        let is_it = |peer: &PeerPairs| peer.rank == rank && !peer.is_connected;
        let at = self.peers.iter().position(is_it);
        at.ok_or_else(|| "this side made no endpoint address for it".to_owned())
    }

    /// Returns the indices of the peers that have not completed first contact.
    pub(super) fn unmet(&self) -> Range<usize> {
        self.met..self.peers.len()
    }

    /// Records that all peers have completed first contact.
    pub(super) fn note_met(&mut self) {
        self.met = self.peers.len();
    }

    pub(super) fn agree_on_mtu(&mut self, mtu: u32) {
        self.mtu = least(self.mtu, mtu);
    }

    pub(super) fn agree_on_reads(&mut self, reads: u8) {
        self.reads = least(self.reads, reads);
    }

    /// Adds the smallest values that were agreed with any peer to the facts.
    pub(super) fn add_agreed(&self, facts: Facts) -> Facts {
        facts
            .with_optional_fact("mtu_bytes", self.mtu)
            .with_optional_fact("rd_atomic", self.reads.map(u32::from))
    }
}

/// Returns the minimum of `so_far` and `more`.
pub(super) fn least<T: Ord + Copy>(so_far: Option<T>, more: T) -> Option<T> {
    Some(so_far.map_or(more, |least| least.min(more)))
}

/// Returns a random number for the first packet. Late packets of an earlier run may have the same queue pair numbers.
/// They must not be mistaken for packets of this run.
pub(super) fn first_packet(of: impl std::hash::Hash) -> u32 {
    RandomState::new().hash_one(of) as u32 & 0xff_ffff
}

/// A queue pair of this worker.
pub(super) struct WorkerQueuePair {
    pub(super) handle: PairHandle,
    pub(super) number: u32,
    /// The peer's rank. For a DC initiator, the rank that the first failed operation was for.
    pub(super) peer: u32,
    pub(super) sends: SendQueue,
    pub(super) inline_bytes: u32,
    /// Number of posted receives for messages.
    pub(super) receives_posted: u32,
    /// Number of receives that write-imms have consumed since receives were last posted.
    pub(super) used_up: u32,
    /// State and device code of the queue pair's first failure.
    pub(super) broken: Option<(u32, u32)>,
}

/// The queue pairs to a peer, as indices.
pub(super) struct PeerPairs {
    pub(super) rank: u32,
    /// Description of the peer's device and port; empty until connected.
    pub(super) device: String,
    pub(super) one_sided: usize,
    /// The queue pair for messages. Equal to `one_sided` if messages need no queue pair of their own.
    pub(super) messages: usize,
    /// Number of the first packet that this side sends.
    pub(super) first_packet: u32,
    /// Bytes of the peer that this side reads in first contact; `None` until connected.
    pub(super) mailbox: Option<KeyedRegion>,
    /// Maximum payload of a packet to the peer; 0 until connected.
    pub(super) mtu: u32,
    pub(super) is_connected: bool,
    /// Address of the peer's DC target; `None` until connected.
    pub(super) address: Option<AddressHandle>,
}

impl PeerPairs {
    /// A peer that is not connected yet, with one queue pair.
    pub(super) fn new(rank: u32, place: usize) -> Self {
        Self {
            rank,
            device: String::new(),
            one_sided: place,
            messages: place,
            first_packet: 0,
            mailbox: None,
            mtu: 0,
            is_connected: false,
            address: None,
        }
    }

    /// Returns the indices of the queue pairs to this peer.
    pub(super) fn places(&self) -> Vec<usize> {
        let mut places = vec![self.one_sided, self.messages];
        places.dedup();
        places
    }
}

/// Registered memory of a peer, in the form of its descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FarBytes {
    base: u64,
    len: u64,
    /// Distance in bytes between the starts of two pieces with their own keys; 0 if there is only one key.
    stride: u64,
    keys: Vec<u32>,
}

impl From<&KeyedRegion> for FarBytes {
    fn from(region: &KeyedRegion) -> Self {
        let (stride, keys) = region.keys.parts();
        Self {
            base: region.base,
            len: region.len,
            stride,
            keys,
        }
    }
}

/// An empty region.
pub(super) fn no_bytes() -> KeyedRegion {
    KeyedRegion {
        base: 0,
        keys: RegionKeys::one(0),
        len: 0,
    }
}

impl FarBytes {
    pub(super) fn parse(descriptor: &Descriptor, rank: u32) -> Result<KeyedRegion> {
        let bytes = serde_json::from_slice(&descriptor.0).map_err(|error| error.to_string());
        bytes.and_then(Self::keyed).map_err(|why| {
            Error::Failed(format!("cannot decode the region of rank {rank} ({why})"))
        })
    }

    /// Converts this to the region type that work requests use.
    pub(super) fn keyed(self) -> Result<KeyedRegion, String> {
        let keys = RegionKeys::of_pieces(self.len, self.stride, &self.keys);
        Ok(KeyedRegion {
            base: self.base,
            keys: keys.ok_or("its numbers of keys and pieces differ")?,
            len: self.len,
        })
    }
}

/// Endpoint address of a worker for one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PairAddress {
    /// Description of device and port.
    pub(super) device: String,
    /// Queue pair numbers: for one-sided verbs, and for messages if they have another queue pair.
    pub(super) numbers: Vec<u32>,
    pub(super) first_packet: u32,
    pub(super) mtu: u32,
    pub(super) gid: Option<[u8; 16]>,
    pub(super) lid: u16,
    pub(super) over_ethernet: bool,
    /// Maximum number of reads that this side can serve at once as target, and keep in flight as initiator.
    pub(super) reads_as_target: u8,
    pub(super) reads_as_initiator: u8,
    /// Bytes of this side that the peer reads in first contact.
    pub(super) mailbox: FarBytes,
    /// The rank that this address is for.
    pub(super) peer: u32,
    /// The rdma_cm part; `None` if rdma_cm is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cm: Option<CmAddress>,
}
