//! The command's part of start messages to processes on other hosts. The first process writes them, and each rank or
//! check reads its own.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_ranks::spawn::local::end_with_parent;
use tonnage_ranks::spawn::remote::messages::StartLetter;
use tonnage_ranks::{Identity, Rendezvous};
use tonnage_record::Record;
use tonnage_record::read::read_records_of;
use tonnage_record::writer::RecordWriter;
use tonnage_units::{Error, Result};

/// The part of a rank's start message that belongs to the command.
#[derive(Debug, Serialize, Deserialize)]
pub struct JobLetter {
    /// Options of [`crate::args::passed_on::RankWords`].
    pub ranks: Vec<String>,
    /// The plan as TOML.
    pub plan: String,
    /// True if the run must fail if a point lacks proof of its path.
    pub require_path: bool,
    /// Number of repetitions of the plan, if requested.
    pub runs: Option<u32>,
    /// Time limit of the whole run in nanoseconds, if there is one.
    pub time_limit_ns: Option<u64>,
    /// Contents of the records file so far. Only rank 0 of a resumed run gets them.
    pub before: String,
}

/// Prefix of a job that checks a host. The job of a rank is JSON and has no prefix.
const CHECK: &str = "check ";

/// Returns the job that checks a host, from the text of the check.
pub fn job_of_check(text: &str) -> String {
    format!("{CHECK}{text}")
}

/// The job in a start message.
pub enum HostJob {
    /// Run a rank.
    Rank(RankLetter, Box<JobLetter>),
    /// Check the host. The text describes the check.
    Check(String),
}

/// The start message to this rank.
pub struct RankLetter {
    letter: StartLetter,
    before: String,
}

impl HostJob {
    /// Reads this process's start message from standard input. From then on, the process ends when its agent ends.
    pub fn from_input() -> Result<Self> {
        let letter = StartLetter::from_input()?;
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
    /// Returns this process's rank in the run.
    pub fn identity(&self) -> Identity {
        self.letter.identity()
    }

    /// Returns the meeting point that the start message gives.
    pub fn met(&self, identity: Identity) -> Result<Rendezvous> {
        Ok(Rendezvous::new(
            identity,
            self.letter.secret()?,
            self.letter.listener()?,
        ))
    }

    /// Returns the records that the run's file already has.
    pub fn before(&self) -> Result<Vec<Record>> {
        let read = read_records_of(self.before.as_bytes(), Path::new("the file of records"))?;
        Ok(read.records)
    }

    /// Returns a writer that sends records to the first process. `mark` distinguishes records from checkpoints.
    pub fn way_home(&self, mark: u8) -> Result<Option<RecordWriter>> {
        let file = self.letter.records()?;
        Ok(file.map(|file| {
            RecordWriter::to_sink(Marked { file, mark }, "the process that started the ranks")
        }))
    }
}

/// A pipe that puts a mark at the beginning of each line.
struct Marked {
    file: File,
    mark: u8,
}

impl Write for Marked {
    /// Writes the mark and then one line. The record writer passes a whole line in each call.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let marked = [&[self.mark], line].concat();
        self.file.write_all(&marked)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}
