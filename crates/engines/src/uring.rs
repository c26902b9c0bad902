//! `uring`: reads and writes through io_uring, with up to `depth` in flight. Opening, syncing and closing are blocking
//! calls in `host_file.rs`, which [`crate::posix`] also uses. The ring itself is in `tonnage_sys::uring`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use tonnage_engine::calls::{
    FileCall, FileCalls, FileDomain, FileEntry, FileQueue, FileTransfer, OpenFile, OpenFiles,
    file_of, lane_of,
};
use tonnage_engine::{
    Completion, Ending, EngineOption, EngineReport, Fact, Facts, Lane, Lifecycle, Op,
};
use tonnage_machine::direct::Direct;
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_sys::uring::{
    Config, DEPTH_MAX, Direction, FileId, Finished, GATHER, Level, PostError, Refused, Registered,
    RequestOutcome, Ring, RingFeatures, RingRequest,
};
use tonnage_units::{Error, Result};

use crate::host_file::{ACCESS_TIME, HostFile, OpenMode, direct_facts};

/// This engine's row in the list of file engines.
pub const ENTRY: FileEntry = FileEntry {
    name: "uring",
    about: "io_uring: many reads and writes in flight, few system calls",
    options: &OPTIONS,
    queues: true,
    threads: true,
    collective: false,
    direct: true,
    libraries: &[],
    lifecycle: Lifecycle::NONE,
    open,
};

const FIXED_BUFFERS: &str = "fixed-buffers";
const SUBMIT_BATCH: &str = "submit-batch";

static OPTIONS: [EngineOption; 3] = [
    ACCESS_TIME,
    EngineOption::choice(
        FIXED_BUFFERS,
        &["on", "off"],
        "registers the memory once, so that the kernel does not look up its pages for each transfer",
    ),
    EngineOption::bounded(
        SUBMIT_BATCH,
        8,
        [1, 32],
        "transfers that are submitted and waited for together; 1 is exact, more are cheaper",
    ),
];

/// Maximum size of one operation of a blocking transfer. Longer transfers are split.
const PIECE_BYTES: u64 = 1 << 30;

/// Maximum number of completions taken from the ring in one poll.
const TAKEN: usize = 64;

fn open(request: &OpenFiles<'_>) -> Result<Arc<dyn FileDomain>> {
    let usage = request.usage;
    if usage.depth > DEPTH_MAX {
        return Err(Error::Usage(format!(
            "depth {}: engine uring has at most {DEPTH_MAX} transfers in flight",
            usage.depth
        )));
    }
    let options = &usage.options;
    let asked = |name: &str| options.get(name).map(String::as_str);
    let config = Config {
        depth: usage.depth.max(1),
        batch: OPTIONS[2].number(options) as u32,
        fixed_buffers: asked(FIXED_BUFFERS) != Some("off"),
        // The best features bind a ring to one thread. They are not used with several threads, because all threads
        // except the first live for only one phase.
        best: if usage.threads > 1 {
            Level::Cooperative
        } else {
            Level::Deferred
        },
    };
    UringDomain::new(config, OpenMode::from_use(usage))
        .map(|domain| Arc::new(domain) as Arc<dyn FileDomain>)
}

/// Returns the error for a kernel that provides no ring, with advice.
fn unavailable(refused: Refused) -> Error {
    Error::Unavailable {
        what: "engine uring".into(),
        why: refused.why,
        how: refused.how,
    }
}

/// Returns the reason why this host has no io_uring, with advice; `None` if it has.
pub fn why_missing() -> Option<String> {
    let config = Config {
        depth: 1,
        batch: 1,
        fixed_buffers: false,
        best: Level::Cooperative,
    };
    let how = OpenMode {
        direct: false,
        access_time: false,
    };
    match UringDomain::new(config, how) {
        Err(Error::Unavailable { why, how, .. }) => Some(format!("{why}. {how}")),
        Err(other) => Some(other.to_string()),
        Ok(_) => None,
    }
}

struct UringDomain {
    config: Config,
    how: OpenMode,
    /// Features that the kernel granted to the trial ring.
    granted: RingFeatures,
}

