//! [`Ring`]: reads and writes of files through io_uring, many in flight at a time.
//!
//! A ring belongs to one [`Arena`] and owns the files that it was given; operations name both by offsets, which are
//! checked. What is in flight keeps both alive: a ring that is dropped first waits for the kernel to be done with them.
//! Opening files, and the meaning of operations to a measurement, belong to the engine (`tonnage_engines::uring`).
//! Setting up a ring is in `setup.rs`, ending it in `end.rs`.

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

/// The most operations that a ring can have in flight.
pub const DEPTH_MAX: u32 = 32_768;

/// Numbers of files are below this.
pub const FILES_MAX: u32 = 1 << 16;

/// Time that a wait gives further operations to end, once it could be over. The latency of an operation is reported too
/// long by at most this.
pub const GATHER: Duration = Duration::from_micros(50);

/// After this time a wait ends though nothing has.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Configuration of a ring.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Operations that may be in flight, 1 to [`DEPTH_MAX`].
    pub depth: u32,
    /// Number of operations that gather before `post` hands them to the kernel, and `wait` gives time to end together;
    /// 1 hands over each at once and waits for one.
    pub batch: u32,
    /// True to register the arena.
    pub fixed_buffers: bool,
    /// The best level to try.
    pub best: Level,
}

/// Properties that the kernel granted, for the record.
#[derive(Debug, Clone)]
pub struct RingFeatures {
    /// Level at which the ring is set up.
    pub level: Level,
    /// The levels above it, each with the kernel's reason.
    pub missing: Vec<String>,
    /// Registration of the arena.
    pub buffers: Registered,
    /// Registration of files.
    pub files: Registered,
    /// True when a wait can give several operations a moment to end together (Linux 6.12).
    pub gathers: bool,
}

/// An operation that is in flight, and how much of it is done.
#[derive(Debug, Clone, Copy)]
struct Flight {
    request: RingRequest,
    moved: u32,
}

struct OpenFile<F> {
    file: F,
    in_flight: u32,
}

/// One submission and one completion queue. See the module's head.
pub struct Ring<F: AsFd> {
    /// Dropped by hand, because it has to go before the arena and only if nothing is in flight.
    ring: ManuallyDrop<IoUring>,
    arena: ManuallyDrop<Arc<Arena>>,
    files: ManuallyDrop<Vec<Option<OpenFile<F>>>>,
    flights: Box<[Flight]>,
    /// Indices into `flights` that are not in use.
    free: Vec<u32>,
    /// Operations that were pushed and not yet handed to the kernel.
    pushed: u32,
    /// The most operations that the kernel had since this was asked for last.
    most_in_flight: u32,
    /// True when the last poll found nothing and handed nothing over.
    found_nothing: bool,
    /// Set once the thread that uses the ring has made it its own.
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
    /// Opens a ring over an arena. Where the level is [`Level::SingleIssuer`] or better, the first thread that posts is
    /// the only one that may use it from then on; another gets an error.
    ///
    /// # Errors
    /// Why this kernel gives none, and how to get one.
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

    /// Returns the properties that the kernel granted.
    pub fn granted(&self) -> &RingFeatures {
        &self.granted
    }

