//! A worker's endpoint address, the check that two workers are compatible, and first contact.
//!
//! First contact is a write of eight bytes, the greeting, into each peer's mailbox. It triggers any lazy setup of the
//! provider, and proves before the measurement that each pair can communicate. If a pair cannot, the error names it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tonnage_engine::{Descriptor, EndpointAddress, Locality};
use tonnage_sys::libfabric::{Libfabric, Offer, RegionHandle, RemoteRegion};
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_sys::process::{AddressSpace, address_space};
use tonnage_units::{Error, Result};

use super::options::core_provider;

/// Maximum duration of first contact.
pub(super) const CONTACT_DEADLINE: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });

/// Endpoint address and keys of a worker, for one peer. Opaque outside this engine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Address {
    pub(super) provider: String,
    pub(super) provider_version: String,
    pub(super) libfabric: String,
    pub(super) library: String,
    pub(super) name: Vec<u8>,
    /// The worker's device, as described by [`device`].
    pub(super) device: String,
    /// The worker's mailbox for this peer, and the offset in it where the worker expects the peer's greeting.
    pub(super) mailbox: FarMemory,
    pub(super) offset: u64,
    /// The rank that this address is for.
    pub(super) peer: u32,
    /// Whether the worker distinguishes peers' messages by tags.
    pub(super) tags: bool,
    /// Process ID on the host, and virtual address of the mailbox. With both, peers find out whether they may attach to
    /// the process.
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
            Error::Failed(format!("cannot decode the region of rank {rank} ({error})"))
        })
    }
}

impl Address {
    /// Address for `peer`, which writes its greeting at `offset` of the mailbox. `tags`: whether the peer must tag its
    /// sends.
    pub(super) fn new(
        attributes: &Offer,
        library: &Libfabric,
        name: &[u8],
        (mailbox, offset): (&Mailbox, u64),
        (peer, tags): (u32, bool),
    ) -> Self {
        Self {
            provider: attributes.provider.clone(),
            provider_version: attributes.provider_version.to_string(),
            libfabric: library.release().to_string(),
            library: library.path().to_owned(),
            name: name.to_vec(),
            device: device(attributes),
            mailbox: mailbox.remote.into(),
            offset,
            peer,
            tags,
            pid: std::process::id(),
            mailbox_address: mailbox.arena.address(),
        }
    }

    pub(super) fn parse(address: &EndpointAddress) -> Result<Self> {
        serde_json::from_slice(&address.0)
            .map_err(|error| Error::Failed(format!("cannot decode the peer's address ({error})")))
    }

    /// Refuses peers with another release or provider, because they do not work together reliably: tcp fails, and shm
    /// crashes.
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
                    "rank {me} has libfabric {release} ({}) and rank {peer} has {} ({}), but different versions do not \
                     work together reliably",
                    library.path(),
                    self.libfabric,
                    self.library
                ),
                "Install the same libfabric on all hosts, or name it with --libfabric; `--libfabric embedded` is the \
                 same everywhere",
            ));
        }
        let shares_memory = core_provider(&own.provider) == "shm";
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

    /// Reads a byte of this peer's mailbox directly from the memory of the peer's process.
    pub(super) fn try_to_attach(&self) -> std::io::Result<u8> {
        tonnage_sys::process::read_byte_of(self.pid, self.mailbox_address)
    }
}

/// Describes a device, such as `eth0 (10.0.0.1)`.
pub(super) fn device(attributes: &Offer) -> String {
    match attributes.address {
        Some(address) => format!("{} ({address})", attributes.domain),
        None => attributes.domain.clone(),
    }
}

/// Interval between checks whether enough memory is left. First contact normally ends before the first check.
const ROOM_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Address space that a connection needs, in bytes. With less, a library retries without an error. For example, rxm in
/// libfabric 1.17 maps 17 MB at once.
const ROOM_MIN: u64 = 32 << 20;

/// First contact in progress.
pub(super) struct Contact {
    /// This side's device.
    device: String,
    awaited: Vec<Awaited>,
    began: Instant,
    /// When to check again for lack of memory.
    next_room_check: Instant,
    /// Returns the remaining address space.
    room: fn() -> Option<AddressSpace>,
}

