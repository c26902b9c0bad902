//! Contract for file engines. Opening, syncing and closing block; in most engines, so do reads and writes. An engine
//! that can keep several transfers in flight offers a [`FileQueue`].
//!
//! A [`FileDomain`] is one engine, opened by a rank for one point. A [`FileCalls`] belongs to one thread of the rank.
//! The loops in `tonnage_loops::files` know only these types, and decide which bytes are read or written.

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
    /// One line for `--help` and `tonnage engines`.
    pub about: &'static str,
    /// The engine's own options, set by `--engine-option NAME=VALUE`.
    pub options: &'static [EngineOption],
    /// True if the engine can keep several transfers in flight, so that `--depth` has an effect.
    pub queues: bool,
    /// True if several threads of a rank can use the engine at once.
    pub threads: bool,
    /// True if the engine supports collective calls of all ranks (`--collective`), file views (`--file-view`) and
    /// hints.
    pub collective: bool,
    /// True if the engine can bypass the page cache (`--direct`).
    pub direct: bool,
    /// Libraries that the engine loads at run time and that `--library NAME=PATH` can choose.
    pub libraries: &'static [Library],
    /// Hooks for a library with process-wide state.
    pub lifecycle: Lifecycle,
    /// Opens the engine on this rank for one point. All ranks call this on their main thread.
    pub open: fn(&OpenFiles<'_>) -> Result<Arc<dyn FileDomain>>,
}

/// Arguments for opening an engine for files on one rank.
#[derive(Debug, Clone)]
pub struct OpenFiles<'a> {
    /// Intended use, already checked against the engine's list row.
    pub usage: &'a FileUse,
    /// This rank.
    pub rank: u32,
    /// `--library`: files to load instead of the ones that the engine would find.
    pub libraries: &'a Libraries,
}

tonnage_units::names! {
    /// Whether ranks share a file.
    pub enum FileLayout: "layout" {
        /// One file for all ranks: segment after segment, each with a block of every rank.
        Shared = "shared",
        /// One file per rank, named after the rank.
        PerProcess = "per-process",
    }
}

tonnage_units::names! {
    /// Order of a rank's transfers.
    pub enum FileOrder: "order" {
        /// From beginning to end.
        Sequential = "sequential",
        /// In a seeded random order: every transfer once, the same number for each rank.
        Shuffled = "shuffled",
    }
}

tonnage_units::names! {
    /// When written data is forced to stable storage.
    pub enum Fsync: "fsync" {
        /// Once, after the last write of a phase and before the file is closed.
        End = "end",
        /// After each write.
        Each = "each",
        /// Never.
        None = "none",
    }
}

/// Intended use of an engine for files: everything that opening it may depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUse {
    /// Options that differ from the defaults; checked against [`FileEntry::options`].
    pub options: EngineOptions,
    /// Hints for the engine's library, by name.
    pub hints: BTreeMap<String, String>,
    /// Ranks of the run; all of them take part.
    pub ranks: u32,
    /// Threads of each rank that make transfers.
    pub threads: u32,
    /// Transfers in flight for each thread.
    pub depth: u32,
    /// One file for all ranks, or one per rank.
    pub layout: FileLayout,
    /// Order of a rank's transfers.
    pub order: FileOrder,
    /// When written data is forced to stable storage.
    pub fsync: Fsync,
    /// True to bypass the page cache.
    pub direct: bool,
    /// True if all ranks make each transfer together.
    pub collective: bool,
    /// True if each rank sees only its own parts of the shared file.
    pub file_view: bool,
    /// True if a stonewall may end a phase early, before its last transfer.
    pub stonewalled: bool,
    /// Bytes that one rank moves in a complete phase.
    pub bytes_of_rank: u64,
}

/// A file engine, opened by one rank for one point.
pub trait FileDomain: Send + Sync {
    /// The library, version, flags and other choices in use, for the record.
    fn report(&self) -> EngineReport;
    /// Creates the part that one thread of the rank owns. `memory` is page-aligned and holds the source or destination
    /// of every transfer. Thread 0 is the rank's main thread.
    ///
    /// # Errors
    /// If queues or registrations cannot be made.
    fn thread(&self, thread: u32, memory: Arc<Arena>) -> Result<Box<dyn FileCalls>>;
}

