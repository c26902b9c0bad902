//! The session of the kernel module on one port: its size, and errors if it cannot be opened.

use rustix::io::Errno;
use tonnage_machine::kernel_files::Tree;
use tonnage_sys::kread::{
    KREAD_ABI, KREAD_DEPTH_MAX, KREAD_DEVICE, KREAD_LANES_MAX, KREAD_SLOT_BYTES_MAX,
    KREAD_SLOT_BYTES_MIN, KREAD_SLOTS_MAX, KreadRefused, KreadSession, KreadSetup,
};
use tonnage_units::{Error, Result};

use super::choose::unavailable;
use super::port::OpenPort;

/// Bytes of landing memory in addition to those for the worker's memory. Reads of first contact and flushes are stored
/// there.
pub(super) const SCRATCH_BYTES: u64 = 4096;

const GET_IT: &str = "Build the module in kernel/tonnage_kread and load it as root, as its README describes (make, \
                      insmod); tonnage does not load it";

/// Slots of the landing memory, where operations of the kernel store their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Landing {
    pub(super) slots: u32,
    pub(super) slot_bytes: u32,
}

impl Landing {
    /// Slots for a memory of `bytes` bytes and the scratch after it; `None` if that needs too many slots. A slot is as
    /// large as possible, because an operation must fit into one.
    pub(super) fn for_memory(bytes: u64) -> Option<Self> {
        let all = bytes.checked_add(SCRATCH_BYTES)?;
        let one = all
            .checked_next_power_of_two()?
            .clamp(KREAD_SLOT_BYTES_MIN.into(), KREAD_SLOT_BYTES_MAX.into());
        let slots = u32::try_from(all.div_ceil(one)).ok()?;
        (slots <= KREAD_SLOTS_MAX).then_some(Self {
            slots,
            slot_bytes: one as u32,
        })
    }
}

/// Maximum depth of a lane, if the device's queues hold at most `work_requests` work requests.
pub(super) fn depth_max(work_requests: u32, signals_first: bool) -> u32 {
    let depth = KREAD_DEPTH_MAX.min(work_requests);
    // While one window is being posted, the previous window may still be in flight.
    let depth = if signals_first { depth / 2 } else { depth };
    depth.max(1)
}

/// Version of the loaded kernel module; `None` if it is not loaded.
pub(super) fn module_version() -> Option<String> {
    Tree::host().text("sys/module/tonnage_kread/version")
}

/// Opens a session with `lanes` lanes for a memory of `bytes` bytes.
pub(super) fn open_session(
    port: &OpenPort,
    lanes: u32,
    window: u32,
    bytes: u64,
) -> Result<(KreadSession, Landing)> {
    let landing = Landing::for_memory(bytes).ok_or_else(|| {
        let most = u64::from(KREAD_SLOTS_MAX) * u64::from(KREAD_SLOT_BYTES_MAX);
        let why =
            format!("a thread's memory has {bytes} bytes, but the module supports at most {most}");
        unavailable(why, "Choose a smaller --footprint, or fewer peers")
    })?;
    if lanes > KREAD_LANES_MAX {
        let why = format!(
            "{lanes} queue pairs per thread, but the module supports at most {KREAD_LANES_MAX}"
        );
        return Err(unavailable(
            why,
            "Choose fewer --queue-pairs, or fewer peers (--traffic)",
        ));
    }
    let gid_index = port.own_gids().map_or(0, |(index, _)| index);
    let setup = KreadSetup {
        device: port.chosen.context.name(),
        port: port.number(),
        gid_index,
        lanes: lanes.max(1),
        depth: if port.asked.signals_first {
            window.saturating_mul(2).min(KREAD_DEPTH_MAX)
        } else {
            window.max(2)
        },
        slots: landing.slots,
        slot_bytes: landing.slot_bytes,
    };
    let session = KreadSession::open(&setup);
    session
        .map(|session| (session, landing))
        .map_err(|refused| refusal(port, refused, landing))
}

fn refusal(port: &OpenPort, refused: KreadRefused, landing: Landing) -> Error {
    let name = port.chosen.context.name();
    match refused {
        KreadRefused::Absent => unavailable(
            format!("the kernel module tonnage_kread is not loaded: there is no {KREAD_DEVICE}"),
            GET_IT,
        ),
        KreadRefused::Denied => unavailable(
            format!("this user may not open {KREAD_DEVICE}"),
            "Run it as root, or give the user access by a udev rule, as kernel/tonnage_kread/README.md describes (in a \
             container: --device /dev/tonnage_kread)",
        ),
        KreadRefused::Abi(module) => unavailable(
            format!(
                "the loaded module has layout {module} of its calls, and this program {KREAD_ABI}"
            ),
            "Build and load the module of this version of tonnage: make -C kernel/tonnage_kread, rmmod tonnage_kread, \
             insmod kernel/tonnage_kread/tonnage_kread.ko",
        ),
        KreadRefused::Other(error) => match Errno::from_io_error(&error) {
            Some(Errno::NODEV) => unavailable(
                format!("the kernel's own modules cannot use the RDMA device {name}"),
                "Choose a device with a driver that supports kernel verbs: EFA's does not",
            ),
            Some(Errno::OPNOTSUPP) => unavailable(
                format!("{name} supports neither InfiniBand nor RoCE"),
                "Choose verbs:rc on another device, or fabric:verbs;ofi_rxm",
            ),
            Some(Errno::NOMEM) => unavailable(
                format!(
                    "the kernel cannot allocate {} buffers of {} bytes for landing memory",
                    landing.slots, landing.slot_bytes
                ),
                "Choose a smaller --footprint or fewer threads, or compact free memory: echo 1 \
                 >/proc/sys/vm/compact_memory",
            ),
            _ => Error::Failed(format!(
                "verbs:kernel on {}: the module cannot open a session: {error}",
                port.in_words()
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn landing_memory_has_room_for_the_memory_and_the_scratch() {
        let of = |bytes| Landing::for_memory(bytes).map(|it| (it.slots, it.slot_bytes));
        assert_eq!(of(0), Some((1, 4096)));
        assert_eq!(of(1), Some((1, 8192)));
        assert_eq!(of(64 << 10), Some((1, 128 << 10)));
        assert_eq!(of(4 << 20), Some((2, 4 << 20)));
        assert_eq!(of((4 << 30) - SCRATCH_BYTES), Some((1024, 4 << 20)));
        assert_eq!(of((4 << 30) - SCRATCH_BYTES + 1), None);
        assert_eq!(of(u64::MAX), None);
        for bytes in [0, 5, 4096, 100_000, 5 << 20] {
            let landing = Landing::for_memory(bytes).unwrap();
            let all = u64::from(landing.slots) * u64::from(landing.slot_bytes);
            assert!(all >= bytes + SCRATCH_BYTES && landing.slot_bytes.is_power_of_two());
        }
    }

    #[test]
    fn the_depth_is_limited_by_module_and_device() {
        assert_eq!(depth_max(1 << 20, false), 1024);
        assert_eq!(depth_max(1 << 20, true), 512);
        assert_eq!(depth_max(100, false), 100);
        assert_eq!(depth_max(0, true), 1);
    }
}
