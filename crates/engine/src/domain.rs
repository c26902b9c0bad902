//! One device of an engine: what it can do, what was granted, and the workers' engines that it makes.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tonnage_sys::clock::Clock;
use tonnage_units::{Result, WireDevice};

use crate::{Engine, EngineReport, Peer, Verb};

/// The upper bound that a path's utilization is a fraction of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// No limit, because nothing moves.
    None,
    /// The fastest copy that the memory can do over the same bytes.
    MemoryCopy,
    /// Bandwidth of plain TCP streams between the same ranks at once, one for each queue pair of each worker of each
    /// flow.
    SocketStream,
    /// The nominal speed of the domain's device.
    Link {
        /// Bytes per second, in one direction.
        bytes_per_s: u64,
    },
}

/// Whoever moves bytes into and out of memory of a device, such as a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceMemoryBy {
    /// Somebody who is not known: the engine takes no such memory, or leaves it to a library.
    #[default]
    Unknown,
    /// The device, whom the rank that initiates asks for copies.
    Copies,
    /// The device, whom the ranks at both ends ask for copies to and from memory of the host.
    Staging,
    /// Others, such as network cards.
    Cards,
}

impl DeviceMemoryBy {
    /// Returns whether all bytes cross the link between the device and the rest of its machine.
    pub fn crosses_link(self) -> bool {
        matches!(self, Self::Staging | Self::Cards)
    }
}

/// Capabilities of a domain. It is fixed for the domain's life.
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
    /// True when a completed write is visible to the peer. False: only [`Engine::flush`] proves it.
    pub delivered: bool,
    /// True when a lane can be asked to complete a write only once it is visible to the peer
    /// ([`LaneSpec::delivered`](crate::LaneSpec::delivered)). Of no account where `delivered` is true.
    pub delivery_on_request: bool,
    /// True when a completed send has filled a receive of the peer's. False: it may only have left, so that somebody
    /// has to keep senders from running away from their receivers.
    pub sends_taken: bool,
    /// True when the device carries out what peers ask for without this side's CPU: then a target of write and read
    /// rests, and does not poll.
    pub passive_target: bool,
    /// True when an arrived write-imm says which peer it came from. Of no account for a worker with one peer.
    pub arrivals_named: bool,
    /// True when what a peer writes can become visible only while this side polls, as with sockets. Then a loop that
    /// waits for a byte polls after every look at it.
    pub arrives_by_polling: bool,
    /// True when a lane can be asked to make the last byte of a write visible last.
    pub ordered_writes: bool,
    /// True when the peers map each other's memory, so that it must be allocated shared.
    pub shared_memory: bool,
    /// True when trials are carried out elsewhere ([`Engine::carrier`]), and single operations cannot be posted.
    pub carried: bool,
    /// Upper bound of its bandwidth.
    pub limit: LimitKind,
}

impl Caps {
    /// Returns capabilities of a device that moves bytes and promises nothing else; engines name what differs.
    pub const fn new(verbs: &'static [Verb], depth: u32, message_bytes_max: u64) -> Self {
        Self {
            verbs,
            immediate_bits: 0,
            depth,
            message_bytes_max,
            moves_bytes: true,
            delivered: false,
            delivery_on_request: false,
            sends_taken: false,
            passive_target: false,
            arrivals_named: false,
            arrives_by_polling: false,
            ordered_writes: false,
            shared_memory: false,
            carried: false,
            limit: LimitKind::None,
        }
    }
}

/// Configuration of one worker's engine.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// This rank.
    pub rank: Peer,
    /// This worker's index within the rank. Worker `w` talks only to workers `w` of other ranks.
    pub worker: u32,
    /// The most peers that it will be connected to.
    pub peers_max: u32,
    /// The most operations that are kept in flight on one lane.
    pub depth: u32,
    /// Queue pairs towards each peer that it makes itself; more than one only where trials are
    /// [carried out elsewhere](Caps::carried).
    pub queue_pairs: u32,
    /// True when completions will be slept for ([`Engine::arm`]) and not only polled for.
    pub sleeps: bool,
    /// A calibrated clock, for an engine that compares its own ways.
    pub clock: Clock,
}

impl WorkerConfig {
    /// The first worker of a rank, which polls for its completions.
    pub fn polling(rank: Peer, peers_max: u32, depth: u32) -> Self {
        Self {
            rank,
            worker: 0,
            peers_max,
            depth,
            queue_pairs: 1,
            sleeps: false,
            clock: Clock::new(),
        }
    }
}

/// One device of one engine, shared by a rank's workers.
pub trait Domain: Send + Sync {
    /// Its capabilities.
    fn caps(&self) -> &Caps;
    /// The real choices and grants, for the record.
    fn report(&self) -> EngineReport;
    /// This host's address on the device, so that a socket stream that the engine is compared with crosses it too;
    /// `None` leaves it to the address of the control channel.
    fn stream_address(&self) -> Option<IpAddr> {
        None
    }
    /// The name by which all processes of the machine know what bounds it, so that a bound that several ranks share
    /// counts once; `None` where the device's name in the report is such a one.
    fn bound_place(&self) -> Option<&str> {
        None
    }
    /// Whoever moves bytes of memory that is a device's.
    fn device_memory_by(&self) -> DeviceMemoryBy {
        DeviceMemoryBy::Unknown
    }
    /// The devices that payload has to cross, so that their counters can prove that it did. With several, each carries
    /// a part of it; one that no worker uses is not named. Empty where no device counts (memory), or none can be told.
    fn wire_devices(&self) -> Vec<WireDevice> {
        Vec::new()
    }
    /// A worker's own engine.
    ///
    /// # Errors
    /// When queues cannot be made.
    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>>;
}
