//! Memory that a GPU can access: its own memory, and host memory that the driver has pinned.

use std::ffi::c_void;
use std::sync::Arc;

use super::abi::{CudaAddress, HOST_REGISTER_FLAGS, PhysicalHandle};
use super::context::CudaContext;
use super::failure::CudaFailure;
use super::vmm::VmmMapping;
use crate::mapping::{Arena, OutOfRange};

/// Memory of a GPU. Its bytes are not zeroed. The CPU cannot address it.
#[derive(Debug)]
pub struct DeviceBuffer {
    context: Arc<CudaContext>,
    address: CudaAddress,
    bytes: u64,
    /// The mapping, if the memory was allocated by [`Self::map`].
    mapping: Option<VmmMapping>,
}

/// Host memory that the driver has pinned, so that a GPU can copy it without the CPU.
#[derive(Debug)]
pub struct PinnedArena {
    context: Arc<CudaContext>,
    arena: Arc<Arena>,
}

/// Pinned memory, for use by the streams of one context. Another context may have pinned it.
#[derive(Debug)]
pub struct PinnedView {
    context: Arc<CudaContext>,
    pinned: Arc<PinnedArena>,
}

/// A range of device or host memory, for copies.
#[derive(Debug, Clone, Copy)]
pub struct CudaPart<'a> {
    /// The memory's own context.
    pub(super) context: &'a Arc<CudaContext>,
    pub(super) address: CudaAddress,
    pub(super) bytes: u64,
}

impl<'a> CudaPart<'a> {
    /// Makes a range of `len` bytes at `offset` in memory of `size` bytes at `address`.
    #[inline]
    pub(super) fn new(
        context: &'a Arc<CudaContext>,
        (address, size): (CudaAddress, u64),
        offset: u64,
        len: u64,
    ) -> Result<Self, CudaFailure> {
        OutOfRange::check(offset, len, size)?;
        Ok(Self {
            context,
            address: address + offset,
            bytes: len,
        })
    }
}

impl DeviceBuffer {
    /// Allocates memory of the context's GPU.
    ///
    /// # Errors
    /// The driver's reason; `CUDA_ERROR_OUT_OF_MEMORY` if no free piece is large enough.
    pub fn allocate(context: &Arc<CudaContext>, bytes: u64) -> Result<Self, CudaFailure> {
        let mut address = 0;
        // Allocate whole host pages. Other devices get access to whole pages, and should see as little of neighbouring
        // allocations as possible. The driver may still begin an allocation anywhere in a page.
        let len = usize::try_from(bytes.max(1)).unwrap_or(usize::MAX);
        let len = len.checked_next_multiple_of(rustix::param::page_size());
        let len = len.unwrap_or(usize::MAX);
        context.call("cuMemAlloc_v2", |calls| {
            // SAFETY: the address is valid for the write.
            unsafe { (calls.allocate)(&raw mut address, len) }
        })?;
        Ok(Self {
            context: Arc::clone(context),
            address,
            bytes,
            mapping: None,
        })
    }

    /// Allocates memory of the context's GPU by virtual-memory handles: physical memory that can be exported, mapped at
    /// a reserved address range.
    ///
    /// # Errors
    /// As [`Self::allocate`], or `TooOld`.
    pub fn map(context: &Arc<CudaContext>, bytes: u64) -> Result<Self, CudaFailure> {
        let mapping = VmmMapping::allocate(context, bytes)?;
        Ok(Self {
            context: Arc::clone(context),
            address: mapping.address(),
            bytes,
            mapping: Some(mapping),
        })
    }

    /// Returns the granularity of the mapping in bytes; `None` if the memory is not a mapping.
    pub fn granularity(&self) -> Option<u64> {
        self.mapping
            .as_ref()
            .map(|mapping| mapping.granularity as u64)
    }

    /// Returns the physical memory of the mapping; `None` if the memory is not a mapping.
    pub(super) fn physical(&self) -> Option<PhysicalHandle> {
        self.mapping.as_ref()?.physical
    }

    /// Whether the mapping's physical memory can be exported as a file; `None` if the memory is not a mapping.
    pub fn is_exportable(&self) -> Option<bool> {
        self.mapping.as_ref().map(|mapping| mapping.is_exportable)
    }

    /// Whether NICs may access the mapping, according to the driver; `None` if the memory is not a mapping or
    /// the driver does not report it.
    pub fn is_for_cards(&self) -> Option<bool> {
        self.mapping.as_ref()?.is_for_cards
    }

