//! Creates the rings for a worker's peers, publishes the address of these rings, and maps the rings of the peers.
//!
//! Rings are memory files (memfd), which a peer opens through `/proc/PID/fd`. The kernel permits this only to the same
//! user. Memory files have no name, so a killed process leaves none behind.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_engine::{EndpointAddress, Peer, PeerEndpoint};
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_units::{Error, Result};

use super::mailbox::{self, Inbox, Outbox, PeerRings};

/// Address of the rings for one peer. Only this module decodes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RingsAddress {
    pid: u32,
    rings_fd: i32,
    rings_bytes: u64,
    /// Index of the slot that contains the rings.
    place: usize,
    /// The peer that these rings are for.
    peer: Peer,
}

/// The rings for this worker's peers, and the addresses of the rings in the peers' mailboxes.
pub(crate) struct Contacts {
    /// Name of the engine, for messages.
    engine: &'static str,
    /// This rank.
    rank: Peer,
    /// One mailbox for each call of `endpoint_addresses` with new peers.
    mailboxes: Vec<Arc<Arena>>,
    /// For each peer, the mailbox that contains the peer's rings, and the slot in that mailbox.
    places: BTreeMap<Peer, (usize, usize)>,
    /// Addresses of connected peers.
    addresses: BTreeMap<Peer, RingsAddress>,
}

impl Contacts {
    pub(crate) fn new(engine: &'static str, rank: Peer) -> Self {
        Self {
            engine,
            rank,
            mailboxes: Vec::new(),
            places: BTreeMap::new(),
            addresses: BTreeMap::new(),
        }
    }

    /// Returns the error for a peer with which this worker cannot share memory.
    pub(crate) fn unusable(&self, peer: Peer, why: String) -> Error {
        Error::Unavailable {
            what: format!("{} between ranks {} and {peer}", self.engine, self.rank),
            why,
            how: "Start both ranks on one host, in one container and as one user, or choose a network engine".into(),
        }
    }

    /// Opens a memory file of another process and maps it.
    pub(crate) fn attach(
        &self,
        peer: Peer,
        (pid, fd): (u32, i32),
        bytes: u64,
    ) -> Result<Arc<Arena>> {
        let path = format!("/proc/{pid}/fd/{fd}");
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file =
            file.map_err(|error| self.unusable(peer, format!("cannot open {path}: {error}")))?;
        let arena = Arena::attach(OwnedFd::from(file), bytes as usize);
        let arena =
            arena.map_err(|error| self.unusable(peer, format!("cannot map {path}: {error}")))?;
        Ok(Arc::new(arena))
    }

    /// Creates rings for the peers that have none yet.
    pub(crate) fn make_rings(&mut self, peers: &[Peer]) -> Result<()> {
        let known = &self.places;
        let fresh: Vec<Peer> = peers
            .iter()
            .copied()
            .filter(|peer| !known.contains_key(peer))
            .collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let bytes = mailbox::bytes(fresh.len());
        let rings = Arena::allocate(bytes, Pages::Normal, Sharing::Shared, None);
        let failed = |error| {
            Error::io(
                format!("cannot map {bytes} bytes for the rings of {}", self.engine),
                error,
            )
        };
        let rings = rings.map_err(failed)?;
        let mailbox = self.mailboxes.len();
        self.mailboxes.push(Arc::new(rings));
        for (place, peer) in fresh.into_iter().enumerate() {
            self.places.insert(peer, (mailbox, place));
        }
        Ok(())
    }

    pub(crate) fn address_for(&self, peer: Peer) -> Result<EndpointAddress> {
        let (mailbox, place) = self.place(peer)?;
        let rings = &self.mailboxes[mailbox];
        let address = RingsAddress {
            pid: std::process::id(),
            rings_fd: rings.file().map_or(-1, |file| file.as_raw_fd()),
            rings_bytes: rings.len() as u64,
            place,
            peer,
        };
        // Serializing numbers as JSON cannot fail.
        Ok(EndpointAddress(
            serde_json::to_vec(&address).unwrap_or_default(),
        ))
    }

    fn place(&self, peer: Peer) -> Result<(usize, usize)> {
        let place = self.places.get(&peer).copied();
        place.ok_or_else(|| self.unusable(peer, "this rank made no endpoint address for it".into()))
    }

    pub(crate) fn connect_one(&mut self, neighbor: &PeerEndpoint) -> Result<PeerRings> {
        let rank = neighbor.peer;
        let unusable = |why: &str| self.unusable(rank, why.to_owned());
        if let Some(separation) = neighbor.locality.separation() {
            return Err(unusable(separation));
        }
        let peer: RingsAddress = serde_json::from_slice(&neighbor.address.0)
            .map_err(|error| unusable(&format!("cannot decode the peer's address ({error})")))?;
        let fits = mailbox::bytes(peer.place.saturating_add(1)) as u64 <= peer.rings_bytes;
        if peer.peer != self.rank || !fits {
            return Err(unusable("the peer does not expect this rank"));
        }
        let (mailbox, place) = self.place(rank)?;
        let place_there = peer.place;
        self.addresses.insert(rank, peer);
        let rings = self.attach_rings(rank)?;
        Ok(PeerRings {
            rank,
            inbox: Inbox::new(Arc::clone(&self.mailboxes[mailbox]), place),
            outbox: Outbox::new(rings, place_there),
        })
    }

    /// Maps the rings of a connected peer a second time.
    pub(crate) fn attach_rings(&self, peer: Peer) -> Result<Arc<Arena>> {
        let known = self.addresses.get(&peer);
        let never = || self.unusable(peer, "they were never connected".to_owned());
        let address = known.ok_or_else(never)?;
        self.attach(peer, (address.pid, address.rings_fd), address.rings_bytes)
    }

    /// Returns the process ID of a connected peer.
    pub(crate) fn process_of(&self, peer: Peer) -> Option<u32> {
        self.addresses.get(&peer).map(|address| address.pid)
    }
}

#[cfg(test)]
mod tests {
    use tonnage_engine::Locality;

    use super::*;

    fn contacts(rank: Peer, peer: Peer) -> Contacts {
        let mut contacts = Contacts::new("cuda-ipc", rank);
        contacts.make_rings(&[peer]).unwrap();
        contacts
    }

    #[test]
    fn peers_that_cannot_share_memory_are_refused_by_name() {
        let (mut one, other) = (contacts(0, 1), contacts(1, 0));
        let mut refused = |address: EndpointAddress, locality| {
            let neighbor = PeerEndpoint {
                peer: 1,
                address,
                locality,
            };
            let refused = one.connect_one(&neighbor).err().unwrap();
            assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
            refused.to_string()
        };
        let address = other.address_for(0).unwrap();
        let apart = refused(address.clone(), Locality::SameMachine);
        assert!(apart.contains("cuda-ipc between ranks 0 and 1"), "{apart}");
        assert!(apart.contains("in different containers"), "{apart}");
        let far = refused(address, Locality::OtherMachine);
        assert!(far.contains("on different hosts"), "{far}");
        let of_another = contacts(1, 2).address_for(2).unwrap();
        let stranger = refused(of_another, Locality::SameContainer);
        assert!(stranger.contains("does not expect this rank"), "{stranger}");
        let neighbor = PeerEndpoint::same_container(1, other.address_for(0).unwrap());
        assert!(one.connect_one(&neighbor).is_ok());
        assert_eq!(one.process_of(1), Some(std::process::id()));
        assert_eq!(one.attach_rings(1).unwrap().len(), other.mailboxes[0].len());
    }
}
