//! `tonnage compare`: reads the records of two sides and says on each point which one is better.

use std::process::ExitCode;

use tonnage_judge::compare::compare as compared;
use tonnage_judge::sides::{of_one_file, of_two_files};
use tonnage_units::{Error, Result};

use super::print;
use super::readable::{is_same_file, records_of};
use super::whole_file::{refuse_existing, replace};
use crate::args::compare::CompareArgs;

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
        Some(path) => replace(path, &text, args.force)?,
        None => print(&text)?,
    }
    let mut verdicts = comparison.points.iter().map(|point| point.verdict);
    let fails = verdicts.any(|verdict| args.fail_on.iter().any(|on| on.takes(verdict)));
    Ok(ExitCode::from(u8::from(fails)))
}
