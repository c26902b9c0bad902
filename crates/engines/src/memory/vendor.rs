//! A GPU vendor: its names for users, its requirements for registration with NICs, and advice for failures of
//! its driver.
//!
//! Memories and engines of GPUs are written once, for all vendors. Each vendor is a constant in its own file (`nvidia`,
//! `amd`), and they are listed below. The drivers are in `tonnage_sys`.

use tonnage_engine::{Library, split_name};
use tonnage_machine::kernel_files::Tree;
use tonnage_sys::cuda::{CudaFailure, GpuDriver};

use super::amd::AMD;
use super::nvidia::NVIDIA;

/// Codes that the drivers of all vendors return: invalid argument, lack of memory, invalid GPU number, and unsupported
/// feature.
pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const INVALID_DEVICE: i32 = 101;
pub(crate) const NOT_SUPPORTED: i32 = 801;

/// Codes of refusals. All drivers use the same numbers, but return them for different calls.
pub(crate) struct RefusalCodes {
    /// Codes that mean that too much host memory was pinned already.
    pub(crate) not_pinned: &'static [i32],
    /// Another process's memory is on a GPU that this one cannot reach, or there are too many peers.
    pub(crate) no_way: &'static [i32],
    /// Another process's memory is on a GPU that is not visible to this process.
    pub(crate) not_seen: &'static [i32],
}

/// Limit on pinned host memory, in addition to that of the control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PinBound {
    /// The limit of locked memory (RLIMIT_MEMLOCK).
    Locked,
    /// The share of host memory that the kernel's GPU driver (KFD) grants all processes together.
    SystemMemory,
}

/// Registration of a vendor's GPU memory with NICs: its requirements, and the driver's attributes for it.
pub(crate) struct NicRules {
    /// Attribute by which the driver reports that it can export GPU memory.
    pub(crate) exports: &'static str,
    /// Attribute by which the driver reports that NICs can access memory by virtual-memory handles.
    pub(crate) reaches_mapped: &'static str,
    /// Whether an unknown `reaches_mapped` attribute means that NICs cannot access this memory.
    pub(crate) mapped_needs_attribute: bool,
    /// Requirements for a dmabuf export, on the GPU's side.
    pub(crate) dmabuf: &'static str,
    /// Whether the kernel's driver may move GPU memory to the host, without an error, when a NIC has its dmabuf.
    pub(crate) may_move: bool,
    /// Requirements for a registration by address, which the kernel translates.
    pub(crate) peermem: &'static str,
    /// Returns whether the kernel lists a module that translates addresses.
    pub(crate) has_peer_memory: fn(&Tree) -> bool,
    /// Text for the case that it does not.
    pub(crate) no_peer_memory: &'static str,
    /// The vendor's software that a libfabric must be built with.
    pub(crate) built_with: &'static str,
    /// libfabric providers that register this memory, as examples.
    pub(crate) providers: &'static str,
    /// Text for a driver that does not report whether the host has to flush the writes of NICs.
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
    /// The driver's library, selected by `--library` or an environment variable.
    pub(crate) library: Library,
    /// Name of the vendor's GPU memory.
    pub(crate) memory: &'static str,
    /// Name of the host memory that its driver pins.
    pub(crate) pinned: &'static str,
    /// Name of the engine within one process.
    pub(crate) copies: &'static str,
    /// Name of the hardware or call that makes copies if the driver makes them.
    pub(crate) copies_by: &'static str,
    /// Name of the engine between processes.
    pub(crate) ipc: &'static str,
    /// The environment variable that selects the GPUs visible to a process.
    pub(crate) visible: &'static str,
    /// Codes of refusals for which there is advice.
    pub(crate) codes: RefusalCodes,
    /// Limit on pinned host memory.
    pub(crate) pins_within: PinBound,
    /// Size that exceeds all caches of its GPUs, including those that the driver does not report.
    pub(crate) uncached_bytes_min: u64,
    /// Registration of its GPU memory with NICs.
    pub(crate) cards: NicRules,
    /// Returns the next thing to try after a failure.
    pub(crate) advice: fn(&CudaFailure) -> &'static str,
    /// Advice if no GPU is found.
    pub(crate) no_gpu: &'static str,
    /// Advice if a GPU cannot reach another process's memory on another GPU.
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

/// Returns GPU vendors, as named in `tonnage devices`, each with the name of its GPU memory; the most common first.
pub fn known_gpu_makers() -> Vec<(&'static str, &'static str)> {
    let both = |vendor: &GpuVendor| (vendor.maker, vendor.memory);
    VENDORS.into_iter().map(both).collect()
}
