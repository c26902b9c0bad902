//! `tonnage show` and `tonnage explain`: what needs no measuring.

use std::process::ExitCode;

use tonnage_core::Result;
use tonnage_core::record::file::read_records;

use super::print;
use crate::args::{ExplainArgs, ShowArgs};
use crate::report;

/// Draws a file of records again.
///
/// # Errors
/// When the file cannot be read or is not one of records.
pub fn show(args: &ShowArgs) -> Result<ExitCode> {
    let file = read_records(&args.file)?;
    print(&report::render(args.format.into(), &file.records)?)?;
    if file.truncated_tail {
        log::warn!("the last line of {} is not whole and was left out", args.file.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what a column means.
///
/// # Errors
/// For a column that no table has.
pub fn explain(args: &ExplainArgs) -> Result<ExitCode> {
    print(&report::explain::explain(args.column.as_deref())?)?;
    Ok(ExitCode::SUCCESS)
}
