//! Memory of a GPU for network cards: its file (a dmabuf), and flushing what a card has written into it.
//!
//! Registering it is the business of [`crate::verbs`] and [`crate::libfabric`]. How a driver makes the file is among
//! its own calls. The call that flushes came with CUDA 11.3, and is looked up when it is first needed.

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
/// `CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER`: ordered for the GPU that the memory is of, and above it for all.
const FOR_OWNER: u32 = 100;

/// A file that names memory of a device for other devices.
#[derive(Debug)]
pub struct DmabufFile {
    /// The buffer.
    pub file: OwnedFd,
    /// Offset in it of the memory's beginning.
    pub offset: u64,
}

/// Memory that is to be exported: an allocation, or mapped physical memory from its first byte on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExportedMemory {
    /// Its first address.
    pub(crate) address: CudaAddress,
    /// Its bytes.
    pub(crate) bytes: u64,
    /// The physical memory that is mapped there, where it is such memory.
    pub(crate) physical: Option<PhysicalHandle>,
}

/// The file that a call has opened, by its number.
///
/// # Errors
/// `Call`, where the call has returned success and no file, as some do for a process that has too many open.
///
/// # Safety
/// The file is open and nobody else's, unless its number is negative.
pub(crate) unsafe fn opened(call: &'static str, file: c_int) -> Result<OwnedFd, CudaFailure> {
    if file < 0 {
        return Err(CudaFailure::Call {
            call,
            code: SUCCESS,
            name: "success without a file".to_owned(),
            text: "this process may have too many open (ulimit -n)".to_owned(),
        });
    }
    // SAFETY: the number is none that no file has, and the caller promises the rest.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

functions! { pub(super) FlushCalls by Introduced:
    flush = (c"cuFlushGPUDirectRDMAWrites", 11, 3) => (c_int, c_int) -> Code;
}

/// Order between what a network card writes into memory of a GPU and the GPU's own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritesOrdering {
    /// The driver orders them.
    Ordered,
    /// The host has to flush the writes, and the driver has a call for that.
    Flushed,
    /// There is none, and the driver has no call for the host.
    Unordered,
    /// Not known: the driver is older than CUDA 11.3.
    Untold,
}

impl WritesOrdering {
    /// The order that follows from the driver's attributes, where it has them.
    pub(super) fn of(ordering: Option<u32>, options: Option<u32>) -> Self {
        match (ordering, options.unwrap_or(0) & FLUSHED_BY_HOST) {
            (None, _) => Self::Untold,
            (Some(FOR_OWNER..), _) => Self::Ordered,
            (Some(_), 0) => Self::Unordered,
            (Some(_), _) => Self::Flushed,
        }
    }
}

impl DeviceBuffer {
    /// Makes a file by which other devices reach the memory. It may cover more than the memory, which begins at an
    /// offset then.
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
    /// Order between network cards' writes into memory of this GPU and its own work.
    pub fn writes_ordering(&self) -> WritesOrdering {
        let of = |which| self.library.attribute(self.ordinal, which).ok();
        WritesOrdering::of(of(Attribute::WritesOrdering), of(Attribute::FlushOptions))
    }
}

/// Flushes of what network cards have written into memory of a GPU.
#[derive(Debug)]
pub struct CardWrites {
    context: Arc<CudaContext>,
    calls: FlushCalls,
}

impl CardWrites {
    /// Those into memory of a context.
    ///
    /// # Errors
    /// `TooOld`.
    pub fn into_memory_of(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        let library = &context.library;
        let calls = FlushCalls::of(|call| library.library.symbol(call))?;
        let context = Arc::clone(context);
        Ok(Self { context, calls })
    }

    /// Waits until the GPU's own work sees everything that cards have written before.
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
