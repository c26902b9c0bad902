//! GPU memory allocated by another process: the handle that shares the memory, and the memory as this process opened
//! it.
//!
//! The caller passes handles between processes. CUDA has all of these calls since 11.0. The calls of every driver are
//! looked up when they are first needed.

use std::sync::Arc;

use super::abi::{Code, CudaAddress, IPC_LAZY_PEER_ACCESS};
use super::buffer::{CudaPart, DeviceBuffer};
use super::context::CudaContext;
use super::driver::Introduced;
use super::failure::CudaFailure;
use crate::library::functions;
use crate::mapping::OutOfRange;

functions! { pub(super) IpcCalls by Introduced:
    export = (c"cuIpcGetMemHandle", 4, 1) => (*mut IpcHandle, CudaAddress) -> Code;
    open = (c"cuIpcOpenMemHandle_v2", 11, 0) => (*mut CudaAddress, IpcHandle, u32) -> Code;
    close = (c"cuIpcCloseMemHandle", 4, 1) => (CudaAddress) -> Code;
    range = (c"cuMemGetAddressRange_v2", 3, 2) => (*mut CudaAddress, *mut usize, CudaAddress) -> Code;
}

impl IpcCalls {
    fn for_context(context: &CudaContext) -> Result<Self, CudaFailure> {
        Self::look_up(|call| context.library.library.symbol(call))
    }
}

/// Identifies an allocation for other processes of the machine. The process that allocated the memory cannot open it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct IpcHandle(pub [u8; 64]);

/// GPU memory that another process has allocated. The CPU cannot address it.
#[derive(Debug)]
pub struct ImportedBuffer {
    context: Arc<CudaContext>,
    calls: IpcCalls,
    address: CudaAddress,
    bytes: u64,
}

impl DeviceBuffer {
    /// Makes a handle that lets another process open the whole allocation. That process must close it before this
    /// memory is dropped.
    ///
    /// # Errors
    /// `TooOld`, or the driver's reason.
    pub fn export(&self) -> Result<IpcHandle, CudaFailure> {
        let calls = IpcCalls::for_context(self.context())?;
        let mut handle = IpcHandle([0; 64]);
        self.context().call("cuIpcGetMemHandle", |_| {
            // SAFETY: the handle is valid for the write of 64 bytes; the address is that of this allocation.
            unsafe { (calls.export)(&raw mut handle, self.address()) }
        })?;
        Ok(handle)
    }
}

impl ImportedBuffer {
    /// Opens memory of another process for the context's GPU, which may differ from the memory's GPU.
    ///
    /// # Errors
    /// `TooOld`; `Outside` if the allocation is smaller than `bytes`; or the driver's reason, such as
    /// `CUDA_ERROR_INVALID_CONTEXT` for memory of this process itself.
    pub fn open(
        context: &Arc<CudaContext>,
        handle: IpcHandle,
        bytes: u64,
    ) -> Result<Self, CudaFailure> {
        let calls = IpcCalls::for_context(context)?;
        let mut address = 0;
        context.call("cuIpcOpenMemHandle_v2", |_| {
            // SAFETY: the address is valid for the write; a handle that names nothing is an error of the call.
            unsafe { (calls.open)(&raw mut address, handle, IPC_LAZY_PEER_ACCESS) }
        })?;
        let opened = Self {
            context: Arc::clone(context),
            calls,
            address,
            bytes,
        };
        let (mut start, mut size) = (0, 0);
        context.call("cuMemGetAddressRange_v2", |_| {
            // SAFETY: both numbers are valid for the write; the address was opened just now.
            unsafe { (calls.range)(&raw mut start, &raw mut size, address) }
        })?;
        // The driver may have merged several allocations into one range. `address` is the start of this handle's
        // allocation, inside that range.
        let size = (start + size as u64).saturating_sub(address);
        if bytes > size {
            let (offset, len) = (0, bytes);
            return Err(OutOfRange { offset, len, size }.into());
        }
        Ok(opened)
    }

    /// The context that opened the memory.
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
}

impl Drop for ImportedBuffer {
    fn drop(&mut self) {
        // Copies in flight may use the memory. If waiting fails, the context is lost, and `drop` cannot report the
        // error.
        let _ = self.context.wait();
        let _ = self.context.call("cuIpcCloseMemHandle", |_| {
            // SAFETY: opened once, closed once, and nothing in flight uses it.
            unsafe { (self.calls.close)(self.address) }
        });
    }
}
