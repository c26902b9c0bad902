//! Memory of a GPU by virtual-memory handles: physical memory, which can be exported, mapped at addresses that were
//! reserved for it. Choosing this way is the caller's; [`DeviceBuffer`](super::DeviceBuffer) holds what comes of it.
//!
//! The calls came with CUDA 10.2, and are looked up when they are first needed.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::abi::{Attribute, CudaAddress, Ordinal};
use super::context::CudaContext;
use super::failure::CudaFailure;
use super::loaded::functions;

/// `CUmemGenericAllocationHandle`.
pub(super) type PhysicalHandle = u64;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: c_int = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const POSIX_FILE: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const OF_DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_AND_WRITE: c_int = 3;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
const GRANULARITY_MINIMUM: c_int = 0;

/// `CUmemLocation`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct MemoryLocation {
    kind: c_int,
    number: c_int,
}

/// `CUmemAllocationProp`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct PhysicalProperties {
    kind: c_int,
    handles: c_int,
    location: MemoryLocation,
    windows: *mut c_void,
    compression: u8,
    /// True where network cards are to reach it.
    gpu_direct: u8,
    usage: u16,
    reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct AccessDescription {
    location: MemoryLocation,
    flags: c_int,
}

const _: () =
    assert!(size_of::<PhysicalProperties>() == 32 && size_of::<AccessDescription>() == 12);

functions! { VmmCalls:
    granularity = c"cuMemGetAllocationGranularity" since 10, 2 (*mut usize, *const PhysicalProperties, c_int);
    create = c"cuMemCreate" since 10, 2 (*mut PhysicalHandle, usize, *const PhysicalProperties, u64);
    release = c"cuMemRelease" since 10, 2 (PhysicalHandle);
    reserve = c"cuMemAddressReserve" since 10, 2 (*mut CudaAddress, usize, usize, CudaAddress, u64);
    give_back = c"cuMemAddressFree" since 10, 2 (CudaAddress, usize);
    map = c"cuMemMap" since 10, 2 (CudaAddress, usize, usize, PhysicalHandle, u64);
    unmap = c"cuMemUnmap" since 10, 2 (CudaAddress, usize);
    set_access = c"cuMemSetAccess" since 10, 2 (CudaAddress, usize, *const AccessDescription, usize);
}

/// Mapped physical memory, or a part of the way there. What was made is taken back in the opposite order.
#[derive(Debug)]
pub(super) struct VmmMapping {
    context: Arc<CudaContext>,
    calls: VmmCalls,
    /// Whole granules.
    bytes: usize,
    granularity: usize,
    physical: Option<PhysicalHandle>,
    address: Option<CudaAddress>,
    is_mapped: bool,
}

impl VmmMapping {
    /// Allocates at least so many bytes, and gives access to the GPU and to every other one that reaches it.
    ///
    /// # Errors
    /// `TooOld`, or the driver's reason.
    pub(super) fn allocate(context: &Arc<CudaContext>, bytes: u64) -> Result<Self, CudaFailure> {
        let library = &context.library;
        let calls = VmmCalls::of(&library.library, library.version)?;
        // A driver that does not know the question does not know the answer either.
        let reached = library.attribute(context.ordinal, Attribute::GpuDirectVmm);
        let properties = PhysicalProperties {
            kind: PINNED,
            handles: POSIX_FILE,
            location: location(context.ordinal),
            windows: std::ptr::null_mut(),
            compression: 0,
            gpu_direct: u8::from(reached.is_ok_and(|reached| reached != 0)),
            usage: 0,
            reserved: [0; 4],
        };
        let mut granularity = 0;
        context.call("cuMemGetAllocationGranularity", |_| {
            let kind = GRANULARITY_MINIMUM;
            // SAFETY: the number is valid for the write of a size, and the properties live through the call.
            unsafe { (calls.granularity)(&raw mut granularity, &raw const properties, kind) }
        })?;
        let granularity = granularity.max(1);
        let wanted = usize::try_from(bytes.max(1)).unwrap_or(usize::MAX);
        let mut mapping = Self {
            context: Arc::clone(context),
            calls,
            bytes: wanted
                .checked_next_multiple_of(granularity)
                .unwrap_or(wanted),
            granularity,
            physical: None,
            address: None,
            is_mapped: false,
        };
        mapping.create(&properties)?;
        let address = mapping.reserve()?;
        mapping.map(address)?;
        mapping.set_access(address)?;
        Ok(mapping)
    }

