//! GPU memory by virtual-memory handles: exportable physical memory, mapped at a reserved address range. The caller
//! decides when to use it; [`DeviceBuffer`](super::DeviceBuffer) holds the result.
//!
//! The calls came with CUDA 10.2, and are looked up when they are first needed. HIP's calls have the same form, and its
//! structs the same layout and numbers, except for four bytes at the end of the properties, which HIP does not name.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::abi::{Attribute, Code, CudaAddress, Ordinal, POSIX_FILE, PhysicalHandle};
use super::context::CudaContext;
use super::driver::Introduced;
use super::failure::CudaFailure;
use crate::library::functions;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: c_int = 1;
/// `CU_MEM_HANDLE_TYPE_NONE`.
const NO_HANDLES: c_int = 0;
/// `CUDA_ERROR_NOT_SUPPORTED`, and HIP's `hipErrorNotSupported`.
const NOT_SUPPORTED: Code = 801;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const OF_DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_AND_WRITE: c_int = 3;

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
    /// Whether NICs are to access the memory.
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

functions! { pub(super) VmmCalls by Introduced:
    granularity = (c"cuMemGetAllocationGranularity", 10, 2) => (*mut usize, *const PhysicalProperties, c_int) -> Code;
    create = (c"cuMemCreate", 10, 2) => (*mut PhysicalHandle, usize, *const PhysicalProperties, u64) -> Code;
    release = (c"cuMemRelease", 10, 2) => (PhysicalHandle) -> Code;
    reserve = (c"cuMemAddressReserve", 10, 2) => (*mut CudaAddress, usize, usize, CudaAddress, u64) -> Code;
    give_back = (c"cuMemAddressFree", 10, 2) => (CudaAddress, usize) -> Code;
    map = (c"cuMemMap", 10, 2) => (CudaAddress, usize, usize, PhysicalHandle, u64) -> Code;
    unmap = (c"cuMemUnmap", 10, 2) => (CudaAddress, usize) -> Code;
    set_access = (c"cuMemSetAccess", 10, 2) => (CudaAddress, usize, *const AccessDescription, usize) -> Code;
}

/// Mapped physical memory, possibly only partly set up. `drop` undoes the steps in reverse order.
#[derive(Debug)]
pub(super) struct VmmMapping {
    context: Arc<CudaContext>,
    calls: VmmCalls,
    /// Size in bytes, in whole granules.
    bytes: usize,
    /// Allocation sizes are multiples of this many bytes.
    pub(super) granularity: usize,
    /// Whether NICs may access it, according to the driver; `None` if the driver does not report it.
    pub(super) is_for_cards: Option<bool>,
    /// False if the driver refused to allocate exportable memory. Then there is no handle for other processes.
    pub(super) is_exportable: bool,
    /// The physical memory. All of it is mapped.
    pub(super) physical: Option<PhysicalHandle>,
    address: Option<CudaAddress>,
    is_mapped: bool,
}

impl VmmMapping {
    /// Allocates at least `bytes` bytes, and gives their own GPU access. Other GPUs get access only when they need it,
    /// because a lost GPU, or one that another process has reserved, must not prevent this allocation.
    ///
    /// # Errors
    /// `TooOld`, or the driver's reason.
    pub(super) fn allocate(context: &Arc<CudaContext>, bytes: u64) -> Result<Self, CudaFailure> {
        let library = &context.library;
        let calls = VmmCalls::look_up(|call| library.library.symbol(call))?;
        // `None` if the driver does not know the attribute.
        let grants = |which| {
            let granted = library.attribute(context.ordinal, which).ok();
            granted.map(|granted| granted != 0)
        };
        let driver = context.driver();
        if grants(Attribute::MappedMemory) == Some(false) {
            return Err(CudaFailure::NotOffered {
                interface: driver.interface,
                call: "cuMemCreate".to_owned(),
                why: "driver does not support virtual-memory handles on this GPU",
            });
        }
        let is_for_cards = grants(Attribute::GpuDirectVmm);
        let mut properties = PhysicalProperties {
            kind: PINNED,
            // A driver that exports address ranges gets exportable handles too, if it has them. Such handles pass
            // memory to other processes, and libraries that register memory look for them.
            handles: if driver.exported_by_handle || grants(Attribute::FileHandles) == Some(true) {
                POSIX_FILE
            } else {
                NO_HANDLES
            },
            location: location(context.ordinal),
            windows: std::ptr::null_mut(),
            compression: 0,
            gpu_direct: u8::from(is_for_cards == Some(true)),
            usage: 0,
            reserved: [0; 4],
        };
        let mut granularity = 0;
        context.call("cuMemGetAllocationGranularity", |_| {
            let kind = driver.granularity as c_int;
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
            is_for_cards,
            is_exportable: true,
            physical: None,
            address: None,
            is_mapped: false,
        };
        match mapping.create(&properties) {
            // Some releases of ROCm before 6 have this memory, but without exportable handles.
            Err(CudaFailure::Call { code, .. })
                if code == NOT_SUPPORTED && driver.exported_by_handle =>
            {
                properties.handles = NO_HANDLES;
                mapping.is_exportable = false;
                mapping.create(&properties)?;
            }
            created => created?,
        }
        let address = mapping.reserve()?;
        mapping.map(address)?;
        mapping.set_access(context.ordinal)?;
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
            // SAFETY: the range was reserved with this size, which is also the size of the physical memory.
            unsafe { (self.calls.map)(address, self.bytes, 0, physical, 0) }
        })?;
        self.is_mapped = true;
        Ok(())
    }

    /// Lets kernels and copies of another GPU access the memory. Access belongs to the mapping: peer access enabled
    /// between the two contexts does not apply to it.
    ///
    /// # Errors
    /// `OtherDriver`, `NoPeer`, or the driver's reason with the names of both GPUs.
    pub(super) fn let_reach(&self, peer: &CudaContext) -> Result<(), CudaFailure> {
        let own = &self.context;
        peer.check_driver(own)?;
        if peer.ordinal == own.ordinal {
            return Ok(());
        }
        let number = own.device().number;
        peer.check_way((own.ordinal, number))?;
        self.set_access(peer.ordinal).map_err(|failure| {
            let (name, peer) = (own.driver().name, peer.device().number);
            failure.while_doing(&format!(
                "while giving {name}:{peer} access to memory of {name}:{number}"
            ))
        })
    }

    /// Gives a GPU access, in addition to the GPUs that already have access.
    fn set_access(&self, of: Ordinal) -> Result<(), CudaFailure> {
        let access = AccessDescription {
            location: location(of),
            flags: READ_AND_WRITE,
        };
        self.context.call("cuMemSetAccess", |_| {
            // SAFETY: the range is mapped, and the list has one entry.
            unsafe { (self.calls.set_access)(self.address(), self.bytes, &raw const access, 1) }
        })
    }

    /// Returns the first address of the mapping.
    pub(super) fn address(&self) -> CudaAddress {
        self.address.unwrap_or(0)
    }
}

impl Drop for VmmMapping {
    fn drop(&mut self) {
        let calls = &self.calls;
        // Users of the mapping have already waited for the context. `drop` cannot report a failure.
        if let Some(address) = self.address.filter(|_| self.is_mapped) {
            let _ = self.context.call("cuMemUnmap", |_| {
                // SAFETY: mapped once, unmapped once, and nothing in flight uses it.
                unsafe { (calls.unmap)(address, self.bytes) }
            });
        }
        if let Some(address) = self.address {
            let _ = self.context.call("cuMemAddressFree", |_| {
                // SAFETY: reserved once, freed once, and nothing is mapped there.
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
