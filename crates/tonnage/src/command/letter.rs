//! Letters to ranks on other hosts: what the first process puts in, and what a rank takes out.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_ranks::spawn::local::end_with_parent;
use tonnage_ranks::spawn::remote::words::{CHECKPOINT, Letter, RECORD};
use tonnage_ranks::{Identity, Met};
use tonnage_record::Record;
use tonnage_record::read::read_records_of;
use tonnage_record::writer::RecordWriter;
use tonnage_units::{Error, Result};

/// The part of a letter that is the command's.
#[derive(Debug, Serialize, Deserialize)]
pub struct JobLetter {
    /// Options of [`crate::args::passed_on::RankWords`].
    pub ranks: Vec<String>,
    /// The plan as TOML.
    pub plan: String,
    /// True when points whose path is not proven make the run fail.
    pub require_path: bool,
    /// Repetitions of the plan, where some were asked for.
    pub times: Option<u32>,
    /// The file of records so far, for rank 0 of a run that goes on with one.
    pub before: String,
}

/// The letter to this rank.
pub struct RankLetter {
    letter: Letter,
    before: String,
}

impl RankLetter {
    /// Takes the letter to this rank from its standard input. From then on the rank ends with the agent.
    ///
    /// # Errors
    /// [`Error::Usage`] when there is none, or the agent has ended.
    pub fn from_input() -> Result<(Self, JobLetter)> {
        let letter = Letter::from_input()?;
        end_with_parent(&letter.parent.to_string())?;
        let mut said: JobLetter = serde_json::from_str(&letter.job).map_err(|error| {
            Error::Usage(format!("the letter to rank {}: {error}", letter.rank))
        })?;
        let before = std::mem::take(&mut said.before);
        Ok((Self { letter, before }, said))
    }

    /// The rank's place in the run.
    pub fn identity(&self) -> Identity {
        self.letter.identity()
    }

    /// The meeting place that it names.
    ///
    /// # Errors
    /// When the listening socket that it speaks of is not open.
    pub fn met(&self, identity: Identity) -> Result<Met> {
        Ok(Met::of(
            identity,
            self.letter.secret()?,
            self.letter.listener()?,
        ))
    }

    /// Records that the run's file holds already.
    ///
    /// # Errors
    /// When they are none.
    pub fn before(&self) -> Result<Vec<Record>> {
        let read = read_records_of(self.before.as_bytes(), Path::new("the file of records"))?;
        Ok(read.records)
    }

    /// The way of records to the first process.
    ///
    /// # Errors
    /// When it is not open.
    pub fn records(&self) -> Result<Option<RecordWriter>> {
        self.way_home(RECORD)
    }

    /// The way of checkpoints to the first process.
    ///
    /// # Errors
    /// When it is not open.
    pub fn checkpoints(&self) -> Result<Option<RecordWriter>> {
        self.way_home(CHECKPOINT)
    }

    fn way_home(&self, mark: u8) -> Result<Option<RecordWriter>> {
        let file = self.letter.records()?;
        Ok(file.map(|file| {
            RecordWriter::to(Marked { file, mark }, "the process that started the ranks")
        }))
    }
}

/// A pipe whose lines begin with a mark.
struct Marked {
    file: File,
    mark: u8,
}

impl Write for Marked {
    /// Takes a whole line, as the writer of records gives it.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let marked = [&[self.mark], line].concat();
        self.file.write_all(&marked)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}
