//! Launches the kernels of `pattern.ptx`, or of another driver's text, on checked ranges.
//!
//! The driver compiles the text for its GPU when the kernels are loaded, so GPUs newer than this program work.
//! `tonnage_engines::memory` verifies that the kernels do the same as the host.

use std::sync::{Arc, Mutex, PoisonError};

use super::abi::FunctionHandle;
use super::buffer::DeviceBuffer;
use super::context::CudaContext;
use super::failure::CudaFailure;
use super::module::{GpuModule, launch};
use super::stream::CudaStream;

/// Parameters of the pattern in a range of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatternNumbers {
    /// Position of the first byte in the flow's data.
    pub place: u64,
    /// Value mixed into all words.
    pub base: u64,
    /// XOR mask of all words: 0, or all ones.
    pub inverted: u64,
}

impl PatternNumbers {
    /// Returns the numbers in the order of the kernels' parameters.
    fn arguments(self) -> [u64; 3] {
        [self.place, self.base, self.inverted]
    }
}

/// The kernels, compiled for one GPU.
#[derive(Debug)]
pub struct PatternKernels {
    stream: CudaStream,
    fill: FunctionHandle,
    verify: FunctionHandle,
    /// Offsets of the first and the last differing byte, written by the kernel; locked during a comparison.
    found: Mutex<DeviceBuffer>,
    // Keeps the functions loaded. Every launch is waited for, so no kernel is running when the module is dropped.
    _module: GpuModule,
}

// SAFETY: any thread may use modules and functions, if it first makes their context current.
unsafe impl Send for PatternKernels {}
// SAFETY: as above; results are behind a lock.
unsafe impl Sync for PatternKernels {}

impl PatternKernels {
    /// Compiles the kernels for the context's GPU.
    ///
    /// # Errors
    /// The driver's reason, with its compiler's messages.
    pub fn load(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        let stream = CudaStream::new(context)?;
        let found = Mutex::new(DeviceBuffer::allocate(context, 16)?);
        let module = GpuModule::compile(context, context.driver().pattern_text)?;
        Ok(Self {
            stream,
            fill: module.function(c"tonnage_fill")?,
            verify: module.function(c"tonnage_verify")?,
            found,
            _module: module,
        })
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
        let [place, base, inverted] = numbers.arguments();
        self.run(self.fill, len, [address, len, place, base, inverted])
    }

    /// Compares a range with the pattern. Returns the offsets of the first and the last differing byte, relative to the
    /// range; `None` if all bytes are equal.
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
        let [place, base, inverted] = numbers.arguments();
        let arguments = [address, len, place, base, inverted, found.address()];
        self.run(self.verify, len, arguments)?;
        let mut bytes = [[0; 8]; 2];
        found.read(0, bytes.as_flattened_mut())?;
        let [first, last] = bytes.map(u64::from_le_bytes);
        Ok((first != u64::MAX).then_some((first, last)))
    }

    /// Checks a range, and returns its address.
    fn checked(&self, buffer: &DeviceBuffer, offset: u64, len: u64) -> Result<u64, CudaFailure> {
        let part = buffer.part(offset, len)?;
        if Arc::ptr_eq(part.context, self.stream.context()) {
            return Ok(part.address);
        }
        // This GPU may not be able to access another GPU's memory.
        Err(CudaFailure::Outside(crate::mapping::OutOfRange {
            offset,
            len,
            size: 0,
        }))
    }

    /// Launches a kernel over `bytes` bytes, and waits for it.
    fn run<const N: usize>(
        &self,
        kernel: FunctionHandle,
        bytes: u64,
        arguments: [u64; N],
    ) -> Result<(), CudaFailure> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the kernel is one of this module's and has as many 64-bit parameters as there are arguments; it
        // touches the range that was checked, and the two numbers of `found`, and nothing else.
        unsafe { launch(&self.stream, kernel, (bytes, None), arguments) }?;
        self.stream.wait()
    }
}