impl UringDomain {
    /// Opens a trial ring. If this host has no io_uring, the point is skipped here, before any file is created.
    fn new(config: Config, how: OpenMode) -> Result<Self> {
        let arena = Arena::allocate(1, Pages::Normal, Sharing::Private, None)
            .map_err(|error| Error::io("cannot map a page for a first ring", error))?;
        let ring = Ring::<HostFile>::new(Arc::new(arena), &config).map_err(unavailable)?;
        Ok(Self {
            config,
            how,
            granted: ring.granted().clone(),
        })
    }

    fn uring(&self, memory: Arc<Arena>) -> Result<Uring> {
        Ok(Uring {
            ring: Ring::new(memory, &self.config).map_err(unavailable)?,
            how: self.how,
            access_time: false,
            piece_bytes: PIECE_BYTES,
            aligned: None,
            finished: [Finished::EMPTY; TAKEN],
        })
    }
}

impl FileDomain for UringDomain {
    fn report(&self) -> EngineReport {
        let RingFeatures { level, missing, .. } = &self.granted;
        // With a batch of one, a wait does not gather: it ends after one operation.
        let gathers = self.granted.gathers && self.config.batch > 1;
        let gather_us = if gathers {
            GATHER.as_micros() as u64
        } else {
            0
        };
        let refused = (!missing.is_empty()).then(|| missing.clone());
        EngineReport {
            name: "uring".to_owned(),
            facts: Facts::default()
                .with_fact("direct", self.how.direct)
                .with_fact("depth", self.config.depth)
                .with_fact("submit_batch", self.config.batch)
                .with_fact("gather_us", gather_us)
                .with_fact("flags", level.flags().to_vec())
                .with_optional_fact("flags_refused", refused),
            ..EngineReport::default()
        }
    }

    fn thread(&self, _thread: u32, memory: Arc<Arena>) -> Result<Box<dyn FileCalls>> {
        Ok(Box::new(self.uring(memory)?))
    }
}

struct Uring {
    ring: Ring<HostFile>,
    how: OpenMode,
    /// [`PIECE_BYTES`]; less in tests.
    piece_bytes: u64,
    /// Alignment rules of the last file opened with direct I/O, for the record.
    aligned: Option<Direct>,
    /// Whether reads may have changed the time of last access of any file.
    access_time: bool,
    /// Buffer for completions taken from the ring.
    finished: [Finished; TAKEN],
}

impl AsFd for HostFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

#[cold]
fn not_open(number: u32) -> Error {
    Error::Failed(format!("file {number} is not open"))
}

#[cold]
fn dead(error: &io::Error) -> Error {
    Error::Failed(format!("io_uring accepts no operations: {error}"))
}

impl Uring {
    fn open(&mut self, request: &OpenFile<'_>) -> Result<()> {
        let file = HostFile::open(request, self.how)?;
        self.access_time |= file.access_time();
        self.aligned = file.direct().or(self.aligned);
        let taken = self.ring.open(FileId(request.file), file);
        let what = || format!("cannot add {} to io_uring", request.path.display());
        taken.map_err(|error| Error::io(what(), error))
    }

    fn file(&self, number: u32) -> Result<&HostFile> {
        self.ring
            .file(FileId(number))
            .ok_or_else(|| not_open(number))
    }

    fn close(&mut self, number: u32) -> Result<()> {
        self.file(number)?;
        let released = self.ring.release(FileId(number));
        let what = || format!("cannot remove file {number} from io_uring");
        released.map_err(|error| Error::io(what(), error))?.close()
    }

    /// Checks an operation against the alignment rules of its file, and posts it to the ring. Returns false if the ring
    /// is full.
    #[inline]
    fn give(&mut self, op: &Op) -> Result<bool> {
        let (number, write) = file_of(op.lane);
        let file = self.ring.file(FileId(number));
        let file = file.ok_or_else(|| not_open(number))?;
        let address = self.ring.arena().address().wrapping_add(op.local);
        file.check(address, op.remote, u64::from(op.len))?;
        let request = RingRequest {
            file: FileId(number),
            direction: if write {
                Direction::Write
            } else {
                Direction::Read
            },
            local: op.local,
            offset: op.remote,
            len: op.len,
            tag: u64::from(op.lane.0) << 32 | u64::from(op.tag),
        };
        self.ring.post(&request).map_err(|error| match error {
            PostError::Kernel(error) => dead(&error),
            other => Error::Failed(format!("invalid transfer: {other}")),
        })
    }

