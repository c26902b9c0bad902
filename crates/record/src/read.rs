//! Reads files of records. The last line may be incomplete.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Outcome, Program, Record, SCHEMA_VERSION, SCHEMA_VERSION_MIN, checksum};
use tonnage_plan::Point;
use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

/// Maximum length of a record. If a line is longer, the file is not a file of records.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// The first bytes of every record.
const RECORD_BEGIN: &[u8] = br#"{"schema_version":"#;

/// Content of a file of records.
#[derive(Debug)]
pub struct ReadOutcome {
    /// Records of the file, in order.
    pub records: Vec<Record>,
    /// True if the last line is incomplete: the run that wrote it was interrupted.
    pub truncated_tail: bool,
    /// Number of bytes up to the end of the last complete record. An incomplete line may follow.
    pub good_bytes: u64,
}

/// Reads all records of a file. If the last line is incomplete, it is left out, and `truncated_tail` is set.
///
/// # Errors
/// [`Error::Io`] if the file cannot be read. [`Error::Usage`] if it does not exist. Also [`Error::Usage`], with the
/// line number, if a complete line is not a record or has an unknown schema version.
pub fn read_records(path: &Path) -> Result<ReadOutcome> {
    read_records_of(BufReader::new(open(path)?), path)
}

/// Reads all records from a reader; `path` is its name in error messages.
///
/// # Errors
/// As for [`read_records`], except that a missing file cannot occur.
pub fn read_records_of(reader: impl BufRead, path: &Path) -> Result<ReadOutcome> {
    let mut outcome = ReadOutcome {
        records: Vec::new(),
        truncated_tail: false,
        good_bytes: 0,
    };
    each_line(reader, path, |number, line| {
        let ended = line.ends_with(b"\n");
        if !line.trim_ascii().is_empty() {
            match parse(line) {
                Ok(record) => outcome.records.push(record),
                Err(LineProblem::NotJson(_)) if !ended && is_begun_record(line) => {
                    outcome.truncated_tail = true;
                    return Ok(());
                }
                Err(LineProblem::NotJson(what) | LineProblem::NotRecord(what)) => {
                    let path = path.display();
                    return Err(Error::Usage(format!("{path}, line {number}: {what}")));
                }
            }
        }
        outcome.good_bytes += line.len() as u64;
        Ok(())
    })?;
    Ok(outcome)
}

/// Records of a file that may contain damaged lines, or lines of a newer version.
#[derive(Debug)]
pub struct ReadableRecords {
    /// The readable records, in order.
    pub records: Vec<Record>,
    /// Lines that were left out: their numbers, counted from 1, and the reasons.
    pub left_out: Vec<(u64, String)>,
}

/// Reads the readable records of a file and leaves out the others, for callers that don't need every record.
///
/// # Errors
/// As for [`read_records`], except that unreadable lines are not errors.
pub fn read_readable(path: &Path) -> Result<ReadableRecords> {
    read_readable_of(BufReader::new(open(path)?), path)
}

/// Reads the readable records from a reader; `path` is its name in error messages.
///
/// # Errors
/// As for [`read_readable`], except that a missing file cannot occur.
pub fn read_readable_of(reader: impl BufRead, path: &Path) -> Result<ReadableRecords> {
    let mut readable = ReadableRecords {
        records: Vec::new(),
        left_out: Vec::new(),
    };
    each_line(reader, path, |number, line| {
        if !line.trim_ascii().is_empty() {
            match parse(line) {
                Ok(record) => readable.records.push(record),
                Err(LineProblem::NotJson(what) | LineProblem::NotRecord(what)) => {
                    readable.left_out.push((number, what));
                }
            }
        }
        Ok(())
    })?;
    Ok(readable)
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => missing(path),
        ErrorKind::InvalidFilename => name_too_long(path),
        _ => Error::io(format!("cannot read {}", path.display()), error),
    })
}

/// Calls `take` with each line's number and text, including the newline.
fn each_line(
    mut reader: impl BufRead,
    path: &Path,
    mut take: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let shown = path.display();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut limited = reader.by_ref().take(LINE_BYTES_MAX);
        let bytes = limited
            .read_until(b'\n', &mut line)
            .map_err(|error| Error::io(format!("cannot read {shown}"), error))?;
        if bytes == 0 {
            break;
        }
        if bytes as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") {
            return Err(Error::Usage(format!(
                "{shown}, line {number}: longer than 64 MiB, so this is not a file of records"
            )));
        }
        take(number, &line)?;
    }
    Ok(())
}

/// The error for a file that does not exist.
pub(super) fn missing(path: &Path) -> Error {
    Error::Usage(format!(
        "there is no file {}: results are written with -o FILE",
        path.display()
    ))
}

/// The error for a name that is too long.
pub(super) fn name_too_long(path: &Path) -> Error {
    let name = path.to_string_lossy();
    Error::Usage(format!(
        "{} is too long for the name of a file ({} bytes): name another one",
        quote(&name),
        name.len()
    ))
}

/// Returns whether exactly this point was measured. If there are several repetitions, only this repetition counts.
/// Skipped and failed points don't count, because they have to be tried again.
pub fn already_measured(records: &[Record], point: &Point, repetition: Option<u32>) -> bool {
    let mut measured = records.iter().filter(|record| {
        let is_of = |nth: u32| record.repetition.unwrap_or(0) == nth;
        record.outcome == Outcome::Measured && repetition.is_none_or(is_of)
    });
    measured.any(|record| record.body.is_of(point))
}

/// Removes failed and skipped attempts that were repeated later. In a resumed file, only the final outcome of a point
/// matters.
pub fn final_attempts(records: &[Record]) -> Vec<Record> {
    let kept = records.iter().zip(are_final(records));
    let kept = kept.filter(|(_, is_final)| *is_final);
    kept.map(|(record, _)| record.clone()).collect()
}

