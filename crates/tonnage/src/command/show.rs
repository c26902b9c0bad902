//! `tonnage show`, `tonnage explain` and `tonnage devices`: what needs no measuring.

use std::process::ExitCode;

use tonnage_engines::LISTS;
use tonnage_machine::devices::Inventory;
use tonnage_record::read::read_records;
use tonnage_units::{Error, Result};

use super::print;
use crate::args::{ExplainArgs, ShowArgs};
use tonnage_report::devices;

/// Draws a file of records again.
///
/// # Errors
/// When the file cannot be read, is not one of records, or holds none.
pub fn show(args: &ShowArgs) -> Result<ExitCode> {
    let file = read_records(&args.file)?;
    print(&tonnage_report::render(args.format, &file.records)?)?;
    if file.truncated_tail {
        log::warn!(
            "the last line of {} is not whole and was left out",
            args.file.display()
        );
    }
    if file.records.is_empty() {
        return Err(Error::Failed(format!(
            "{} holds no records",
            args.file.display()
        )));
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what a column means.
///
/// # Errors
/// For a column that no table has.
pub fn explain(args: &ExplainArgs) -> Result<ExitCode> {
    print(&tonnage_report::explain::explain(args.column.as_deref())?)?;
    Ok(ExitCode::SUCCESS)
}

/// Lists what this host has, and the engines, memories and backends of this program.
///
/// # Errors
/// When it cannot be written.
pub fn devices(json: bool) -> Result<ExitCode> {
    let found = Inventory::read();
    let text = if json {
        devices::json(&found)? + "\n"
    } else {
        devices::text(&found)
            + &devices::engines(LISTS.engines)
            + &devices::file_engines(LISTS.file_engines)
            + &devices::memories(LISTS.memories)
            + &devices::backends(LISTS.backends)
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
