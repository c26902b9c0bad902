//! Closes a ring, after the kernel is done with its memory and files.

use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use io_uring::EnterFlags;
use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};

use super::Ring;

/// Maximum time that dropping a ring waits for operations in flight.
const DRAIN: Duration = Duration::from_secs(10);

impl<F: AsFd> Ring<F> {
    /// Waits for all operations in the kernel; returns whether none is left.
    pub(super) fn drain(&mut self) -> bool {
        if self.in_flight() > self.pushed {
            // Cancels operations that have not started. Kernels before 6.0 do not know the call, and complete all
            // operations.
            let at_once = Timespec::new().nsec(1);
            let submitter = self.ring.submitter();
            let _ = submitter.register_sync_cancel(Some(at_once), CancelBuilder::any());
        }
        let until = Instant::now() + DRAIN;
        loop {
            while let Some(completion) = self.ring.completion().next() {
                let index = completion.user_data() as u32;
                if (index as usize) < self.flights.len() && !self.free.contains(&index) {
                    self.free.push(index);
                }
            }
            // The kernel does not know operations that were pushed but not submitted.
            let left = self.in_flight().saturating_sub(self.pushed);
            if left == 0 || Instant::now() > until || !self.wait_only() {
                return left == 0;
            }
        }
    }

    /// Waits a moment for completions without submitting; returns whether to continue.
    fn wait_only(&self) -> bool {
        let timeout = Timespec::new().nsec(100_000_000);
        let args = SubmitArgs::new().timespec(&timeout);
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: EXT_ARG declares that the argument is such a structure, which together with its pointees outlives the
        // call. Nothing is submitted.
        let waited = unsafe { self.ring.submitter().enter(0, 1, flags.bits(), Some(&args)) };
        let code = waited.err().and_then(|error| error.raw_os_error());
        matches!(code, None | Some(libc::ETIME | libc::EINTR | libc::EBUSY))
    }
}

impl<F: AsFd> Drop for Ring<F> {
    fn drop(&mut self) {
        if !self.drain() {
            // The kernel may still write into the arena, so it stays mapped for the rest of this process.
            return;
        }
        // Unregister buffers and files now, because closing the ring releases them only some time later. The next ring
        // may need the locked memory, and the files should be closed. If unregistering fails, closing the ring releases
        // them.
        let _ = self.ring.submitter().unregister_buffers();
        let _ = self.ring.submitter().unregister_files();
        // SAFETY: each is dropped once, here, and nothing uses them afterwards.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            ManuallyDrop::drop(&mut self.files);
            ManuallyDrop::drop(&mut self.arena);
        }
    }
}
