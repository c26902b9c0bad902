//! One device of an engine: its capabilities, its grants, and the workers' engines that it makes.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tonnage_sys::clock::Clock;
use tonnage_units::{Result, WireDevice};

use crate::{Engine, EngineReport, Peer, Verb};

/// The upper bound that a path's utilization is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundKind {
    /// No bound, because nothing moves.
    None,
    /// The fastest copy of the same bytes within the memory.
    MemoryCopy,
    /// Bandwidth of concurrent plain TCP streams between the same ranks. Each flow of each worker has one stream per
    /// queue pair.
    SocketStream,
    /// The nominal speed of the domain's device.
    Link {
        /// Bytes per second, in one direction.
        bytes_per_s: u64,
    },
}

/// Who moves bytes to or from device memory, such as GPU memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceMemoryAccess {
    /// Not known: the engine does not accept device memory, or a library decides who moves the bytes.
    #[default]
    Unknown,
    /// The device itself, in copies that the initiating rank starts.
    Copies,
    /// The device itself. The rank at each end copies bytes between its device memory and host memory.
    Staging,
    /// Another device, such as a NIC, accesses the device memory directly.
    Cards,
}

impl DeviceMemoryAccess {
    /// Returns whether all bytes cross the link between the device and the rest of its host.
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
    /// Operations that one worker may have in flight on one lane. At this limit, `post` takes no more until some
    /// complete.
    pub depth: u32,
    /// Size limit of a single operation.
    pub message_bytes_max: u64,
    /// False if completions are synthetic and no byte moves (the `null` engine).
    pub moves_bytes: bool,
    /// True if a completed write is visible to the peer. If false, only [`Engine::flush`] proves that the write has
    /// arrived.
    pub delivered: bool,
    /// True if a lane can delay completions of writes until the bytes are visible to the peer
    /// ([`LaneSpec::delivered`](crate::LaneSpec::delivered)). Irrelevant if `delivered` is true.
    pub delivery_on_request: bool,
    /// True if a completed send has filled one of the peer's receives. If false, a completed send may not have reached
    /// the peer yet, so flow control must keep senders from overrunning their receivers.
    pub sends_taken: bool,
    /// True if the device executes peers' requests without this side's CPU. The target of writes and reads then sleeps
    /// instead of polling.
    pub passive_target: bool,
    /// True if an arrived write-imm reports the peer that sent it. Irrelevant for a worker with one peer.
    pub arrivals_named: bool,
    /// True if a peer's write may become visible only while this side polls, as with sockets. A loop that waits for a
    /// byte to change must then also poll.
    pub arrives_by_polling: bool,
    /// True if a lane can guarantee that the last byte of a write becomes visible last.
    pub ordered_writes: bool,
    /// True if peers map each other's memory, which must then be allocated as shared memory.
    pub shared_memory: bool,
    /// True if trials run elsewhere ([`Engine::carrier`]), and single operations cannot be posted.
    pub carried: bool,
    /// Upper bound of the bandwidth.
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
    /// Limit on the number of peers that the worker will be connected to.
    pub peers_max: u32,
    /// Limit on the operations in flight on one lane.
    pub depth: u32,
    /// Queue pairs that the engine itself creates for each peer. More than one only if trials [run
    /// elsewhere](Caps::carried).
    pub queue_pairs: u32,
    /// True if the worker sleeps until completions arrive ([`Engine::arm`]); false if it only polls.
    pub sleeps: bool,
    /// A calibrated clock, for engines that measure which of their methods is the fastest.
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
    /// The library, versions, options and limits in use, for the record.
    fn report(&self) -> EngineReport;
    /// This host's address on the device. The socket streams that measure the bound use this address, and so cross the
    /// same device. `None`: they use the address of the control channel.
    fn stream_address(&self) -> Option<IpAddr> {
        None
    }
    /// Name of the component that limits this domain, the same in all processes of the machine. Ranks that share the
    /// component share one bound. `None` if the device's name in the report identifies the component.
    fn bound_place(&self) -> Option<&str> {
        None
    }
    /// Who moves bytes of device memory.
    fn device_memory_by(&self) -> DeviceMemoryAccess {
        DeviceMemoryAccess::Unknown
    }
    /// The devices that the payload must cross; their counters can prove that it did. If there are several, each carries
    /// a part. Devices that no worker uses are left out. Empty if no device counts traffic, as with memory, or if no
    /// device can be identified.
    fn wire_devices(&self) -> Vec<WireDevice> {
        Vec::new()
    }
    /// Creates a worker's own engine.
    ///
    /// # Errors
    /// If the device's queues cannot be created.
    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>>;
}
