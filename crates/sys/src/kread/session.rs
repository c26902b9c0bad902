//! An open session. The module checks all arguments again; this code ensures that the kernel touches only memory that
//! the caller has lent for the call.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::abi::*;
use crate::library::outcome;
use crate::mapping::Arena;

/// The device file.
pub const KREAD_DEVICE: &str = "/dev/tonnage_kread";
/// Maximum number of lanes. This and the other limits of a session come from the module's header.
pub const KREAD_LANES_MAX: u32 = 128;
/// Maximum operations in flight per lane.
pub const KREAD_DEPTH_MAX: u32 = 1024;
/// Maximum slots of landing memory, the module's buffer for the local bytes of operations.
pub const KREAD_SLOTS_MAX: u32 = 1024;
/// Minimum bytes of a slot.
pub const KREAD_SLOT_BYTES_MIN: u32 = 4096;
/// Maximum bytes of a slot, and of an operation.
pub const KREAD_SLOT_BYTES_MAX: u32 = 4 << 20;

/// Parameters of a session.
#[derive(Debug, Clone, Copy)]
pub struct KreadSetup<'a> {
    /// Name of the RDMA device.
    pub device: &'a str,
    /// Port of the device.
    pub port: u8,
    /// Index of the port's address (GID).
    pub gid_index: u8,
    /// Number of lanes.
    pub lanes: u32,
    /// Maximum operations in flight per lane.
    pub depth: u32,
    /// Number of slots of landing memory.
    pub slots: u32,
    /// Bytes of a slot, a power of two.
    pub slot_bytes: u32,
}

/// Reason why a session cannot be opened.
#[derive(Debug)]
pub enum KreadRefused {
    /// The device file does not exist.
    Absent,
    /// This user may not open it.
    Denied,
    /// The module uses another version of the layout. The value is the number of that version.
    Abi(u32),
    /// Another error of the system.
    Other(io::Error),
}

/// Path of a lane to the peer's queue pair.
#[derive(Debug, Clone, Copy)]
pub struct KreadPath {
    /// Number of the peer's queue pair.
    pub number: u32,
    /// First packet sequence number of that queue pair.
    pub first_packet: u32,
    /// Local identifier (LID) of that queue pair's port, on InfiniBand.
    pub lid: u16,
    /// GID of that port, if packets carry addresses.
    pub gid: Option<[u8; 16]>,
    /// Payload bytes of a packet.
    pub mtu_bytes: u32,
    /// Flow label of packets with addresses.
    pub flow_label: u32,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Retransmission timeout, as encoded in a queue pair.
    pub timeout: u8,
    /// Number of retransmissions.
    pub retry: u8,
    /// Number of retries of a message that finds no receive.
    pub rnr_retry: u8,
    /// Maximum reads in flight.
    pub reads: u8,
    /// Maximum number of routers on the path.
    pub hop_limit: u8,
    /// Traffic class of packets with addresses.
    pub traffic_class: u8,
    /// Service level.
    pub service_level: u8,
}

/// Kind of the operations of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum KreadVerb {
    /// Reads of a peer's memory.
    Read = TKR_READ,
    /// Writes to a peer's memory.
    Write = TKR_WRITE,
}

/// When operations are posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum KreadPosting {
    /// One per completion.
    Each = TKR_EACH,
    /// The published method: signals the first operation of each window, and waits for it.
    First = TKR_FIRST,
    /// A whole window, when none is in flight.
    Batch = TKR_BATCH,
}

/// Order in which slots are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum KreadSlotOrder {
    /// Always the first slot.
    Fixed = TKR_FIXED,
    /// In sequence.
    Sequential = TKR_SEQUENTIAL,
    /// Seeded pseudo-random.
    Random = TKR_RANDOM,
    /// Each slot once per round.
    Permuted = TKR_PERMUTED,
}

/// Operations towards one peer in a run.
#[derive(Debug, Clone, Copy)]
pub struct KreadFlow {
    /// First of the flow's lanes.
    pub lane: u32,
    /// Number of the flow's lanes.
    pub lanes: u32,
    /// Address of the first slot at the peer, and the number of accessible bytes there.
    pub remote: (u64, u64),
    /// Key of the peer's memory.
    pub key: u32,
    /// Offset of the first slot in landing memory.
    pub local: u64,
    /// Seed of the slot orders.
    pub seed: u64,
    /// Number of the flow's operations before this run. The slot orders continue from there.
    pub begin: u64,
}

/// Parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct KreadOrder<'a> {
    /// The operation.
    pub verb: KreadVerb,
    /// Payload bytes of each operation.
    pub bytes: u32,
    /// Operations in flight per flow.
    pub window: u32,
    /// When operations are posted.
    pub posting: KreadPosting,
    /// Slot orders of this side and of the peer.
    pub orders: (KreadSlotOrder, KreadSlotOrder),
    /// Number of slots, and bytes from one slot's beginning to the next.
    pub slots: (u64, u64),
    /// Maximum number of operations; `None` for no limit.
    pub operations_max: Option<u64>,
    /// Duration; `None` for no limit.
    pub duration: Option<Duration>,
    /// Time without a completion after which the run fails.
    pub patience: Duration,
    /// Whether to record latencies.
    pub timed: bool,
    /// Ends the run when it becomes true.
    pub stop: &'a AtomicBool,
}

/// Result of a run.
#[derive(Debug)]
pub struct KreadOutcome {
    /// Reason why the run ended early, unless `stop` ended it.
    pub ended: Option<io::Error>,
    /// Completed operations, per flow.
    pub issued: Vec<u64>,
    /// Maximum operations in flight.
    pub in_flight_max: u32,
    /// The first failed operation: its status, the device's vendor code, and its lane.
    pub failed: Option<(u32, u32, u32)>,
}

/// Latencies of a lane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KreadLatencies {
    /// Counts of HdrHistogram's bins, 1 ns to 60 s with three digits.
    pub bins: Vec<u64>,
    /// Number of latencies.
    pub samples: u64,
    /// The smallest latency.
    pub min_ns: u64,
    /// The largest latency.
    pub max_ns: u64,
    /// Sum of the latencies.
    pub sum_ns: u64,
}

/// An open session. Its calls may come from several threads.
#[derive(Debug)]
pub struct KreadSession {
    file: File,
    landing_bytes: u64,
}

