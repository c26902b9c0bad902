//! A backup of the records. The supervisor prints it if rank 0 is lost before it has printed the records.
//!
//! The backup is an anonymous file in memory. Rank 0 inherits the file from the supervisor, and adds each record as it
//! arrives. When everything is printed, rank 0 empties the file.

use std::fs::{File, OpenOptions};

use tonnage_record::Record;
use tonnage_record::read::read_records;
use tonnage_record::writer::RecordWriter;
use tonnage_units::identity::Identity;
use tonnage_units::{Error, Result};

use super::memory_file::{MemoryFile, inherited};

/// Variable with the backup's file descriptor, for ranks.
const VARIABLE: &str = "TONNAGE_SPARE";

/// The supervisor's side of the backup.
pub struct Spare(MemoryFile);

impl Spare {
    /// Creates an empty backup. Returns `None` if the system refuses, because the run can do without one.
    pub fn new() -> Option<Self> {
        MemoryFile::new(VARIABLE, "tonnage records").map(Self)
    }

    /// Returns the variable for ranks, with its value.
    pub fn variable(&self) -> (&'static str, String) {
        self.0.variable()
    }

    /// Returns the records that were measured but not printed.
    pub fn not_shown(&self) -> Result<Vec<Record>> {
        read_records(self.0.path().as_ref()).map(|read| read.records)
    }
}

/// Rank 0's side of the backup.
pub struct SpareWriter {
    file: File,
    writer: RecordWriter,
}

impl SpareWriter {
    /// Opens the backup that this rank's supervisor created, and adds the records `before` of a resumed run. Returns
    /// `None` on other ranks, and if there is no backup.
    pub fn inherited(identity: &Identity, before: &[Record]) -> Option<Self> {
        let file = match identity.rank {
            0 => inherited(VARIABLE, OpenOptions::new().append(true), false)?,
            _ => return None,
        };
        file.and_then(|file| Self::of(file, before))
            .inspect_err(|error| log::debug!("no spare copy of the records: {error}"))
            .ok()
    }

    fn of(file: File, before: &[Record]) -> Result<Self> {
        let failed = |error| Error::io("cannot share the spare copy", error);
        let mut writer = RecordWriter::to_sink(file.try_clone().map_err(failed)?, "the spare copy");
        before.iter().try_for_each(|record| writer.write(record))?;
        Ok(Self { file, writer })
    }

    /// Adds a record.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        self.writer.write(record)
    }

    /// Empties the backup, because everything has been printed.
    pub fn shown(&self) -> Result<()> {
        let emptied = self.file.set_len(0);
        emptied.map_err(|error| Error::io("cannot empty the spare copy", error))
    }
}
