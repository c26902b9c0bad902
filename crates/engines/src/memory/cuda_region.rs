//! Memories as ends of copies that a GPU makes.

use std::any::Any;
use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{RankMemory, split_name};
use tonnage_sys::cuda::CudaRegion;
use tonnage_units::Result;

use super::cuda::driver::{self, GpuInUse};
use super::cuda::{CUDA, CudaMemory};
use super::cuda_pinned::PinnedMemory;

pub(crate) use super::cuda::driver::{LIBRARY as LIBCUDA, library, unavailable};

/// Memory at one end.
#[derive(Clone)]
pub(crate) struct CudaEnd {
    /// Its bytes.
    pub(crate) region: CudaRegion,
    /// The GPU that they are of; `None` for memory of the host.
    pub(crate) gpu: Option<Arc<GpuInUse>>,
}

impl CudaEnd {
    /// A memory as an end; `None` for memory of another device.
    pub(crate) fn of(memory: &dyn Memory) -> Option<Self> {
        let typed: &dyn Any = memory;
        if let Some(memory) = typed.downcast_ref::<CudaMemory>() {
            return Some(Self {
                region: CudaRegion::Device(Arc::clone(memory.buffer())),
                gpu: Some(Arc::clone(memory.gpu())),
            });
        }
        let region = match typed.downcast_ref::<PinnedMemory>() {
            Some(memory) => CudaRegion::Pinned(Arc::clone(memory.pinned())),
            None => CudaRegion::Pageable(Arc::clone(memory.host()?)),
        };
        Some(Self { region, gpu: None })
    }
}

/// The number of the GPU whose memory a rank will have; `None` for any other memory.
///
/// # Errors
/// `Usage` for a name that has no number where one belongs.
pub(crate) fn number_of(memory: RankMemory<'_>) -> Result<Option<u32>> {
    match split_name(memory.name) {
        (name, variant) if name == CUDA.name => driver::number(variant, memory.gpu).map(Some),
        _ => Ok(None),
    }
}
