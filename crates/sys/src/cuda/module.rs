//! Kernels of this crate, compiled by the driver from their text, and their launches.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use super::abi::{FunctionHandle, ModuleHandle};
use super::context::CudaContext;
use super::driver::LoadedText;
use super::failure::CudaFailure;
use super::stream::CudaStream;

/// Threads per block: a multiple of 32 that every GPU supports.
const THREADS: u32 = 256;

/// Maximum blocks per multiprocessor: enough to keep all of its threads busy. Each thread then loops over further
/// words.
const BLOCKS_PER_PROCESSOR: u32 = 16;

/// Kernels of one text, compiled for one GPU.
#[derive(Debug)]
pub(super) struct GpuModule {
    context: Arc<CudaContext>,
    handle: ModuleHandle,
    // The driver may read the code until the module is unloaded. `drop` unloads the module before any field is dropped.
    _code: Vec<u8>,
}

impl GpuModule {
    /// Compiles a text for the context's GPU.
    ///
    /// # Errors
    /// The driver's reason, with its compiler's messages.
    pub(super) fn compile(context: &Arc<CudaContext>, text: &str) -> Result<Self, CudaFailure> {
        context.current()?;
        // SAFETY: the context is current, and is that of this GPU.
        let compiled = unsafe { context.library.own.compile(text, context.ordinal) };
        let LoadedText { module, code } = compiled?;
        Ok(Self {
            context: Arc::clone(context),
            handle: module,
            _code: code,
        })
    }

    /// Returns a kernel, which may be launched as long as this value lives.
    ///
    /// # Errors
    /// The driver's reason.
    pub(super) fn function(&self, name: &CStr) -> Result<FunctionHandle, CudaFailure> {
        let mut function = std::ptr::null_mut();
        self.context.call("cuModuleGetFunction", |calls| {
            // SAFETY: the handle is valid for the write, the module is loaded, and the name ends with a NUL.
            unsafe { (calls.module_function)(&raw mut function, self.handle, name.as_ptr()) }
        })?;
        Ok(function)
    }
}

impl Drop for GpuModule {
    fn drop(&mut self) {
        // `drop` cannot report a failure.
        let _ = self.context.call("cuModuleUnload", |calls| {
            // SAFETY: loaded once, unloaded once, and the code that launched its kernels has waited for them.
            unsafe { (calls.module_unload)(self.handle) }
        });
    }
}

/// Launches a kernel with threads that cover `bytes` bytes in words of 8, in at most `blocks_max` blocks if given. Does
/// not wait.
///
/// # Errors
/// The driver's reason.
///
/// # Safety
/// The kernel belongs to the stream's context and has exactly `N` parameters, all of 64 bits. The kernel and all memory
/// that it accesses live until it has ended.
#[inline]
pub(super) unsafe fn launch<const N: usize>(
    stream: &CudaStream,
    kernel: FunctionHandle,
    (bytes, blocks_max): (u64, Option<u32>),
    arguments: [u64; N],
) -> Result<(), CudaFailure> {
    let context = stream.context();
    // An unaligned range touches one more word.
    let words = bytes.div_ceil(8) + 1;
    let most = context
        .multiprocessors()
        .saturating_mul(BLOCKS_PER_PROCESSOR);
    let most = u64::from(blocks_max.map_or(most, |blocks| blocks.clamp(1, most)));
    let blocks = words.div_ceil(u64::from(THREADS)).min(most) as u32;
    let mut arguments = arguments;
    let mut pointers = arguments
        .each_mut()
        .map(|argument| std::ptr::from_mut(argument).cast::<c_void>());
    context.call("cuLaunchKernel", |calls| {
        // SAFETY: as the caller promises; the driver has read the arguments when the call returns.
        unsafe {
            (calls.launch)(
                kernel,
                blocks,
                1,
                1,
                THREADS,
                1,
                1,
                0,
                stream.handle,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
    })
}
