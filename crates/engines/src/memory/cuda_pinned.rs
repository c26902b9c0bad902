//! Host memory pinned by a GPU's driver. A GPU can copy it without the CPU, and the CPU can address it like other host
//! memory. The code works for all vendors; only NVIDIA's list row is here.

use std::sync::Arc;

use tonnage_engine::memory::{
    CopyRange, CopyRate, CopyRepetitions, DeviceMemory, Memory, MemoryEntry, MemoryReport, Request,
};
use tonnage_sys::clock::Clock;
use tonnage_sys::cuda::PinnedArena;
use tonnage_sys::mapping::Arena;
use tonnage_units::Result;

use super::cuda::driver;
use super::cuda::driver::GpuInUse;
use super::host::HOST;
use super::nvidia::NVIDIA;
use super::vendor::GpuVendor;

/// The same memory as `host`, pinned for all NVIDIA GPUs.
pub const CUDA_PINNED: MemoryEntry = entry(
    NVIDIA,
    "host memory, pinned by NVIDIA's driver, so that GPUs copy it without the CPU",
    |request| allocate(NVIDIA, request),
);

/// Returns the list row for memory that a vendor's driver pins.
pub(super) const fn entry(
    vendor: &'static GpuVendor,
    about: &'static str,
    allocate: fn(&Request<'_>) -> Result<Arc<dyn Memory>>,
) -> MemoryEntry {
    MemoryEntry {
        name: vendor.pinned,
        about,
        takes_gpu: true,
        allocate,
        libraries: std::slice::from_ref(&vendor.library),
        ..HOST
    }
}

pub(super) fn allocate(
    vendor: &'static GpuVendor,
    request: &Request<'_>,
) -> Result<Arc<dyn Memory>> {
    // All GPUs can access the memory. It is pinned in the context of the rank's GPU, or else of the first GPU, which
    // always exists. Freeing the memory waits only for copies in that context. So a copy by another GPU must keep the
    // memory alive until it is done.
    let gpu = driver::open(
        vendor,
        request.libraries,
        vendor.pinned,
        request.gpu.unwrap_or(0),
    )?;
    let host = (HOST.allocate)(request)?;
    let arena = Arc::clone(host.mapped(vendor.pinned)?);
    let bytes = arena.len();
    let pinned = PinnedArena::pin(&gpu.context, arena)
        .map_err(|failure| driver::pin_failure(vendor, bytes, &failure))?;
    Ok(Arc::new(PinnedMemory {
        host,
        pinned: Arc::new(pinned),
        gpu,
    }))
}

pub(super) struct PinnedMemory {
    host: Arc<dyn Memory>,
    pub(super) pinned: Arc<PinnedArena>,
    pub(super) gpu: Arc<GpuInUse>,
}

impl Memory for PinnedMemory {
    fn bytes(&self) -> u64 {
        self.host.bytes()
    }

    fn host(&self) -> Option<&Arc<Arena>> {
        Some(self.pinned.arena())
    }

    fn device(&self) -> Option<DeviceMemory<'_>> {
        Some(DeviceMemory {
            interface: self.gpu.vendor.memory,
            device: self.gpu.context.device().number,
            address: self.pinned.arena().address(),
            dmabuf: None,
        })
    }

    fn driver_start_ns(&self) -> Option<u64> {
        Some(self.gpu.start_ns())
    }

    fn report(&self) -> MemoryReport {
        MemoryReport {
            kind: self.gpu.vendor.pinned.to_owned(),
            device: Some(self.gpu.name()),
            ..self.host.report()
        }
    }

    fn copy_rates(
        &self,
        stretch: &CopyRange,
        slots: &mut dyn FnMut() -> (u64, u64),
        clock: &Clock,
        turns: CopyRepetitions,
    ) -> Result<Vec<CopyRate>> {
        self.host.copy_rates(stretch, slots, clock, turns)
    }
}
