//! Reports on file experiments. Each record becomes a title with the experiment's configuration, a table of phases, a
//! table of transfer latencies, and footnotes.
//!
//! | module | output |
//! | --- | --- |
//! | `title` | the configuration |
//! | `footnotes` | storage, bounds, page cache state, stonewall, slow ranks, … |
//! | `series` | the rate over time as a line of digits |
//! | `published` | comparison with published figures |
//!
//! This module knows no engine or file system by name.

mod footnotes;
mod published;
mod series;
mod title;
mod words;

use tonnage_record::body::Part;
use tonnage_record::figures::Row;
use tonnage_record::{FileBody, FileRecord};

use crate::column::Column;
use crate::derived::TRIAL;
use crate::layout::Report;
use crate::table::{Line, TableBuilder, TitledTable};

/// Report on file experiments. Each record has its own section.
pub struct Files;

/// Columns of the phase table, after the phase name.
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

/// Columns of the latency table.
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

    fn same_section(_: FileRecord<'_>, _: FileRecord<'_>) -> bool {
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

/// One row per phase. A phase with several trials has one row per trial, then the mean.
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
    let builder = TableBuilder::new(lines)
        .keyed_by(&["phase"])
        .if_known(&["phase"]);
    let builder = match names.iter().all(String::is_empty) {
        true => builder,
        false => builder.column(Column::words(TRIAL.name, names, true)),
    };
    builder.if_known(PHASES).table()
}

/// One row for the writes of a phase and one for its reads, if there were any.
fn latencies(record: FileRecord<'_>) -> Option<TitledTable> {
    let rows = Row::all_of_record(record.record).into_iter();
    let rows = rows.filter(|row| record.body.transfers(row.part).is_some());
    TableBuilder::new(rows.map(Line::from).collect())
        .if_known(LATENCIES)
        .table()
}

#[cfg(test)]
mod tests {
    use tonnage_record::figures::figure_by_field;

    use super::*;

    #[test]
    fn every_figure_of_a_table_exists() {
        for field in PHASES.iter().chain(LATENCIES) {
            assert!(figure_by_field(field).is_some(), "{field}");
        }
    }
}
