//! Copies between two memories, at least one of them a GPU's, with many in flight. Copies go to several streams in
//! turn, each followed by an event that signals its end.
//!
//! The two memories may belong to different contexts, and each memory waits only for its own context before it is
//! freed. So a copier holds both memories, and waits for its streams before it releases them.

use std::sync::Arc;

use super::abi::{CudaAddress, NOT_READY, SUCCESS};
use super::buffer::{DeviceBuffer, PinnedArena};
use super::context::CudaContext;
use super::copy_kernel::CopyKernel;
use super::failure::CudaFailure;
use super::stream::{CudaEvent, CudaStream};
use crate::mapping::{Arena, OutOfRange};

/// Memory at one end of a copy.
#[derive(Debug, Clone)]
pub enum CudaRegion {
    /// Memory of a GPU.
    Device(Arc<DeviceBuffer>),
    /// Host memory that the driver has pinned.
    Pinned(Arc<PinnedArena>),
    /// Host memory that the driver does not know. The driver copies it through pinned memory of its own.
    Pageable(Arc<Arena>),
}

impl CudaRegion {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Device(buffer) => buffer.bytes(),
            Self::Pinned(pinned) => pinned.arena().len() as u64,
            Self::Pageable(arena) => arena.len() as u64,
        }
    }

    /// Returns the context of a GPU's memory; `None` for host memory.
    pub fn gpu(&self) -> Option<&Arc<CudaContext>> {
        match self {
            Self::Device(buffer) => Some(buffer.context()),
            Self::Pinned(_) | Self::Pageable(_) => None,
        }
    }

    /// Returns the address for copies by the driver or, with `kernel_of`, for kernels of that context.
    fn address(&self, kernel_of: Option<&CudaContext>) -> Result<CudaAddress, CudaFailure> {
        match (self, kernel_of) {
            (Self::Device(buffer), _) => Ok(buffer.address()),
            (Self::Pinned(pinned), Some(context)) => pinned.address_in(context),
            (Self::Pinned(pinned), None) => Ok(pinned.arena().address()),
            (Self::Pageable(_), Some(_)) => Err(CudaFailure::NotPinned),
            (Self::Pageable(arena), None) => Ok(arena.address()),
        }
    }
}

/// Identifies a copy; returned to the caller when the copy has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyMark {
    /// The caller's number.
    pub tag: u32,
    /// Bytes of the copy.
    pub len: u32,
}

/// One stream, and its copies that are not yet known to have ended, oldest first.
#[derive(Debug)]
struct CopyLine {
    stream: CudaStream,
    /// Ring of events with the marks of their copies.
    slots: Vec<(CudaEvent, CopyMark)>,
    oldest: usize,
    pending: usize,
}

impl CopyLine {
    fn new(context: &Arc<CudaContext>, depth: u32) -> Result<Self, CudaFailure> {
        let slot = |_| Ok((CudaEvent::untimed(context)?, CopyMark::default()));
        Ok(Self {
            stream: CudaStream::new(context)?,
            slots: (0..depth.max(1))
                .map(slot)
                .collect::<Result<_, CudaFailure>>()?,
            oldest: 0,
            pending: 0,
        })
    }
}

/// Copies from one memory to another.
#[derive(Debug)]
pub struct CudaCopier {
    context: Arc<CudaContext>,
    ends: [CudaRegion; 2],
    /// Addresses of both ends.
    addresses: [CudaAddress; 2],
    kernel: Option<Arc<CopyKernel>>,
    lines: Vec<CopyLine>,
    /// Index of the line for the next copy.
    next: usize,
}

impl CudaCopier {
    /// Makes a copier from one memory to another (`from`, `to`) in the context of a GPU at one of the ends. Copies are
    /// made by `kernel`, or by the driver's call if it is `None`. They use `streams` streams with at most `depth` in
    /// flight on each.
    ///
    /// # Errors
    /// `NoGpu`; `OtherGpu` for a context of neither end; `OtherDriver`; `NoPeer`, or the driver's reason with the names
    /// of both GPUs; `NotPinned` if a kernel cannot reach an end; the driver's reason.
    pub fn new(
        context: &Arc<CudaContext>,
        (from, to): (CudaRegion, CudaRegion),
        kernel: Option<Arc<CopyKernel>>,
        (streams, depth): (u32, u32),
    ) -> Result<Self, CudaFailure> {
        let gpus = || [&from, &to].into_iter().filter_map(CudaRegion::gpu);
        let first = gpus().next().ok_or(CudaFailure::NoGpu)?;
        let is_own = |other: &Arc<CudaContext>| Arc::ptr_eq(other, context);
        let fits = gpus().any(is_own)
            && kernel
                .as_ref()
                .is_none_or(|kernel| is_own(kernel.context()));
        if !fits {
            return Err(context.other_gpu(first));
        }
        for end in [&from, &to] {
            if let CudaRegion::Device(buffer) = end {
                buffer.let_reach(context)?;
            }
        }
        let kernel_of = kernel.as_ref().map(|_| &**context);
        let addresses = [from.address(kernel_of)?, to.address(kernel_of)?];
        let line = |_| CopyLine::new(context, depth);
        Ok(Self {
            context: Arc::clone(context),
            addresses,
            kernel,
            lines: (0..streams.max(1)).map(line).collect::<Result<_, _>>()?,
            next: 0,
            ends: [from, to],
        })
    }

