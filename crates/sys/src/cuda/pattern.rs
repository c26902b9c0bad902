//! The kernels of `pattern.ptx`, launched on ranges that were checked.
//!
//! The driver compiles the text for its GPU when they are loaded, so that GPUs are served that are newer than this
//! program. Proving that they do as the host does is `tonnage_engines::memory`'s.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use super::abi::{FunctionHandle, JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES, ModuleHandle};
use super::buffer::DeviceBuffer;
use super::context::CudaContext;
use super::failure::CudaFailure;
use super::stream::CudaStream;

/// The kernels' text.
pub const PATTERN_PTX: &str = include_str!("pattern.ptx");

/// Threads of a block: a multiple of 32 that every GPU takes.
const THREADS: u32 = 256;

/// Blocks for each processor, at most: enough to keep all of its threads busy, and each thread then goes on to the next
/// words.
const BLOCKS_PER_PROCESSOR: u32 = 16;

/// Room for the compiler's complaints.
const LOG_BYTES: usize = 2048;

/// Numbers of the pattern that a stretch of memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatternNumbers {
    /// Position of the first byte in the flow's data.
    pub place: u64,
    /// Number that all words are mixed with.
    pub base: u64,
    /// Number that all words are inverted by: 0, or all ones.
    pub inverted: u64,
}

/// The kernels, compiled for one GPU.
#[derive(Debug)]
pub struct PatternKernels {
    stream: CudaStream,
    module: ModuleHandle,
    fill: FunctionHandle,
    verify: FunctionHandle,
    /// The first and the last byte that the kernel found; locked while one compares.
    found: Mutex<DeviceBuffer>,
}

// SAFETY: the driver allows modules and functions to any thread; their context is made current first.
unsafe impl Send for PatternKernels {}
// SAFETY: as above; results are behind a lock.
unsafe impl Sync for PatternKernels {}

impl PatternKernels {
    /// Compiles the kernels for the context's GPU.
    ///
    /// # Errors
    /// The driver's reason, with its compiler's complaints.
    pub fn load(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        let stream = CudaStream::new(context)?;
        let found = Mutex::new(DeviceBuffer::allocate(context, 16)?);
        let module = compile(context, PATTERN_PTX)?;
        let mut kernels = Self {
            stream,
            module,
            fill: std::ptr::null_mut(),
            verify: std::ptr::null_mut(),
            found,
        };
        kernels.fill = function(context, module, c"tonnage_fill")?;
        kernels.verify = function(context, module, c"tonnage_verify")?;
        Ok(kernels)
    }

    /// Writes the pattern to a range, and waits.
    ///
    /// # Errors
    /// `Outside`, also for memory of another GPU, or the driver's reason.
    pub fn fill(
        &self,
        buffer: &DeviceBuffer,
        offset: u64,
        len: u64,
        numbers: PatternNumbers,
    ) -> Result<(), CudaFailure> {
        let address = self.checked(buffer, offset, len)?;
        let PatternNumbers {
            place,
            base,
            inverted,
        } = numbers;
        self.run(self.fill, len, [address, len, place, base, inverted])
    }

