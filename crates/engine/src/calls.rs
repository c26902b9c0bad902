//! The second kind of engine: engines that work on files. Opening, syncing and closing block, and so do the reads and
//! writes of most of them; what can have several in flight offers a [`Queue`] for those.
//!
//! A [`FileDomain`] is one engine as a rank uses it for one point, a [`Calls`] is what one thread of the rank owns.
//! The loops in `tonnage_bench::kinds::files` know only these, and say which bytes go where.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tonnage_sys::mapping::Arena;

use tonnage_units::Result;

use crate::{
    Completion, EngineOption, EngineOptions, EngineReport, Facts, Lane, Libraries, Library,
    Lifecycle, Op,
};

/// One row of the list of engines for files (`tonnage_engines::FILE_ENGINES`).
pub struct FileEntry {
    /// The name that `--engine` takes.
    pub name: &'static str,
    /// One line for `--help` and `tonnage devices`.
    pub about: &'static str,
    /// Options of its own, which `--engine-option NAME=VALUE` sets.
    pub options: &'static [EngineOption],
    /// True when it can have several transfers in flight, so that `--window` means something.
    pub queues: bool,
    /// True when several threads of a rank can use it at once.
    pub threads: bool,
    /// True when all ranks can make one call together (`--collective`), each through its own view (`--file-view`), and
    /// hints mean something.
    pub collective: bool,
    /// True when it can leave the page cache out (`--direct`).
    pub direct: bool,
    /// Libraries that it loads at run time and that `--library NAME=PATH` can choose.
    pub libraries: &'static [Library],
    /// Start and end of a library that lives as long as its process.
    pub lifecycle: Lifecycle,
    /// Opens it on this rank for one point. Called by all ranks alike, on the main thread.
    pub open: fn(&OpenFiles<'_>) -> Result<Arc<dyn FileDomain>>,
}

/// Arguments for opening an engine for files on one rank.
#[derive(Debug, Clone)]
pub struct OpenFiles<'a> {
    /// Use that will be made of it, checked against the entry.
    pub usage: &'a FileUse,
    /// This rank.
    pub rank: u32,
    /// `--library`: files to load instead of those that the engine finds.
    pub libraries: &'a Libraries,
}

tonnage_units::names! {
    /// Ranks that share a file.
    pub enum FileLayout: "layout" {
        /// One file for all ranks: segment after segment, in each of them a block of every rank.
        Shared = "shared",
        /// A file for each rank, named after it.
        PerProcess = "per-process",
    }
}

tonnage_units::names! {
    /// Order of a rank's transfers.
    pub enum FileOrder: "order" {
        /// From the beginning to the end.
        Sequential = "sequential",
        /// By a seeded permutation: every transfer once, each rank as many as any other.
        Shuffled = "shuffled",
    }
}

tonnage_units::names! {
    /// Choice of when written data is forced to stable storage.
    pub enum Fsync: "fsync" {
        /// Once, after the last write of a phase and before the file is closed.
        End = "end",
        /// After each write.
        Each = "each",
        /// Never.
        None = "none",
    }
}

/// Use of an engine for files: all that opening it may depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUse {
    /// Options that differ from the defaults; checked against [`FileEntry::options`].
    pub options: EngineOptions,
    /// Hints for the engine's library by name.
    pub hints: BTreeMap<String, String>,
    /// Ranks of the run; all of them take part.
    pub ranks: u32,
    /// Threads of each rank that make transfers.
    pub threads: u32,
    /// Transfers in flight for each thread.
    pub window: u32,
    /// One file for all ranks, or one for each.
    pub layout: FileLayout,
    /// Order of a rank's transfers.
    pub order: FileOrder,
    /// Choice of when written data is forced to stable storage.
    pub fsync: Fsync,
    /// True to leave the page cache out.
    pub direct: bool,
    /// All ranks make each transfer together.
    pub collective: bool,
    /// Each rank sees only its own parts of the shared file.
    pub file_view: bool,
    /// A stonewall may end a phase before its last transfer.
    pub stonewalled: bool,
    /// Bytes that one rank moves in one phase that nothing cuts short.
    pub bytes_of_rank: u64,
}

/// An engine for files as one rank uses it for one point.
pub trait FileDomain: Send + Sync {
    /// The real choices (library, version, flags, …), for the record.
    fn report(&self) -> EngineReport;
    /// Makes the part that one thread of the rank owns. `memory` holds all bytes that its transfers will name; it is
    /// page-aligned and lives as long as the `Arc`. Thread 0 is the rank's main thread.
    ///
    /// # Errors
    /// When queues or registrations cannot be made.
    fn thread(&self, thread: u32, memory: Arc<Arena>) -> Result<Box<dyn Calls>>;
}

