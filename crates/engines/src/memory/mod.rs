//! The memories of tonnage. The trait is in [`tonnage_engine::memory`].
//!
//! | file | contents |
//! | --- | --- |
//! | `host` | host memories, which differ only in their pages |
//! | `copy` | the CPU's copy rates |
//! | `cuda` | GPU memory, and NVIDIA's list row |
//! | `cuda_pinned` | host memory pinned by a GPU's driver, and NVIDIA's list row |
//! | `hip` | AMD's list rows for both |
//! | `cuda_region` | all memories, as sources and destinations of GPU copies |
//! | `bus_device` | the GPU of memory that is not allocated yet, and the GPU's link to the host |
//! | `cuda_bound` | the upper bound of GPU copies |
//! | `gpu_nic` | the NIC nearest to the GPU of a rank's memory |
//! | `vendor` | the type of a GPU vendor, with names and advice; the list of vendors |
//! | `nvidia`, `amd` | the vendors |

pub(crate) mod amd;
mod bus_device;
mod copy;
mod cuda;
pub(crate) mod cuda_bound;
mod cuda_pinned;
pub(crate) mod cuda_region;
pub(crate) mod gpu_nic;
mod hip;
mod host;
pub(crate) mod nvidia;
pub(crate) mod vendor;

use tonnage_engine::memory::MemoryEntry;

pub use cuda::CUDA;
pub use cuda_pinned::CUDA_PINNED;
pub use hip::{HIP, HIP_PINNED};
pub use host::{HOST, HUGE, SMALL, from_arena};
pub use vendor::known_gpu_makers;

/// All memories. The first is the default.
pub static MEMORIES: &[MemoryEntry] = &[HOST, SMALL, HUGE, CUDA, CUDA_PINNED, HIP, HIP_PINNED];