/// A file to open, and how to open it.
#[derive(Debug, Clone, Copy)]
pub struct OpenFile<'a> {
    /// The number by which later calls refer to the file. The caller chooses it, counting from 0.
    pub file: u32,
    /// Path of the file.
    pub path: &'a Path,
    /// True if the file will be read.
    pub read: bool,
    /// True if the file will be written.
    pub write: bool,
    /// True to create the file; a file that already exists is then an error (`O_EXCL`). Otherwise the file must exist,
    /// be a regular file, and not be a symbolic link. Opening never truncates a file.
    pub create: bool,
    /// True if all ranks open this file together.
    pub shared: bool,
    /// The only parts of the file that this rank will access, with `--file-view`.
    pub view: Option<FileView>,
}

/// Equally spaced parts of a file. Transfers always use offsets in the file. If the engine's library expects offsets in
/// the view, the engine converts them with [`FileView::offset_in`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileView {
    /// Offset of the first part.
    pub begin: u64,
    /// Bytes of each part.
    pub block_bytes: u64,
    /// Distance from the start of one part to the start of the next.
    pub stride_bytes: u64,
}

impl FileView {
    /// Converts an offset in the file to an offset in the view, in which hidden bytes do not count. The byte must be
    /// visible.
    pub fn offset_in(&self, offset: u64) -> u64 {
        let from_begin = offset - self.begin;
        from_begin / self.stride_bytes * self.block_bytes + from_begin % self.stride_bytes
    }
}

/// One read or write. It moves all `len` bytes, or fails.
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

/// A call that blocks until the operation is complete.
#[derive(Debug, Clone, Copy)]
pub enum FileCall<'a> {
    /// Opens a file.
    Open(OpenFile<'a>),
    /// Reads from a file into memory. With `--collective`, all ranks make the call together.
    Read(FileTransfer),
    /// Writes from memory to a file. With `--collective`, all ranks make the call together.
    Write(FileTransfer),
    /// Waits until everything written to the file is on stable storage.
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

/// File calls of one thread, which owns its open files.
pub trait FileCalls: Send {
    /// Executes one call and returns the number of bytes moved, which is 0 for open, sync and close. Reads and writes
    /// do not allocate memory or take locks.
    ///
    /// # Errors
    /// The failure, with the file's path and the offset; the caller adds the rank.
    fn call(&mut self, call: &FileCall<'_>) -> Result<u64>;
    /// Device and inode of an open file; `None` if the engine cannot report them, or `file` is not open.
    fn identity(&self, file: u32) -> Option<(u64, u64)> {
        let _ = file;
        None
    }
    /// The queue for reads and writes that do not block; present if [`FileEntry::queues`] is set.
    fn queue(&mut self) -> Option<&mut dyn FileQueue> {
        None
    }
    /// For the record: choices that the engine made while it ran, and hints that took effect.
    fn chosen(&self) -> Facts {
        Facts::default()
    }
}

/// Several reads and writes in flight: like `post` and `poll` of an [`Engine`](crate::Engine), but without peers.
pub trait FileQueue {
    /// Takes operations in order and returns the number taken. If it took only some of them, wait and post the
    /// remaining operations again. `op.lane` is [`lane_of`] the file, `op.local` is an offset in the thread's memory,
    /// and `op.remote` an offset in the file.
    ///
    /// # Errors
    /// If the queue is dead, or a range lies outside the memory.
    fn post(&mut self, ops: &[Op]) -> Result<usize>;
    /// Fills `done` with completions and returns their number; never blocks. An operation that is `Done` has moved all
    /// of its `len` bytes. Any other operation ends as `Failed`, with an error number such as `libc::EIO`. The number
    /// is 0 if the file ended early.
    ///
    /// # Errors
    /// If the queue is dead.
    fn poll(&mut self, done: &mut [Completion]) -> Result<usize>;
    /// Sleeps until something can be polled; returns at once if nothing is in flight.
    ///
    /// # Errors
    /// If the queue is dead.
    fn wait(&mut self) -> Result<()>;
    /// Returns the largest number of transfers in flight since the last call of this function.
    fn take_most_in_flight(&mut self) -> u32;
}

/// Returns the lane of a queue's operations on a file.
pub fn lane_of(file: u32, write: bool) -> Lane {
    Lane(file << 1 | u32::from(write))
}

/// The inverse of [`lane_of`]: returns the file, and whether it is written.
pub fn file_of(lane: Lane) -> (u32, bool) {
    (lane.0 >> 1, lane.0 & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_counts_only_what_it_shows() {
        let view = FileView {
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
