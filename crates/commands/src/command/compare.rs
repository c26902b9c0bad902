//! `tonnage compare`: reads the records of two sides and prints a verdict for each point.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tonnage_judge::compare::{CompareRequest, Comparison, compare as compare_sides};
use tonnage_judge::sides::{sides_of_one_file, sides_of_two_files};
use tonnage_record::Record;
use tonnage_report::compare::render;
use tonnage_units::message::print_message;
use tonnage_units::{Error, Result};

use super::atomic_file::{refuse_existing, replace};
use super::print;
use super::record_files::{is_same_file, records_of};
use crate::args::compare::CompareArgs;

/// Compares two sides.
pub fn compare(args: &CompareArgs) -> Result<ExitCode> {
    let request = args.request()?;
    if let Some(path) = args.output.as_deref() {
        refuse_existing(path, args.force)?;
    }
    refuse_one_file(&args.files)?;
    let records = args.files.iter().map(|file| records_of(file));
    let records = records.collect::<Result<Vec<_>>>()?;
    let of = |path: &Path| {
        let at = args.files.iter().position(|file| file == path);
        at.map_or(&[][..], |at| records[at].as_slice())
    };
    let (comparison, names) = compared(&args.files, of, &request)?;
    let names = [names[0].as_str(), &names[1]];
    let text = render(args.format, &comparison, names, &args.fail_on)?;
    match args.output.as_deref() {
        Some(path) => replace(path, &text, args.force)?,
        None => print(&text)?,
    }
    let verdicts = comparison.points.iter().map(|point| point.verdict);
    let failing = verdicts.filter(|&verdict| args.fail_on.iter().any(|on| on.includes(verdict)));
    let failing = failing.count();
    if failing > 0 {
        let named: Vec<String> = args.fail_on.iter().map(ToString::to_string).collect();
        print_message(&format!(
            "error: {failing} of {} points: {} (--fail-on)",
            comparison.points.len(),
            named.join(" or ")
        ));
    }
    Ok(ExitCode::from(u8::from(failing > 0)))
}

/// Compares the records of two files, or of one file with both sides. `of` returns the records of a file. Also returns
/// the names of the two sides.
pub fn compared<'a>(
    files: &[PathBuf],
    of: impl Fn(&Path) -> &'a [Record],
    request: &CompareRequest,
) -> Result<(Comparison, [String; 2])> {
    let names: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    if let [a, b] = files {
        let sides = sides_of_two_files([(of(a), &names[0]), (of(b), &names[1])])?;
        return Ok((
            compare_sides(&sides, request)?,
            [names[0].clone(), names[1].clone()],
        ));
    }
    let (file, name) = match (files, names.as_slice()) {
        ([file, ..], [name, ..]) => (file, name),
        _ => return Err(Error::Usage("name a file of records to compare".to_owned())),
    };
    let sides = sides_of_one_file(of(file), name)?;
    let named = ["A", "B"].map(|letter| format!("side {letter} of {name}"));
    Ok((compare_sides(&sides, request)?, named))
}

/// Refuses two paths that name the same file.
pub fn refuse_one_file(files: &[PathBuf]) -> Result<()> {
    match files {
        [a, b] if is_same_file(a, b) => Err(Error::Usage(format!(
            "{} and {} are the same file: name two files, or one of `tonnage ab`",
            a.display(),
            b.display()
        ))),
        _ => Ok(()),
    }
}
