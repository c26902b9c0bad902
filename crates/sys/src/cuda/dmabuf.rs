//! GPU memory for NICs: exporting the memory as a file (a dmabuf), and flushing a NIC's writes to the memory.
//!
//! [`crate::verbs`] and [`crate::libfabric`] register the file. Each driver exports it with its own call. The flushing
//! call came with CUDA 11.3, and is looked up when it is first needed.

use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use super::abi::{Attribute, Code, CudaAddress, PhysicalHandle, SUCCESS};
use super::buffer::DeviceBuffer;
use super::context::CudaContext;
use super::driver::Introduced;
use super::failure::CudaFailure;
use crate::library::functions;

/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST`.
const FLUSHED_BY_HOST: u32 = 1;
/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX`.
const CURRENT_CONTEXT: c_int = 0;
/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER`.
const TO_OWNER: c_int = 100;
/// `CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER`: ordered for the GPU that owns the memory. Higher values: ordered for
/// all.
const FOR_OWNER: u32 = 100;

/// A file that gives other devices access to memory of a device.
#[derive(Debug)]
pub struct DmabufFile {
    /// The file.
    pub file: OwnedFd,
    /// Offset in the file at which the memory begins.
    pub offset: u64,
}

/// Memory to export: an allocation, or mapped physical memory from its first byte on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExportedMemory {
    /// First address of the memory.
    pub(crate) address: CudaAddress,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// The physical memory that is mapped there; `None` for an allocation.
    pub(crate) physical: Option<PhysicalHandle>,
}

/// Takes ownership of a file descriptor that a call has opened.
///
/// # Errors
/// `Call` if the call returned success without a file, as some do for a process with too many open files.
///
/// # Safety
/// Unless its number is negative, the file is open and has no other owner.
pub(crate) unsafe fn owned_file(call: &'static str, file: c_int) -> Result<OwnedFd, CudaFailure> {
    if file < 0 {
        return Err(CudaFailure::Call {
            call,
            code: SUCCESS,
            name: "success without a file descriptor".to_owned(),
            text: "this process may be at its limit on open files (ulimit -n)".to_owned(),
        });
    }
    // SAFETY: the number is not negative, and the caller promises the rest.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

functions! { pub(super) FlushCalls by Introduced:
    flush = (c"cuFlushGPUDirectRDMAWrites", 11, 3) => (c_int, c_int) -> Code;
}

/// Ordering of a NIC's writes to GPU memory with the GPU's own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritesOrdering {
    /// The driver orders NICs' writes.
    Ordered,
    /// The host has to flush the writes, and the driver has a call for it.
    Flushed,
    /// The writes are not ordered, and the driver has no flushing call for the host.
    Unordered,
    /// Unknown: the driver is older than CUDA 11.3.
    Unknown,
}

impl WritesOrdering {
    /// Returns the ordering that follows from the driver's attributes, if it has them.
    pub(super) fn from_attributes(ordering: Option<u32>, options: Option<u32>) -> Self {
        match (ordering, options.unwrap_or(0) & FLUSHED_BY_HOST) {
            (None, _) => Self::Unknown,
            (Some(FOR_OWNER..), _) => Self::Ordered,
            (Some(_), 0) => Self::Unordered,
            (Some(_), _) => Self::Flushed,
        }
    }
}

impl DeviceBuffer {
    /// Makes a file that gives other devices access to the memory. The file may cover more than the memory, which then
    /// begins at an offset.
    ///
    /// # Errors
    /// `TooOld`, or the driver's reason.
    pub fn export_dmabuf(&self) -> Result<DmabufFile, CudaFailure> {
        let memory = ExportedMemory {
            address: self.address(),
            bytes: self.bytes().max(1),
            physical: self.physical(),
        };
        let context = self.context();
        context.make_current()?;
        let library = &context.library;
        // SAFETY: the memory is this allocation or mapping, of this library.
        unsafe { library.own.export(&library.library, memory) }
    }
}

impl CudaContext {
    /// Returns the ordering of NICs' writes to memory of this GPU with its own work.
    pub fn writes_ordering(&self) -> WritesOrdering {
        let of = |which| self.library.attribute(self.ordinal, which).ok();
        WritesOrdering::from_attributes(of(Attribute::WritesOrdering), of(Attribute::FlushOptions))
    }
}

/// Flushes NICs' writes to GPU memory.
#[derive(Debug)]
pub struct NicWriteFlush {
    context: Arc<CudaContext>,
    calls: FlushCalls,
}

impl NicWriteFlush {
    /// Prepares flushes of writes to memory of a context.
    ///
    /// # Errors
    /// `TooOld`.
    pub fn for_memory_of(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        let library = &context.library;
        let calls = FlushCalls::look_up(|call| library.library.symbol(call))?;
        let context = Arc::clone(context);
        Ok(Self { context, calls })
    }

    /// Waits until the GPU's own work sees all earlier writes of NICs.
    ///
    /// # Errors
    /// The driver's reason.
    #[inline]
    pub fn flush(&self) -> Result<(), CudaFailure> {
        self.context.call("cuFlushGPUDirectRDMAWrites", |_| {
            // SAFETY: takes no addresses; the context is current.
            unsafe { (self.calls.flush)(CURRENT_CONTEXT, TO_OWNER) }
        })
    }

    /// The context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }
}
