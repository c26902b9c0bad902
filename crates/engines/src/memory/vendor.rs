//! A maker of GPUs: the names under which users know what is theirs, and the next thing to try where a driver fails.
//!
//! Memories and engines of GPUs are written once, for all makers. Each maker is a constant in a file of its own
//! (`nvidia`, `amd`), and `vendors` lists them; their drivers are `tonnage_sys`'.

use tonnage_engine::Library;
use tonnage_sys::cuda::{CudaFailure, GpuDriver};

/// Codes that the drivers of all makers return: of an argument that they do not take, of memory that is not there, of a
/// number that no GPU has, and of what driver or GPU do not have.
pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const INVALID_DEVICE: i32 = 101;
pub(crate) const NOT_SUPPORTED: i32 = 801;

/// Codes of refusals. Drivers have the same numbers, and do not return them in the same places.
pub(crate) struct RefusalCodes {
    /// Codes of host memory that was not pinned because there is too much of it.
    pub(crate) not_pinned: &'static [i32],
    /// Codes of another process's memory on a GPU that this one does not reach, or with more peers than it can have.
    pub(crate) no_way: &'static [i32],
    /// Codes of another process's memory on a GPU that this process does not see.
    pub(crate) not_seen: &'static [i32],
}

/// Bound on the host's memory that a driver pins, beside that of the control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PinBound {
    /// The limit of locked memory (RLIMIT_MEMLOCK).
    Locked,
    /// The part of the host's memory that the kernel's driver of GPUs (KFD) lets all processes have for them.
    SystemMemory,
}

/// A maker of GPUs.
pub(crate) struct GpuVendor {
    /// The driver.
    pub(crate) driver: &'static GpuDriver,
    /// The driver in words.
    pub(crate) driver_words: &'static str,
    /// The driver's library, which `--library` and a variable choose.
    pub(crate) library: Library,
    /// Name of the memory of a GPU.
    pub(crate) memory: &'static str,
    /// Name of the host's memory that the driver has pinned.
    pub(crate) pinned: &'static str,
    /// Name of the engine within one process.
    pub(crate) copies: &'static str,
    /// By what the driver's own call carries copies out, in words.
    pub(crate) copies_by: &'static str,
    /// Name of the engine between processes.
    pub(crate) ipc: &'static str,
    /// The environment variable that says which GPUs a process may see.
    pub(crate) visible: &'static str,
    /// Codes by which the driver refuses what tonnage knows advice for.
    pub(crate) codes: RefusalCodes,
    /// Bound on the host's memory that may be pinned.
    pub(crate) pins_within: PinBound,
    /// Bytes that no cache of its GPUs holds, at least, beside those that the driver tells of.
    pub(crate) uncached_bytes_min: u64,
    /// The next thing to try after a failure.
    pub(crate) advice: fn(&CudaFailure) -> &'static str,
    /// The next thing to try where there is no GPU.
    pub(crate) no_gpu: &'static str,
    /// The next thing to try where a GPU does not reach memory that another process has on another one.
    pub(crate) no_way: &'static str,
}
