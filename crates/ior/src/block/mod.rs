//! IOR's result block, drawn from records, for scripts that read it by position or by key.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`figures`] | from a record to the figures that IOR has |
//! | [`text`] | the table, as IOR 4 prints it |
//! | [`json`], [`csv`] | the formats of `-O summaryFormat=` |
//! | [`date`] | points in time as IOR writes them |
//!
//! tonnage's own reports on a record are in `tonnage_report`; a figure that is only here would be lost.

pub mod csv;
pub mod date;
pub mod figures;
pub mod json;
pub mod text;

use tonnage_record::FileRecord;

use super::options::{IorOptions, SummaryFormat};
use figures::BlockFigures;

/// Facts about a run that the block shows and no record or option holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// The words of the command line, the program's name first.
    pub command: Vec<String>,
    /// Nanoseconds since 1970 when the run began.
    pub began_unix_ns: u64,
    /// Version of tonnage.
    pub version: String,
}

/// The result block of one experiment in the format that the options ask for.
pub fn render(options: &IorOptions, run: &RunFacts, record: FileRecord<'_>) -> String {
    let figures = BlockFigures::new(options, record);
    match options.summary_format {
        SummaryFormat::Text => text::render(options, run, record, &figures),
        SummaryFormat::Json => json::render(options, run, record, &figures),
        SummaryFormat::Csv => csv::render(&record.body.point, &figures),
    }
}

/// Returns whether a text is a result block of tonnage in any format, and nothing else: a new one may take its place.
pub fn is_block(text: &str) -> bool {
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    if let Some(rows) = text.strip_prefix(csv::HEAD) {
        let columns = csv::HEAD.split(',').count();
        return rows.lines().all(|row| row.split(',').count() == columns);
    }
    if let Ok(whole) = serde_json::from_str::<serde_json::Value>(text) {
        let version = whole["Version"].as_str();
        return version.is_some_and(|version| version.contains(json::MEASURED_BY));
    }
    let begins = |line: &str| line.starts_with("IOR-") && line.contains(json::MEASURED_BY);
    lines().next().is_some_and(begins)
        && lines()
            .next_back()
            .is_some_and(|line| line.starts_with("Finished"))
}

#[cfg(test)]
mod tests;