    /// Compares a range with the pattern: the offsets, counted from its start, of the first and of the last byte that
    /// differ; `None` where none does.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub fn verify(
        &self,
        buffer: &DeviceBuffer,
        offset: u64,
        len: u64,
        numbers: PatternNumbers,
    ) -> Result<Option<(u64, u64)>, CudaFailure> {
        let address = self.checked(buffer, offset, len)?;
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let none = [u64::MAX, 0];
        found.write(0, none.map(u64::to_le_bytes).as_flattened())?;
        let PatternNumbers {
            place,
            base,
            inverted,
        } = numbers;
        let arguments = [address, len, place, base, inverted, found.address()];
        self.run(self.verify, len, arguments)?;
        let mut bytes = [[0; 8]; 2];
        found.read(0, bytes.as_flattened_mut())?;
        let [first, last] = bytes.map(u64::from_le_bytes);
        Ok((first != u64::MAX).then_some((first, last)))
    }

    /// Address of a range.
    fn checked(&self, buffer: &DeviceBuffer, offset: u64, len: u64) -> Result<u64, CudaFailure> {
        let part = buffer.part(offset, len)?;
        if Arc::ptr_eq(part.context, self.stream.context()) {
            return Ok(part.address);
        }
        // Another GPU may not reach it.
        Err(CudaFailure::Outside(crate::mapping::OutOfRange {
            offset,
            len,
            size: 0,
        }))
    }

    /// Launches a kernel over so many bytes, and waits for it.
    fn run<const N: usize>(
        &self,
        kernel: FunctionHandle,
        bytes: u64,
        arguments: [u64; N],
    ) -> Result<(), CudaFailure> {
        if bytes == 0 {
            return Ok(());
        }
        let context = self.stream.context();
        // Not aligned, a range touches one word more.
        let words = bytes.div_ceil(8) + 1;
        let most = context
            .multiprocessors()
            .saturating_mul(BLOCKS_PER_PROCESSOR);
        let blocks = words.div_ceil(u64::from(THREADS)).min(u64::from(most)) as u32;
        let mut arguments = arguments;
        let mut pointers = arguments
            .each_mut()
            .map(|argument| std::ptr::from_mut(argument).cast::<c_void>());
        context.call("cuLaunchKernel", |calls| {
            // SAFETY: the kernel is one of this module's and has as many 64-bit parameters as there are pointers; it
            // touches the range that was checked, and the two numbers of `found`, and nothing else.
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
                    self.stream.handle,
                    pointers.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            }
        })?;
        self.stream.wait()
    }
}

impl Drop for PatternKernels {
    fn drop(&mut self) {
        // Nobody is left to be told of a failure.
        let _ = self.stream.context().call("cuModuleUnload", |calls| {
            // SAFETY: loaded once, unloaded once, and every launch was waited for.
            unsafe { (calls.module_unload)(self.module) }
        });
    }
}

/// Has the driver compile a text.
fn compile(context: &Arc<CudaContext>, ptx: &str) -> Result<ModuleHandle, CudaFailure> {
    // The driver reads to a NUL.
    let image = [ptx.as_bytes(), &[0]].concat();
    let mut module = std::ptr::null_mut();
    let mut log: [c_char; LOG_BYTES] = [0; LOG_BYTES];
    let mut options: [c_int; 2] = [JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES];
    let mut values: [*mut c_void; 2] = [
        log.as_mut_ptr().cast(),
        // The number itself stands in the place of a pointer; one byte stays NUL.
        std::ptr::without_provenance_mut(LOG_BYTES - 1),
    ];
    let loaded = context.call("cuModuleLoadDataEx", |calls| {
        // SAFETY: the handle is valid for the write, the text ends with a NUL, and there are as many options as values,
        // of which the first is room for as many bytes as the second says.
        unsafe {
            (calls.module_load)(
                &raw mut module,
                image.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        }
    });
    // SAFETY: the array is NUL-terminated, and nobody else has it.
    let complaints = unsafe { crate::library::text(log.as_ptr()) }.unwrap_or_default();
    loaded.map(|()| module).map_err(|mut failure| {
        if let CudaFailure::Call { text, .. } = &mut failure
            && let Some(first) = complaints.lines().find(|line| !line.trim().is_empty())
        {
            *text = format!("{text}: {}", first.trim());
        }
        failure
    })
}

fn function(
    context: &Arc<CudaContext>,
    module: ModuleHandle,
    name: &CStr,
) -> Result<FunctionHandle, CudaFailure> {
    let mut function = std::ptr::null_mut();
    context.call("cuModuleGetFunction", |calls| {
        // SAFETY: the handle is valid for the write, the module is loaded, and the name ends with a NUL.
        unsafe { (calls.module_function)(&raw mut function, module, name.as_ptr()) }
    })?;
    Ok(function)
}
