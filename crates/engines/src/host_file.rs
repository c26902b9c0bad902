//! A file that is opened by this host's kernel, for the engines that use its system calls. This module opens, syncs and
//! closes the file, and adds context to errors. It never opens with the page cache if direct transfers were requested.
//! The engines themselves transfer data.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use tonnage_engine::calls::{FileUse, OpenFile};
use tonnage_engine::{EngineOption, Facts};
use tonnage_machine::direct;
use tonnage_machine::direct::Direct;
use tonnage_sys::files::file_system::identity;
use tonnage_sys::files::open::{OpenFlags, close, open};
use tonnage_units::{Error, Result};

/// An open file.
pub(crate) struct HostFile {
    file: File,
    path: PathBuf,
    direct: Option<Direct>,
    /// Whether reads may change the time of last access.
    access_time: bool,
}

/// Flags for opening files, in addition to those of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenMode {
    /// Bypass the page cache.
    pub direct: bool,
    /// Let reads change the time of last access, if the mount option allows it.
    pub access_time: bool,
}

impl OpenMode {
    /// Reads the flags from the requested use.
    pub fn from_use(usage: &FileUse) -> Self {
        let asked = usage.options.get(ACCESS_TIME.name);
        Self {
            direct: usage.direct,
            access_time: asked.is_some_and(|asked| asked == "on"),
        }
    }
}

/// An option of all engines that open files in this way.
pub(crate) const ACCESS_TIME: EngineOption = EngineOption::choice(
    "atime",
    &["off", "on"],
    "on: reads update the file's access time, as the mount specifies; off: they do not, if this user owns the file",
);

/// Returns the rules of direct transfers for the record.
pub(crate) fn direct_facts(direct: Direct) -> Facts {
    Facts::default()
        .with_fact("memory_bytes", direct.alignment.memory_bytes)
        .with_fact("offset_bytes", direct.alignment.offset_bytes)
        .with_fact("said_by", direct.said_by)
}

impl HostFile {
    /// Opens or creates a regular file. With `direct`, the file bypasses the page cache.
    ///
    /// # Errors
    /// `Unavailable` if direct transfers may use the page cache; otherwise the system's error. If opening with `direct`
    /// fails after the file was created, the file is removed.
    pub fn open(request: &OpenFile<'_>, how: OpenMode) -> Result<Self> {
        let direct = how.direct;
        let flags = OpenFlags {
            read: request.read,
            write: request.write,
            create: request.create,
            direct,
            keep_access_time: request.read && !how.access_time,
            ..OpenFlags::default()
        };
        let unmade = |error| {
            if request.create {
                // A failure to remove the file is ignored, because the caller needs the original error.
                let _ = std::fs::remove_file(request.path);
            }
            error
        };
        let (file, access_time) = match open(request.path, &flags) {
            Ok(file) => (file, !flags.keep_access_time),
            // Only a file's owner may request that reads keep the access time. The record shows whether it was kept.
            Err(error) if flags.keep_access_time && error.raw_os_error() == Some(EPERM) => {
                let flags = OpenFlags {
                    keep_access_time: false,
                    ..flags
                };
                let file =
                    open(request.path, &flags).map_err(|error| cannot_open(request, error))?;
                (file, true)
            }
            // Some file systems without direct I/O fail with this error, after they have created the file.
            Err(error) if direct && error.raw_os_error() == Some(EINVAL) => {
                return Err(unmade(direct::refused(
                    request.path,
                    "its file system has none",
                )));
            }
            Err(error) => return Err(cannot_open(request, error)),
        };
        let direct = direct
            .then(|| direct::find_rules(&file, request.path))
            .transpose()
            .map_err(unmade)?;
        Ok(Self {
            file,
            path: request.path.to_owned(),
            direct,
            access_time,
        })
    }

    /// Returns the descriptor, for system calls.
    #[inline]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the file's device and inode. On a network file system, these are the numbers that the client knows.
    pub fn identity(&self) -> Option<(u64, u64)> {
        identity(&self.file).ok()
    }

    /// Returns the alignment rules for direct I/O; `None` for a file opened with the page cache.
    pub fn direct(&self) -> Option<Direct> {
        self.direct
    }

    /// Returns whether reads may touch the time of last access.
    pub fn access_time(&self) -> bool {
        self.access_time
    }

