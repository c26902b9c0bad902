//! GPU memory, accessed through its driver, because the CPU cannot address it. The code works for all vendors; only
//! NVIDIA's list row is here.
//!
//! | file | contents |
//! | --- | --- |
//! | `mod` | the list row, and the memory |
//! | `driver` | the library, the GPUs in use, and advice for failures |
//! | `proof` | self-tests of a GPU's kernels against the host |
//! | `copies` | copy rates within the GPU's memory |
//!
//! The GPU itself fills and compares the memory, by kernels in `tonnage_sys::cuda`. The kernels are used only after a
//! self-test against the host. If the test fails, bytes are copied through the host, and the report has the reason.

use std::sync::Arc;

use copies::CopiesBy;
use driver::GpuInUse;
use tonnage_engine::memory::{
    BusDevice, CopyRange, CopyRate, CopyRepetitions, DeviceMemory, Memory, MemoryEntry,
    MemoryReport, Request,
};
use tonnage_engine::pattern::{Key, Mismatches};
use tonnage_engine::{EngineOption, NameVariant, OptionKind, pattern};
use tonnage_sys::clock::Clock;
use tonnage_sys::cuda::{CudaFailure, DeviceBuffer, PatternKernels, PatternNumbers};
use tonnage_sys::mapping::Arena;
use tonnage_units::{Error, Result};

use super::bus_device::bus_device;
use super::nvidia::NVIDIA;
use super::vendor::{GpuVendor, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};

mod copies;
pub(super) mod driver;
mod proof;

/// Name of the option that selects the allocation method.
const ALLOC: &str = "alloc";

/// Value of the option that selects virtual-memory handles.
const BY_HANDLES: &str = "vmm";

static OPTIONS: [EngineOption; 1] = [alloc_option(
    "malloc: in one piece by cuMemAlloc; vmm: physical memory by a virtual-memory handle (cuMemCreate), mapped in \
     whole granules; some drivers export only this kind to NICs",
)];

/// Returns a vendor's option for the allocation method.
pub(super) const fn alloc_option(about: &'static str) -> EngineOption {
    EngineOption {
        name: ALLOC,
        kind: OptionKind::Choice(&["malloc", BY_HANDLES]),
        variants: &[],
        about,
    }
}

/// Memory of an NVIDIA GPU.
pub const CUDA: MemoryEntry = MemoryEntry {
    options: &OPTIONS,
    ..entry(
        NVIDIA,
        "NVIDIA GPU memory, of the first GPU if no number is given; filled and verified by the GPU",
        |request| allocate(NVIDIA, request),
        |request| bus_device(NVIDIA, request),
    )
};

