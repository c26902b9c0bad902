//! Reports: pure functions from records to text, so that any of them can be redrawn from a file a year later.
//!
//! | module | what it makes |
//! | --- | --- |
//! | [`columns`] | the one list of columns: names, units, meanings, values |
//! | [`engine`] | what an engine says about its options, library and devices |
//! | [`explain`] | what a column means, for `tonnage explain` |
//! | [`table`] | tables for people, one for each configuration |
//! | [`verify`] | the table of a run that checks bytes instead of timing them |
//! | [`csv`], [`jsonl`] | every figure for programs |
//! | [`page`] | the page that a tour ends with |
//! | [`path`] | what tables say about the devices that the payload crossed |
//! | [`text`] | numbers, sizes and durations as tables print them, and line wrapping |
//!
//! Nothing here measures, reads a file or knows an engine.

pub mod columns;
pub mod csv;
pub mod engine;
pub mod explain;
pub mod jsonl;
pub mod page;
pub mod path;
pub mod table;
pub mod text;
mod title;
pub mod verify;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use tonnage_core::Result;
use tonnage_core::record::Record;
use tonnage_core::record::read::final_attempts;

/// What `--format` chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people, in 120 columns.
    Table,
    /// The records themselves, one JSON object a line.
    Jsonl,
    /// All columns in base units, one row for each record.
    Csv,
}

impl From<crate::args::common::Format> for Format {
    fn from(format: crate::args::common::Format) -> Self {
        use crate::args::common::Format as Argument;
        match format {
            Argument::Table => Self::Table,
            Argument::Jsonl => Self::Jsonl,
            Argument::Csv => Self::Csv,
        }
    }
}

/// Draws records in a format. Tables leave out attempts that failed and were made again. No records give an empty text, or a header alone.
///
/// # Errors
/// When a record cannot be written as JSON.
pub fn render(format: Format, records: &[Record]) -> Result<String> {
    match format {
        Format::Jsonl => jsonl::jsonl(records),
        Format::Csv => Ok(csv::csv(records)),
        Format::Table => Ok(tables(&final_attempts(records))),
    }
}

/// Records of `tonnage verify` make one table, all others one for each configuration.
fn tables(records: &[Record]) -> String {
    records
        .chunk_by(|left, right| verify::is_verify(left) == verify::is_verify(right))
        .map(|part| {
            if verify::is_verify(&part[0]) {
                verify::verify(part)
            } else {
                table::table(part)
            }
        })
        .collect::<Vec<_>>()
        .join("\n")
}
