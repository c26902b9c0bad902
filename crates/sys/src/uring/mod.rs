//! [`Ring`]: reads and writes of files through io_uring, many in flight at a time.
//!
//! A ring belongs to one [`Arena`] and owns its files. Operations name files by number, and bytes by checked offsets.
//! Operations in flight keep the arena and the files alive: dropping a ring waits until the kernel no longer uses them.
//! The engine (`tonnage_engines::uring`) opens files and gives operations their meaning. `setup.rs` opens rings,
//! `end.rs` closes them.

mod end;
mod request;
mod setup;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use crate::mapping::Arena;

pub use request::{Direction, FileId, Finished, PostError, RequestOutcome, RingRequest};
pub use setup::{Level, Refused, Registered};

/// Maximum operations in flight per ring.
pub const DEPTH_MAX: u32 = 32_768;

/// File numbers are below this.
pub const FILES_MAX: u32 = 1 << 16;

/// Time that a wait allows for further completions after the first. This overstates the latency of an operation by at
/// most `GATHER`.
pub const GATHER: Duration = Duration::from_micros(50);

/// A wait ends after this time even without a completion.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Configuration of a ring.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Maximum operations in flight, 1 to [`DEPTH_MAX`].
    pub depth: u32,
    /// Number of operations that `post` collects before it submits them, and that `wait` allows to complete together. 1
    /// submits each operation at once and waits for one completion.
    pub batch: u32,
    /// Whether to register the arena.
    pub fixed_buffers: bool,
    /// The best level to try.
    pub best: Level,
}

/// Features that the kernel granted, for the record.
#[derive(Debug, Clone)]
pub struct RingFeatures {
    /// Set-up level of the ring.
    pub level: Level,
    /// Better levels that were refused, each with the kernel's reason.
    pub missing: Vec<String>,
    /// Registration of the arena.
    pub buffers: Registered,
    /// Registration of files.
    pub files: Registered,
    /// Whether a wait can allow several operations to complete together (Linux 6.12).
    pub gathers: bool,
}

/// An operation in flight, and its progress.
#[derive(Debug, Clone, Copy)]
struct Flight {
    request: RingRequest,
    moved: u32,
}

struct OpenFile<F> {
    file: F,
    in_flight: u32,
}

/// One submission queue and one completion queue. See the module documentation.
pub struct Ring<F: AsFd> {
    /// Dropped manually, before the arena and only if nothing is in flight.
    ring: ManuallyDrop<IoUring>,
    arena: ManuallyDrop<Arc<Arena>>,
    files: ManuallyDrop<Vec<Option<OpenFile<F>>>>,
    flights: Box<[Flight]>,
    /// Unused indices into `flights`.
    free: Vec<u32>,
    /// Operations that were pushed and not yet submitted to the kernel.
    pushed: u32,
    /// Maximum operations in the kernel since the last [`Self::take_most_in_flight`].
    most_in_flight: u32,
    /// True if the last poll found nothing and submitted nothing.
    found_nothing: bool,
    /// True once the ring is enabled. Enabling binds the ring to one thread.
    enabled: bool,
    batch: u32,
    granted: RingFeatures,
}

impl<F: AsFd> std::fmt::Debug for Ring<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("granted", &self.granted)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