/// Does the same as [`final_attempts`], but takes the records by value and avoids copies.
pub fn kept_attempts(mut records: Vec<Record>) -> Vec<Record> {
    let mut are_final = are_final(&records).into_iter();
    records.retain(|_| are_final.next().unwrap_or(true));
    records
}

/// Returns for each record whether to keep it. It is false for a failed or skipped attempt that was repeated later.
fn are_final(records: &[Record]) -> Vec<bool> {
    let mut seen = HashSet::new();
    let mut kept = Vec::with_capacity(records.len());
    for record in records.iter().rev() {
        // The debug text of a point serves as the key, because points don't implement `Hash`.
        let turn = record.side.as_ref().map(|side| side.turn);
        let key = format!("{:?} {:?} {turn:?}", record.body.point(), record.repetition);
        let is_last = seen.insert(key);
        kept.push(is_last || record.outcome == Outcome::Measured);
    }
    kept.reverse();
    kept
}

/// Returns whether an incomplete line begins like a record. Any other incomplete line must not be dropped.
fn is_begun_record(line: &[u8]) -> bool {
    // Ignore zeros at the end: after a crash, some file systems fill unwritten parts with zeros.
    let zeros = line.iter().rev().take_while(|&&byte| byte == 0).count();
    let written = &line[..line.len() - zeros];
    written.starts_with(RECORD_BEGIN) || RECORD_BEGIN.starts_with(written)
}

enum LineProblem {
    /// The text is damaged or incomplete.
    NotJson(String),
    /// The text is JSON, but not a record that this version reads.
    NotRecord(String),
}

/// The fields that exist in every version of the format.
#[derive(Deserialize)]
struct RecordHead {
    schema_version: u32,
    #[serde(default)]
    tonnage: Option<Program>,
}

/// Parses a line. The version is checked before other fields, because records of other versions may lack fields that
/// this program expects.
fn parse(line: &[u8]) -> Result<Record, LineProblem> {
    // Fast path: a line that begins with a known version is parsed as a record directly. Only if that fails is the head
    // parsed.
    let quickly = is_of_known_version(line)
        .then(|| parse_json(line).ok())
        .flatten();
    let head: RecordHead = match &quickly {
        Some(_) => RecordHead {
            schema_version: SCHEMA_VERSION,
            tonnage: None,
        },
        None => parse_json(line)?,
    };
    let found = head.schema_version;
    if (SCHEMA_VERSION_MIN..=SCHEMA_VERSION).contains(&found) {
        let record = quickly.map_or_else(|| parse_json(line), Ok)?;
        if !checksum::is_unchanged(line) {
            return Err(LineProblem::NotRecord(
                "its checksum does not match, so it was changed after it was written. Remove the line, or remove only \
                 its checksum to read it anyway"
                    .to_owned(),
            ));
        }
        return Ok(shrink_to_fit(Record {
            schema_version: SCHEMA_VERSION,
            checksum: None,
            ..record
        }));
    }
    if found == 0 {
        return Err(LineProblem::NotRecord(
            "schema version 0, which no version of tonnage has written: the line was changed. Remove it, or name \
             another file"
                .to_owned(),
        ));
    }
    let writer = head.tonnage.map_or_else(String::new, |tonnage| {
        format!(
            ", written by tonnage {} ({})",
            tonnage.version, tonnage.git_revision
        )
    });
    let what_to_do = match found > SCHEMA_VERSION {
        true => "show it with that tonnage, or a newer one",
        false => "show it with that tonnage, and write new results to another file",
    };
    Err(LineProblem::NotRecord(format!(
        "schema version {found}{writer}, and this tonnage reads versions {SCHEMA_VERSION_MIN} to {SCHEMA_VERSION}: \
         {what_to_do}"
    )))
}

/// Returns whether a line begins like a record of a version that this program reads.
fn is_of_known_version(line: &[u8]) -> bool {
    let rest = line.strip_prefix(RECORD_BEGIN);
    let mut versions = SCHEMA_VERSION_MIN..=SCHEMA_VERSION;
    versions.any(|version| {
        let rest = rest.and_then(|rest| rest.strip_prefix(version.to_string().as_bytes()));
        rest.is_some_and(|rest| rest.starts_with(b","))
    })
}

/// Releases unused capacity. The parser reserves space for four entries, but most lists have a single large one.
fn shrink_to_fit(mut record: Record) -> Record {
    record.effective.shrink_to_fit();
    for group in &mut record.environment {
        group.hosts.shrink_to_fit();
    }
    record.environment.shrink_to_fit();
    record
}

fn parse_json<T: DeserializeOwned>(line: &[u8]) -> Result<T, LineProblem> {
    serde_json::from_slice(line).map_err(|error| {
        let what = format!("not a record of tonnage: {}", describe(line, &error));
        if error.is_data() {
            LineProblem::NotRecord(what)
        } else {
            LineProblem::NotJson(what)
        }
    })
}

/// Describes the error in a line. The parser's line and column are removed: they count within this line, and would be
/// mistaken for positions in the file.
fn describe(line: &[u8], error: &serde_json::Error) -> String {
    let text = line.trim_ascii_end();
    if text.iter().all(|&byte| byte == 0) {
        let bytes = text.len();
        return format!(
            "{bytes} bytes of zeros, as after a crash of the machine. Remove the line, or name another file"
        );
    }
    if text.starts_with(RECORD_BEGIN) && !error.is_data() {
        return "it is damaged, or another record was appended after an incomplete one. Remove the line, or name \
                another file"
            .to_owned();
    }
    let said = error.to_string();
    match said.split_once(" at line ") {
        Some((what, _)) => what.to_owned(),
        None => said,
    }
}
