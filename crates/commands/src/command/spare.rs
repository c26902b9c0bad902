//! A spare copy of the records, which the supervisor shows when rank 0 is lost before it could.
//!
//! It is a file in memory without a name: rank 0 inherits it from the supervisor, adds each record as it comes, and
//! empties it once everything is shown.

use std::fs::{File, OpenOptions};

use tonnage_record::Record;
use tonnage_record::read::read_records;
use tonnage_record::writer::RecordWriter;
use tonnage_units::identity::Identity;
use tonnage_units::{Error, Result};

use super::memory_file::{MemoryFile, inherited};

/// Variable by which a rank hears of the file: its descriptor.
const VARIABLE: &str = "TONNAGE_SPARE";

/// The supervisor's end.
pub struct Spare(MemoryFile);

impl Spare {
    /// An empty one; `None` where the system refuses, since the run does not depend on it.
    pub fn new() -> Option<Self> {
        MemoryFile::new(VARIABLE, "tonnage records").map(Self)
    }

    /// The variable for ranks.
    pub fn variable(&self) -> (&'static str, String) {
        self.0.variable()
    }

    /// Records that were measured and not shown.
    pub fn not_shown(&self) -> Result<Vec<Record>> {
        read_records(self.0.path().as_ref()).map(|read| read.records)
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
        let mut writer = RecordWriter::to(file.try_clone().map_err(failed)?, "the spare copy");
        before.iter().try_for_each(|record| writer.write(record))?;
        Ok(Self { file, writer })
    }

    /// Adds a record.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        self.writer.write(record)
    }

    /// Empties it: everything has been shown.
    pub fn shown(&self) -> Result<()> {
        let emptied = self.file.set_len(0);
        emptied.map_err(|error| Error::io("cannot empty the spare copy", error))
    }
}
