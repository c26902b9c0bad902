//! A worker's card, whether two of them fit together, and first contact.
//!
//! First contact is a write of eight bytes to each peer's mailbox. It sets up what a provider sets up lazily, proves
//! that each pair can talk before anything is measured, and names the pair that cannot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tonnage_engine::{Card, Descriptor, Locality};
use tonnage_sys::libfabric::{Libfabric, Offer, RegionHandle, RemoteRegion};
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_sys::process::{AddressSpace, address_space};
use tonnage_units::{Error, Result};

use super::options::core_of;

/// Longest time that first contact may take.
pub(super) const CONTACT_DEADLINE: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });

/// Address and keys for a peer. Opaque to everybody else.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Address {
    pub(super) provider: String,
    pub(super) provider_version: String,
    pub(super) libfabric: String,
    pub(super) library: String,
    pub(super) name: Vec<u8>,
    /// Its device, in words.
    pub(super) device: String,
    /// Its mailbox for this peer, and the place in it where it waits for the greeting.
    pub(super) mailbox: FarMemory,
    pub(super) place: u64,
    /// The rank that this is for.
    pub(super) peer: u32,
    /// True when its receives tell peers apart by tags.
    pub(super) tags: bool,
    /// The process, as its host counts, and where its mailbox lies in its memory: for finding out whether peers may
    /// attach to it.
    pid: u32,
    mailbox_address: u64,
}

/// Registered memory of a peer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct FarMemory {
    base: u64,
    key: u64,
    len: u64,
}

impl From<RemoteRegion> for FarMemory {
    fn from(region: RemoteRegion) -> Self {
        let RemoteRegion { base, key, len } = region;
        Self { base, key, len }
    }
}

impl From<FarMemory> for RemoteRegion {
    fn from(memory: FarMemory) -> Self {
        let FarMemory { base, key, len } = memory;
        Self { base, key, len }
    }
}

impl FarMemory {
    pub(super) fn parse(descriptor: &Descriptor, rank: u32) -> Result<Self> {
        serde_json::from_slice(&descriptor.0).map_err(|error| {
            Error::Failed(format!(
                "the region of rank {rank} cannot be read ({error})"
            ))
        })
    }
}

impl Address {
    /// Card for the peer that `place` of the mailbox is for; `tags` says whether its sends have to be tagged.
    pub(super) fn new(
        attributes: &Offer,
        library: &Libfabric,
        name: &[u8],
        (mail, place): (&Mail, u64),
        (peer, tags): (u32, bool),
    ) -> Self {
        Self {
            provider: attributes.provider.clone(),
            provider_version: attributes.provider_version.to_string(),
            libfabric: library.release().to_string(),
            library: library.path().to_owned(),
            name: name.to_vec(),
            device: device(attributes),
            mailbox: mail.remote.into(),
            place,
            peer,
            tags,
            pid: std::process::id(),
            mailbox_address: mail.arena.address(),
        }
    }

    pub(super) fn parse(card: &Card) -> Result<Self> {
        serde_json::from_slice(&card.0)
            .map_err(|error| Error::Failed(format!("its address cannot be read ({error})")))
    }

    /// Different releases, or different providers, do not talk to each other reliably: tcp fails, shm crashes.
    pub(super) fn check_fits(
        &self,
        (own, library): (&Offer, &Libfabric),
        ranks: [u32; 2],
        locality: Locality,
    ) -> Result<()> {
        let [me, peer] = ranks;
        let refused = |why: String, how: &str| Error::Unavailable {
            what: format!("fabric:{} between ranks {me} and {peer}", own.provider),
            why,
            how: how.to_owned(),
        };
        let (release, version) = (library.release(), &own.provider_version);
        if self.libfabric != release.to_string() || self.provider_version != version.to_string() {
            return Err(refused(
                format!(
                    "rank {me} has libfabric {release} ({}) and rank {peer} has {} ({}), and different versions cannot be \
                     relied on to talk to each other",
                    library.path(),
                    self.libfabric,
                    self.library
                ),
                "Give all hosts the same library, or name it with --libfabric; --libfabric embedded is the same everywhere",
            ));
        }
        let shares_memory = core_of(&own.provider) == "shm";
        if let Some(separation) = locality.separation().filter(|_| shares_memory) {
            let how = "Start both ranks on one host and in one container, or choose a network, such as fabric:tcp";
            return Err(refused(separation.to_owned(), how));
        }
        if self.provider != own.provider {
            return Err(refused(
                format!(
                    "rank {me} has the provider {} and rank {peer} has {}",
                    own.provider, self.provider
                ),
                "Name the provider in full, such as fabric:verbs;ofi_rxm",
            ));
        }
        Ok(())
    }