/// Returns the list row for a vendor's memory.
pub(super) const fn entry(
    vendor: &'static GpuVendor,
    about: &'static str,
    allocate: fn(&Request<'_>) -> Result<Arc<dyn Memory>>,
    device: fn(&Request<'_>) -> Option<BusDevice>,
) -> MemoryEntry {
    MemoryEntry {
        name: vendor.memory,
        about,
        variant: Some(NameVariant {
            what: "GPU",
            everywhere: &[],
            with_device: &["0", "1"],
            one_sided: &[],
            required: false,
        }),
        host_addressable: false,
        takes_gpu: true,
        options: &[],
        allocate,
        // The available memory is not queried, because this would start the driver on ranks that allocate nothing. An
        // allocation that is too large simply fails.
        available: |_| None,
        device,
        libraries: std::slice::from_ref(&vendor.library),
    }
}

pub(super) fn allocate(
    vendor: &'static GpuVendor,
    request: &Request<'_>,
) -> Result<Arc<dyn Memory>> {
    let number = driver::number(vendor, request.variant, request.gpu)?;
    let gpu = driver::open(vendor, request.libraries, vendor.memory, number)?;
    // The kernels are tested here, before any measurement. If they are not trusted, the report has the reason.
    let _ = gpu.kernels();
    let by_handles = request.option(&OPTIONS, ALLOC) == BY_HANDLES;
    let allocated = match by_handles {
        true => DeviceBuffer::map(&gpu.context, request.bytes),
        false => DeviceBuffer::allocate(&gpu.context, request.bytes),
    };
    let buffer = allocated.map_err(|failure| match failure.code() {
        Some(OUT_OF_MEMORY) => gpu.allocation_failure(request.bytes, &failure),
        _ if by_handles => not_mapped(&gpu, &failure),
        _ => gpu.allocation_failure(request.bytes, &failure),
    })?;
    Ok(Arc::new(CudaMemory {
        gpu,
        buffer: Arc::new(buffer),
    }))
}

/// Returns the error for a failed allocation by virtual-memory handles. Lack of memory has another error.
fn not_mapped(gpu: &GpuInUse, failure: &CudaFailure) -> Error {
    Error::Unavailable {
        what: format!("{ALLOC}={BY_HANDLES} of {}", gpu.name()),
        why: failure.to_string(),
        how: match failure.code() {
            // With these codes, the request is unsupported and the GPU is not at fault.
            None | Some(INVALID_VALUE | NOT_SUPPORTED) => format!(
                "Leave --memory-option {ALLOC}={BY_HANDLES} out; not every driver and not every virtual machine has \
                 virtual-memory handles"
            ),
            Some(_) => (gpu.vendor.advice)(failure).to_owned(),
        },
    }
}

pub(super) struct CudaMemory {
    pub(super) gpu: Arc<GpuInUse>,
    pub(super) buffer: Arc<DeviceBuffer>,
}

impl CudaMemory {
    /// Returns the driver's own name of a call, without the version suffix of its symbol.
    fn called(&self, call: &'static str) -> &'static str {
        let called = self.gpu.vendor.driver.called(call);
        called.trim_end_matches("_v2")
    }

    fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let copied = self.buffer.read(offset, bytes);
        copied.map_err(|failure| self.gpu.failed(&failure))
    }

    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let copied = self.buffer.write(offset, bytes);
        copied.map_err(|failure| self.gpu.failed(&failure))
    }

    /// Verifies by the GPU, which reports the first and the last wrong byte. Then the bytes in between are copied out
    /// and compared by the host, so that mismatches are reported as for any memory.
    fn verify_by(
        &self,
        kernels: &PatternKernels,
        (origin, offset, len): (u64, u64, u64),
        key: Key,
        found: &mut Mismatches,
    ) -> Result<()> {
        let numbers = numbers(key, origin, offset)?;
        let differs = kernels.verify(&self.buffer, offset, len, numbers);
        let Some((first, last)) = differs.map_err(|failure| self.gpu.failed(&failure))? else {
            found.checked_bytes += len;
            return Ok(());
        };
        let from = pattern::chunk_start(origin, offset, offset + first, key)?;
        // The word that contains the last wrong byte may extend up to 8 bytes beyond it.
        let end = offset + (last + 8).min(len);
        let wrong_bytes = found.wrong_bytes;
        pattern::verify_by(origin, from, end - from, key, found, |at, bytes| {
            self.copy_out(at, bytes)
        })?;
        if found.wrong_bytes == wrong_bytes {
            return Err(Error::Failed(format!(
                "{}: its kernel found wrong bytes at offsets {} to {}, but a copy of them is correct: they were still \
                 being written, or the GPU is faulty",
                self.gpu.name(),
                offset + first,
                offset + last
            )));
        }
        found.checked_bytes += len - (end - from);
        Ok(())
    }
}

impl Memory for CudaMemory {
    fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    fn host(&self) -> Option<&Arc<Arena>> {
        None
    }

    fn device(&self) -> Option<DeviceMemory<'_>> {
        Some(DeviceMemory {
            interface: self.gpu.vendor.memory,
            device: self.gpu.context.device().number,
            address: self.buffer.address(),
            dmabuf: None,
        })
    }

    fn driver_start_ns(&self) -> Option<u64> {
        Some(self.gpu.start_ns())
    }

    fn report(&self) -> MemoryReport {
        MemoryReport {
            kind: self.gpu.vendor.memory.to_owned(),
            bytes: self.buffer.bytes(),
            allocated: Some(match self.buffer.granularity() {
                None => format!("malloc: {}, in one piece", self.called("cuMemAlloc_v2")),
                Some(granularity) => {
                    let reached = match self.buffer.is_for_cards() {
                        Some(true) => "for NICs too",
                        Some(false) => {
                            "not for NICs: the driver reports that they cannot access it"
                        }
                        None if !self.gpu.vendor.cards.mapped_needs_attribute => {
                            "the driver does not report whether NICs can access it"
                        }
                        None => {
                            "not for NICs: the driver does not report whether they can access it"
                        }
                    };
                    let exported = match self.buffer.is_exportable() {
                        Some(false) => "; this release refuses exportable handles",
                        _ => "",
                    };
                    format!(
                        "{BY_HANDLES}: {} and {}, in granules of {granularity} bytes, {reached}{exported}",
                        self.called("cuMemCreate"),
                        self.called("cuMemMap")
                    )
                }
            }),
            device: Some(self.gpu.name()),
            why_filled_by_copies: self.gpu.kernels().err().map(str::to_owned),
            ..MemoryReport::default()
        }
    }

    fn fill(&self, origin: u64, offset: u64, len: u64, key: Key) -> Result<()> {
        match self.gpu.kernels() {
            Ok(kernels) => kernels
                .fill(&self.buffer, offset, len, numbers(key, origin, offset)?)
                .map_err(|failure| self.gpu.failed(&failure)),
            Err(_) => pattern::fill_by(origin, offset, len, key, |at, bytes| {
                self.copy_in(at, bytes)
            }),
        }
    }

    fn verify(
        &self,
        origin: u64,
        offset: u64,
        len: u64,
        key: Key,
        found: &mut Mismatches,
    ) -> Result<()> {
        match self.gpu.kernels() {
            Ok(kernels) => self.verify_by(kernels, (origin, offset, len), key, found),
            Err(_) => pattern::verify_by(origin, offset, len, key, found, |at, bytes| {
                self.copy_out(at, bytes)
            }),
        }
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.copy_out(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.copy_in(offset, bytes)
    }

    fn copy_rates(
        &self,
        stretch: &CopyRange,
        // Unused: the copies are large and consecutive, and their order does not matter to a GPU.
        _slots: &mut dyn FnMut() -> (u64, u64),
        clock: &Clock,
        turns: CopyRepetitions,
    ) -> Result<Vec<CopyRate>> {
        let copying = self.gpu.vendor.driver.called("cuMemcpyAsync");
        let by = CopiesBy {
            call: copying,
            uncached_bytes_min: self.gpu.vendor.uncached_bytes_min,
            // All ranks use the same set of methods, even if their engines do not copy by the kernel.
            kernel: self.gpu.copy_kernel().ok(),
        };
        while clock.now_ns() < turns.start_ns {
            std::hint::spin_loop();
        }
        copies::rates(&self.buffer, stretch, &by).map_err(|failure| self.gpu.failed(&failure))
    }
}

/// Converts the key's numbers for the kernels.
pub(super) fn numbers(key: Key, origin: u64, offset: u64) -> Result<PatternNumbers> {
    let numbers = key.numbers(origin, offset)?;
    Ok(PatternNumbers {
        place: numbers.place,
        base: numbers.base,
        inverted: numbers.inverted,
    })
}
