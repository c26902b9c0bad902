//! The records file of a job, and printing results. Rank 0 uses this module, and so does the process that starts ranks
//! on other hosts.

use std::borrow::Cow;
use std::path::Path;

use tonnage_plan::Planned;
use tonnage_ranks::spawn::remote::messages::RECORD;
use tonnage_record::Record;
use tonnage_record::writer::{RecordWriter, resume};
use tonnage_report::Format;
use tonnage_units::Result;

use super::job::Job;
use super::print;

/// Prints records in the format of the job.
pub(super) fn show(job: &Job, records: &[Record]) -> Result<()> {
    if let Some(block) = &job.block {
        block.write(records)?;
    }
    match job.format {
        Some(format) if format != Format::Jsonl => {
            print(&tonnage_report::render_for(format, records, &job.view)?)
        }
        _ => Ok(()),
    }
}

/// Sorts the records of several repetitions by the order of the plan, so that the records of each point are together.
pub(super) fn in_order_of_plan<'a>(
    job: &Job,
    points: &[Planned],
    records: &'a [Record],
) -> Cow<'a, [Record]> {
    if job.runs.is_none() {
        return Cow::Borrowed(records);
    }
    let place = |record: &Record| {
        let mut planned = points.iter();
        planned.position(|planned| record.body.is_of(&planned.point))
    };
    let mut sorted = records.to_vec();
    sorted.sort_by_cached_key(place);
    Cow::Owned(sorted)
}

/// Returns the records that the file already has, and the writer for new records.
pub(super) fn open_output(job: &Job) -> Result<(Vec<Record>, Option<RecordWriter>)> {
    if let Some(letter) = &job.letter {
        return Ok((letter.before()?, letter.way_home(RECORD)?));
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

/// Opens a file for new records. Appends to an existing file, so that a run never destroys another run's results.
fn open_new(path: &Path) -> Result<RecordWriter> {
    if path.exists() {
        RecordWriter::append(path)
    } else {
        RecordWriter::create(path)
    }
}
