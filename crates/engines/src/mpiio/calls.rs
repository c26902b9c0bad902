//! Opening files, transfers, syncing and closing, for one rank.

use std::sync::Arc;

use tonnage_engine::Facts;
use tonnage_engine::calls::FileUse;
use tonnage_engine::calls::{FileCall, FileCalls, FileTransfer, FileView, OpenFile};
use tonnage_sys::files::file_system::identity_at;
use tonnage_sys::mapping::Arena;
use tonnage_sys::mpi::{AccessMode, Direction, File, MpiHints, Scope, Together, World};
use tonnage_units::{Error, Result};

use super::hints::EffectiveHints;

/// An open file.
struct Opened {
    file: File,
    view: Option<FileView>,
    /// Device and inode of the regular file that had this name right after MPI opened it.
    identity: (u64, u64),
}

/// The open files of a rank, used only by its main thread.
pub(super) struct MpiFileCalls {
    world: Arc<World>,
    memory: Arc<Arena>,
    together: Together,
    hints: MpiHints,
    preallocate: Option<u64>,
    files: Vec<Option<Opened>>,
    effective_hints: EffectiveHints,
}

/// Limit of file numbers, which callers count from 0. A higher number is a mistake, and must not cost memory.
const FILES_MAX: usize = 1 << 16;

impl MpiFileCalls {
    pub(super) fn new(
        world: Arc<World>,
        usage: &FileUse,
        preallocate: Option<u64>,
        memory: Arc<Arena>,
    ) -> Self {
        Self {
            world,
            memory,
            together: if usage.collective {
                Together::All
            } else {
                Together::Alone
            },
            hints: usage.hints.clone(),
            preallocate,
            files: Vec::new(),
            effective_hints: EffectiveHints::default(),
        }
    }

    fn open(&mut self, what: &OpenFile<'_>) -> Result<()> {
        let number = what.file as usize;
        if number >= FILES_MAX || self.files.get(number).is_some_and(Option::is_some) {
            return Err(Error::Failed(format!(
                "{}: file number {number} cannot be opened: it is in use or too high",
                what.path.display()
            )));
        }
        let failed = |why: String| Error::Failed(format!("{}: {why}", what.path.display()));
        let scope = if what.shared {
            Scope::World
        } else {
            Scope::Alone
        };
        let mode = AccessMode {
            read: what.read,
            write: what.write,
            create: what.create,
        };
        // The path is made absolute, because Open MPI 4.1 cannot read a file without a directory in its name.
        let path = std::path::absolute(what.path)
            .map_err(|error| Error::io(format!("{}", what.path.display()), error))?;
        // MPI follows links, waits for FIFOs, and does not expose its descriptor. So the path is checked before and
        // after MPI opens it. This misses only a file that another user puts there in between.
        let look =
            || identity_at(&path).map_err(|error| failed(format!("{error}. Name a regular file")));
        if !what.create && path.symlink_metadata().is_ok() {
            look()?;
        }
        let file = self
            .world
            .open(&path, scope, mode, &self.hints)
            .map_err(|error| failed(error.into()))?;
        let identity = look()?;
        let prepared = self.prepare(&file, what);
        if self.files.len() <= number {
            self.files.resize_with(number + 1, || None);
        }
        if let Some(place) = self.files.get_mut(number) {
            *place = Some(Opened {
                file,
                view: what.view,
                identity,
            });
        }
        prepared.map_err(failed)
    }

    /// Preallocates a file and sets its view, if requested.
    fn prepare(&mut self, file: &File, what: &OpenFile<'_>) -> Result<(), String> {
        if let (Some(bytes), true) = (self.preallocate, what.write) {
            file.preallocate(bytes)?;
        }
        if let Some(view) = what.view {
            file.see_blocks(view.begin, view.block_bytes, view.stride_bytes)?;
        }
        // The hints are read only once, because reading takes time and all files of a point have the same hints.
        if self.effective_hints.is_unread() {
            self.effective_hints.read(file, self.world.dialect())?;
        }
        Ok(())
    }

