//! `tonnage compare`: reads the records of two sides and says on each point which one is better.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use tonnage_judge::compare::compare as compared;
use tonnage_judge::sides::{of_one_file, of_two_files};
use tonnage_record::Record;
use tonnage_record::read::{Readable, read_readable};
use tonnage_units::{Error, Result};

use super::print;
use crate::args::compare::CompareArgs;

/// Lines that were left out and are described one by one; of more the number is said.
const LEFT_OUT_SHOWN_MAX: usize = 5;

/// Compares two sides.
///
/// # Errors
/// A wrong request; files that cannot be read or written.
pub fn compare(args: &CompareArgs) -> Result<ExitCode> {
    let request = args.request()?;
    if let Some(path) = args.output.as_deref() {
        refuse_existing(path, args.force)?;
    }
    let names: Vec<String> = args
        .files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let (comparison, names) = match args.files.as_slice() {
        [a, b] => {
            if is_same_file(a, b) {
                return Err(Error::Usage(format!(
                    "{} and {} are the same file: name two files, or one of `tonnage ab`",
                    names[0], names[1]
                )));
            }
            let records = [records_of(a)?, records_of(b)?];
            let sides = of_two_files([(&records[0], &names[0]), (&records[1], &names[1])])?;
            (
                compared(&sides, &request)?,
                [names[0].clone(), names[1].clone()],
            )
        }
        files => {
            let records = files
                .iter()
                .map(|file| records_of(file))
                .collect::<Result<Vec<_>>>()?
                .concat();
            let sides = of_one_file(&records, &names[0])?;
            let named = ["A", "B"].map(|letter| format!("side {letter} of {}", names[0]));
            (compared(&sides, &request)?, named)
        }
    };
    let text = tonnage_report::compare::render(args.format, &comparison, [&names[0], &names[1]])?;
    match args.output.as_deref() {
        Some(path) => write(path, &text, args.force)?,
        None => print(&text)?,
    }
    let mut verdicts = comparison.points.iter().map(|point| point.verdict);
    let fails = verdicts.any(|verdict| args.fail_on.iter().any(|on| on.takes(verdict)));
    Ok(ExitCode::from(u8::from(fails)))
}

/// The records of a file that can be read. Those that cannot are told, and missed no further.
fn records_of(path: &Path) -> Result<Vec<Record>> {
    let Readable { records, left_out } = read_readable(path)?;
    let shown = path.display();
    if records.is_empty() {
        return Err(Error::Usage(match left_out.first() {
            None => format!("{shown} holds no records: results are written with -o FILE"),
            Some((line, why)) => {
                format!("{shown} holds no records that can be read: line {line}: {why}")
            }
        }));
    }
    if !left_out.is_empty() {
        let lines = left_out.iter().take(LEFT_OUT_SHOWN_MAX);
        let lines: Vec<String> = lines
            .map(|(line, why)| format!("line {line}: {why}"))
            .collect();
        let more = left_out.len().saturating_sub(LEFT_OUT_SHOWN_MAX);
        let more = if more > 0 {
            format!("; and {more} more")
        } else {
            String::new()
        };
        log::warn!(
            "{} of {} lines of {shown} left out: {}{more}",
            left_out.len(),
            left_out.len() + records.len(),
            lines.join("; ")
        );
    }
    Ok(records)
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let known = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    known(one) == known(other)
}

/// Says that a file is there which nobody allowed to replace.
///
/// # Errors
/// `Usage` for such a file.
pub fn refuse_existing(path: &Path, force: bool) -> Result<()> {
    match path.exists() && !force {
        true => Err(exists(path)),
        false => Ok(()),
    }
}

fn exists(path: &Path) -> Error {
    Error::Usage(format!(
        "{} is there already: name another file, or replace it with --force",
        path.display()
    ))
}

fn write(path: &Path, text: &str, force: bool) -> Result<()> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(force)
        .create_new(!force);
    let written = options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists if !force => exists(path),
        _ => Error::io(format!("cannot write {}", path.display()), error),
    })
}
