//! The queue pairs of a worker, and what it tells of them to its peers.

use serde::{Deserialize, Serialize};
use tonnage_engine::Descriptor;
use tonnage_sys::verbs::{AddressHandle, KeyedRegion, PairHandle, RegionKeys};
use tonnage_units::{Error, Result};

use super::cm_private::CmCard;
use super::send_queue::SendQueue;

/// A queue pair of this worker.
pub(super) struct WorkerPair {
    pub(super) handle: PairHandle,
    pub(super) number: u32,
    /// The rank that it leads to; of an initiator of DC, that of the operation that failed first.
    pub(super) peer: u32,
    pub(super) sends: SendQueue,
    pub(super) inline_bytes: u32,
    /// Receives of messages that are posted.
    pub(super) receives_posted: u32,
    /// Receives that writes with an immediate have used up since some were posted.
    pub(super) used_up: u32,
    /// State in which its first operation failed, with the device's code.
    pub(super) broken: Option<(u32, u32)>,
}

/// The queue pairs of a peer, by their places in the worker's list.
pub(super) struct PeerPairs {
    pub(super) rank: u32,
    /// Its device and port, in words; known once it is connected.
    pub(super) device: String,
    pub(super) one_sided: usize,
    /// Equal to that of the one-sided verbs where messages need no other.
    pub(super) messages: usize,
    /// Number of the first packet that this side sends.
    pub(super) first_packet: u32,
    /// Bytes of the peer that first contact reads; known once it is connected.
    pub(super) mailbox: Option<KeyedRegion>,
    /// Payload of a packet to it; known once it is connected.
    pub(super) mtu: u32,
    pub(super) is_connected: bool,
    /// Its target, over DC; known once it is connected.
    pub(super) address: Option<AddressHandle>,
}

/// Registered memory of a peer, as a descriptor says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FarBytes {
    base: u64,
    len: u64,
    /// Bytes between the beginnings of two pieces that have a key each; 0 where there is one key.
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

/// No bytes at all.
pub(super) fn no_bytes() -> KeyedRegion {
    KeyedRegion {
        base: 0,
        keys: RegionKeys::one(0),
        len: 0,
    }
}

impl FarBytes {
    pub(super) fn descriptor(self) -> Descriptor {
        // Numbers: writing them as JSON cannot fail.
        Descriptor(serde_json::to_vec(&self).unwrap_or_default())
    }

    pub(super) fn parse(descriptor: &Descriptor, rank: u32) -> Result<KeyedRegion> {
        let bytes = serde_json::from_slice(&descriptor.0).map_err(|error| error.to_string());
        bytes.and_then(Self::keyed).map_err(|why| {
            Error::Failed(format!("the region of rank {rank} cannot be read ({why})"))
        })
    }

    /// The memory that this describes.
    pub(super) fn keyed(self) -> Result<KeyedRegion, String> {
        let keys = RegionKeys::of_pieces(self.len, self.stride, &self.keys);
        Ok(KeyedRegion {
            base: self.base,
            keys: keys.ok_or("its keys are not as many as its pieces")?,
            len: self.len,
        })
    }
}

/// Card of a worker for one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PairCard {
    /// Device and port, in words.
    pub(super) device: String,
    /// Numbers of the queue pairs: that of the one-sided verbs, and that of messages where it is another.
    pub(super) numbers: Vec<u32>,
    pub(super) first_packet: u32,
    pub(super) mtu: u32,
    pub(super) gid: Option<[u8; 16]>,
    pub(super) lid: u16,
    pub(super) over_ethernet: bool,
    /// Reads that it can serve at once, and that it would have in flight.
    pub(super) reads_as_target: u8,
    pub(super) reads_as_initiator: u8,
    /// Bytes that first contact reads.
    pub(super) mailbox: FarBytes,
    /// The rank that it is for.
    pub(super) peer: u32,
    /// The part for rdma_cm; `None` where it does not connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cm: Option<CmCard>,
}
