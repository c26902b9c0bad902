//! One worker's part of an engine: its registrations, its peers, its lanes, its completions.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_units::Result;

use crate::carried::TrialCarrier;
use crate::memory::Memory;
use crate::report::Facts;
use crate::{Completion, Failure, Lane, LaneSpec, Op, Peer, Region, RegionId};

/// Opaque endpoint address of one worker, made for one of its peers. At most [`EndpointAddress::BYTES_MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointAddress(pub Vec<u8>);

impl EndpointAddress {
    /// Size limit of an address.
    pub const BYTES_MAX: usize = 64 << 10;

    /// Encodes an address as JSON.
    pub fn encode(address: &impl Serialize) -> Self {
        Self(json(address))
    }
}

/// Encodes a value as JSON. Cannot fail for numbers, strings and lists of them.
pub(crate) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Where a peer's process runs relative to this one. The ranks of a run determine it once, so engines need not ask the
/// system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// The processes are on one machine and in one PID namespace: each finds the other and its files by PID.
    SameContainer,
    /// The processes are on one machine, but cannot see each other.
    SameMachine,
    /// Another machine, reachable only through a network.
    OtherMachine,
}

impl Locality {
    /// Why memory cannot be shared through the peer's process; `None` if it can.
    pub fn separation(self) -> Option<&'static str> {
        match self {
            Self::SameContainer => None,
            Self::SameMachine => Some("they are in different containers (PID namespaces)"),
            Self::OtherMachine => Some("they are on different hosts"),
        }
    }
}

/// A peer to connect to.
#[derive(Debug, Clone)]
pub struct PeerEndpoint {
    /// The peer's rank.
    pub peer: Peer,
    /// The address that the peer's worker made for this worker.
    pub card: EndpointAddress,
    /// Where its process runs.
    pub locality: Locality,
}

impl PeerEndpoint {
    /// A peer in the same container, such as another worker of this process in an engine's tests.
    pub fn same_container(peer: Peer, card: EndpointAddress) -> Self {
        Self {
            peer,
            card,
            locality: Locality::SameContainer,
        }
    }
}

/// Outcome of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// The lane's completed operations have arrived; no completion follows.
    Delivered,
    /// In progress: a completion with the flush's tag follows once everything has arrived.
    Posted,
    /// No room now: poll, then try again.
    Again,
}

/// Load of one rail of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RailLoad {
    /// Bytes of the parts given to it.
    pub bytes: u64,
    /// Polls during which it had parts in flight.
    pub busy_polls: u64,
    /// Polls during which any rail had parts in flight.
    pub polls: u64,
    /// Number of peers that it reaches.
    pub peers: u32,
    /// Parts in flight now.
    pub in_flight: u64,
}

/// Outcome of [`Engine::arm`]: how to wait for completions.
#[derive(Debug, Clone, Copy)]
pub enum ArmOutcome<'a> {
    /// Completions may already be there: poll, and arm again before sleeping.
    Ready,
    /// Nothing can be polled until this descriptor is readable.
    Sleep(BorrowedFd<'a>),
    /// This engine, as it was opened, supports polling only.
    Unsupported,
}