    fn create(&mut self, properties: &PhysicalProperties) -> Result<(), CudaFailure> {
        let mut physical = 0;
        self.context.call("cuMemCreate", |_| {
            // SAFETY: the handle is valid for the write, and the properties live through the call.
            unsafe { (self.calls.create)(&raw mut physical, self.bytes, properties, 0) }
        })?;
        self.physical = Some(physical);
        Ok(())
    }

    fn reserve(&mut self) -> Result<CudaAddress, CudaFailure> {
        let mut address = 0;
        self.context.call("cuMemAddressReserve", |_| {
            // SAFETY: the address is valid for the write; the driver chooses it.
            unsafe { (self.calls.reserve)(&raw mut address, self.bytes, self.granularity, 0, 0) }
        })?;
        self.address = Some(address);
        Ok(address)
    }

    fn map(&mut self, address: CudaAddress) -> Result<(), CudaFailure> {
        let physical = self.physical.unwrap_or(0);
        self.context.call("cuMemMap", |_| {
            // SAFETY: the range was reserved with these bytes, which are all of the physical memory's.
            unsafe { (self.calls.map)(address, self.bytes, 0, physical, 0) }
        })?;
        self.is_mapped = true;
        Ok(())
    }

    /// Access is a property of the mapping: what a context has enabled towards a peer's does not count for it.
    fn set_access(&self, address: CudaAddress) -> Result<(), CudaFailure> {
        let library = &self.context.library;
        let own = self.context.ordinal;
        let mut all = vec![own];
        for device in library.devices()? {
            let other = library.ordinal(device.number)?;
            if other != own && self.context.can_access((other, own))? {
                all.push(other);
            }
        }
        let access: Vec<_> = all.into_iter().map(access).collect();
        self.context.call("cuMemSetAccess", |_| {
            // SAFETY: the range is mapped, and the list has as many entries as is said.
            unsafe { (self.calls.set_access)(address, self.bytes, access.as_ptr(), access.len()) }
        })
    }

    /// Its first address.
    pub(super) fn address(&self) -> CudaAddress {
        self.address.unwrap_or(0)
    }

    /// Bytes that allocations are multiples of.
    pub(super) fn granularity(&self) -> u64 {
        self.granularity as u64
    }
}

impl Drop for VmmMapping {
    fn drop(&mut self) {
        let calls = &self.calls;
        // Whoever uses it has waited for the context. Nobody is left to be told of a failure.
        if let Some(address) = self.address.filter(|_| self.is_mapped) {
            let _ = self.context.call("cuMemUnmap", |_| {
                // SAFETY: mapped once, unmapped once, and nothing in flight uses it.
                unsafe { (calls.unmap)(address, self.bytes) }
            });
        }
        if let Some(address) = self.address {
            let _ = self.context.call("cuMemAddressFree", |_| {
                // SAFETY: reserved once, given back once, and nothing is mapped there.
                unsafe { (calls.give_back)(address, self.bytes) }
            });
        }
        if let Some(physical) = self.physical {
            let _ = self.context.call("cuMemRelease", |_| {
                // SAFETY: created once, released once.
                unsafe { (calls.release)(physical) }
            });
        }
    }
}

fn location(ordinal: Ordinal) -> MemoryLocation {
    MemoryLocation {
        kind: OF_DEVICE,
        number: ordinal,
    }
}

fn access(ordinal: Ordinal) -> AccessDescription {
    AccessDescription {
        location: location(ordinal),
        flags: READ_AND_WRITE,
    }
}