    fn opened(&self, file: u32) -> Result<&Opened> {
        let opened = self.files.get(file as usize).and_then(Option::as_ref);
        opened.ok_or_else(|| not_open(file))
    }

    #[inline]
    fn transfer(&self, transfer: &FileTransfer, write: bool) -> Result<u64> {
        let FileTransfer {
            file,
            local,
            offset,
            len,
        } = *transfer;
        let opened = self.opened(file)?;
        let at = match opened.view {
            None => offset,
            Some(view) => within(view, offset, len)
                .ok_or_else(|| failed(opened, transfer, write, "it is outside this rank's view"))?,
        };
        let direction = if write {
            Direction::Write
        } else {
            Direction::Read
        };
        let how = (direction, self.together);
        let moved = opened.file.transfer(how, at, &self.memory, (local, len));
        match moved {
            Ok(moved) if moved == len => Ok(moved),
            Ok(moved) => Err(short(opened, transfer, write, moved)),
            Err(why) => Err(failed(opened, transfer, write, &why.to_string())),
        }
    }

    fn close(&mut self, file: u32) -> Result<()> {
        let opened = self.files.get_mut(file as usize).and_then(Option::take);
        let opened = opened.ok_or_else(|| not_open(file))?;
        let path = opened.file.path().display().to_string();
        let closed = opened.file.close();
        closed.map_err(|why| Error::Failed(format!("{path}: {why}")))
    }
}

impl FileCalls for MpiFileCalls {
    fn call(&mut self, call: &FileCall<'_>) -> Result<u64> {
        match call {
            FileCall::Read(transfer) => self.transfer(transfer, false),
            FileCall::Write(transfer) => self.transfer(transfer, true),
            FileCall::Open(what) => self.open(what).map(|()| 0),
            FileCall::Sync { file } => {
                let opened = self.opened(*file)?;
                let synced = opened.file.sync();
                let path = opened.file.path().display();
                synced
                    .map(|()| 0)
                    .map_err(|why| Error::Failed(format!("{path}: {why}")))
            }
            FileCall::Close { file } => self.close(*file).map(|()| 0),
        }
    }

    fn identity(&self, file: u32) -> Option<(u64, u64)> {
        self.opened(file).ok().map(|opened| opened.identity)
    }

    fn chosen(&self) -> Facts {
        self.effective_hints.describe(&self.hints)
    }
}

/// Returns the offset of the bytes in the view; `None` if they do not lie within one block of the view.
#[inline]
fn within(view: FileView, offset: u64, len: u64) -> Option<u64> {
    let from_begin = offset.checked_sub(view.begin)?;
    let in_block = from_begin.checked_rem(view.stride_bytes)?;
    let end = in_block.checked_add(len)?;
    (end <= view.block_bytes).then(|| view.offset_in(offset))
}

fn not_open(file: u32) -> Error {
    Error::Failed(format!("file number {file} is not open"))
}

#[cold]
fn failed(opened: &Opened, transfer: &FileTransfer, write: bool, why: &str) -> Error {
    let what = if write { "write" } else { "read" };
    Error::Failed(format!(
        "{}: {what} of {} bytes at offset {} failed: {why}",
        opened.file.path().display(),
        transfer.len,
        transfer.offset
    ))
}

/// Returns the error for a transfer that moved only some bytes. MPI reports success if the file ends or the disk fills
/// up after some bytes.
#[cold]
fn short(opened: &Opened, transfer: &FileTransfer, write: bool, moved: u64) -> Error {
    let (len, size) = (transfer.len, opened.file.size());
    let why = match (write, size) {
        (true, _) => {
            format!("MPI wrote only {moved} of {len} bytes: check whether the disk is full")
        }
        (false, Ok(size)) => {
            format!("MPI read only {moved} of {len} bytes, because the file has {size} bytes")
        }
        (false, Err(why)) => format!(
            "MPI read only {moved} of {len} bytes, and does not report the size of the file: {why}"
        ),
    };
    failed(opened, transfer, write, &why)
}
