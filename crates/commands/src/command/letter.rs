//! Letters to ranks on other hosts: what the first process puts in, and what a rank takes out.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_ranks::spawn::local::end_with_parent;
use tonnage_ranks::spawn::remote::words::Letter;
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
    pub runs: Option<u32>,
    /// The file of records so far, for rank 0 of a run that goes on with one.
    pub before: String,
}

/// Beginning of the job of a process that checks its host; that of a rank is JSON.
const CHECK: &str = "check ";

/// The job of a process that checks its host, for its letter: the text of a check.
pub fn job_of_check(text: &str) -> String {
    format!("{CHECK}{text}")
}

/// The job in a letter.
pub enum HostJob {
    /// To be a rank.
    Rank(RankLetter, Box<JobLetter>),
    /// To check the host, as this text says.
    Check(String),
}

/// The letter to this rank.
pub struct RankLetter {
    letter: Letter,
    before: String,
}

impl HostJob {
    /// Takes the letter to this process from its standard input. From then on the process ends with the agent.
    pub fn from_input() -> Result<Self> {
        let letter = Letter::from_input()?;
        end_with_parent(&letter.parent.to_string())?;
        if let Some(check) = letter.job.strip_prefix(CHECK) {
            return Ok(Self::Check(check.to_owned()));
        }
        let mut said: JobLetter = serde_json::from_str(&letter.job).map_err(|error| {
            Error::Usage(format!("the letter to rank {}: {error}", letter.rank))
        })?;
        let before = std::mem::take(&mut said.before);
        Ok(Self::Rank(RankLetter { letter, before }, Box::new(said)))
    }
}

impl RankLetter {
    /// The rank's place in the run.
    pub fn identity(&self) -> Identity {
        self.letter.identity()
    }

    /// The meeting place that it names.
    pub fn met(&self, identity: Identity) -> Result<Met> {
        Ok(Met::of(
            identity,
            self.letter.secret()?,
            self.letter.listener()?,
        ))
    }

    /// Records that the run's file holds already.
    pub fn before(&self) -> Result<Vec<Record>> {
        let read = read_records_of(self.before.as_bytes(), Path::new("the file of records"))?;
        Ok(read.records)
    }

    /// The way to the first process, of records or of checkpoints.
    pub fn way_home(&self, mark: u8) -> Result<Option<RecordWriter>> {
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
