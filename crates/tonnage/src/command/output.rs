//! The file of records of a job, and showing what was measured: alike for rank 0 and for the process that starts ranks
//! on other hosts.

use std::path::Path;

use tonnage_record::Record;
use tonnage_record::writer::{RecordWriter, resume};
use tonnage_report::Format;
use tonnage_units::Result;

use super::job::Job;
use super::print;

/// Shows records as the job asks for it.
pub(super) fn show(job: &Job, records: &[Record]) -> Result<()> {
    if let Some(block) = &job.block {
        block.write(records)?;
    }
    match job.format {
        Some(format) if format != Format::Jsonl => print(&tonnage_report::render(format, records)?),
        _ => Ok(()),
    }
}

/// The records that are there already, and the writer for new ones.
pub(super) fn open_output(job: &Job) -> Result<(Vec<Record>, Option<RecordWriter>)> {
    if let Some(letter) = &job.letter {
        return Ok((letter.before()?, letter.records()?));
    }
    match &job.output {
        None => Ok((Vec::new(), None)),
        Some((path, true)) if path.exists() => {
            let (records, writer) = resume(path)?;
            Ok((records, Some(writer)))
        }
        Some((path, _)) => Ok((Vec::new(), Some(open_new(path)?))),
    }
}

/// A file that holds records already is appended to, so that a run never destroys another one's results.
fn open_new(path: &Path) -> Result<RecordWriter> {
    if path.exists() {
        RecordWriter::append(path)
    } else {
        RecordWriter::create(path)
    }
}