    /// Makes one blocking transfer. Nothing else may be in flight.
    fn transfer(&mut self, transfer: &FileTransfer, write: bool) -> Result<u64> {
        if self.ring.in_flight() > 0 {
            return Err(Error::Failed(format!(
                "a blocking transfer was requested while {} are in flight",
                self.ring.in_flight()
            )));
        }
        let mut done = 0;
        while done < transfer.len {
            let piece = (transfer.len - done).min(self.piece_bytes);
            let op = Op {
                lane: lane_of(transfer.file, write),
                tag: 0,
                local: transfer.local + done,
                remote: transfer.offset + done,
                len: piece as u32,
                imm: 0,
            };
            self.give(&op)?;
            done += u64::from(self.finish_one(transfer, done, write)?);
        }
        Ok(done)
    }

    /// Waits for the only operation in flight. Its piece of the transfer starts at `begin`.
    fn finish_one(&mut self, transfer: &FileTransfer, begin: u64, write: bool) -> Result<u32> {
        let mut finished = [Finished::EMPTY; 1];
        // Waiting also submits the operation, so one system call does both.
        while self.ring.in_flight() > 0 {
            self.ring.wait().map_err(|error| dead(&error))?;
            self.ring
                .poll(&mut finished)
                .map_err(|error| dead(&error))?;
        }
        let [Finished { moved, outcome, .. }] = finished;
        let file = self.file(transfer.file)?;
        let end = transfer.offset + begin + u64::from(moved);
        let left = transfer.len - begin - u64::from(moved);
        match outcome {
            RequestOutcome::Whole => Ok(moved),
            RequestOutcome::EndOfFile => Err(file.ended(transfer.offset, transfer.len, end)),
            RequestOutcome::Failed(code) => {
                Err(file.failed(write, end, left, io::Error::from_raw_os_error(code)))
            }
        }
    }
}

impl FileQueue for Uring {
    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        for (taken, op) in ops.iter().enumerate() {
            if !self.give(op)? {
                return Ok(taken);
            }
        }
        Ok(ops.len())
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        let room = done.len().min(TAKEN);
        let finished = &mut self.finished[..room];
        let count = self.ring.poll(finished).map_err(|error| dead(&error))?;
        for (slot, finished) in done.iter_mut().zip(&finished[..count]) {
            *slot = Completion {
                tag: finished.tag as u32,
                lane: Lane((finished.tag >> 32) as u32),
                len: finished.moved,
                imm: 0,
                ending: match finished.outcome {
                    RequestOutcome::Whole => Ending::Done,
                    RequestOutcome::EndOfFile => Ending::Failed(0),
                    RequestOutcome::Failed(code) => Ending::Failed(code),
                },
            };
        }
        Ok(count)
    }

    fn wait(&mut self) -> Result<()> {
        self.ring.wait().map_err(|error| dead(&error))
    }

    fn take_most_in_flight(&mut self) -> u32 {
        self.ring.take_most_in_flight()
    }
}

impl FileCalls for Uring {
    fn call(&mut self, call: &FileCall<'_>) -> Result<u64> {
        match call {
            FileCall::Read(transfer) => self.transfer(transfer, false),
            FileCall::Write(transfer) => self.transfer(transfer, true),
            FileCall::Open(request) => self.open(request).map(|()| 0),
            FileCall::Sync { file } => self.file(*file)?.sync().map(|()| 0),
            FileCall::Close { file } => self.close(*file).map(|()| 0),
        }
    }

    fn identity(&self, file: u32) -> Option<(u64, u64)> {
        self.file(file).ok()?.identity()
    }

    fn queue(&mut self) -> Option<&mut dyn FileQueue> {
        Some(self)
    }

    /// Returns facts about the registered buffers and files, for the record.
    fn chosen(&self) -> Facts {
        let RingFeatures { buffers, files, .. } = self.ring.granted();
        let told = |registered: &Registered| match registered {
            Registered::Yes => Fact::Flag(true),
            Registered::NotAsked => Fact::Flag(false),
            Registered::Refused(why) => Fact::Text(format!("refused: {why}")),
        };
        Facts::default()
            .with_fact("fixed_buffers", told(buffers))
            .with_fact("fixed_files", told(files))
            .with_fact("atime", if self.access_time { "on" } else { "off" })
            .with_optional_fact("direct", self.aligned.map(direct_facts))
    }
}

#[cfg(test)]
mod tests;
