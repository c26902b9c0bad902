//! `posix`: one `pread` or `pwrite` per transfer, made by the calling thread. Opening files and the error messages are
//! in `host_file`.

use std::sync::Arc;

use tonnage_engine::calls::{FileCall, FileCalls, FileDomain, FileEntry, FileTransfer, OpenFile};
use tonnage_engine::{EngineReport, Facts, Lifecycle};
use tonnage_machine::direct::Direct;
use tonnage_sys::files::transfer::{read_at, write_at};
use tonnage_sys::mapping::Arena;
use tonnage_units::{Error, Result};

use crate::host_file::{ACCESS_TIME, HostFile, OpenMode, direct_facts};

/// This engine's row in the list of file engines.
pub const ENTRY: FileEntry = FileEntry {
    name: "posix",
    about: "pread and pwrite, one system call for each transfer",
    options: &[ACCESS_TIME],
    queues: false,
    threads: true,
    collective: false,
    direct: true,
    libraries: &[],
    lifecycle: Lifecycle::NONE,
    open: |request| {
        Ok(Arc::new(PosixDomain {
            how: OpenMode::from_use(request.usage),
        }))
    },
};

/// Limit of file numbers. A thread's table is only as large as the highest number that it uses.
const FILES_MAX: u32 = 1 << 16;

struct PosixDomain {
    how: OpenMode,
}

impl FileDomain for PosixDomain {
    fn report(&self) -> EngineReport {
        EngineReport {
            name: "posix".to_owned(),
            facts: Facts::default()
                .with_fact("calls", "pread, pwrite, fsync")
                .with_fact("direct", self.how.direct),
            ..EngineReport::default()
        }
    }

    fn thread(&self, _thread: u32, memory: Arc<Arena>) -> Result<Box<dyn FileCalls>> {
        Ok(Box::new(Posix {
            memory,
            files: Vec::new(),
            how: self.how,
            access_time: false,
            aligned: None,
        }))
    }
}

struct Posix {
    memory: Arc<Arena>,
    /// Open files by the number that the caller chose.
    files: Vec<Option<HostFile>>,
    how: OpenMode,
    /// Alignment rules of the last file opened with direct I/O, for the record.
    aligned: Option<Direct>,
    /// Whether reads may have changed the time of last access of any file.
    access_time: bool,
}

impl Posix {
    fn open(&mut self, request: &OpenFile<'_>) -> Result<()> {
        if request.file >= FILES_MAX {
            return Err(Error::Failed(format!(
                "file number {}: engine posix has at most {FILES_MAX} files",
                request.file
            )));
        }
        let index = request.file as usize;
        if self.files.len() <= index {
            self.files.resize_with(index + 1, || None);
        }
        match self.files.get_mut(index) {
            Some(slot @ None) => {
                let file = HostFile::open(request, self.how)?;
                self.access_time |= file.access_time();
                self.aligned = file.direct().or(self.aligned);
                *slot = Some(file);
                Ok(())
            }
            _ => Err(Error::Failed(format!(
                "file {index} is open already: {} needs another number",
                request.path.display()
            ))),
        }
    }

    #[inline]
    fn file(&self, number: u32) -> Result<&HostFile> {
        match self.files.get(number as usize) {
            Some(Some(file)) => Ok(file),
            _ => Err(not_open(number)),
        }
    }

    fn close(&mut self, number: u32) -> Result<()> {
        let slot = self.files.get_mut(number as usize);
        let file = slot.and_then(Option::take);
        file.ok_or_else(|| not_open(number))?.close()
    }

    #[inline]
    fn transfer(&self, transfer: &FileTransfer, write: bool) -> Result<u64> {
        let file = self.file(transfer.file)?;
        let FileTransfer {
            local, offset, len, ..
        } = *transfer;
        file.check(self.memory.address().wrapping_add(local), offset, len)?;
        let ended = |done| {
            if write {
                file.cut_short(offset, len, done)
            } else {
                file.ended(offset, len, offset + done)
            }
        };
        let mut done = 0;
        while done < len {
            let (from, at, left) = (local + done, offset + done, len - done);
            let count = if write {
                write_at(file.fd(), &self.memory, from, at, left)
            } else {
                read_at(file.fd(), &self.memory, from, at, left)
            };
            match count {
                Ok(0) => return Err(ended(done)),
                Ok(count) => done += count as u64,
                Err(error) => return Err(file.failed(write, at, left, error)),
            }
            if done < len && !file.goes_on_at(offset + done) {
                return Err(ended(done));
            }
        }
        Ok(done)
    }
}

#[cold]
fn not_open(number: u32) -> Error {
    Error::Failed(format!("file {number} is not open"))
}

impl FileCalls for Posix {
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

    fn chosen(&self) -> Facts {
        Facts::default()
            .with_fact("atime", if self.access_time { "on" } else { "off" })
            .with_optional_fact("direct", self.aligned.map(direct_facts))
    }
}

#[cfg(test)]
mod tests;
