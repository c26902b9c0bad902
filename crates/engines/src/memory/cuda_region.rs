//! Memories as ends of copies that a GPU makes.

use std::any::Any;
use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{Libraries, LibraryReport, RankMemory, split_name};
use tonnage_sys::cuda::{
    CudaContext, CudaFailure, CudaPart, CudaRegion, DeviceBuffer, Libcuda, PinnedArena,
};
use tonnage_units::{Error, Result};

use super::cuda::driver::{self, GpuInUse, advice};
use super::cuda::{CUDA, CudaMemory};
use super::cuda_pinned::PinnedMemory;

pub(crate) use super::cuda::driver::{LIBRARY as LIBCUDA, gpu_name, library, unavailable};

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

/// Memory that the driver knows, for engines that give it to their peers.
#[derive(Clone)]
pub(crate) enum DriverMemory {
    /// A GPU's own.
    Gpu(Arc<DeviceBuffer>),
    /// The host's, pinned by the driver.
    Pinned(Arc<PinnedArena>),
}

impl DriverMemory {
    /// The bytes of a memory; `None` for memory that the driver does not know.
    pub(crate) fn of(memory: &dyn Memory) -> Option<Self> {
        match CudaEnd::of(memory)?.region {
            CudaRegion::Device(buffer) => Some(Self::Gpu(buffer)),
            CudaRegion::Pinned(pinned) => Some(Self::Pinned(pinned)),
            CudaRegion::Pageable(_) => None,
        }
    }

    /// The context that they are of.
    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        match self {
            Self::Gpu(buffer) => buffer.context(),
            Self::Pinned(arena) => arena.context(),
        }
    }

    /// A range of them.
    ///
    /// # Errors
    /// `Outside`.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Result<CudaPart<'_>, CudaFailure> {
        match self {
            Self::Gpu(buffer) => buffer.part(offset, len),
            Self::Pinned(arena) => arena.part(offset, len),
        }
    }
}

/// An error of something that a GPU failed to do for an engine, with the next thing to try.
pub(crate) fn gpu_failed(engine: &str, context: &CudaContext, failure: &CudaFailure) -> Error {
    let gpu = gpu_name(context);
    match failure {
        CudaFailure::Outside(range) => Error::Failed(format!("{engine} on {gpu}: {range}")),
        _ => Error::Failed(format!("{engine} on {gpu}: {failure}. {}", advice(failure))),
    }
}

/// The driver as a record has it.
pub(crate) fn driver_report(library: &Libcuda) -> LibraryReport {
    let served = library.version().map(|version| version.to_string());
    LibraryReport {
        version: format!(
            "CUDA {}",
            served.as_deref().unwrap_or("of an unknown version")
        ),
        library: library.path().to_owned(),
    }
}

/// The context of the GPU with a UUID, where this process sees it.
///
/// # Errors
/// `Unavailable`, with what to do.
pub(crate) fn context_of(
    (library, libraries): (&Libcuda, &Libraries),
    uuid: &str,
    what: &str,
) -> Result<Option<Arc<CudaContext>>> {
    let devices = library
        .devices()
        .map_err(|failure| unavailable(what, &failure))?;
    let Some(device) = devices.iter().find(|device| device.uuid == uuid) else {
        return Ok(None);
    };
    let gpu = driver::open(Some(libraries), CUDA.name, device.number)?;
    Ok(Some(Arc::clone(gpu.context())))
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