    /// Operations that were posted and have not ended.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.flights.len() as u32 - self.free.len() as u32
    }

    /// The most operations that had been handed to the kernel and not been taken back, since this was asked last.
    pub fn take_most_in_flight(&mut self) -> u32 {
        std::mem::take(&mut self.most_in_flight)
    }

    /// Takes a file over under a number that the caller chooses.
    ///
    /// # Errors
    /// When the number is in use or too large, or the kernel does not register the file.
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

    /// Gives a file back, to be closed by the caller.
    ///
    /// # Errors
    /// When operations on it are in flight, or there is no such file.
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

    /// The file of a number, for calls that are not operations.
    #[inline]
    pub fn file(&self, number: FileId) -> Option<&F> {
        let entry = self.files.get(number.0 as usize)?.as_ref();
        entry.map(|entry| &entry.file)
    }

    /// The memory that operations name.
    #[inline]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    fn is_registered(&self, index: usize) -> bool {
        self.granted.files == Registered::Yes && index < setup::FILES as usize
    }

    /// Takes a request. It reaches the kernel when a batch has gathered (or as many as the kernel still has, if those
    /// are fewer), and at the latest in the next `wait` or the second `poll` in a row that finds nothing. Returns
    /// whether there was room for it.
    ///
    /// # Errors
    /// When it lies outside the arena, names no file, or the kernel takes nothing more. Only in the last case it is in
    /// flight nevertheless.
    #[inline]
    pub fn post(&mut self, request: &RingRequest) -> Result<bool, PostError> {
        // Checked here, so that what is pushed later, also the rest of it, is known to lie inside.
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
        // A device that has little to do gets more at once: gathering would only keep it waiting.
        let kernels = self.in_flight() - self.pushed;
        if self.pushed >= self.batch.min(kernels).max(1) {
            self.enter(0).map_err(PostError::Kernel)?;
        }
        Ok(true)
    }

    /// Puts what is left of a flight into the submission queue.
    #[inline]
    fn push(&mut self, index: u32) {
        let Some(entry) = self.entry(index) else {
            return;
        };
        // SAFETY: `entry` made it from a range of the arena and an open file. `self` holds both until the flight has
        // ended: files with flights are not released, and dropping the ring waits or leaks them.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // A queue has room for as many entries as there are flights, and a flight has one entry at most.
        debug_assert!(pushed.is_ok());
        self.pushed += u32::from(pushed.is_ok());
    }

    /// The kernel's form of what is left of a flight.
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
        // A registered file is named by its place in the table, any other by its number.
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

    /// The registered buffer that holds a range, if one holds all of it.
    #[inline]
    fn buffer_of(&self, local: u64, len: u32) -> Option<u16> {
        let first = local / setup::BUFFER_BYTES;
        let last = (local + u64::from(len.max(1)) - 1) / setup::BUFFER_BYTES;
        (self.granted.buffers == Registered::Yes && first == last).then_some(first as u16)
    }

    /// Fills `done` with what has ended and returns how many. Never blocks. The second time in a row that nothing has
    /// ended, what is pushed is handed to the kernel: not the first time, because a caller that then waits does it by
    /// the same system call.
    ///
    /// # Errors
    /// When the kernel does not take what was posted.
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

    /// Hands what is pushed to the kernel and sleeps until something has ended. Where the kernel can (see
    /// [`RingFeatures::gathers`]), it gives others [`GATHER`] to end as well, until they are a quarter of what is in
    /// flight or a batch: waking up costs more than an operation. A signal ends it early, and so does a long time
    /// without any.
    ///
    /// # Errors
    /// When the kernel does not take what was posted.
    #[inline]
    pub fn wait(&mut self) -> io::Result<()> {
        match self.in_flight() {
            0 => Ok(()),
            in_flight => self.enter((in_flight / 4).clamp(1, self.batch)),
        }
    }

    /// Takes what has ended from the completion queue; the rest of what ended too soon is pushed again.
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
            // Within its capacity: every index is in it at most once.
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

    /// Notes what the kernel answered to a flight; `None` when it goes on.
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
            // The end of a file that is read directly need not be aligned, and what is left of such a read is not
            // either.
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

    /// One call of io_uring_enter: hands over what is pushed, and waits for completions if `wanted` says so.
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
        // Once for each system call, which costs a thousand times as much.
        self.most_in_flight = self.most_in_flight.max(self.in_flight() - self.pushed);
        match result {
            Ok(_) => Ok(()),
            // A signal, a long time, or a kernel that first wants completions taken or memory freed: the caller polls
            // and tries again.
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
