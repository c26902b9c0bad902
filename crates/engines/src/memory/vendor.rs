//! A GPU vendor: its names for users, its requirements for registration with NICs, and its advice for failures of the
//! driver.
//!
//! The code of GPU memories and engines is the same for all vendors. Each vendor is a constant in its own file
//! (`nvidia`, `amd`), and listed below. The drivers are in `tonnage_sys`.

use tonnage_engine::{Library, split_name};
use tonnage_machine::kernel_files::Tree;
use tonnage_sys::cuda::{CudaFailure, GpuDriver};

use super::amd::AMD;
use super::nvidia::NVIDIA;

/// Codes that the drivers of all vendors share: invalid argument, lack of memory, invalid GPU number, unsupported
/// feature.
pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const INVALID_DEVICE: i32 = 101;
pub(crate) const NOT_SUPPORTED: i32 = 801;

/// Error codes by which drivers refuse requests. The numbers have the same meaning for all drivers, but drivers return
/// them from different calls.
pub(crate) struct RefusalCodes {
    /// Too much host memory is pinned already.
    pub(crate) not_pinned: &'static [i32],
    /// The GPU that holds another process's memory cannot be reached, or there are too many peers.
    pub(crate) no_way: &'static [i32],
    /// The GPU that holds another process's memory is not visible to this process.
    pub(crate) not_seen: &'static [i32],
}

/// Limit on pinned host memory, in addition to the limit of the control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PinBound {
    /// The limit of locked memory (RLIMIT_MEMLOCK).
    Locked,
    /// The share of host memory that KFD, the kernel driver of AMD GPUs, grants all processes together.
    SystemMemory,
}

/// How a vendor's GPU memory is registered with NICs: requirements, and attributes of the driver.
pub(crate) struct NicRules {
    /// Attribute by which the driver reports that it can export GPU memory.
    pub(crate) exports: &'static str,
    /// Attribute by which the driver reports that NICs can access memory that was allocated by virtual-memory handles.
    pub(crate) reaches_mapped: &'static str,
    /// True if a driver that does not know the attribute `reaches_mapped` does not let NICs access this memory.
    pub(crate) mapped_needs_attribute: bool,
    /// Requirements on the GPU's side for exporting a dmabuf.
    pub(crate) dmabuf: &'static str,
    /// Whether the kernel's driver may silently move GPU memory to the host while a NIC has its dmabuf.
    pub(crate) may_move: bool,
    /// Requirements for registration by address, which needs a kernel module.
    pub(crate) peermem: &'static str,
    /// Returns whether the kernel lists a module that translates GPU addresses for NICs.
    pub(crate) has_peer_memory: fn(&Tree) -> bool,
    /// Message if the kernel lists no such module.
    pub(crate) no_peer_memory: &'static str,
    /// The vendor's software with which libfabric must be built.
    pub(crate) built_with: &'static str,
    /// Examples of libfabric providers that register this memory.
    pub(crate) providers: &'static str,
    /// Message if the driver does not report whether the host must flush the writes of NICs.
    pub(crate) flush_unknown: &'static str,
}

/// A GPU vendor.
pub(crate) struct GpuVendor {
    /// The vendor's name, as in `tonnage devices`.
    pub(crate) maker: &'static str,
    /// The driver.
    pub(crate) driver: &'static GpuDriver,
    /// Name of the driver in messages.
    pub(crate) driver_words: &'static str,
    /// The driver's library, which the user can choose by `--library` or an environment variable.
    pub(crate) library: Library,
    /// Name of the vendor's GPU memory.
    pub(crate) memory: &'static str,
    /// Name of the host memory that the vendor's driver pins.
    pub(crate) pinned: &'static str,
    /// Name of the engine for copies within one process.
    pub(crate) copies: &'static str,
    /// Name of the hardware or call that makes the driver's copies.
    pub(crate) copies_by: &'static str,
    /// Name of the engine for copies between processes.
    pub(crate) ipc: &'static str,
    /// The environment variable that selects the GPUs visible to a process.
    pub(crate) visible: &'static str,
    /// Codes of refusals for which there is advice.
    pub(crate) codes: RefusalCodes,
    /// Limit on pinned host memory.
    pub(crate) pins_within: PinBound,
    /// A size that exceeds all caches of the vendor's GPUs, including caches that the driver does not report.
    pub(crate) uncached_bytes_min: u64,
    /// How the vendor's GPU memory is registered with NICs.
    pub(crate) cards: NicRules,
    /// Returns advice after a failure.
    pub(crate) advice: fn(&CudaFailure) -> &'static str,
    /// Advice if no GPU is found.
    pub(crate) no_gpu: &'static str,
    /// Advice if a GPU cannot reach memory of another process on another GPU.
    pub(crate) no_way: &'static str,
}

/// All vendors.
pub(crate) static VENDORS: [&GpuVendor; 2] = [NVIDIA, AMD];

/// Returns the vendor of this driver.
pub(crate) fn vendor_of(driver: &GpuDriver) -> &'static GpuVendor {
    let of = |vendor: &&&GpuVendor| vendor.driver.name == driver.name;
    VENDORS.iter().find(of).copied().unwrap_or(NVIDIA)
}

/// Returns the vendor of the GPU memory with this name, with or without a number.
pub(crate) fn vendor_of_memory(name: &str) -> Option<&'static GpuVendor> {
    let (name, _) = split_name(name);
    VENDORS.into_iter().find(|vendor| vendor.memory == name)
}

/// Returns the GPU vendors, the most common first. Each has its name in `tonnage devices` and the name of its GPU
/// memory.
pub fn known_gpu_makers() -> Vec<(&'static str, &'static str)> {
    let both = |vendor: &GpuVendor| (vendor.maker, vendor.memory);
    VENDORS.into_iter().map(both).collect()
}