    /// Checks that a transfer is aligned. `address` is the address of its bytes in memory. A kernel may silently use
    /// the page cache for unaligned transfers.
    ///
    /// # Errors
    /// `Usage` for a direct transfer that is not aligned.
    #[inline]
    pub fn check(&self, address: u64, offset: u64, len: u64) -> Result<()> {
        match self.direct {
            Some(direct) if !direct.alignment.fits(address, offset, len) => {
                Err(self.misfit(direct, address, offset, len))
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn misfit(&self, direct: Direct, address: u64, offset: u64, len: u64) -> Error {
        let why = direct.alignment.misfit(address, offset, len);
        Error::Usage(format!(
            "direct transfers of {}: {}. Make block and transfer multiples of {} bytes, or leave --direct out",
            self.path.display(),
            why.unwrap_or_default(),
            direct.alignment.offset_bytes
        ))
    }

    /// Returns whether a transfer that was cut short can continue at this offset. If a direct transfer ends at an
    /// unaligned offset, it has reached the end of the file or of the disk.
    #[inline]
    pub fn goes_on_at(&self, offset: u64) -> bool {
        self.direct
            .is_none_or(|direct| direct.alignment.fits(0, offset, 0))
    }

    /// Forces written data to stable storage.
    ///
    /// # Errors
    /// If the system could not store the data.
    pub fn sync(&self) -> Result<()> {
        let stored = self.file.sync_all();
        stored.map_err(|error| explained(format!("cannot sync {}", self.path.display()), error))
    }

    /// Closes the file.
    ///
    /// # Errors
    /// If data could not be stored, which some systems report only when a file is closed.
    pub fn close(self) -> Result<()> {
        let closed = close(self.file);
        closed.map_err(|error| explained(format!("cannot close {}", self.path.display()), error))
    }

    /// Returns the error for a failed transfer.
    #[cold]
    pub fn failed(&self, write: bool, offset: u64, len: u64, error: io::Error) -> Error {
        let verb = if write { "write" } else { "read" };
        let path = self.path.display();
        explained(
            format!("cannot {verb} {len} bytes at offset {offset} of {path}"),
            error,
        )
    }

    /// Returns the error for a read that met the end of the file at `end`.
    #[cold]
    pub fn ended(&self, offset: u64, len: u64, end: u64) -> Error {
        Error::Failed(format!(
            "{} ends at {end}: cannot read {len} bytes at offset {offset}. Write it first, with the same ranks, \
             block, transfer and segments",
            self.path.display()
        ))
    }

    /// Returns the error for a partial write: the system took only `done` bytes.
    #[cold]
    pub fn cut_short(&self, offset: u64, len: u64, done: u64) -> Error {
        Error::Failed(format!(
            "the system wrote only {done} of {len} bytes at offset {offset} of {}. Check whether its disk is full",
            self.path.display()
        ))
    }
}

/// Error numbers with special advice.
const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const EPERM: i32 = rustix::io::Errno::PERM.raw_os_error();
const ENOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();
const EDQUOT: i32 = rustix::io::Errno::DQUOT.raw_os_error();
const EFBIG: i32 = rustix::io::Errno::FBIG.raw_os_error();

/// Adds advice to the system's error, if there is any for it.
fn explained(what: String, error: io::Error) -> Error {
    let how = match error.raw_os_error() {
        Some(ENOSPC) => "Free some space there, or make block or segments smaller",
        Some(EDQUOT) => "Free some space in your quota there, or make block or segments smaller",
        Some(EFBIG) => {
            "Make block or segments smaller, raise `ulimit -f`, or choose another file system"
        }
        _ => return Error::io(what, error),
    };
    Error::Failed(format!("{what}: {error}. {how}"))
}

fn cannot_open(request: &OpenFile<'_>, error: io::Error) -> Error {
    let path = request.path.display();
    let purpose = if request.write { "writing" } else { "reading" };
    let how = match error.kind() {
        io::ErrorKind::NotFound if request.create => "Create its directory first",
        io::ErrorKind::NotFound => "Write it first, or name another path",
        io::ErrorKind::AlreadyExists => {
            "Another process created it in the meantime: check its owner, or name another path"
        }
        io::ErrorKind::InvalidInput => "Name a regular file",
        io::ErrorKind::PermissionDenied => "Name a path that this user may access",
        io::ErrorKind::ReadOnlyFilesystem => "Name a path on a writable file system",
        _ => return explained(format!("cannot open {path} for {purpose}"), error),
    };
    Error::Failed(format!("cannot open {path} for {purpose}: {error}. {how}"))
}

#[cfg(test)]
mod tests;
