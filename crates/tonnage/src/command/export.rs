//! `tonnage export`: records as other programs read them.

use std::process::ExitCode;

use tonnage_report::export::{Exported, export as exported};
use tonnage_units::{Error, Result};

use super::print;
use super::readable::{is_same_file, records_of};
use super::whole_file::{refuse_existing, replace};
use crate::args::export::ExportArgs;

/// Writes the records of all files in one text.
///
/// # Errors
/// A wrong request; files that cannot be read or written.
pub fn export(args: &ExportArgs) -> Result<ExitCode> {
    if let Some(path) = args.output.as_deref() {
        refuse_existing(path, args.force)?;
        if args.files.iter().any(|file| is_same_file(file, path)) {
            return Err(Error::Usage(format!(
                "{} is read and would be replaced: name another file for --output",
                path.display()
            )));
        }
    }
    let mut records = Vec::with_capacity(args.files.len());
    for (at, file) in args.files.iter().enumerate() {
        if let Some(other) = args.files[..at].iter().find(|it| is_same_file(it, file)) {
            return Err(Error::Usage(format!(
                "{} and {} are the same file: name it once",
                other.display(),
                file.display()
            )));
        }
        records.push(records_of(file)?);
    }
    let Exported { text, left_out } = exported(args.to, &records, &args.metric)?;
    match args.output.as_deref() {
        Some(path) => replace(path, &text, args.force)?,
        None => print(&text)?,
    }
    if let Some(left_out) = left_out {
        log::warn!("{left_out}");
    }
    Ok(ExitCode::SUCCESS)
}
