//! The traits that an engine implements, and the small types that pass through the timed loops.
//!
//! A [`Domain`] is one device of one engine, shared by a rank's workers; an [`Engine`] is what one worker owns. A
//! [`Lane`] is everything that stays the same from one operation to the next, resolved once. The loops in
//! `tonnage_bench::drive` know only these; docs/ADDING-AN-ENGINE.md walks through writing one.
#![forbid(unsafe_code)]

pub mod calls;
mod entry;
mod lists;
pub mod memory;
pub mod pattern;

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonnage_sys::clock::Clock;

use tonnage_units::Result;
pub use tonnage_units::{WireDevice, WireKind};

use crate::memory::Memory;

pub use entry::{Domains, EngineOption, EngineOptions, Entry, OpenRequest, Variant, check_options};
pub use lists::{Lists, find, split_name};

tonnage_units::names! {
    /// What one operation does.
    pub enum Verb: "op" {
        /// Copy local bytes into the peer's memory; the peer is not told.
        Write = "write",
        /// The same, and the peer sees a completion that carries a 32-bit immediate.
        WriteImm = "write-imm",
        /// Copy bytes of the peer's memory here.
        Read = "read",
        /// Copy local bytes into the next receive that the peer posted.
        Send = "send",
    }
}

impl Verb {
    /// Whether the target sees a completion of its own for every operation.
    pub fn notifies_target(self) -> bool {
        matches!(self, Self::WriteImm | Self::Send)
    }
}

/// What a lane is for: one of the verbs, or the receives that sends of a peer land in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneKind {
    /// Operations of this verb towards the peer.
    Initiate(Verb),
    /// Receives for what the peer sends; `post` hands over buffers.
    Receive,
}

/// Handle of a lane, unique within its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Lane(pub u32);

impl Lane {
    /// What an arrival has whose rank the transport does not tell.
    pub const UNNAMED: Self = Self(u32::MAX);
}

/// What a lane connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneSpec {
    /// Verb or receive.
    pub kind: LaneKind,
    /// The rank at the other end, one that `connect` was given.
    pub peer: u32,
    /// The last byte of a write must become visible last, because the peer waits for it by looking at its memory.
    /// Only asked for where [`Caps::ordered_writes`] is granted.
    pub ordered: bool,
    /// A completion must mean that the bytes are visible to the peer, because the result is taken for that. Only asked
    /// for where [`Caps::delivery_on_request`] is granted.
    pub delivered: bool,
}

/// One operation: 32 bytes, offsets only, so that no pointer crosses a process.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Op {
    /// Which lane carries it.
    pub lane: Lane,
    /// Given back in the completion.
    pub tag: u32,
    /// Offset of the local bytes in this worker's memory.
    pub local: u64,
    /// Offset of the remote bytes in the peer worker's memory; ignored by sends and receives.
    pub remote: u64,
    /// Payload bytes.
    pub len: u32,
    /// Immediate value of a write-imm.
    pub imm: u32,
}

const _: () = assert!(size_of::<Op>() == 32);

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An operation that this side posted (a receive is reported as `Arrived` instead).
    Done,
    /// Something from the peer: a write-imm, or a send that filled a posted receive.
    Arrived,
    /// It failed with the engine's own code.
    Failed(i32),
}

/// One completion, as `poll` reports it.
#[derive(Debug, Clone, Copy)]
pub struct Completion {
    /// The operation's tag, or that of the receive that was filled; 0 for an arrived write-imm.
    pub tag: u32,
    /// The lane of a done or failed operation. For an arrival `lane.0` is the rank that it came from, because an
    /// arrived write-imm has no lane on this side; [`Lane::UNNAMED`] where [`Caps::arrivals_named`] is not granted.
    pub lane: Lane,
    /// Payload bytes.
    pub len: u32,
    /// The immediate of an arrived write-imm.
    pub imm: u32,
    /// Done, arrived or failed.
    pub kind: Kind,
}

impl Completion {
    /// What a poll buffer is filled with before it is used.
    pub const EMPTY: Self = Self {
        tag: 0,
        lane: Lane(0),
        len: 0,
        imm: 0,
        kind: Kind::Done,
    };
}

/// What the far side of a path is limited by, so that a result can be set beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Nothing moves, so there is no limit to compare with.
    None,
    /// The fastest memory copy that this host can do over the same bytes.
    MemoryCopy,
    /// What plain TCP streams carry between the same ranks at once, one for each worker of each flow.
    SocketStream,
    /// The nominal speed of the domain's device.
    Link {
        /// In one direction, in bytes per second.
        bytes_per_s: u64,
    },
}

