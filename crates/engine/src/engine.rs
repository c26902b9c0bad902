//! The part of an engine that one worker owns: its registrations, its peers, its lanes, its completions.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_units::Result;

use crate::carried::Carrier;
use crate::memory::Memory;
use crate::report::Facts;
use crate::{Completion, Failure, Lane, LaneSpec, Op, Peer, Region, RegionId};

/// Opaque address of one worker for one of its peers. At most [`Card::BYTES_MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card(pub Vec<u8>);

impl Card {
    /// Bound on what a worker may tell one peer.
    pub const BYTES_MAX: usize = 64 << 10;

    /// An address as JSON.
    pub fn of(address: &impl Serialize) -> Self {
        Self(json(address))
    }
}

/// Numbers, texts and lists of them as JSON, which cannot fail.
pub(crate) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Place of a peer's process beside this one. The ranks of a run work it out once, so no engine asks the system again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// One machine and one PID namespace: each finds the other's process and its files by number.
    SameContainer,
    /// One machine, with processes that do not see each other.
    SameMachine,
    /// Another machine: only a network leads there.
    OtherMachine,
}

impl Locality {
    /// Reason why memory cannot be shared by way of the peer's process; `None` where it can.
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
pub struct Neighbor {
    /// Its rank.
    pub peer: Peer,
    /// The address that its worker made for this one.
    pub card: Card,
    /// Its place.
    pub locality: Locality,
}

impl Neighbor {
    /// A peer of the same container, such as another worker of this process in an engine's tests.
    pub fn beside(peer: Peer, card: Card) -> Self {
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
    /// The completed operations of the lane have arrived; no completion follows.
    Delivered,
    /// On its way: a completion with the flush's tag follows once everything has arrived.
    Posted,
    /// No room now: poll, then try again.
    Again,
}

/// Load of one rail of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RailLoad {
    /// Bytes of the parts that were handed to it.
    pub bytes: u64,
    /// Polls while it had parts in flight.
    pub busy_polls: u64,
    /// Polls while any rail had.
    pub polls: u64,
    /// Peers that it leads to.
    pub peers: u32,
    /// Parts in flight now.
    pub in_flight: u64,
}

/// Ways to wait for completions.
#[derive(Debug, Clone, Copy)]
pub enum Arm<'a> {
    /// There may be completions already: poll, and arm again before sleeping.
    Ready,
    /// Nothing can be polled until this descriptor is readable.
    Sleep(BorrowedFd<'a>),
    /// This engine, as it was opened, can only be polled.
    Unsupported,
}

/// The part of an engine that one worker owns. It lives on one thread at a time, so it needs no locks.
///
/// The order of calls: `register`, `cards`, `connect`, `meet`, then `lane` and the loop of `post` and `poll`. All of
/// them may be called again later, for more memories, more peers and more lanes.
pub trait Engine {
    /// Makes a memory known to the device, for operations of this worker and of its peers. The engine keeps what its
    /// registration needs.
    ///
    /// # Errors
    /// [`Unavailable`](tonnage_units::Error::Unavailable) for a memory that the engine cannot take, with one that it
    /// can; otherwise the device's reason.
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region>;
    /// Takes a registration back. Its lanes have been released, and nothing of it is in flight.
    ///
    /// # Errors
    /// When it is in use, or was never made.
    fn deregister(&mut self, region: RegionId) -> Result<()>;
    /// This worker's address for each of these peers, in their order. They may all be alike.
    ///
    /// # Errors
    /// When there is no room for so many peers.
    fn cards(&mut self, peers: &[Peer]) -> Result<Vec<Card>>;
    /// Connects to peers. Refuse here a peer that does not fit (another version, another host). Called again for more
    /// peers.
    ///
    /// # Errors
    /// When a peer cannot be reached; the message names it.
    fn connect(&mut self, peers: &[Neighbor]) -> Result<()>;
    /// First contact with the peers that were connected since the last call, after they have connected too: for
    /// transports on which both sides must take part, or which set up lazily what should not be timed. Polls until it
    /// is done, and ends when `stopped` says so.
    ///
    /// # Errors
    /// When a peer cannot be reached; the message names the pair.
    fn meet(&mut self, _stopped: &dyn Fn() -> bool) -> Result<()> {
        Ok(())
    }
    /// Resolves a lane; the same specification may be resolved again at no cost.
    ///
    /// # Errors
    /// When the engine cannot do what the lane asks.
    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane>;
    /// Gives a lane back, of which nothing is in flight. Its handle may be given out again.
    fn release(&mut self, lane: Lane);
    /// Says how long the write-imms are that a peer sends from now on, so that an engine which cuts them knows when one
    /// has arrived whole; `None` when that peer sends no more.
    ///
    /// # Errors
    /// When the engine could not tell whose parts arrive, or at the end some have arrived only in part.
    fn expect(&mut self, _peer: Peer, _bytes: Option<u32>) -> Result<()> {
        Ok(())
    }
    /// Hands over operations in order and returns how many were taken; fewer than all means "poll, then try again".
    /// Allocates nothing, takes no lock, reads no clock.
    ///
    /// # Errors
    /// When the engine is dead or an operation lies outside its regions. None of this call was taken then: after the
    /// first, an operation that cannot be taken ends the call early, and the next call tells its error.
    fn post(&mut self, ops: &[Op]) -> Result<usize>;
    /// Proves that all writes that have completed on the lane have arrived at the peer, by every path that they took.
    ///
    /// # Errors
    /// As [`Self::post`].
    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush>;
    /// Waits until the memories that are registered here hold what peers' plain writes have brought, of which no
    /// completion tells this side. A target calls it once the writers have ended, before anything looks at the bytes;
    /// engines whose writes are seen as soon as their initiator was told of them have nothing to do, and say so: one
    /// that stands over others has to ask them, and would not if it could be left out.
    ///
    /// Returns whether this side has to wait, which an engine may say though nothing was under way: the time of the
    /// call is then part of a trial's window.
    ///
    /// # Errors
    /// The device's reason.
    fn flush_incoming(&mut self) -> Result<bool>;
    /// Fills `done` with completions and returns how many. Never blocks, and keeps the transport moving. Allocates
    /// nothing, takes no lock, reads no clock.
    ///
    /// # Errors
    /// When the engine is dead. One failed operation is a completion that ended as
    /// [`Failed`](crate::Ending::Failed).
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize>;
    /// Says what a failed completion means; asked before the next poll.
    fn failure(&self, done: &Completion) -> Failure;
    /// Makes ready for sleeping until something can be polled. Only asked where [`WorkerConfig::sleeps`] was said. The
    /// descriptor is the same one as long as the engine lives.
    ///
    /// [`WorkerConfig::sleeps`]: crate::WorkerConfig::sleeps
    ///
    /// # Errors
    /// When the engine is dead.
    fn arm(&mut self) -> Result<Arm<'_>> {
        Ok(Arm::Unsupported)
    }
    /// Tells the engine whether what is posted now is outside the timed trials, so that it may try ways of carrying it
    /// out; returns whether it has found what it was looking for. The warm-up of a point goes on until all engines
    /// have.
    fn settle(&mut self, _trying: bool) -> bool {
        true
    }
    /// The carrier of its trials, where the domain says that they are [carried out elsewhere](crate::carried).
    fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        None
    }
    /// Load of each rail since this was asked last, by operations of this side only; empty where there is one.
    fn take_rail_loads(&mut self) -> Vec<RailLoad> {
        Vec::new()
    }
    /// Choices that the engine made by itself since the lanes were resolved (a copy method, an inline limit), for the
    /// record; empty when it decides nothing.
    fn chosen(&self) -> Facts {
        Facts::default()
    }
}