    /// Whether the driver blocks the caller during a copy, because one of the ends is not pinned.
    pub fn waits(&self) -> bool {
        let mut ends = self.ends.iter();
        ends.any(|end| matches!(end, CudaRegion::Pageable(_)))
    }

    /// Hands over a copy of `mark.len` bytes between two offsets. Returns false if the next stream has no free slot.
    ///
    /// # Errors
    /// `Outside`, with nothing handed over; or the driver's reason. After an error of the driver, a copy may be in
    /// flight that `poll` never reports.
    #[inline]
    pub fn post(&mut self, from: u64, to: u64, mark: CopyMark) -> Result<bool, CudaFailure> {
        let len = u64::from(mark.len);
        OutOfRange::check(from, len, self.ends[0].bytes())?;
        OutOfRange::check(to, len, self.ends[1].bytes())?;
        let line = &mut self.lines[self.next];
        if line.pending == line.slots.len() {
            return Ok(false);
        }
        let (from, to) = (self.addresses[0] + from, self.addresses[1] + to);
        if len > 0
            && let Some(kernel) = &self.kernel
        {
            // SAFETY: stream and kernel are of this context, which was found to reach both memories; all of them are
            // kept until the stream has been waited for, and the ranges were checked.
            unsafe { kernel.copy(&line.stream, (to, from), len) }?;
        }
        let calls = self.context.current()?;
        if len > 0 && self.kernel.is_none() {
            let own = &self.context.library.own;
            // SAFETY: both ranges lie in memory that is kept until the stream has been waited for. Bytes that the CPU
            // or another copy writes meanwhile become a mixture.
            let code = unsafe { own.copy(to, from, len as usize, line.stream.handle) };
            self.context.check("cuMemcpyAsync", code)?;
        }
        let slots = line.slots.len();
        let place = line.oldest + line.pending;
        let place = if place < slots { place } else { place - slots };
        let (event, slot) = &mut line.slots[place];
        // SAFETY: event and stream live.
        let code = unsafe { (calls.event_record)(event.handle, line.stream.handle) };
        self.context.check("cuEventRecord", code)?;
        *slot = mark;
        line.pending += 1;
        self.next += 1;
        if self.next == self.lines.len() {
            self.next = 0;
        }
        Ok(true)
    }

    /// Number of copies in flight.
    pub fn pending(&self) -> usize {
        self.lines.iter().map(|line| line.pending).sum()
    }

    /// Passes the marks of up to `most` ended copies to `ended`, and returns their number. Copies of one stream end in
    /// the order of posting.
    ///
    /// # Errors
    /// The driver's reason, possibly for a copy that was handed over earlier.
    #[inline]
    pub fn poll(
        &mut self,
        most: usize,
        mut ended: impl FnMut(CopyMark),
    ) -> Result<usize, CudaFailure> {
        let mut count = 0;
        if most == 0 || self.lines.iter().all(|line| line.pending == 0) {
            return Ok(0);
        }
        let calls = self.context.current()?;
        for line in &mut self.lines {
            while line.pending > 0 && count < most {
                let (event, mark) = &line.slots[line.oldest];
                // SAFETY: the event lives.
                match unsafe { (calls.event_query)(event.handle) } {
                    SUCCESS => ended(*mark),
                    NOT_READY => break,
                    code => self.context.check("cuEventQuery", code)?,
                }
                line.oldest += 1;
                if line.oldest == line.slots.len() {
                    line.oldest = 0;
                }
                line.pending -= 1;
                count += 1;
            }
        }
        Ok(count)
    }
}

impl Drop for CudaCopier {
    fn drop(&mut self) {
        // Copies may be in flight between the two memories, so wait before the memories are released. If waiting fails,
        // the context and everything in flight are lost, and `drop` cannot report the error.
        for line in &self.lines {
            let _ = line.stream.wait();
        }
    }
}
