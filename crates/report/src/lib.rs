//! Reports: pure functions from records to text, so that any of them can be redrawn from a file a year later.
//!
//! | module | what it makes |
//! | --- | --- |
//! | [`columns`] | the one list of columns: names, units, meanings, values |
//! | [`engine`] | what an engine says about its options, library and devices |
//! | [`explain`] | what a column means, for `tonnage explain` |
//! | [`table`] | tables for people, one for each configuration |
//! | [`files`] | tables and columns of file experiments |
//! | [`verify`] | the table of a run that checks bytes instead of timing them |
//! | [`csv`], [`jsonl`] | every figure for programs |
//! | [`tour`] | the page that a tour ends with |
//! | [`wire_proof`] | what tables say about the devices that the payload crossed |
//! | [`text`] | numbers, sizes and durations as tables print them, and line wrapping |
//!
//! Nothing here measures, reads a file or knows an engine.

#![forbid(unsafe_code)]

pub mod columns;
pub mod csv;
pub mod devices;
pub mod engine;
pub mod explain;
pub mod files;
pub mod jsonl;

pub mod table;
pub mod text;
mod title;
pub mod tour;
pub mod verify;
pub mod wire_proof;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use tonnage_record::files::FileRecord;
use tonnage_record::read::final_attempts;
use tonnage_record::{Line, Record};
use tonnage_units::Result;

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

/// Draws records in a format. Tables leave out attempts that failed and were made again. No records give an empty text,
/// or a header alone.
///
/// # Errors
/// When a record cannot be written as JSON.
pub fn render(format: Format, lines: &[Line]) -> Result<String> {
    match format {
        Format::Jsonl => jsonl::jsonl(lines),
        Format::Csv => Ok(csv::csv(lines)),
        Format::Table => Ok(tables(final_attempts(lines))),
    }
}

/// Consecutive records that are drawn together.
enum Part {
    /// Of `tonnage verify`, in one table.
    Verify(Vec<Record>),
    /// A table for each configuration.
    Transfers(Vec<Record>),
    /// A table for each experiment.
    Files(Vec<FileRecord>),
}

fn tables(lines: Vec<Line>) -> String {
    let mut parts: Vec<Part> = Vec::new();
    for line in lines {
        match (parts.last_mut(), line) {
            (Some(Part::Verify(part)), Line::Transfer(record)) if verify::is_verify(&record) => {
                part.push(*record)
            }
            (Some(Part::Transfers(part)), Line::Transfer(record))
                if !verify::is_verify(&record) =>
            {
                part.push(*record)
            }
            (Some(Part::Files(part)), Line::File(record)) => part.push(*record),
            (_, Line::Transfer(record)) if verify::is_verify(&record) => {
                parts.push(Part::Verify(vec![*record]))
            }
            (_, Line::Transfer(record)) => parts.push(Part::Transfers(vec![*record])),
            (_, Line::File(record)) => parts.push(Part::Files(vec![*record])),
        }
    }
    let drawn = parts.iter().map(|part| match part {
        Part::Verify(records) => verify::verify(records),
        Part::Transfers(records) => table::table(records),
        Part::Files(records) => files::table(records),
    });
    drawn.collect::<Vec<_>>().join("\n")
}
