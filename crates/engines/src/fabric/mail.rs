//! Mailboxes for first contact: a place for the greeting of each peer, one from which this side's own is sent, and one
//! into which flushes read.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonnage_sys::libfabric::{RegionHandle, RemoteRegion};
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_units::{Error, Result};

/// Bytes of one place: a cache line.
const PLACE_BYTES: u64 = 64;

/// A mailbox for peers whose cards were made together.
pub(super) struct Mail {
    pub(super) arena: Arc<Arena>,
    pub(super) region: RegionHandle,
    pub(super) remote: RemoteRegion,
    /// Peers whose greetings come, each with the number of its place.
    peers: BTreeMap<u32, u64>,
}

/// The place where a peer's greeting comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Greeted {
    /// Index of the mailbox.
    pub(super) mail: usize,
    /// Offset in it.
    pub(super) place: u64,
}

impl Mail {
    /// Memory for a mailbox of so many peers.
    pub(super) fn allocate(peers: usize) -> Result<Arc<Arena>> {
        let bytes = (peers + 2) * PLACE_BYTES as usize;
        let arena = Arena::allocate(bytes, Pages::Normal, Sharing::Private, None);
        let arena = arena.map_err(|error| Error::io(format!("cannot map {bytes} bytes"), error))?;
        Ok(Arc::new(arena))
    }

    /// A mailbox in registered memory, with the greeting of `rank` ready to be sent.
    pub(super) fn new(
        arena: Arc<Arena>,
        region: RegionHandle,
        remote: RemoteRegion,
        peers: Vec<u32>,
        rank: u32,
    ) -> Result<Self> {
        let mail = Self {
            arena,
            region,
            remote,
            peers: peers.into_iter().zip(0..).collect(),
        };
        let written = mail.arena.write(mail.own(), &greeting(rank).to_le_bytes());
        written.map_err(|error| Error::Failed(error.to_string()))?;
        Ok(mail)
    }

    /// Place of the greeting of a peer.
    pub(super) fn place(&self, peer: u32) -> Option<u64> {
        Some(self.peers.get(&peer)? * PLACE_BYTES)
    }

    /// Place of this side's own greeting.
    pub(super) fn own(&self) -> u64 {
        self.peers.len() as u64 * PLACE_BYTES
    }

    /// Place for the bytes that a flush reads.
    pub(super) fn scratch(&self) -> u64 {
        self.own() + PLACE_BYTES
    }
}

/// Greeting that a rank writes into its peers' mailboxes: never 0, which is what they hold before.
pub(super) fn greeting(rank: u32) -> u64 {
    u64::from(rank) + 1
}
