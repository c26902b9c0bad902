//! One worker's part of an engine: registrations, peers, lanes and completions.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_units::Result;

use crate::carried::TrialCarrier;
use crate::memory::Memory;
use crate::report::Facts;
use crate::{Completion, Failure, Lane, LaneSpec, Op, Peer, Region, RegionId};

/// Opaque endpoint address of one worker, for one of its peers. At most [`EndpointAddress::BYTES_MAX`] bytes.
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

/// Encodes a value as JSON. This cannot fail for numbers, strings and lists of them.
pub(crate) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Where a peer's process runs relative to this one. The ranks of a run determine this once, so engines need not find
/// it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// Both processes are on one machine and in one PID namespace: each can find the other, and its files, by PID.
    SameContainer,
    /// Both processes are on one machine, but in different containers: they cannot see each other.
    SameMachine,
    /// The peer is on another machine, reachable only through a network.
    OtherMachine,
}

impl Locality {
    /// The reason why memory cannot be shared through the peer's process; `None` if it can.
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
    pub address: EndpointAddress,
    /// Where the peer's process runs.
    pub locality: Locality,
}

impl PeerEndpoint {
    /// A peer in the same container. Engine tests use this for another worker of the same process.
    pub fn same_container(peer: Peer, address: EndpointAddress) -> Self {
        Self {
            peer,
            address,
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
    /// No room now: poll, then flush again.
    Again,
}

/// Load of one rail of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RailLoad {
    /// Bytes of the parts posted to this rail.
    pub bytes: u64,
    /// Polls during which this rail had parts in flight.
    pub busy_polls: u64,
    /// Polls during which any rail had parts in flight.
    pub polls: u64,
    /// Number of peers that this rail reaches.
    pub peers: u32,
    /// Parts in flight now.
    pub in_flight: u64,
}

/// Outcome of [`Engine::arm`]: how to wait for completions.
#[derive(Debug, Clone, Copy)]
pub enum ArmOutcome<'a> {
    /// Completions may be ready: poll, and call `arm` again before sleeping.
    Ready,
    /// There is nothing to poll until this descriptor is readable.
    Sleep(BorrowedFd<'a>),
    /// The engine, as opened, can only be polled.
    Unsupported,
}

/// One worker's part of an engine. It lives on one thread at a time, so no locks are needed.
///
/// The order of calls is `register`, `endpoint_addresses`, `connect`, `meet` and `lane`, then a loop of `post` and
/// `poll`. Each may be called again later, for more memories, peers and lanes.
pub trait Engine {
    /// Registers a memory with the device, for operations of this worker and of its peers. The engine keeps the memory
    /// alive while it is registered.
    ///
    /// # Errors
    /// [`Unavailable`](tonnage_units::Error::Unavailable) for a memory that the engine cannot use; the message names a
    /// usable memory. For other failures, the device's reason.
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region>;
    /// Undoes a registration. The caller has released the region's lanes, and no operation on the region is in flight.
    ///
    /// # Errors
    /// If the region is in use, or was never registered.
    fn deregister(&mut self, region: RegionId) -> Result<()>;
    /// Returns this worker's address for each of these peers, in the same order. The addresses may all be equal.
    ///
    /// # Errors
    /// If the engine cannot serve this many peers.
    fn endpoint_addresses(&mut self, peers: &[Peer]) -> Result<Vec<EndpointAddress>>;
    /// Connects to peers; called again for more peers. Here an engine refuses incompatible peers, such as one with
    /// another version or on another host.
    ///
    /// # Errors
    /// If a peer cannot be reached; the message names it.
    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()>;
    /// Makes first contact with the peers connected since the last call. Those peers have also connected to this
    /// worker. Transports need this if both sides must take part in setup, or if setup would otherwise happen in the
    /// first timed operation. Polls until contact is made or `stopped` returns true.
    ///
    /// # Errors
    /// If a peer cannot be reached; the message names the pair.
    fn meet(&mut self, _stopped: &dyn Fn() -> bool) -> Result<()> {
        Ok(())
    }
    /// Resolves a lane. Resolving the same specification again costs nothing.
    ///
    /// # Errors
    /// If the engine does not support the lane's kind or promises.
    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane>;
    /// Releases a lane that has nothing in flight. Its number may be reused.
    fn release_lane(&mut self, lane: Lane);
    /// Announces the length of a peer's write-imms. An engine that cuts write-imms into parts needs the length to know
    /// when one has fully arrived. `None`: the peer sends no more.
    ///
    /// # Errors
    /// If the engine could not find out which peer sent a part. With `None`, also if only some parts of a write-imm
    /// have arrived.
    fn expect(&mut self, _peer: Peer, _bytes: Option<u32>) -> Result<()> {
        Ok(())
    }
    /// Takes operations in order and returns the number taken. If it took only some of them, poll and post the
    /// remaining operations again. `post` allocates nothing, takes no lock and reads no clock.
    ///
    /// # Errors
    /// If the engine is dead or an operation lies outside its regions. After an error, no operation of this call was
    /// taken. If a later operation is at fault, `post` takes only the operations before it. The next call then returns
    /// the error.
    fn post(&mut self, ops: &[Op]) -> Result<usize>;
    /// Proves that all completed writes of the lane have arrived at the peer, on every path that the writes used.
    ///
    /// # Errors
    /// As [`Self::post`].
    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush>;
    /// Waits until the memories registered here hold everything that peers' plain writes have sent. Such writes cause
    /// no completion on this side, so a target calls this after the writers have ended and before it reads the bytes.
    ///
    /// An engine returns `false` if its writes are visible as soon as the initiator sees the completion. There is no
    /// default implementation, because an engine that wraps others must ask each of them, and its author could forget.
    ///
    /// Returns whether an engine of this kind has to wait. This can be true even if nothing was pending in this call.
    /// If true, the time of the call counts towards the trial's measured interval.
    ///
    /// # Errors
    /// The device's reason.
    fn flush_incoming(&mut self) -> Result<bool>;
    /// Fills `done` with completions and returns their number. Never blocks, and lets the transport make progress.
    /// Allocates nothing, takes no lock and reads no clock.
    ///
    /// # Errors
    /// If the engine is dead. A failed operation is not an error but a completion that ended as
    /// [`Failed`](crate::Ending::Failed).
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize>;
    /// Explains a failed completion. Must be called before the next poll.
    fn failure(&self, done: &Completion) -> Failure;
    /// Prepares for sleeping until there is something to poll. Only called if [`WorkerConfig::sleeps`] is set. The
    /// descriptor stays the same for the engine's life.
    ///
    /// [`WorkerConfig::sleeps`]: crate::WorkerConfig::sleeps
    ///
    /// # Errors
    /// If the engine is dead.
    fn arm(&mut self) -> Result<ArmOutcome<'_>> {
        Ok(ArmOutcome::Unsupported)
    }
    /// Informs the engine whether the operations posted from now on are untimed. If they are, the engine may try out
    /// alternatives. Returns whether the engine has finished trying. A point's warm-up continues until all engines have
    /// finished.
    fn settle(&mut self, _trying: bool) -> bool {
        true
    }
    /// Runs this worker's trials, if the domain reports that they [run elsewhere](crate::carried).
    fn carrier(&mut self) -> Option<&mut dyn TrialCarrier> {
        None
    }
    /// Returns the load of each rail since the last call, for operations that this side initiated; empty if there is
    /// only one rail.
    fn take_rail_loads(&mut self) -> Vec<RailLoad> {
        Vec::new()
    }
    /// Returns the events that the engine's devices reported since the last call, such as a port that went down. Each
    /// has the library's text and the device's name. Empty for devices that report nothing.
    fn take_device_events(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// Choices that the engine made on its own since the lanes were resolved, such as a copy method, for the record.
    /// Empty if it makes none.
    fn chosen(&self) -> Facts {
        Facts::default()
    }
}