/// What a domain can do. It is fixed for the domain's life.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// The verbs that can be asked for.
    pub verbs: &'static [Verb],
    /// Immediate bits carried by a write-imm.
    pub immediate_bits: u32,
    /// Operations that one worker may have in flight on one lane; more are not taken by `post` until some complete.
    pub depth: u32,
    /// The largest single operation.
    pub message_bytes_max: u64,
    /// False when completions are made up and no byte moves (the `null` engine).
    pub moves_bytes: bool,
    /// True when a completed write is visible to the peer. False: the loop ends a trial with a one-byte read per lane.
    pub delivered: bool,
    /// True when a lane can be asked to complete a write only once it is visible to the peer ([`LaneSpec::delivered`]).
    /// Of no account where `delivered` is true.
    pub delivery_on_request: bool,
    /// True when an arrived write-imm says which rank it came from. Of no account for a worker with one peer.
    pub arrivals_named: bool,
    /// True when what a peer writes can become visible only while this side polls, as with sockets. Then a loop that
    /// waits for a byte polls after every look at it.
    pub arrives_by_polling: bool,
    /// True when a lane can be asked to make the last byte of a write visible last.
    pub ordered_writes: bool,
    /// True when the peers map each other's memory, so that it must be allocated shared.
    pub shared_memory: bool,
    /// What its bandwidth is set beside.
    pub limit: LimitKind,
}

/// Opaque address and keys of one worker for its peers. At most [`Card::BYTES_MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card(pub Vec<u8>);

impl Card {
    /// Bound on what a rank may publish about one worker.
    pub const BYTES_MAX: usize = 16 << 10;
}

/// What one worker needs to open its engine.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// This rank.
    pub rank: u32,
    /// This worker's index within the rank. Worker `w` talks only to workers `w` of other ranks.
    pub worker: u32,
    /// The ranks that it will exchange bytes with, in ascending order.
    pub peers: Vec<u32>,
    /// The most operations that the plan keeps in flight on one lane.
    pub depth: u32,
    /// A calibrated clock, for an engine that compares its own ways.
    pub clock: Clock,
}

/// One device of one engine, shared by a rank's workers.
pub trait Domain: Send + Sync {
    /// What it can do.
    fn caps(&self) -> &Caps;
    /// What really was chosen (provider, version, queue sizes, …), for the record.
    fn effective(&self) -> Value;
    /// This host's address on the device, so that a socket stream that is set beside the engine crosses it too; `None`
    /// leaves it to the address of the control channel.
    fn stream_address(&self) -> Option<IpAddr> {
        None
    }
    /// The devices that payload has to cross, so that their counters can prove that it did. With several, each carries a
    /// part of it; one that no worker uses is not named. Empty where no device counts (memory), or none can be told.
    fn path(&self) -> Vec<WireDevice> {
        Vec::new()
    }
    /// A worker's own engine over its registered memory.
    ///
    /// # Errors
    /// When queues or registrations cannot be made.
    fn worker(&self, config: &WorkerConfig, memory: Arc<dyn Memory>) -> Result<Box<dyn Engine>>;
}

/// What one worker owns: its queues, its lanes, its completions.
pub trait Engine: Send {
    /// Address and keys for the peers.
    fn card(&self) -> Card;
    /// Connects to the peers that it will talk to; called once, with one card for each rank of `WorkerConfig::peers`.
    ///
    /// # Errors
    /// When a peer cannot be reached; the message names it.
    fn connect(&mut self, peers: &[(u32, Card)]) -> Result<()>;
    /// First contact with the peers, after all ranks have connected: for transports on which both sides must take part,
    /// or which set up lazily what should not be timed. Polls until it is done, and ends when `stopped` says so.
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
    fn lane(&mut self, spec: &LaneSpec) -> Result<Lane>;
    /// Hands over operations in order and returns how many were taken; fewer than all means "poll, then try again".
    ///
    /// # Errors
    /// When the engine is dead or an operation lies outside its regions.
    fn post(&mut self, ops: &[Op]) -> Result<usize>;
    /// Fills `done` with completions and returns how many. Never blocks.
    ///
    /// # Errors
    /// When the engine is dead. One failed operation is a completion of kind `Failed`.
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize>;
    /// Tells the engine whether what is posted now is outside the timed trials, so that it may try ways of carrying it
    /// out; returns whether it has found what it was looking for. The warm-up of a point goes on until all engines have.
    fn settle(&mut self, _trying: bool) -> bool {
        true
    }
    /// What the engine decided by itself since the lanes were resolved (a copy method, an inline limit), for the
    /// record; `Null` when it decides nothing.
    fn chosen(&self) -> Value {
        Value::Null
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_named_as_serde_names_them() {
        for verb in Verb::ALL {
            assert_eq!(serde_json::to_value(verb).unwrap(), verb.name());
        }
    }
}