/// A peer without a greeting so far.
pub(super) struct Awaited {
    pub(super) rank: u32,
    pub(super) device: String,
    /// Mailbox in which the greeting is expected, and the greeting's offset in this mailbox.
    pub(super) mailbox: Arc<Arena>,
    pub(super) offset: u64,
}

/// Maximum number of peers that an error names with their devices.
const DEVICES_NAMED_MAX: usize = 3;

impl Contact {
    pub(super) fn new(device: String, awaited: Vec<Awaited>) -> Self {
        Self {
            device,
            awaited,
            began: Instant::now(),
            next_room_check: Instant::now() + ROOM_CHECK_INTERVAL,
            room: address_space,
        }
    }

    /// Regularly checks whether enough address space is left for the library.
    ///
    /// # Errors
    /// If too little is left. The library itself does not report this.
    fn check_room(&mut self, me: u32) -> Result<()> {
        if Instant::now() < self.next_room_check {
            return Ok(());
        }
        self.next_room_check = Instant::now() + ROOM_CHECK_INTERVAL;
        match (self.room)() {
            Some(space) if space.left_bytes < ROOM_MIN => Err(Error::Failed(format!(
                "rank {me} reached no peer from {} because its address space is nearly full: {} KiB are left of {} \
                 KiB, and a connection needs about {} KiB: raise the limit (ulimit -v)",
                self.device,
                space.left_bytes >> 10,
                space.limit_bytes >> 10,
                ROOM_MIN >> 10,
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the peers without a greeting so far.
    fn missing(&self) -> Vec<u32> {
        let mut missing = Vec::new();
        for peer in &self.awaited {
            let mut bytes = [0; 8];
            let read = peer.mailbox.read(peer.offset, &mut bytes);
            if read.is_err() || u64::from_le_bytes(bytes) != greeting(peer.rank) {
                missing.push(peer.rank);
            }
        }
        missing
    }

    /// Returns whether all greetings have arrived and all greetings of this side have completed. `unsent` are the peers
    /// that have not accepted this side's greeting. `in_flight` is the number of this side's greetings that have not
    /// completed.
    ///
    /// # Errors
    /// If first contact takes too long, or if there is too little memory.
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
            "{what} within {seconds} s; this rank is at {}, {}: check routes and firewalls between these devices (see \
             --devices), and whether one of them came up only now",
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

/// Bytes per peer in a mailbox: one cache line.
const SLOT_BYTES: u64 = 64;

/// A mailbox for the peers that were new in one call of `endpoint_addresses`.
pub(super) struct Mailbox {
    pub(super) arena: Arc<Arena>,
    pub(super) region: RegionHandle,
    pub(super) remote: RemoteRegion,
    /// The peers that write their greetings here, with the number of each peer's slot.
    peers: BTreeMap<u32, u64>,
}

/// Where a peer's greeting arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct MailboxSlot {
    /// Index of the mailbox.
    pub(super) mailbox: usize,
    /// Offset in that mailbox.
    pub(super) offset: u64,
}

impl Mailbox {
    /// Allocates memory for a mailbox with slots for `peers` peers and two more for this side.
    pub(super) fn allocate(peers: usize) -> Result<Arc<Arena>> {
        let bytes = (peers + 2) * SLOT_BYTES as usize;
        let arena = Arena::allocate(bytes, Pages::Normal, Sharing::Private, None);
        let arena = arena.map_err(|error| Error::io(format!("cannot map {bytes} bytes"), error))?;
        Ok(Arc::new(arena))
    }

    /// A mailbox in registered memory. It also contains the greeting that `rank` sends.
    pub(super) fn new(
        arena: Arc<Arena>,
        region: RegionHandle,
        remote: RemoteRegion,
        peers: Vec<u32>,
        rank: u32,
    ) -> Result<Self> {
        let mailbox = Self {
            arena,
            region,
            remote,
            peers: peers.into_iter().zip(0..).collect(),
        };
        let written = (mailbox.arena).write(mailbox.own_offset(), &greeting(rank).to_le_bytes());
        written.map_err(|error| Error::Failed(error.to_string()))?;
        Ok(mailbox)
    }

    /// Offset of a peer's greeting.
    pub(super) fn offset(&self, peer: u32) -> Option<u64> {
        Some(self.peers.get(&peer)? * SLOT_BYTES)
    }

    /// Offset of the greeting that this side sends.
    pub(super) fn own_offset(&self) -> u64 {
        self.peers.len() as u64 * SLOT_BYTES
    }

    /// Offset in this side's mailbox where a flush stores the byte that it reads.
    pub(super) fn scratch_offset(&self) -> u64 {
        self.own_offset() + SLOT_BYTES
    }
}

/// The greeting that a rank writes into its peers' mailboxes. It is never 0, because mailboxes are initially 0.
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
    fn short_memory_is_reported_only_if_contact_takes_long() {
        let mut short = contact(|| space(ROOM_MIN - 1));
        assert_eq!(short.is_complete(3, &[4], 0).ok(), Some(false));
        short.next_room_check = Instant::now();
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
        // If contact is complete, there was enough memory.
        assert_eq!(short.is_complete(3, &[], 0).ok(), Some(true));
    }

    /// A first contact past its deadline, which still awaits these peers. Each peer is at `eth0 (10.0.0.RANK)`.
    fn overdue(peers: impl IntoIterator<Item = u32>) -> Contact {
        let mailbox = Mailbox::allocate(8).unwrap();
        let awaited = peers.into_iter().map(|rank| Awaited {
            rank,
            device: format!("eth0 (10.0.0.{rank})"),
            mailbox: mailbox.clone(),
            offset: u64::from(rank) * 8,
        });
        let mut contact = Contact::new("lo (127.0.0.1)".into(), awaited.collect());
        contact.began = Instant::now().checked_sub(CONTACT_DEADLINE).unwrap();
        contact
    }

    fn greets(contact: &Contact, rank: u32) {
        let mut peers = contact.awaited.iter();
        let peer = peers.find(|peer| peer.rank == rank).unwrap();
        let words = greeting(rank).to_le_bytes();
        peer.mailbox.write(peer.offset, &words).unwrap();
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
                "within {seconds} s; this rank is at lo (127.0.0.1), rank 1 at eth0 (10.0.0.1): check routes"
            ),
            "whether one of them came up only now",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(!error.contains("10.0.0.2"), "{error}");
        // The greeting in rank 1's slot is from another rank and does not count. This side's greeting to rank 2 did not
        // arrive either.
        let mut contact = overdue([1, 2]);
        contact.awaited[0]
            .mailbox
            .write(8, &greeting(2).to_le_bytes())
            .unwrap();
        let error = contact.is_complete(0, &[2], 0).unwrap_err().to_string();
        for part in [
            "ranks 1-2 did not reach rank 0, and rank 0 could not reach rank 2 within",
            "rank 1 at eth0 (10.0.0.1), rank 2 at eth0 (10.0.0.2): check routes and firewalls",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
        // Late greetings complete the contact too, but only after this side's greetings have completed.
        [1, 2].into_iter().for_each(|rank| greets(&contact, rank));
        let error = contact.is_complete(0, &[], 2).unwrap_err().to_string();
        let own = "2 greetings of rank 0 did not complete within";
        assert!(error.contains(own), "{error}");
        assert_eq!(contact.is_complete(0, &[], 0).ok(), Some(true));
    }

    #[test]
    fn at_most_three_silent_peers_are_named_with_their_devices() {
        let error = overdue(1..=5).is_complete(0, &[], 0).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("ranks 1-5 did not reach rank 0"), "{error}");
        assert_eq!(error.matches(" at eth0").count(), DEVICES_NAMED_MAX);
        // Before the deadline, missing peers are not an error.
        let mut contact = overdue([1]);
        contact.began = Instant::now();
        assert_eq!(contact.is_complete(0, &[], 0).ok(), Some(false));
    }

    #[test]
    fn contact_goes_on_with_enough_memory_or_no_limit() {
        for room in [|| space(ROOM_MIN), || None] {
            let mut contact = contact(room);
            contact.next_room_check = Instant::now();
            assert_eq!(contact.is_complete(0, &[1], 0).ok(), Some(false));
            assert!(
                contact.next_room_check > Instant::now(),
                "the next iteration would check again"
            );
        }
    }
}
