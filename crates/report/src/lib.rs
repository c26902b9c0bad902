//! Reports: pure functions from records to text, so that any of them can be redrawn from a file a year later.
//!
//! | module | what it makes |
//! | --- | --- |
//! | [`columns`] | the one list of columns: names, units, meanings, values |
//! | [`engine`] | an engine's account of its options, library and devices |
//! | [`explain`] | meanings of columns, for `tonnage explain` |
//! | [`table`] | tables for people, one for each configuration |
//! | [`files`] | tables and columns of file experiments |
//! | [`verify`] | the table of a run that checks bytes instead of timing them |
//! | [`connect`] | tables of experiments with connections |
//! | [`csv`], [`jsonl`] | every figure for programs |
//! | [`tour`] | the page that a tour ends with |
//! | [`wire_proof`] | the devices that the payload crossed, in tables |
//! | [`text`] | numbers, sizes and durations as tables print them, and line wrapping |
//!
//! Nothing here measures, reads a file or knows an engine. Records come from `tonnage_record`. Next: [`columns`] for what
//! a figure means, [`table`] for how it is laid out.

#![forbid(unsafe_code)]

pub mod columns;
pub mod connect;
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

use tonnage_record::read::final_attempts;
use tonnage_record::{Body, Record};
use tonnage_units::Result;

/// Formats that `--format` chooses from.
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
pub fn render(format: Format, records: &[Record]) -> Result<String> {
    match format {
        Format::Jsonl => jsonl::jsonl(records),
        Format::Csv => Ok(csv::csv(records)),
        Format::Table => Ok(tables(&final_attempts(records))),
    }
}

/// Consecutive records that are drawn in one way make a part of the text.
fn tables(records: &[Record]) -> String {
    let parts = records.chunk_by(|left, right| drawn_by(left) == drawn_by(right));
    let drawn = parts.map(|part| {
        let transfers = || {
            part.iter()
                .filter_map(Record::as_transfer)
                .collect::<Vec<_>>()
        };
        match part.first().map(drawn_by) {
            None => String::new(),
            Some(DrawnBy::Verify) => verify::verify(&transfers()),
            Some(DrawnBy::Transfers) => table::table(&transfers()),
            Some(DrawnBy::Files) => {
                files::table(&part.iter().filter_map(Record::as_file).collect::<Vec<_>>())
            }
            Some(DrawnBy::Connections) => connect::table(
                &part
                    .iter()
                    .filter_map(Record::as_connect)
                    .collect::<Vec<_>>(),
            ),
        }
    });
    drawn.collect::<Vec<_>>().join("\n")
}

/// Report that draws a table.
#[derive(PartialEq)]
enum DrawnBy {
    /// Runs of `tonnage verify`, in one table.
    Verify,
    /// A table for each configuration.
    Transfers,
    /// A table for each experiment.
    Files,
    /// A table of points and one of steps for each configuration.
    Connections,
}

fn drawn_by(record: &Record) -> DrawnBy {
    match &record.body {
        Body::Transfer(_) if verify::is_verify(record) => DrawnBy::Verify,
        Body::Transfer(_) => DrawnBy::Transfers,
        Body::File(_) => DrawnBy::Files,
        Body::Connect(_) => DrawnBy::Connections,
    }
}
