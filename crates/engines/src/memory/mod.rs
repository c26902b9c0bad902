//! The memories of tonnage. The trait is in [`tonnage_engine::memory`].
//!
//! | file | contents |
//! | --- | --- |
//! | `host` | host memories, which differ only in their pages |
//! | `copy` | the CPU's copy rates |
//! | `cuda` | GPU memory, and NVIDIA's entry |
//! | `cuda_pinned` | host memory pinned by a GPU's driver, and NVIDIA's entry |
//! | `hip` | AMD's entries for both |
//! | `cuda_region` | all of them as ends of GPU copies |
//! | `bus_device` | the GPU of a memory that is not allocated yet, and its link |
//! | `cuda_bound` | the bound of these copies |
//! | `gpu_nic` | the NIC nearest to the GPU of a rank's memory |
//! | `vendor` | a GPU vendor: names, and advice for failures; the list of vendors |
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

/// All memories, the default first.
pub static MEMORIES: &[MemoryEntry] = &[HOST, SMALL, HUGE, CUDA, CUDA_PINNED, HIP, HIP_PINNED];