    /// Reads a byte of this peer's mailbox straight from its memory.
    pub(super) fn try_to_attach(&self) -> std::io::Result<u8> {
        tonnage_sys::process::read_byte_of(self.pid, self.mailbox_address)
    }
}

/// A device in words, such as `eth0 (10.0.0.1)`.
pub(super) fn device(attributes: &Offer) -> String {
    match attributes.address {
        Some(address) => format!("{} ({address})", attributes.domain),
        None => attributes.domain.clone(),
    }
}

/// Time after which first contact looks whether memory is short: where all is well it takes less.
const ROOM_LOOK: Duration = Duration::from_secs(2);

/// Room to map memory with which a connection comes about, in bytes. A library that has less tries again without a
/// word: rxm of libfabric 1.17 asks for 17 MB at once, seen by its calls of mmap.
const ROOM_MIN: u64 = 32 << 20;

/// First contact in progress.
pub(super) struct Contact {
    /// This side's device.
    device: String,
    awaited: Vec<Awaited>,
    began: Instant,
    /// The next time to look whether memory is short.
    look: Instant,
    /// Room to map memory.
    room: fn() -> Option<AddressSpace>,
}

/// A peer whose greeting is to come.
pub(super) struct Awaited {
    pub(super) rank: u32,
    /// Its device.
    pub(super) device: String,
    /// The place that the greeting comes to.
    pub(super) mailbox: Arc<Arena>,
    pub(super) place: u64,
}

/// Peers whose devices a message names.
const DEVICES_NAMED_MAX: usize = 3;

impl Contact {
    pub(super) fn new(device: String, awaited: Vec<Awaited>) -> Self {
        Self {
            device,
            awaited,
            began: Instant::now(),
            look: Instant::now() + ROOM_LOOK,
            room: address_space,
        }
    }

    /// Looks now and then whether there is room for what the library maps.
    ///
    /// # Errors
    /// When there is not, which the library does not say.
    fn check_room(&mut self, me: u32) -> Result<()> {
        if Instant::now() < self.look {
            return Ok(());
        }
        self.look = Instant::now() + ROOM_LOOK;
        match (self.room)() {
            Some(space) if space.left_bytes < ROOM_MIN => Err(Error::Failed(format!(
                "rank {me} reached no peer from {} because its memory is short: {} KiB are left of the {} KiB that it may \
                 map, and a connection takes some {} KiB: raise the limit (ulimit -v)",
                self.device,
                space.left_bytes >> 10,
                space.limit_bytes >> 10,
                ROOM_MIN >> 10,
            ))),
            _ => Ok(()),
        }
    }

    /// The peers whose greeting has not come.
    fn missing(&self) -> Vec<u32> {
        let mut missing = Vec::new();
        for peer in &self.awaited {
            let mut bytes = [0; 8];
            let read = peer.mailbox.read(peer.place, &mut bytes);
            if read.is_err() || u64::from_le_bytes(bytes) != greeting(peer.rank) {
                missing.push(peer.rank);
            }
        }
        missing
    }

    /// Returns whether all greetings have come.
    ///
    /// # Errors
    /// When they take too long, or memory is short; `unsent` are the peers that did not take this side's own, and
    /// `in_flight` is how many of those have not completed.
    pub(super) fn is_complete(
        &mut self,
        me: u32,
        unsent: &[u32],
        in_flight: usize,
    ) -> Result<bool> {
        let missing = self.missing();
        if missing.is_empty() && unsent.is_empty() && in_flight == 0 {
            return Ok(true);
        }
        self.check_room(me)?;
        if self.began.elapsed() < CONTACT_DEADLINE {
            return Ok(false);
        }
        let seconds = CONTACT_DEADLINE.as_secs();
        let list = |ranks: &[u32]| tonnage_units::number_list::format(ranks);
        let mut what = Vec::new();
        if !missing.is_empty() {
            what.push(format!(
                "{} did not reach rank {me}",
                ranks(&list(&missing))
            ));
        }
        if !unsent.is_empty() {
            what.push(format!(
                "rank {me} could not reach {}",
                ranks(&list(unsent))
            ));
        } else if in_flight > 0 {
            what.push(format!(
                "{in_flight} greetings of rank {me} did not complete"
            ));
        }
        let what = what.join(", and ");
        let silent = |peer: &&Awaited| unsent.contains(&peer.rank) || missing.contains(&peer.rank);
        let silent = self.awaited.iter().filter(silent);
        let silent = silent.take(DEVICES_NAMED_MAX);
        let theirs: Vec<String> = silent
            .map(|peer| format!("rank {} at {}", peer.rank, peer.device))
            .collect();
        Err(Error::Failed(format!(
            "{what} within {seconds} s; this rank is at {}, {}: is there a route between these devices, and is it not \
             filtered (see --devices)? Did one of them come up only now?",
            self.device,
            theirs.join(", ")
        )))
    }
}