/// A file to open, and the way to open it.
#[derive(Debug, Clone, Copy)]
pub struct OpenFile<'a> {
    /// The number by which the other calls name it, from 0; the caller chooses it.
    pub file: u32,
    /// Path of the file.
    pub path: &'a Path,
    /// True when it will be read.
    pub read: bool,
    /// True when it will be written.
    pub write: bool,
    /// True to make it: then anything that has its name already is an error (`O_EXCL`). Otherwise it must be there, be a
    /// regular file and not be reached through a link. It is never truncated here.
    pub create: bool,
    /// True when all ranks open this very file together.
    pub shared: bool,
    /// The only parts of the file that this rank will name, with `--file-view`.
    pub view: Option<View>,
}

/// Parts of a file at equal distances. Transfers name offsets in the file all the same; an engine that hands views on
/// computes those in the view by [`View::offset_in`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Offset of the first part.
    pub begin: u64,
    /// Bytes of each part.
    pub block_bytes: u64,
    /// Distance from the begin of one part to that of the next.
    pub stride_bytes: u64,
}

impl View {
    /// Returns the offset of a byte of the file in the view, counting only what the view shows; the byte must be in it.
    pub fn offset_in(&self, offset: u64) -> u64 {
        let from_begin = offset - self.begin;
        from_begin / self.stride_bytes * self.block_bytes + from_begin % self.stride_bytes
    }
}

/// One read or write of `len` bytes. All of them are moved, or the call fails.
#[derive(Debug, Clone, Copy)]
pub struct FileTransfer {
    /// An open file.
    pub file: u32,
    /// Offset of the bytes in the thread's memory.
    pub local: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// A call that blocks until it is done.
#[derive(Debug, Clone, Copy)]
pub enum Call<'a> {
    /// Opens a file; how long it takes is reported.
    Open(OpenFile<'a>),
    /// Reads from a file into memory. With `--collective` all ranks make it together.
    Read(FileTransfer),
    /// Writes from memory to a file. With `--collective` all ranks make it together.
    Write(FileTransfer),
    /// Returns when everything written to the file is on stable storage.
    Sync {
        /// An open file.
        file: u32,
    },
    /// Closes a file.
    Close {
        /// An open file.
        file: u32,
    },
}

/// Calls of one thread: its open files.
pub trait Calls: Send {
    /// Carries out one call and returns the bytes that it moved, 0 for those that move none. Reads and writes allocate
    /// nothing and take no lock.
    ///
    /// # Errors
    /// What failed, with the file's path and the offset; the caller adds the rank.
    fn call(&mut self, call: &Call<'_>) -> Result<u64>;
    /// Device and inode of a file that is open; `None` where the engine does not know them, or has no such file.
    fn identity(&self, file: u32) -> Option<(u64, u64)> {
        let _ = file;
        None
    }
    /// For reads and writes that do not block; engines with [`FileEntry::queues`] have one.
    fn queue(&mut self) -> Option<&mut dyn Queue> {
        None
    }
    /// Choices that the engine made by itself while it ran, and hints that were taken, for the record.
    fn chosen(&self) -> Facts {
        Facts::default()
    }
}

/// Reads and writes with several in flight: the post and poll of an [`super::Engine`], without peers.
pub trait Queue {
    /// Takes transfers in order and returns how many; fewer than all means "wait, then try again". `op.lane` is
    /// [`lane_of`] the file, `op.local` an offset in the thread's memory, `op.remote` one in the file.
    ///
    /// # Errors
    /// When the queue is dead, or a range lies outside the memory.
    fn post(&mut self, ops: &[Op]) -> Result<usize>;
    /// Fills `done` with completions and returns how many. Never blocks. `len` is what was moved: all of it, or the
    /// ending is `Failed` with the error number (`libc::EIO`, …; 0 for the end of the file).
    ///
    /// # Errors
    /// When the queue is dead.
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize>;
    /// Sleeps until something can be polled; returns at once when nothing is in flight.
    ///
    /// # Errors
    /// When the queue is dead.
    fn wait(&mut self) -> Result<()>;
    /// The most transfers that were really in flight since this was asked last: handed over, and not taken back.
    fn take_most_in_flight(&mut self) -> u32;
}

/// The lane of a queue's operations on a file.
pub fn lane_of(file: u32, write: bool) -> Lane {
    Lane(file << 1 | u32::from(write))
}

/// The reverse of [`lane_of`]: the file, and whether it is written.
pub fn file_of(lane: Lane) -> (u32, bool) {
    (lane.0 >> 1, lane.0 & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_counts_only_what_it_shows() {
        let view = View {
            begin: 10,
            block_bytes: 10,
            stride_bytes: 30,
        };
        let offsets = [10, 19, 40, 73].map(|offset| view.offset_in(offset));
        assert_eq!(offsets, [0, 9, 10, 23]);
    }

    #[test]
    fn a_lane_holds_file_and_direction() {
        for (file, write) in [(0, false), (0, true), (7, false), (0x7fff_ffff, true)] {
            assert_eq!(file_of(lane_of(file, write)), (file, write));
        }
    }
}
