//! Memories of AMD GPUs. This file has only their list rows; the code is in `cuda` and `cuda_pinned`.

use tonnage_engine::EngineOption;
use tonnage_engine::memory::MemoryEntry;

use super::amd::AMD;
use super::bus_device::bus_device;
use super::{cuda, cuda_pinned};

static OPTIONS: [EngineOption; 1] = [cuda::alloc_option(
    "malloc: in one piece by hipMalloc; vmm: physical memory by a virtual-memory handle (hipMemCreate), mapped in whole \
     granules of the size that the runtime recommends",
)];

/// Memory of an AMD GPU.
pub const HIP: MemoryEntry = MemoryEntry {
    options: &OPTIONS,
    ..cuda::entry(
        AMD,
        "AMD GPU memory, of the first GPU if no number is given; filled and verified by the GPU",
        |request| cuda::allocate(AMD, request),
        |request| bus_device(AMD, request),
    )
};

/// The same memory as `host`, pinned for all AMD GPUs.
pub const HIP_PINNED: MemoryEntry = cuda_pinned::entry(
    AMD,
    "host memory, pinned by AMD's runtime, so that GPUs copy it without the CPU",
    |request| cuda_pinned::allocate(AMD, request),
);
