//! Streams, which execute copies in order while the CPU does something else, and events, which mark a position in a
//! stream.

use std::sync::Arc;

use super::abi::{
    EVENT_DEFAULT, EVENT_UNTIMED, EventHandle, NOT_READY, STREAM_NON_BLOCKING, StreamHandle,
};
use super::buffer::CudaPart;
use super::context::CudaContext;
use super::failure::CudaFailure;

/// A stream. Dropping it does not cancel work handed to it earlier.
#[derive(Debug)]
pub struct CudaStream {
    context: Arc<CudaContext>,
    pub(super) handle: StreamHandle,
}

// SAFETY: any thread may use a stream, if it first makes the stream's context current; the driver locks shared state.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

/// A position in a stream, and the time when the stream passed it.
#[derive(Debug)]
pub struct CudaEvent {
    context: Arc<CudaContext>,
    pub(super) handle: EventHandle,
}

// SAFETY: as for streams.
unsafe impl Send for CudaEvent {}
// SAFETY: as for streams.
unsafe impl Sync for CudaEvent {}

impl CudaStream {
    /// Makes a stream that doesn't wait for any other stream.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn new(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        let mut handle = std::ptr::null_mut();
        context.call("cuStreamCreate", |calls| {
            // SAFETY: the handle is valid for the write.
            unsafe { (calls.stream_create)(&raw mut handle, STREAM_NON_BLOCKING) }
        })?;
        Ok(Self {
            context: Arc::clone(context),
            handle,
        })
    }

    /// The context of the stream.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Hands over a copy between two parts of equal length. The memories may be dropped before the copy ends, because
    /// each first waits for the copies of its own context. Therefore both parts must belong to this stream's context.
    ///
    /// # Errors
    /// `OtherGpu` for a part of another context, `Outside` for parts of different lengths, or the driver's reason.
    #[inline]
    pub fn copy(&self, from: CudaPart<'_>, to: CudaPart<'_>) -> Result<(), CudaFailure> {
        self.check_parts(&from, &to)?;
        self.context.call("cuMemcpyAsync", |_| {
            let own = &self.context.library.own;
            // SAFETY: both ranges lie in memory that waits for this context before it is released. Bytes that the CPU
            // or another copy writes meanwhile become a mixture.
            unsafe { own.copy(to.address, from.address, from.bytes as usize, self.handle) }
        })
    }

    /// Rejects parts that this stream cannot copy between.
    #[inline]
    pub(super) fn check_parts(
        &self,
        from: &CudaPart<'_>,
        to: &CudaPart<'_>,
    ) -> Result<(), CudaFailure> {
        for part in [from, to] {
            if !Arc::ptr_eq(part.context, &self.context) {
                return Err(self.context.other_gpu(part.context));
            }
        }
        if from.bytes != to.bytes {
            return Err(CudaFailure::Outside(crate::mapping::OutOfRange {
                offset: 0,
                len: from.bytes,
                size: to.bytes,
            }));
        }
        Ok(())
    }

    /// Waits until all work handed to the stream has ended.
    ///
    /// # Errors
    /// The driver's reason, possibly for work that was handed over earlier.
    pub fn wait(&self) -> Result<(), CudaFailure> {
        self.context.call("cuStreamSynchronize", |calls| {
            // SAFETY: the stream lives.
            unsafe { (calls.stream_synchronize)(self.handle) }
        })
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        // `drop` cannot report a failure.
        let _ = self.context.call("cuStreamDestroy_v2", |calls| {
            // SAFETY: created once, destroyed once; the driver keeps it until its work is done.
            unsafe { (calls.stream_destroy)(self.handle) }
        });
    }
}

impl CudaEvent {
    /// Makes an event that records a time.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn new(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        Self::with(context, EVENT_DEFAULT)
    }

    /// Makes an event without a time, which costs less.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn untimed(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        Self::with(context, EVENT_UNTIMED)
    }

    fn with(context: &Arc<CudaContext>, flags: u32) -> Result<Self, CudaFailure> {
        let mut handle = std::ptr::null_mut();
        context.call("cuEventCreate", |calls| {
            // SAFETY: the handle is valid for the write.
            unsafe { (calls.event_create)(&raw mut handle, flags) }
        })?;
        Ok(Self {
            context: Arc::clone(context),
            handle,
        })
    }

    /// Records the event after everything handed to the stream so far.
    ///
    /// # Errors
    /// The driver's reason, such as `CUDA_ERROR_INVALID_HANDLE` for a stream of another context.
    #[inline]
    pub fn record(&self, stream: &CudaStream) -> Result<(), CudaFailure> {
        self.context.call("cuEventRecord", |calls| {
            // SAFETY: event and stream live.
            unsafe { (calls.event_record)(self.handle, stream.handle) }
        })
    }

    /// Whether the stream has passed the event.
    ///
    /// # Errors
    /// The driver's reason, possibly for work that was handed over earlier.
    #[inline]
    pub fn is_passed(&self) -> Result<bool, CudaFailure> {
        let mut passed = true;
        self.context.call("cuEventQuery", |calls| {
            // SAFETY: the event lives.
            let code = unsafe { (calls.event_query)(self.handle) };
            passed = code != NOT_READY;
            if passed { code } else { 0 }
        })?;
        Ok(passed)
    }

    /// Waits until the stream has passed the event.
    ///
    /// # Errors
    /// As [`Self::is_passed`].
    pub fn wait(&self) -> Result<(), CudaFailure> {
        self.context.call("cuEventSynchronize", |calls| {
            // SAFETY: the event lives.
            unsafe { (calls.event_synchronize)(self.handle) }
        })
    }

    /// Returns the nanoseconds from an earlier event to this one by the GPU's clock. Its resolution on NVIDIA GPUs is
    /// about half a microsecond. The stream must have passed both events.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn ns_since(&self, earlier: &Self) -> Result<f64, CudaFailure> {
        let mut milliseconds = 0f32;
        self.context.call("cuEventElapsedTime", |calls| {
            // SAFETY: the number is valid for the write of a float; both events live.
            unsafe { (calls.event_elapsed)(&raw mut milliseconds, earlier.handle, self.handle) }
        })?;
        Ok(f64::from(milliseconds) * 1e6)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // `drop` cannot report a failure.
        let _ = self.context.call("cuEventDestroy_v2", |calls| {
            // SAFETY: made once, destroyed once; the driver keeps it until it is passed.
            unsafe { (calls.event_destroy)(self.handle) }
        });
    }
}
