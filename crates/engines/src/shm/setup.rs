//! Set-up of a worker before it moves bytes: rings for its peers, cards, connecting, and mapping what lanes name.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_engine::{Card, Descriptor, Neighbor, Peer};
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_units::{Error, Result};

use super::mailbox::{self, Mailbox, Outbox, PeerRings};

/// Address of a peer's rings. Opaque to everybody else.
#[derive(Serialize, Deserialize)]
struct Address {
    pid: u32,
    rings_fd: i32,
    rings_bytes: u64,
    /// The place that the peer's rings have.
    place: usize,
    /// The peer that they are for.
    peer: Peer,
}

/// A registered memory as a peer maps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FarRegion {
    pub(super) pid: u32,
    /// Never given twice, as a file's number is.
    pub(super) region: u32,
    pub(super) fd: i32,
    pub(super) bytes: u64,
}

/// A peer's memory in this process. It stays while a lane uses it, and until another one of that peer is mapped.
struct Mapped {
    peer: Peer,
    region: FarRegion,
    memory: Arc<Arena>,
}

/// Rings for this worker's peers, and the memory of theirs that is mapped.
pub(super) struct Contacts {
    /// This rank.
    rank: Peer,
    /// One for each call of `cards`.
    mailboxes: Vec<Mailbox>,
    /// Mailbox that holds a peer's rings, and the place in it.
    places: BTreeMap<Peer, (usize, usize)>,
    mapped: Vec<Mapped>,
}

impl Contacts {
    pub(super) fn new(rank: Peer) -> Self {
        Self {
            rank,
            mailboxes: Vec::new(),
            places: BTreeMap::new(),
            mapped: Vec::new(),
        }
    }

    fn unusable(&self, peer: Peer, why: String) -> Error {
        Error::Unavailable {
            what: format!("shm between ranks {} and {peer}", self.rank),
            why,
            how: "Start both ranks on one host, in one container and as one user, or choose a network engine".into(),
        }
    }

    /// Opens a memory file of another process and maps it.
    fn attach(&self, peer: Peer, pid: u32, fd: i32, bytes: u64) -> Result<Arc<Arena>> {
        let path = format!("/proc/{pid}/fd/{fd}");
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file =
            file.map_err(|error| self.unusable(peer, format!("cannot open {path}: {error}")))?;
        let arena = Arena::attach(OwnedFd::from(file), bytes as usize);
        let arena =
            arena.map_err(|error| self.unusable(peer, format!("cannot map {path}: {error}")))?;
        Ok(Arc::new(arena))
    }

    /// Rings for peers that have none yet.
    pub(super) fn make_rings(&mut self, peers: &[Peer]) -> Result<()> {
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
                format!("cannot map {bytes} bytes for the rings of shm"),
                error,
            )
        };
        let rings = rings.map_err(failed)?;
        let mailbox = self.mailboxes.len();
        self.mailboxes.push(Mailbox::new(Arc::new(rings)));
        for (place, peer) in fresh.into_iter().enumerate() {
            self.places.insert(peer, (mailbox, place));
        }
        Ok(())
    }

    pub(super) fn card(&self, peer: Peer) -> Result<Card> {
        let (mailbox, place) = self.place(peer)?;
        let rings = self.mailboxes[mailbox].arena();
        let address = Address {
            pid: std::process::id(),
            rings_fd: rings.file().map_or(-1, |file| file.as_raw_fd()),
            rings_bytes: rings.len() as u64,
            place,
            peer,
        };
        // Numbers and two short strings: writing them as JSON cannot fail.
        Ok(Card(serde_json::to_vec(&address).unwrap_or_default()))
    }

    fn place(&self, peer: Peer) -> Result<(usize, usize)> {
        let place = self.places.get(&peer).copied();
        place.ok_or_else(|| self.unusable(peer, "this rank made no card for it".into()))
    }

    pub(super) fn connect_one(&self, neighbor: &Neighbor) -> Result<PeerRings> {
        let rank = neighbor.peer;
        let unusable = |why: &str| self.unusable(rank, why.to_owned());
        if let Some(separation) = neighbor.locality.separation() {
            return Err(unusable(separation));
        }
        let peer: Address = serde_json::from_slice(&neighbor.card.0)
            .map_err(|error| unusable(&format!("the peer's address cannot be read ({error})")))?;
        let fits = mailbox::bytes(peer.place.saturating_add(1)) as u64 <= peer.rings_bytes;
        if peer.peer != self.rank || !fits {
            return Err(unusable("the peer does not expect this rank"));
        }
        let (mailbox, place) = self.place(rank)?;
        let rings = self.attach(rank, peer.pid, peer.rings_fd, peer.rings_bytes)?;
        Ok(PeerRings {
            rank,
            inbox: self.mailboxes[mailbox].inbox(place),
            outbox: Outbox::new(rings, peer.place),
        })
    }

    /// The memory that a peer's descriptor means.
    pub(super) fn far(&mut self, peer: Peer, descriptor: &Descriptor) -> Result<(u32, Arc<Arena>)> {
        let region: FarRegion = serde_json::from_slice(&descriptor.0).map_err(|error| {
            self.unusable(peer, format!("the peer's region cannot be read ({error})"))
        })?;
        let known = |mapped: &&Mapped| mapped.peer == peer && mapped.region == region;
        if let Some(mapped) = self.mapped.iter().find(known) {
            return Ok((region.region, Arc::clone(&mapped.memory)));
        }
        let memory = self.attach(peer, region.pid, region.fd, region.bytes)?;
        self.mapped
            .retain(|old| old.peer != peer || Arc::strong_count(&old.memory) > 1);
        let number = region.region;
        self.mapped.push(Mapped {
            peer,
            region,
            memory: Arc::clone(&memory),
        });
        Ok((number, memory))
    }
}
