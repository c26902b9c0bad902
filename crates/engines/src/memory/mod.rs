//! The memories of tonnage. The definition of a memory is in [`tonnage_engine::memory`].
//!
//! | file | what lives there |
//! | --- | --- |
//! | `host` | those of the host, which differ in their pages only |
//! | `copy` | how fast the CPU copies them |
//! | `cuda` | memory of an NVIDIA GPU |
//! | `cuda_pinned` | memory of the host that NVIDIA's driver has pinned |
//! | `cuda_region` | all of them as ends of copies that a GPU makes |
//! | `cuda_limit` | what bounds such copies |

mod copy;
mod cuda;
pub(crate) mod cuda_limit;
mod cuda_pinned;
pub(crate) mod cuda_region;
mod host;

use tonnage_engine::memory::MemoryEntry;

pub use cuda::CUDA;
pub use cuda_pinned::CUDA_PINNED;
pub use host::{HOST, HUGE, SMALL, of_arena};

/// Every memory, the default first.
pub static MEMORIES: &[MemoryEntry] = &[HOST, SMALL, HUGE, CUDA, CUDA_PINNED];
