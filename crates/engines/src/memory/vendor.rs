//! A maker of GPUs: the names under which users know what is theirs, what registering it with network cards needs, and
//! the next thing to try where a driver fails.
//!
//! Memories and engines of GPUs are written once, for all makers. Each maker is a constant in a file of its own
//! (`nvidia`, `amd`), and they are listed below; their drivers are `tonnage_sys`'.

use tonnage_engine::{Library, split_name};
use tonnage_machine::kernel_files::Tree;
use tonnage_sys::cuda::{CudaFailure, GpuDriver};

use super::amd::AMD;
use super::nvidia::NVIDIA;

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

/// Registrations of memory of a maker's GPUs with network cards: what they need, and what the driver says of them.
pub(crate) struct CardRules {
    /// Attribute by which the driver says that it exports memory of a GPU.
    pub(crate) exports: &'static str,
    /// Attribute by which it says that cards reach memory by virtual-memory handles.
    pub(crate) reaches_mapped: &'static str,
    /// True where cards reach such memory only if the driver says so: one that does not know the attribute says no.
    pub(crate) mapped_if_told: bool,
    /// Needs of an export as a dmabuf, on the GPU's side.
    pub(crate) dmabuf: &'static str,
    /// True where the kernel's driver may move memory of a GPU to the host when a card has its file, without an error.
    pub(crate) may_move: bool,
    /// Needs of a registration by address, which the kernel translates.
    pub(crate) peermem: &'static str,
    /// Returns whether the kernel lists what translates addresses.
    pub(crate) has_peer_memory: fn(&Tree) -> bool,
    /// Words for where it does not.
    pub(crate) no_peer_memory: &'static str,
    /// The maker's software that a libfabric has to be built with.
    pub(crate) built_with: &'static str,
    /// Providers of libfabric that register such memory, as examples.
    pub(crate) providers: &'static str,
    /// Words for a driver that does not tell whether the host has to flush what cards have written.
    pub(crate) flush_untold: &'static str,
}

/// A maker of GPUs.
pub(crate) struct GpuVendor {
    /// Its name, as `tonnage devices` has it.
    pub(crate) maker: &'static str,
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
    /// Registrations of their memory with network cards.
    pub(crate) cards: CardRules,
    /// The next thing to try after a failure.
    pub(crate) advice: fn(&CudaFailure) -> &'static str,
    /// The next thing to try where there is no GPU.
    pub(crate) no_gpu: &'static str,
    /// The next thing to try where a GPU does not reach memory that another process has on another one.
    pub(crate) no_way: &'static str,
}

/// All of them.
pub(crate) static VENDORS: [&GpuVendor; 2] = [NVIDIA, AMD];

/// The maker whose driver this is.
pub(crate) fn vendor_of(driver: &GpuDriver) -> &'static GpuVendor {
    let of = |vendor: &&&GpuVendor| vendor.driver.name == driver.name;
    VENDORS.iter().find(of).copied().unwrap_or(NVIDIA)
}

/// The maker whose GPUs a memory of this name, with or without a number, is of.
pub(crate) fn vendor_of_memory(name: &str) -> Option<&'static GpuVendor> {
    let (name, _) = split_name(name);
    VENDORS.into_iter().find(|vendor| vendor.memory == name)
}

/// Makers of GPUs, as `tonnage devices` names them, each with the name of the memory of its GPUs; the most usual first.
pub fn known_gpu_makers() -> Vec<(&'static str, &'static str)> {
    let both = |vendor: &GpuVendor| (vendor.maker, vendor.memory);
    VENDORS.into_iter().map(both).collect()
}
