//! One device of an engine: its capabilities, its grants, and the workers' engines that it makes.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tonnage_sys::clock::Clock;
use tonnage_units::{Result, WireDevice};

use crate::{Engine, EngineReport, Peer, Verb};

/// The upper bound that a path's utilization refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundKind {
    /// No bound, because nothing moves.
    None,
    /// The fastest copy of the same bytes within the memory.
    MemoryCopy,
    /// Bandwidth of concurrent plain TCP streams between the same ranks, one for each queue pair of each worker of each
    /// flow.
    SocketStream,
    /// The nominal speed of the domain's device.
    Link {
        /// Bytes per second, in one direction.
        bytes_per_s: u64,
    },
}

/// Who moves bytes into and out of memory of a device, such as a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceMemoryAccess {
    /// Not known: the engine does not accept such memory, or leaves the choice to a library.
    #[default]
    Unknown,
    /// The device itself: the initiating rank orders copies from it.
    Copies,
    /// The device itself: the ranks at both ends order copies to and from host memory.
    Staging,
    /// Another device, such as a NIC.
    Cards,
}

impl DeviceMemoryAccess {
    /// Returns whether all bytes cross the link between the device and the rest of its machine.
    pub fn crosses_link(self) -> bool {
        matches!(self, Self::Staging | Self::Cards)
    }
}

/// Capabilities of a domain, fixed for its life.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// The supported verbs.
    pub verbs: &'static [Verb],
    /// Immediate bits that a write-imm carries.
    pub immediate_bits: u32,
    /// Operations that one worker may have in flight on one lane; `post` takes no more until some complete.
    pub depth: u32,
    /// The largest single operation.
    pub message_bytes_max: u64,
    /// False if completions are synthetic and no byte moves (the `null` engine).
    pub moves_bytes: bool,
    /// True if a completed write is visible to the peer. False: only [`Engine::flush`] proves it.
    pub delivered: bool,
    /// True if a lane can be asked to complete a write only once it is visible to the peer
    /// ([`LaneSpec::delivered`](crate::LaneSpec::delivered)). Irrelevant if `delivered` is true.
    pub delivery_on_request: bool,
    /// True if a completed send has filled one of the peer's receives. False: it may only have left this side, so flow
    /// control must keep senders from overrunning their receivers.
    pub sends_taken: bool,
    /// True if the device executes peers' requests without this side's CPU. A target of write and read then sleeps
    /// instead of polling.
    pub passive_target: bool,
    /// True if an arrived write-imm identifies the peer that it came from. Irrelevant for a worker with one peer.
    pub arrivals_named: bool,
    /// True if a peer's write may become visible only while this side polls, as with sockets. A loop that waits for a
    /// byte then polls after every look at it.
    pub arrives_by_polling: bool,
    /// True if a lane can be asked to make the last byte of a write visible last.
    pub ordered_writes: bool,
    /// True if peers map each other's memory, so that it must be allocated shared.
    pub shared_memory: bool,
    /// True if trials run elsewhere ([`Engine::carrier`]), and single operations cannot be posted.
    pub carried: bool,
    /// Upper bound of its bandwidth.
    pub bound: BoundKind,
}

impl Caps {
    /// Capabilities of a device that moves bytes and promises nothing else. Engines set the fields that differ.
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
            bound: BoundKind::None,
        }
    }
}

/// Configuration of one worker's engine.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// This rank.
    pub rank: Peer,
    /// This worker's index within the rank. Worker `w` exchanges data only with workers `w` of other ranks.
    pub worker: u32,
    /// The most peers that it will be connected to.
    pub peers_max: u32,
    /// The most operations kept in flight on one lane.
    pub depth: u32,
    /// Queue pairs that the engine itself makes for each peer; more than one only if trials [run
    /// elsewhere](Caps::carried).
    pub queue_pairs: u32,
    /// True if the worker will sleep until completions arrive ([`Engine::arm`]) and not only poll for them.
    pub sleeps: bool,
    /// A calibrated clock. An engine that compares its own methods needs one.
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
    /// Returns the device's capabilities.
    fn caps(&self) -> &Caps;
    /// Actual choices and grants to record.
    fn report(&self) -> EngineReport;
    /// This host's address on the device, so that the socket stream used as the bound crosses the same device. `None`:
    /// the address of the control channel is used.
    fn stream_address(&self) -> Option<IpAddr> {
        None
    }
    /// A name, the same in all processes of the machine, for the component that limits this domain: a bound that
    /// several ranks share counts once. `None` if the device's name in the report already is one.
    fn bound_place(&self) -> Option<&str> {
        None
    }
    /// Who moves bytes of device memory.
    fn device_memory_by(&self) -> DeviceMemoryAccess {
        DeviceMemoryAccess::Unknown
    }
    /// The devices that the payload must cross, so that their counters can prove it. Of several, each carries a part;
    /// devices that no worker uses are left out. Empty if no device counts traffic (memory), or none can be identified.
    fn wire_devices(&self) -> Vec<WireDevice> {
        Vec::new()
    }
    /// Makes a worker's own engine.
    ///
    /// # Errors
    /// If queues cannot be made.
    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>>;
}
