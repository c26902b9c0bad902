//! IOR's result block, drawn from records, for scripts that read it by position or by key.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`figures`] | from a record to the figures that IOR has |
//! | [`text`] | the table, as IOR 4 prints it |
//! | [`json`], [`csv`] | the formats of `-O summaryFormat=` |
//! | [`date`], `run` | points in time as IOR writes them, and what else the block shows of a run |
//!
//! tonnage's own reports on a record are in `tonnage_report`; a figure that is only here would be lost.

pub mod csv;
pub mod date;
pub mod figures;
pub mod json;
mod run;
pub mod text;

pub use run::RunFacts;

use tonnage_record::FileRecord;

use super::options::{IorOptions, SummaryFormat};
use figures::BlockFigures;

/// The result block of one experiment in the format that the options ask for.
pub fn render(options: &IorOptions, run: &RunFacts, record: FileRecord<'_>) -> String {
    let figures = BlockFigures::new(options, record);
    match options.summary_format {
        SummaryFormat::Text => text::render(options, run, record, &figures),
        SummaryFormat::Json => json::render(options, run, record, &figures),
        SummaryFormat::Csv => csv::render(&record.body.point, &figures),
    }
}

#[cfg(test)]
mod tests;