fn ranks(list: &str) -> String {
    let plural = if list.contains([',', '-']) {
        "ranks"
    } else {
        "rank"
    };
    format!("{plural} {list}")
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn contact(room: fn() -> Option<AddressSpace>) -> Contact {
        let mut contact = Contact::new("lo (127.0.0.1)".into(), Vec::new());
        contact.room = room;
        contact
    }

    fn space(left_bytes: u64) -> Option<AddressSpace> {
        Some(AddressSpace {
            limit_bytes: 200_000 << 10,
            left_bytes,
        })
    }

    #[test]
    fn memory_that_is_short_is_said_when_contact_takes_long_and_not_before() {
        let mut short = contact(|| space(ROOM_MIN - 1));
        assert_eq!(short.is_complete(3, &[4], 0).ok(), Some(false));
        short.look = Instant::now();
        let error = short.is_complete(3, &[4], 0).unwrap_err().to_string();
        for part in [
            "rank 3",
            "lo (127.0.0.1)",
            "32767 KiB",
            "200000 KiB",
            "ulimit -v",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
        // Whoever is through has had enough.
        assert_eq!(short.is_complete(3, &[], 0).ok(), Some(true));
    }

    /// A contact that awaits these peers, at `eth0 (10.0.0.RANK)`, and whose time is over.
    fn overdue(peers: impl IntoIterator<Item = u32>) -> Contact {
        let mailbox = Mail::allocate(8).unwrap();
        let awaited = peers.into_iter().map(|rank| Awaited {
            rank,
            device: format!("eth0 (10.0.0.{rank})"),
            mailbox: mailbox.clone(),
            place: u64::from(rank) * 8,
        });
        let mut contact = Contact::new("lo (127.0.0.1)".into(), awaited.collect());
        contact.began = Instant::now().checked_sub(CONTACT_DEADLINE).unwrap();
        contact
    }

    fn greets(contact: &Contact, rank: u32) {
        let mut peers = contact.awaited.iter();
        let peer = peers.find(|peer| peer.rank == rank).unwrap();
        let words = greeting(rank).to_le_bytes();
        peer.mailbox.write(peer.place, &words).unwrap();
    }

    #[test]
    fn peers_that_are_not_reached_are_named_with_the_devices_of_both_ends() {
        let mut contact = overdue([1, 2]);
        greets(&contact, 2);
        let error = contact.is_complete(0, &[], 0).unwrap_err().to_string();
        let seconds = CONTACT_DEADLINE.as_secs();
        for part in [
            "rank 1 did not reach rank 0 within",
            &format!(
                "within {seconds} s; this rank is at lo (127.0.0.1), rank 1 at eth0 (10.0.0.1): is there a route"
            ),
            "Did one of them come up only now?",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(!error.contains("10.0.0.2"), "{error}");
        // A greeting of somebody else is none, and this side's own did not arrive either.
        let mut contact = overdue([1, 2]);
        contact.awaited[0]
            .mailbox
            .write(8, &greeting(2).to_le_bytes())
            .unwrap();
        let error = contact.is_complete(0, &[2], 0).unwrap_err().to_string();
        for part in [
            "ranks 1-2 did not reach rank 0, and rank 0 could not reach rank 2 within",
            "rank 1 at eth0 (10.0.0.1), rank 2 at eth0 (10.0.0.2): is",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
        // Once all are there it is complete, however late, unless its own have not arrived.
        [1, 2].into_iter().for_each(|rank| greets(&contact, rank));
        let error = contact.is_complete(0, &[], 2).unwrap_err().to_string();
        let own = "2 greetings of rank 0 did not complete within";
        assert!(error.contains(own), "{error}");
        assert_eq!(contact.is_complete(0, &[], 0).ok(), Some(true));
    }

    #[test]
    fn devices_of_few_peers_are_enough_to_tell() {
        let error = overdue(1..=5).is_complete(0, &[], 0).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("ranks 1-5 did not reach rank 0"), "{error}");
        assert_eq!(error.matches(" at eth0").count(), DEVICES_NAMED_MAX);
        // Peers that have been late for less than that are waited for.
        let mut contact = overdue([1]);
        contact.began = Instant::now();
        assert_eq!(contact.is_complete(0, &[], 0).ok(), Some(false));
    }

    #[test]
    fn enough_memory_or_no_limit_is_no_reason_to_give_up() {
        for room in [|| space(ROOM_MIN), || None] {
            let mut contact = contact(room);
            contact.look = Instant::now();
            assert_eq!(contact.is_complete(0, &[1], 0).ok(), Some(false));
            assert!(
                contact.look > Instant::now(),
                "it does not look in each turn"
            );
        }
    }
}