    /// Lets kernels and copies of the GPU of `context` access the memory.
    ///
    /// # Errors
    /// `OtherDriver`, `NoPeer`, or the driver's reason.
    pub fn let_reach(&self, context: &CudaContext) -> Result<(), CudaFailure> {
        match &self.mapping {
            Some(mapping) => mapping.let_reach(context),
            None => context.reach(&self.context),
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Device address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The context that owns the memory.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Returns a range of the memory.
    ///
    /// # Errors
    /// `Outside`.
    pub fn part(&self, offset: u64, len: u64) -> Result<CudaPart<'_>, CudaFailure> {
        CudaPart::new(&self.context, (self.address, self.bytes), offset, len)
    }

    /// Copies bytes into the memory, and waits.
    ///
    /// # Errors
    /// `Outside`, or the driver's reason.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), CudaFailure> {
        let part = self.part(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.context.call("cuMemcpyHtoD_v2", |calls| {
            // SAFETY: the range lies in the allocation, and the slice is valid for that many reads; the call returns
            // when it no longer needs the slice.
            unsafe { (calls.copy_in)(part.address, bytes.as_ptr().cast(), bytes.len()) }
        })?;
        // The driver may still be copying pageable bytes from its own buffer.
        self.context.wait()
    }

    /// Copies bytes out of the memory, and waits.
    ///
    /// # Errors
    /// `Outside`, or the driver's reason.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), CudaFailure> {
        let part = self.part(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.context.call("cuMemcpyDtoH_v2", |calls| {
            // SAFETY: the range lies in the allocation, and the slice is valid for that many writes; the call returns
            // when all bytes have been copied.
            unsafe { (calls.copy_out)(bytes.as_mut_ptr().cast(), part.address, bytes.len()) }
        })
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // Copies in flight may use the memory. If waiting fails, the context and everything in flight are lost, and
        // `drop` cannot report the error.
        let _ = self.context.wait();
        if self.mapping.take().is_some() {
            return;
        }
        let _ = self.context.call("cuMemFree_v2", |calls| {
            // SAFETY: allocated once, freed once, and nothing in flight uses it.
            unsafe { (calls.free)(self.address) }
        });
    }
}

impl PinnedArena {
    /// Pins host memory for all GPUs, through the driver.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn pin(context: &Arc<CudaContext>, arena: Arc<Arena>) -> Result<Self, CudaFailure> {
        context.call("cuMemHostRegister_v2", |calls| {
            let address = arena.address() as *mut c_void;
            // SAFETY: registers the whole mapping, which this value keeps mapped until it is unregistered. A GPU's
            // writes change bytes of an arena, over which no reference is ever formed.
            unsafe { (calls.host_register)(address, arena.len(), HOST_REGISTER_FLAGS) }
        })?;
        Ok(Self {
            context: Arc::clone(context),
            arena,
        })
    }

    /// The memory.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns the memory's address for kernels of this context.
    ///
    /// # Errors
    /// The driver's reason.
    pub(super) fn address_in(&self, context: &CudaContext) -> Result<CudaAddress, CudaFailure> {
        let mut address = 0;
        context.call("cuMemHostGetDevicePointer_v2", |calls| {
            let host = self.arena.address() as *mut c_void;
            // SAFETY: the address is valid for the write; the memory is registered, mapped, and portable.
            unsafe { (calls.host_address)(&raw mut address, host, 0) }
        })?;
        Ok(address)
    }

    /// The context that pinned the memory.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Returns a range of the memory.
    ///
    /// # Errors
    /// `Outside`.
    pub fn part(&self, offset: u64, len: u64) -> Result<CudaPart<'_>, CudaFailure> {
        // The host and all GPUs share one address space.
        let all = (self.arena.address(), self.arena.len() as u64);
        CudaPart::new(&self.context, all, offset, len)
    }
}

impl PinnedView {
    /// Makes a view for streams of this context.
    pub fn new(pinned: &Arc<PinnedArena>, context: &Arc<CudaContext>) -> Self {
        let (context, pinned) = (Arc::clone(context), Arc::clone(pinned));
        Self { context, pinned }
    }

    /// Returns a range of the memory.
    ///
    /// # Errors
    /// `Outside`.
    pub fn part(&self, offset: u64, len: u64) -> Result<CudaPart<'_>, CudaFailure> {
        Ok(CudaPart {
            context: &self.context,
            ..self.pinned.part(offset, len)?
        })
    }
}

impl Drop for PinnedView {
    fn drop(&mut self) {
        // The pinned memory itself waits only for its own context, so wait for this context here. If waiting fails, the
        // context and everything in flight are lost.
        let _ = self.context.wait();
    }
}

impl Drop for PinnedArena {
    fn drop(&mut self) {
        // Copies in flight may use the memory. If waiting fails, the context and everything in flight are lost.
        let _ = self.context.wait();
        let _ = self.context.call("cuMemHostUnregister", |calls| {
            // SAFETY: registered once, unregistered once, and nothing in flight uses it.
            unsafe { (calls.host_unregister)(self.arena.address() as *mut c_void) }
        });
    }
}
