//! `tonnage export`: converts records to the formats of other programs.

use std::process::ExitCode;

use tonnage_report::export::{Exported, export as exported};
use tonnage_units::{Error, Result};

use super::atomic_file::{refuse_existing, replace};
use super::print;
use super::record_files::{is_same_file, records_of, refuse_twice};
use crate::args::export::ExportArgs;

/// Writes the records of all files as one text.
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
    refuse_twice(&args.files)?;
    let records = args.files.iter().map(|file| records_of(file));
    let records = records.collect::<Result<Vec<_>>>()?;
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
