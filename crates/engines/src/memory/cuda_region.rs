//! Memories as sources and destinations of GPU copies.

use std::any::Any;
use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{Libraries, LibraryReport, PlannedMemory, split_name};
use tonnage_sys::cuda::{
    CudaContext, CudaDevice, CudaFailure, CudaPart, CudaRegion, DeviceBuffer, Libcuda, PinnedArena,
};
use tonnage_units::{Error, Result};

use super::cuda::CudaMemory;
use super::cuda::driver::{self, GpuInUse, advice};
use super::cuda_pinned::PinnedMemory;
use super::vendor::GpuVendor;
use super::vendor::{vendor_of, vendor_of_memory};

pub(crate) use super::cuda::driver::{gpu_name, library, unavailable};

/// Memory at one end of a copy.
#[derive(Clone)]
pub(crate) struct CudaEnd {
    /// The bytes of the memory.
    pub(crate) region: CudaRegion,
    /// The GPU that owns the bytes; `None` for host memory.
    pub(crate) gpu: Option<Arc<GpuInUse>>,
}

impl CudaEnd {
    /// Returns this memory as an end of copies by a vendor's GPUs; `None` for memory of another device. Memory pinned
    /// by another vendor's driver counts as ordinary host memory.
    pub(crate) fn new(vendor: &GpuVendor, memory: &dyn Memory) -> Option<Self> {
        let typed: &dyn Any = memory;
        let is_own = |gpu: &GpuInUse| gpu.vendor.memory == vendor.memory;
        if let Some(memory) = typed.downcast_ref::<CudaMemory>() {
            return is_own(&memory.gpu).then(|| Self {
                region: CudaRegion::Device(Arc::clone(&memory.buffer)),
                gpu: Some(Arc::clone(&memory.gpu)),
            });
        }
        let region = match typed.downcast_ref::<PinnedMemory>() {
            Some(memory) if is_own(&memory.gpu) => CudaRegion::Pinned(Arc::clone(&memory.pinned)),
            _ => CudaRegion::Pageable(Arc::clone(memory.host()?)),
        };
        Some(Self { region, gpu: None })
    }
}

/// Memory that a driver knows. Engines share such memory with their peers.
#[derive(Clone)]
pub(crate) enum DriverMemory {
    /// GPU memory.
    Gpu(Arc<DeviceBuffer>),
    /// Host memory pinned by the driver.
    Pinned(Arc<PinnedArena>),
}

impl DriverMemory {
    /// Returns the bytes of a memory, as a driver knows them; `None` for memory that no driver knows.
    pub(crate) fn from_memory(memory: &dyn Memory) -> Option<Self> {
        let typed: &dyn Any = memory;
        let gpu = typed.downcast_ref().map(|memory: &CudaMemory| &memory.gpu);
        let gpu = gpu.or(typed
            .downcast_ref()
            .map(|memory: &PinnedMemory| &memory.gpu))?;
        Self::from_vendor_memory(gpu.vendor, memory)
    }

    /// Returns the bytes of a memory, as this vendor's driver knows them; `None` for memory that this driver does not
    /// know.
    pub(crate) fn from_vendor_memory(vendor: &GpuVendor, memory: &dyn Memory) -> Option<Self> {
        match CudaEnd::new(vendor, memory)?.region {
            CudaRegion::Device(buffer) => Some(Self::Gpu(buffer)),
            CudaRegion::Pinned(pinned) => Some(Self::Pinned(pinned)),
            CudaRegion::Pageable(_) => None,
        }
    }

    /// Returns the context that the bytes belong to.
    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        match self {
            Self::Gpu(buffer) => buffer.context(),
            Self::Pinned(arena) => arena.context(),
        }
    }

    /// Returns a range of the bytes.
    ///
    /// # Errors
    /// `Outside` if the range does not lie within the bytes.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Result<CudaPart<'_>, CudaFailure> {
        match self {
            Self::Gpu(buffer) => buffer.part(offset, len),
            Self::Pinned(arena) => arena.part(offset, len),
        }
    }
}

/// Returns the error for a failed GPU operation of an engine, with advice.
pub(crate) fn gpu_failed(engine: &str, context: &CudaContext, failure: &CudaFailure) -> Error {
    let gpu = gpu_name(context);
    match failure {
        CudaFailure::Outside(range) => Error::Failed(format!("{engine} on {gpu}: {range}")),
        _ => Error::Failed(format!(
            "{engine} on {gpu}: {failure}. {}",
            advice(context, failure)
        )),
    }
}

/// Describes the driver for the record.
pub(crate) fn driver_report(library: &Libcuda) -> LibraryReport {
    let served = library.version().map(|version| version.to_string());
    LibraryReport {
        version: format!(
            "{} {}",
            library.driver().interface,
            served.as_deref().unwrap_or("of an unknown version")
        ),
        library: library.path().to_owned(),
    }
}

/// Returns the context of the GPU with this UUID and PCI address, if it is visible to this process.
///
/// # Errors
/// `Unavailable`, with advice.
pub(crate) fn context_of(
    (library, libraries): (&Libcuda, &Libraries),
    (uuid, pci_address): (&str, &str),
    what: &str,
) -> Result<Option<Arc<CudaContext>>> {
    let vendor = vendor_of(library.driver());
    let devices = library
        .devices()
        .map_err(|failure| unavailable(vendor, what, &failure))?;
    let is_it = |device: &&CudaDevice| (&*device.uuid, &*device.pci_address) == (uuid, pci_address);
    let Some(device) = devices.iter().find(is_it) else {
        return Ok(None);
    };
    let gpu = driver::open(vendor, Some(libraries), vendor.memory, device.number)?;
    Ok(Some(Arc::clone(&gpu.context)))
}

/// Returns whether a rank will have GPU memory, which engines may register with NICs.
pub(crate) fn is_of_gpu(memory: PlannedMemory<'_>) -> bool {
    vendor_of_memory(memory.name).is_some()
}

/// Returns the number of the GPU that will hold a rank's memory; `None` if the memory does not belong to this vendor's
/// GPUs.
///
/// # Errors
/// `Usage` if the text after the colon is not a number.
pub(crate) fn number_of(vendor: &GpuVendor, memory: PlannedMemory<'_>) -> Result<Option<u32>> {
    match split_name(memory.name) {
        (name, variant) if name == vendor.memory => {
            driver::number(vendor, variant, memory.gpu).map(Some)
        }
        _ => Ok(None),
    }
}
