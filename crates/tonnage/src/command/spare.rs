//! A spare copy of the records, which the supervisor shows when rank 0 is lost before it could.
//!
//! It is a file in memory without a name: rank 0 inherits it from the supervisor, adds each record as it comes, and
//! empties it once everything is shown.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

use rustix::fs::{MemfdFlags, memfd_create};
use tonnage_record::Record;
use tonnage_record::read::read_records;
use tonnage_record::writer::RecordWriter;
use tonnage_units::identity::Identity;
use tonnage_units::{Error, Result};

use super::env;

/// Variable by which a rank hears of the file: its descriptor.
const VARIABLE: &str = "TONNAGE_SPARE";

/// The supervisor's end.
pub struct Spare {
    file: File,
}

impl Spare {
    /// An empty one; `None` where the system refuses, since the run does not depend on it.
    pub fn new() -> Option<Self> {
        // Processes that this one starts inherit it.
        let made = memfd_create("tonnage records", MemfdFlags::NOEXEC_SEAL);
        // Kernels before 6.3 do not know the flag.
        let made = made.or_else(|_| memfd_create("tonnage records", MemfdFlags::empty()));
        made.inspect_err(|error| log::debug!("no spare copy of the records: {error}"))
            .map(|file| Self { file: file.into() })
            .ok()
    }

    /// The variable for ranks.
    pub fn variable(&self) -> (&'static str, String) {
        (VARIABLE, self.file.as_raw_fd().to_string())
    }

    /// Records that were measured and not shown.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn not_shown(&self) -> Result<Vec<Record>> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        read_records(path.as_ref()).map(|read| read.records)
    }
}

/// Rank 0's end.
pub struct SpareWriter {
    file: File,
    writer: RecordWriter,
}

impl SpareWriter {
    /// The one that this rank's supervisor made, with the records that were there `before`; `None` for other ranks, and
    /// where there is none.
    pub fn inherited(identity: &Identity, before: &[Record]) -> Option<Self> {
        // Only the supervisor of this program sets the other variable.
        let is_mine = identity.rank == 0 && env("TONNAGE_RANK").is_some();
        let descriptor = env(VARIABLE).filter(|_| is_mine)?;
        Self::open(&descriptor, before)
            .inspect_err(|error| log::debug!("no spare copy of the records: {error}"))
            .ok()
    }

    fn open(descriptor: &str, before: &[Record]) -> Result<Self> {
        let path = format!("/proc/self/fd/{descriptor}");
        let failed = |error| Error::io(format!("cannot open {VARIABLE} {path}"), error);
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(failed)?;
        let mut writer = RecordWriter::to(file.try_clone().map_err(failed)?, "the spare copy");
        before.iter().try_for_each(|record| writer.write(record))?;
        Ok(Self { file, writer })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When memory has run out.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        self.writer.write(record)
    }

    /// Empties it: everything has been shown.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn shown(&self) -> Result<()> {
        let emptied = self.file.set_len(0);
        emptied.map_err(|error| Error::io("cannot empty the spare copy", error))
    }
}
