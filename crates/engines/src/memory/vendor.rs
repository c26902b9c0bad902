//! A maker of GPUs: the names under which users know what is theirs, and the next thing to try where a driver fails.
//!
//! Memories and engines of GPUs are written once, for all makers. Each maker is a constant in a file of its own
//! (`nvidia`, `amd`), and `vendors` lists them; their drivers are `tonnage_sys`'.

use tonnage_engine::Library;
use tonnage_sys::cuda::{CudaFailure, GpuDriver};

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
    /// The next thing to try after a failure.
    pub(crate) advice: fn(&CudaFailure) -> &'static str,
    /// The next thing to try where there is no GPU.
    pub(crate) no_gpu: &'static str,
    /// The next thing to try where a GPU does not reach memory that another process has on another one.
    pub(crate) no_way: &'static str,
}