impl<F: AsFd> Ring<F> {
    /// Opens a ring over an arena. At [`Level::SingleIssuer`] or better, only the first thread that posts may use the
    /// ring from then on; other threads get an error.
    ///
    /// # Errors
    /// Why this kernel refuses a ring, and how to get one.
    pub fn new(arena: Arc<Arena>, config: &Config) -> Result<Self, Refused> {
        let depth = config.depth.clamp(1, DEPTH_MAX);
        let (ring, level, missing) = setup::open(depth, config.best)?;
        let buffers = if config.fixed_buffers {
            setup::register_buffers(&ring, &arena)
        } else {
            Registered::NotAsked
        };
        let files = setup::register_files(&ring);
        let gathers = ring.params().is_feature_min_timeout();
        let nothing = Flight {
            request: RingRequest {
                file: FileId(0),
                direction: Direction::Read,
                local: 0,
                offset: 0,
                len: 0,
                tag: 0,
            },
            moved: 0,
        };
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            arena: ManuallyDrop::new(arena),
            files: ManuallyDrop::new(Vec::new()),
            flights: vec![nothing; depth as usize].into_boxed_slice(),
            free: (0..depth).rev().collect(),
            pushed: 0,
            most_in_flight: 0,
            found_nothing: false,
            enabled: level > Level::SingleIssuer,
            batch: config.batch.max(1),
            granted: RingFeatures {
                level,
                missing,
                buffers,
                files,
                gathers,
            },
        })
    }

    /// Returns the features that the kernel granted.
    pub fn granted(&self) -> &RingFeatures {
        &self.granted
    }

    /// Number of operations that were posted and have not ended.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.flights.len() as u32 - self.free.len() as u32
    }

    /// Returns the maximum number of operations in the kernel since the last call.
    pub fn take_most_in_flight(&mut self) -> u32 {
        std::mem::take(&mut self.most_in_flight)
    }

    /// Takes ownership of a file, under a number that the caller chooses.
    ///
    /// # Errors
    /// If the number is in use or too large, or the kernel does not register the file.
    pub fn open(&mut self, number: FileId, file: F) -> io::Result<()> {
        let index = number.0 as usize;
        if number.0 >= FILES_MAX || matches!(self.files.get(index), Some(Some(_))) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("file number {index} is in use, or not below {FILES_MAX}"),
            ));
        }
        if self.files.len() <= index {
            self.files.resize_with(index + 1, || None);
        }
        if self.is_registered(index) {
            let descriptor = file.as_fd().as_raw_fd();
            let submitter = self.ring.submitter();
            submitter.register_files_update(number.0, &[descriptor])?;
        }
        self.files[index] = Some(OpenFile { file, in_flight: 0 });
        Ok(())
    }

    /// Returns a file to the caller, who closes it.
    ///
    /// # Errors
    /// If operations on the file are in flight, or the file does not exist.
    pub fn release(&mut self, number: FileId) -> io::Result<F> {
        let index = number.0 as usize;
        let no_file = || io::Error::from_raw_os_error(libc::EBADF);
        let entry = self.files.get(index).and_then(Option::as_ref);
        let in_flight = entry.ok_or_else(no_file)?.in_flight;
        if in_flight > 0 {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("{in_flight} operations on the file are in flight"),
            ));
        }
        if self.is_registered(index) {
            let submitter = self.ring.submitter();
            submitter.register_files_update(number.0, &[-1])?;
        }
        let entry = self.files.get_mut(index).and_then(Option::take);
        entry.map(|entry| entry.file).ok_or_else(no_file)
    }

    /// Returns the file with a number, for calls that are not operations.
    #[inline]
    pub fn file(&self, number: FileId) -> Option<&F> {
        let entry = self.files.get(number.0 as usize)?.as_ref();
        entry.map(|entry| &entry.file)
    }

    /// The memory that operations refer to.
    #[inline]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    fn is_registered(&self, index: usize) -> bool {
        self.granted.files == Registered::Yes && index < setup::FILES as usize
    }

    /// Accepts a request, and returns false if there was no room. Requests are submitted when a batch is complete, or
    /// when there are as many of them as operations in the kernel. At the latest, they are submitted by the next
    /// `wait`, or by the second `poll` in a row that finds nothing.
    ///
    /// # Errors
    /// If the request lies outside the arena, names no file, or the kernel does not accept operations. Only in the last
    /// case is the request in flight nevertheless.
    #[inline]
    pub fn post(&mut self, request: &RingRequest) -> Result<bool, PostError> {
        // Check the range here, so that later pushes of the request or its remainder lie inside the arena.
        let range = self.arena.pointer(request.local, u64::from(request.len));
        range.map_err(PostError::Outside)?;
        let entry = self.files.get_mut(request.file.0 as usize);
        let Some(entry) = entry.and_then(Option::as_mut) else {
            return Err(PostError::NoFile(request.file));
        };
        let Some(index) = self.free.pop() else {
            return Ok(false);
        };
        entry.in_flight += 1;
        self.flights[index as usize] = Flight {
            request: *request,
            moved: 0,
        };
        self.push(index);
        // If the kernel has little work, submit at once, because collecting a batch would only keep the device idle.
        let kernels = self.in_flight() - self.pushed;
        if self.pushed >= self.batch.min(kernels).max(1) {
            self.enter(0).map_err(PostError::Kernel)?;
        }
        Ok(true)
    }

    /// Pushes the remainder of a flight to the submission queue.
    #[inline]
    fn push(&mut self, index: u32) {
        let Some(entry) = self.entry(index) else {
            return;
        };
        // SAFETY: `self.entry` made the entry from a range of the arena and an open file. `self` keeps both until the
        // flight has ended: files with flights are not released, and dropping the ring waits for flights or leaks both.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // The queue has one place per flight, and a flight has at most one entry.
        debug_assert!(pushed.is_ok());
        self.pushed += u32::from(pushed.is_ok());
    }

    /// Makes the kernel's entry for the remainder of a flight.
    #[inline]
    fn entry(&self, index: u32) -> Option<squeue::Entry> {
        let Flight { request, moved } = *self.flights.get(index as usize)?;
        let (local, offset) = (
            request.local + u64::from(moved),
            request.offset.wrapping_add(u64::from(moved)),
        );
        let len = request.len - moved;
        let bytes = self.arena.pointer(local, u64::from(len)).ok()?;
        let number = request.file.0 as usize;
        let file = self.files.get(number)?.as_ref()?;
        // A registered file is named by its index in the table, any other file by its descriptor.
        let (target, flags) = if self.is_registered(number) {
            (Fd(request.file.0 as i32), squeue::Flags::FIXED_FILE)
        } else {
            (Fd(file.file.as_fd().as_raw_fd()), squeue::Flags::empty())
        };
        let entry = match (request.direction, self.buffer_of(local, len)) {
            (Direction::Read, Some(buffer)) => opcode::ReadFixed::new(target, bytes, len, buffer)
                .offset(offset)
                .build(),
            (Direction::Read, None) => opcode::Read::new(target, bytes, len).offset(offset).build(),
            (Direction::Write, Some(buffer)) => opcode::WriteFixed::new(target, bytes, len, buffer)
                .offset(offset)
                .build(),
            (Direction::Write, None) => opcode::Write::new(target, bytes, len)
                .offset(offset)
                .build(),
        };
        Some(entry.flags(flags).user_data(u64::from(index)))
    }

    /// Returns the registered buffer that contains the whole range, if any.
    #[inline]
    fn buffer_of(&self, local: u64, len: u32) -> Option<u16> {
        let first = local / setup::BUFFER_BYTES;
        let last = (local + u64::from(len.max(1)) - 1) / setup::BUFFER_BYTES;
        (self.granted.buffers == Registered::Yes && first == last).then_some(first as u16)
    }

    /// Fills `done` with ended requests and returns their number. Never blocks. If two calls in a row find nothing,
    /// pushed operations are submitted. The first call does not submit, because a caller that waits next submits with
    /// the same system call.
    ///
    /// # Errors
    /// If the kernel does not accept posted operations.
    #[inline]
    pub fn poll(&mut self, done: &mut [Finished]) -> io::Result<usize> {
        let found = self.reap(done);
        if found > 0 || done.is_empty() {
            self.found_nothing = false;
            return Ok(found);
        }
        if !std::mem::replace(&mut self.found_nothing, true) {
            return Ok(0);
        }
        if self.pushed > 0 || self.ring.submission().taskrun() {
            self.enter(0)?;
            return Ok(self.reap(done));
        }
        Ok(0)
    }

    /// Submits pushed operations and sleeps until one has ended. If the kernel supports it (see
    /// [`RingFeatures::gathers`]), the wait then allows [`GATHER`] for more operations to end: up to a batch, or a
    /// quarter of those in flight. A wake-up costs more than an operation. A signal or a long time without completions
    /// ends the wait early.
    ///
    /// # Errors
    /// If the kernel does not accept posted operations.
    #[inline]
    pub fn wait(&mut self) -> io::Result<()> {
        match self.in_flight() {
            0 => Ok(()),
            in_flight => self.enter((in_flight / 4).clamp(1, self.batch)),
        }
    }

    /// Takes ended operations from the completion queue; pushes the remainder of incomplete operations again.
    #[inline]
    fn reap(&mut self, done: &mut [Finished]) -> usize {
        let mut count = 0;
        while count < done.len() {
            let Some(completion) = self.ring.completion().next() else {
                break;
            };
            let index = completion.user_data() as u32;
            let Some(outcome) = self.account(index, completion.result()) else {
                continue;
            };
            let Flight { request, moved } = self.flights[index as usize];
            if let Some(Some(entry)) = self.files.get_mut(request.file.0 as usize) {
                entry.in_flight -= 1;
            }
            // `free` stays within its capacity, because it contains each index at most once.
            self.free.push(index);
            done[count] = Finished {
                tag: request.tag,
                moved,
                outcome,
            };
            count += 1;
        }
        count
    }

    /// Records the kernel's result of a flight; `None` if the flight continues.
    #[inline]
    fn account(&mut self, index: u32, answer: i32) -> Option<RequestOutcome> {
        let flight = self.flights.get_mut(index as usize)?;
        let left = flight.request.len - flight.moved;
        match u32::try_from(answer) {
            Ok(moved) if moved >= left => {
                flight.moved = flight.request.len;
                return Some(RequestOutcome::Whole);
            }
            Ok(0) => {
                return Some(match flight.request.direction {
                    Direction::Read => RequestOutcome::EndOfFile,
                    Direction::Write => RequestOutcome::Failed(libc::ENOSPC),
                });
            }
            Ok(moved) => flight.moved += moved,
            // In direct I/O, a read up to an unaligned end of file has an unaligned remainder, which the kernel
            // rejects.
            Err(_)
                if answer == -libc::EINVAL
                    && flight.moved > 0
                    && flight.request.direction == Direction::Read =>
            {
                return Some(RequestOutcome::EndOfFile);
            }
            Err(_) if answer == -libc::EINTR || answer == -libc::EAGAIN => {}
            Err(_) => return Some(RequestOutcome::Failed(answer.wrapping_neg())),
        }
        self.push(index);
        None
    }

    /// Makes one call of io_uring_enter: submits pushed operations, and waits for `wanted` completions.
    fn enter(&mut self, wanted: u32) -> io::Result<()> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        self.found_nothing = false;
        let result = if wanted > 1 && self.granted.gathers {
            let (gather, timeout) = (GATHER.as_micros() as u32, Timespec::from(WAIT_MAX));
            let args = SubmitArgs::new().min_wait_usec(gather).timespec(&timeout);
            let submitter = self.ring.submitter();
            submitter.submit_with_args(wanted as usize, &args)
        } else {
            self.ring.submit_and_wait(wanted.min(1) as usize)
        };
        self.pushed = self.ring.submission().len() as u32;
        // Updating this once per system call is cheap, because the call costs a thousand times as much.
        self.most_in_flight = self.most_in_flight.max(self.in_flight() - self.pushed);
        match result {
            Ok(_) => Ok(()),
            // A signal, a timeout, or a kernel that first needs completions to be taken or memory to be freed: the
            // caller polls and tries again.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the ring belongs to the thread that used it first",
            )),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
