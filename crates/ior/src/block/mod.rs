//! IOR's result block, drawn from records, for scripts that parse it by position or by key.
//!
//! | file | contents |
//! | --- | --- |
//! | [`figures`] | from a record to IOR's figures |
//! | [`text`] | the table of IOR 4 |
//! | [`json`], [`csv`] | the formats of `-O summaryFormat=` |
//! | [`date`] | dates in IOR's format |
//!
//! Every figure of the block comes from a record, so nothing is lost if the block is not kept. tonnage's own reports of
//! records are in `tonnage_report`.

pub mod csv;
pub mod date;
pub mod figures;
pub mod json;
pub mod text;

use tonnage_record::FileRecord;

use super::options::{IorOptions, SummaryFormat};
use figures::BlockFigures;

/// Facts about a run that the block shows but neither the record nor the options contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// The command line, beginning with the program's name.
    pub command: Vec<String>,
    /// Start of the run, in nanoseconds since 1970.
    pub began_unix_ns: u64,
    /// Version of tonnage.
    pub version: String,
}

/// Returns the result block of one experiment in the requested format.
pub fn render(options: &IorOptions, run: &RunFacts, record: FileRecord<'_>) -> String {
    let figures = BlockFigures::new(options, record);
    match options.summary_format {
        SummaryFormat::Text => text::render(options, run, record, &figures),
        SummaryFormat::Json => json::render(options, run, record, &figures),
        SummaryFormat::Csv => csv::render(&record.body.point, &figures),
    }
}

/// Returns whether a text is exactly one tonnage result block, in any format. The caller may then overwrite it.
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
