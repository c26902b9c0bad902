//! The kernel of `copy.ptx`, or of another driver's source text. It copies bytes with a GPU's processors instead of its
//! copy engines.
//!
//! The launching code checks ranges: see [`CudaCopier`](super::CudaCopier).

use std::sync::Arc;

use super::abi::{CudaAddress, FunctionHandle};
use super::context::CudaContext;
use super::failure::CudaFailure;
use super::module::{GpuModule, launch};
use super::stream::CudaStream;

/// The kernel, compiled for one GPU.
#[derive(Debug)]
pub struct CopyKernel {
    function: FunctionHandle,
    /// Maximum number of blocks per launch; `None` for as many as the GPU can use.
    blocks_max: Option<u32>,
    context: Arc<CudaContext>,
    // Keeps the function loaded. Code that launches the function keeps this value until the launch has ended.
    _module: GpuModule,
}

// SAFETY: any thread may use modules and functions, if it first makes their context current.
unsafe impl Send for CopyKernel {}
// SAFETY: as above; nothing here is changed.
unsafe impl Sync for CopyKernel {}

impl CopyKernel {
    /// Compiles the kernel for the context's GPU. `blocks_max` limits the blocks of a launch. With few blocks, the
    /// threads loop even over a short range, as they do over a long range in a full launch.
    ///
    /// # Errors
    /// The driver's reason, with its compiler's messages.
    pub fn load(context: &Arc<CudaContext>, blocks_max: Option<u32>) -> Result<Self, CudaFailure> {
        let module = GpuModule::compile(context, context.driver().copy_text)?;
        Ok(Self {
            function: module.function(c"tonnage_copy")?,
            blocks_max,
            context: Arc::clone(context),
            _module: module,
        })
    }

    /// The context of the kernel.
    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Hands a copy to a stream.
    ///
    /// # Safety
    /// The stream is of the kernel's context, which reaches both ranges; they and this value live until the copy has
    /// ended.
    #[inline]
    pub(super) unsafe fn copy(
        &self,
        stream: &CudaStream,
        (to, from): (CudaAddress, CudaAddress),
        bytes: u64,
    ) -> Result<(), CudaFailure> {
        let size = (bytes, self.blocks_max);
        // SAFETY: the kernel has three parameters of 64 bits, and accesses only the ranges that the caller promises.
        unsafe { launch(stream, self.function, size, [to, from, bytes]) }
    }
}
