//! Report of file experiments: a record makes a title that states the experiment, a table of its phases, one of the
//! latencies of single transfers, and below them what a reader has to know.
//!
//! | module | what it makes |
//! | --- | --- |
//! | `title` | the configuration in the field's words |
//! | `footnotes` | where the files were, what limits them, whether reads were cold, stonewall, slow ranks, … |
//! | `series` | the rate over time as one line of digits |
//! | `published` | what others measured beside what was measured here |
//!
//! Nothing here knows an engine or a file system by name.

mod footnotes;
mod published;
mod series;
mod title;
mod words;

use tonnage_record::body::Part;
use tonnage_record::figures::Row;
use tonnage_record::{FileBody, FileRecord};

use crate::derived::TRIAL;
use crate::drawer::Report;
use crate::table::{Line, Sheet, TitledTable};

/// File experiments; each stands for itself.
pub struct Files;

/// Figures of the table of phases, behind the phase's name.
const PHASES: &[&str] = &[
    "bandwidth_bytes_per_s_mean",
    "bandwidth_mib_per_s_mean",
    "operations_per_s_mean",
    "open_ns_mean",
    "transfer_ns_mean",
    "sync_ns_mean",
    "close_ns_mean",
    "total_ns_mean",
    "cpu_ns_per_operation",
    "cpu_ns_per_gib",
    "utilization",
];

/// Figures of the table of latencies.
const LATENCIES: &[&str] = &[
    "phase",
    "transfers",
    "latency_samples",
    "latency_ns_min",
    "latency_ns_mean",
    "latency_ns_p50",
    "latency_ns_p90",
    "latency_ns_p99",
    "latency_ns_p999",
    "latency_ns_max",
];

impl Report for Files {
    type Body = FileBody;

    fn together(_: FileRecord<'_>, _: FileRecord<'_>) -> bool {
        false
    }

    fn configuration(first: FileRecord<'_>, _: &[FileRecord<'_>]) -> Vec<String> {
        title::configuration(first)
    }

    fn tables(records: &[FileRecord<'_>]) -> Vec<TitledTable> {
        let tables = records
            .iter()
            .map(|record| [phases(*record), latencies(*record)]);
        tables.flatten().flatten().collect()
    }

    fn footers(records: &[FileRecord<'_>]) -> Vec<String> {
        let lines = records.iter().map(|record| footnotes::lines(*record));
        lines.flatten().collect()
    }
}

/// A line for each phase; where it has several repetitions, one for each before it.
fn phases(record: FileRecord<'_>) -> Option<TitledTable> {
    let (mut lines, mut names) = (Vec::new(), Vec::new());
    for (at, phase) in record.body.phases.iter().enumerate() {
        let row = Row {
            record: record.record,
            part: Part::Nth(at),
        };
        let repeated = phase.trials.len() > 1;
        for (place, trial) in phase.trials.iter().enumerate().filter(|_| repeated) {
            lines.push(Line {
                row,
                trial: Some(place),
            });
            names.push(trial.trial.to_string());
        }
        lines.push(Line::from(row));
        names.push(if repeated { "mean" } else { "" }.to_owned());
    }
    let sheet = Sheet::new(lines, "-").known(&["phase"]);
    sheet.words(TRIAL.name, names, true).known(PHASES).table()
}

/// A line for the writes of a phase and one for its reads, as far as it made any.
fn latencies(record: FileRecord<'_>) -> Option<TitledTable> {
    let rows = Row::of(record.record).into_iter();
    let rows = rows.filter(|row| record.body.transfers(row.part).is_some());
    Sheet::new(rows.map(Line::from).collect(), "-")
        .known(LATENCIES)
        .table()
}

#[cfg(test)]
mod tests {
    use tonnage_record::figures::by_field;

    use super::*;

    #[test]
    fn every_figure_of_a_table_exists() {
        for field in PHASES.iter().chain(LATENCIES) {
            assert!(by_field(field).is_some(), "{field}");
        }
    }
}