/// One worker's part of an engine. It lives on one thread at a time, so it needs no locks.
///
/// The order of calls: `register`, `cards`, `connect`, `meet`, then `lane` and the loop of `post` and `poll`. All of
/// them may be called again later, for more memories, peers and lanes.
pub trait Engine {
    /// Registers a memory with the device, for operations of this worker and of its peers. The engine keeps everything
    /// that its registration needs.
    ///
    /// # Errors
    /// [`Unavailable`](tonnage_units::Error::Unavailable) for a memory that the engine cannot use, naming one that it
    /// can; otherwise the device's reason.
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region>;
    /// Undoes a registration. Its lanes have been released, and it has no operation in flight.
    ///
    /// # Errors
    /// If it is in use, or was never made.
    fn deregister(&mut self, region: RegionId) -> Result<()>;
    /// Returns this worker's address for each of these peers, in their order. The addresses may all be equal.
    ///
    /// # Errors
    /// If the engine cannot serve this many peers.
    fn endpoint_addresses(&mut self, peers: &[Peer]) -> Result<Vec<EndpointAddress>>;
    /// Connects to peers. An engine refuses an incompatible peer here (another version, another host). Called again for
    /// more peers.
    ///
    /// # Errors
    /// If a peer cannot be reached; the message names it.
    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()>;
    /// Makes first contact with the peers connected since the last call, after they have connected too. Needed by
    /// transports on which both sides must take part, or which do setup lazily that should not be timed. Polls until it
    /// is done, or until `stopped` returns true.
    ///
    /// # Errors
    /// If a peer cannot be reached; the message names the pair.
    fn meet(&mut self, _stopped: &dyn Fn() -> bool) -> Result<()> {
        Ok(())
    }
    /// Resolves a lane. Resolving the same specification again costs nothing.
    ///
    /// # Errors
    /// If the engine cannot do what the lane asks.
    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane>;
    /// Releases a lane that has nothing in flight. Its handle may be reused.
    fn release(&mut self, lane: Lane);
    /// Announces the length of the write-imms that a peer sends from now on, so that an engine which cuts them knows
    /// when one has fully arrived. `None`: that peer sends no more.
    ///
    /// # Errors
    /// If the engine could not tell which peer's parts arrive, or if, at the end, some write-imms have arrived only in
    /// part.
    fn expect(&mut self, _peer: Peer, _bytes: Option<u32>) -> Result<()> {
        Ok(())
    }
    /// Hands over operations in order and returns the number taken; fewer than all means "poll, then try again".
    /// Allocates nothing, takes no lock, reads no clock.
    ///
    /// # Errors
    /// If the engine is dead or an operation lies outside its regions. An error means that this call took nothing. If a
    /// later operation cannot be taken, the call ends early and the next call returns its error.
    fn post(&mut self, ops: &[Op]) -> Result<usize>;
    /// Proves that all completed writes of the lane have arrived at the peer, on every path that they took.
    ///
    /// # Errors
    /// As [`Self::post`].
    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush>;
    /// Waits until the memories registered here hold everything that peers' plain writes have brought. Such writes
    /// cause no completion on this side, so a target calls this once the writers have ended, before anything reads the
    /// bytes.
    ///
    /// An engine whose writes are visible as soon as their initiator sees the completion returns `false`. There is no
    /// default implementation: an engine on top of others must ask each of them, and could forget to.
    ///
    /// Returns whether this side has to wait; an engine may return true even if nothing was pending. The time of the
    /// call then counts towards a trial's measured interval.
    ///
    /// # Errors
    /// The device's reason.
    fn flush_incoming(&mut self) -> Result<bool>;
    /// Fills `done` with completions and returns their number. Never blocks, and keeps the transport making progress.
    /// Allocates nothing, takes no lock, reads no clock.
    ///
    /// # Errors
    /// If the engine is dead. One failed operation is a completion that ended as [`Failed`](crate::Ending::Failed).
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize>;
    /// Explains a failed completion; called before the next poll.
    fn failure(&self, done: &Completion) -> Failure;
    /// Prepares for sleeping until something can be polled. Only called if [`WorkerConfig::sleeps`] is set. The
    /// descriptor stays the same for the engine's life.
    ///
    /// [`WorkerConfig::sleeps`]: crate::WorkerConfig::sleeps
    ///
    /// # Errors
    /// If the engine is dead.
    fn arm(&mut self) -> Result<ArmOutcome<'_>> {
        Ok(ArmOutcome::Unsupported)
    }
    /// Informs the engine whether operations posted from now on are outside the timed trials, so that it may try out
    /// alternatives. Returns whether it has finished its search. The warm-up of a point continues until all engines
    /// have.
    fn settle(&mut self, _trying: bool) -> bool {
        true
    }
    /// Runs this worker's trials, if the domain reports that they [run elsewhere](crate::carried).
    fn carrier(&mut self) -> Option<&mut dyn TrialCarrier> {
        None
    }
    /// Returns the load of each rail since the last call, counting operations of this side only; empty if there is only
    /// one rail.
    fn take_rail_loads(&mut self) -> Vec<RailLoad> {
        Vec::new()
    }
    /// Returns the events that the engine's devices have reported since the last call, such as a port that went down:
    /// the library's text and the device's name. Empty for devices that report nothing.
    fn take_device_events(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// Choices that the engine made on its own since the lanes were resolved (a copy method, an inline limit), for the
    /// record; empty if it makes none.
    fn chosen(&self) -> Facts {
        Facts::default()
    }
}
