//! The memories of tonnage. The definition of a memory is in [`tonnage_engine::memory`].
//!
//! | file | what lives there |
//! | --- | --- |
//! | `host` | those of the host, which differ in their pages only |
//! | `copy` | how fast the CPU copies them |
//! | `cuda` | memory of a GPU, and NVIDIA's row |
//! | `cuda_pinned` | memory of the host that a GPU's driver has pinned, and NVIDIA's row |
//! | `hip` | rows of the same for AMD |
//! | `cuda_region` | all of them as ends of copies that a GPU makes |
//! | `bus_device` | the GPU of a memory that is not allocated yet, and its link |
//! | `cuda_limit` | what bounds such copies |
//! | `gpu_nic` | the NIC that is nearest to the GPU of a rank's memory |
//! | `vendor` | a maker of GPUs: names, and advice for failures; the list of makers |
//! | `nvidia`, `amd` | the makers |

pub(crate) mod amd;
mod bus_device;
mod copy;
mod cuda;
pub(crate) mod cuda_limit;
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
pub use host::{HOST, HUGE, SMALL, of_arena};
pub use vendor::known_gpu_makers;

/// Every memory, the default first.
pub static MEMORIES: &[MemoryEntry] = &[HOST, SMALL, HUGE, CUDA, CUDA_PINNED, HIP, HIP_PINNED];