impl KreadSession {
    /// Opens the device file and sets up the session.
    ///
    /// # Errors
    /// The reason why it cannot be opened.
    pub fn open(setup: &KreadSetup<'_>) -> Result<Self, KreadRefused> {
        let file = OpenOptions::new().read(true).write(true).open(KREAD_DEVICE);
        let file = file.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => KreadRefused::Absent,
            Some(libc::EACCES | libc::EPERM) => KreadRefused::Denied,
            _ => KreadRefused::Other(error),
        })?;
        let mut asked = tkr_setup {
            abi: TKR_ABI,
            port: setup.port.into(),
            gid_index: setup.gid_index.into(),
            lanes: setup.lanes,
            depth: setup.depth,
            slots: setup.slots,
            slot_bytes: setup.slot_bytes,
            ..tkr_setup::ZEROED
        };
        // A name that is too long is truncated, and the module then rejects it: no device has a name of this length.
        let name = setup.device.as_bytes();
        asked
            .device
            .iter_mut()
            .zip(name)
            .for_each(|(place, &byte)| *place = byte);
        let session = Self {
            file,
            landing_bytes: u64::from(setup.slots) * u64::from(setup.slot_bytes),
        };
        match session.call(TKR_IOC_SETUP, &mut asked) {
            Ok(()) => Ok(session),
            Err(error) if error.raw_os_error() == Some(libc::EPROTO) => {
                Err(KreadRefused::Abi(asked.abi))
            }
            Err(error) => Err(KreadRefused::Other(error)),
        }
    }

    fn call<T>(&self, number: u32, argument: &mut T) -> io::Result<()> {
        // SAFETY: the number contains the size of the argument. The kernel reads and writes the argument and nothing
        // else, except for memory that the argument refers to: the callers here lend it for the duration of the call.
        outcome(unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                number as libc::Ioctl,
                std::ptr::from_mut(argument),
            )
        })
    }

    /// Size of landing memory in bytes.
    pub fn landing_bytes(&self) -> u64 {
        self.landing_bytes
    }

    /// Returns the number of a lane's queue pair, and its first packet sequence number.
    ///
    /// # Errors
    /// If the lane does not exist.
    pub fn address(&self, lane: u32) -> io::Result<(u32, u32)> {
        let mut asked = tkr_lane {
            lane,
            ..tkr_lane::ZEROED
        };
        self.call(TKR_IOC_LANE, &mut asked)?;
        Ok((asked.qpn, asked.psn))
    }

    /// Connects a lane.
    ///
    /// # Errors
    /// If the device rejects the path, or the peer's address cannot be resolved.
    pub fn connect(&self, lane: u32, path: &KreadPath) -> io::Result<()> {
        let mut asked = tkr_connect {
            lane,
            qpn: path.number,
            psn: path.first_packet,
            lid: path.lid.into(),
            gid: path.gid.unwrap_or_default(),
            mtu_bytes: path.mtu_bytes,
            flow_label: path.flow_label,
            pkey_index: path.pkey_index,
            timeout: path.timeout,
            retry: path.retry,
            rnr_retry: path.rnr_retry,
            rd_atomic: path.reads,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
            service_level: path.service_level,
            flags: path.gid.map_or(0, |_| TKR_PATH_GLOBAL),
            ..tkr_connect::ZEROED
        };
        self.call(TKR_IOC_CONNECT, &mut asked)
    }

    /// Runs on this thread until the run ends.
    pub fn run(&self, order: &KreadOrder<'_>, flows: &[KreadFlow]) -> KreadOutcome {
        let mut given: Vec<tkr_flow> = flows.iter().map(flow).collect();
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mut asked = tkr_run {
            verb: order.verb as u32,
            bytes: order.bytes,
            window: order.window,
            pacing: order.posting as u32,
            local_order: order.orders.0 as u32,
            remote_order: order.orders.1 as u32,
            flags: if order.timed { 0 } else { TKR_RUN_UNTIMED },
            flows: given.len() as u32,
            flows_at: given.as_mut_ptr() as u64,
            slots: order.slots.0,
            stride: order.slots.1,
            ops_max: order.operations_max.unwrap_or(0),
            duration_ns: order.duration.map_or(0, ns),
            patience_ns: ns(order.patience),
            stop_at: std::ptr::from_ref(order.stop) as u64,
            ..tkr_run::ZEROED
        };
        let ended = self.call(TKR_IOC_RUN, &mut asked).err();
        KreadOutcome {
            ended,
            issued: given.iter().map(|flow| flow.issued).collect(),
            in_flight_max: asked.in_flight_max,
            failed: (asked.status != 0).then_some((asked.status, asked.vendor, asked.failed_lane)),
        }
    }

    /// Returns the number of operations that a lane has completed since the session was opened.
    ///
    /// # Errors
    /// If the device is gone, or the lane does not exist.
    pub fn operations(&self, lane: u32) -> io::Result<u64> {
        let mut asked = tkr_stats {
            lane,
            ..tkr_stats::ZEROED
        };
        self.call(TKR_IOC_STATS, &mut asked)?;
        Ok(asked.ops)
    }

    /// Returns the latencies of a lane since the last [`Self::forget`].
    ///
    /// # Errors
    /// As for [`Self::operations`].
    pub fn latencies(&self, lane: u32) -> io::Result<KreadLatencies> {
        let mut bins = vec![0u64; TKR_BINS];
        let mut asked = tkr_hist {
            lane,
            bins_at: bins.as_mut_ptr() as u64,
            ..tkr_hist::ZEROED
        };
        self.call(TKR_IOC_HIST, &mut asked)?;
        Ok(KreadLatencies {
            bins,
            samples: asked.samples,
            min_ns: asked.min_ns,
            max_ns: asked.max_ns,
            sum_ns: asked.sum_ns,
        })
    }

    /// Discards the latencies of a lane.
    ///
    /// # Errors
    /// As for [`Self::operations`], and while the lane is running.
    pub fn forget(&self, lane: u32) -> io::Result<()> {
        let mut asked = tkr_hist {
            lane,
            flags: TKR_HIST_CLEAR,
            ..tkr_hist::ZEROED
        };
        self.call(TKR_IOC_HIST, &mut asked)
    }

    /// Copies bytes of an arena to the same offset in landing memory.
    ///
    /// # Errors
    /// If the range does not lie in both memories, or the device is gone.
    pub fn copy_to_landing(&self, arena: &Arena, offset: u64, bytes: u64) -> io::Result<()> {
        self.peek(arena, (offset, bytes), TKR_PEEK_STORE)
    }

    /// Copies bytes of landing memory to the same offset in an arena.
    ///
    /// # Errors
    /// As for [`Self::copy_to_landing`].
    pub fn copy_from_landing(&self, arena: &Arena, offset: u64, bytes: u64) -> io::Result<()> {
        self.peek(arena, (offset, bytes), 0)
    }

    fn peek(&self, arena: &Arena, (offset, bytes): (u64, u64), flags: u32) -> io::Result<()> {
        let at = arena.pointer(offset, bytes).map_err(io::Error::other)?;
        let mut asked = tkr_peek {
            offset,
            bytes,
            at: at as u64,
            flags,
            ..tkr_peek::ZEROED
        };
        self.call(TKR_IOC_PEEK, &mut asked)
    }

    /// Ends the runs of all threads.
    ///
    /// # Errors
    /// Only for a thread that is being killed.
    pub fn stop(&self) -> io::Result<()> {
        self.call(TKR_IOC_STOP, &mut ())
    }
}

fn flow(flow: &KreadFlow) -> tkr_flow {
    tkr_flow {
        lane: flow.lane,
        lanes: flow.lanes,
        remote: flow.remote.0,
        remote_bytes: flow.remote.1,
        local: flow.local,
        seed: flow.seed,
        begin: flow.begin,
        rkey: flow.key,
        ..tkr_flow::ZEROED
    }
}
