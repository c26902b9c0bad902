//! Reports on file experiments. Each record becomes the result, a title with the experiment's configuration, a table of
//! phases, and footnotes.
//!
//! | module | output |
//! | --- | --- |
//! | `title` | the configuration |
//! | `cache` | the result, and which phases measured memory instead of storage |
//! | `footnotes` | storage, bounds, stonewall, slow ranks, … |
//! | `series` | the rate over time as a line of digits |
//! | `published` | comparison with published figures |
//!
//! This module knows no engine by name.

mod cache;
mod footnotes;
mod published;
mod series;
mod title;
mod words;

use tonnage_record::body::Part;
use tonnage_record::figures::{Row, Value, figure_by_field};
use tonnage_record::{FileBody, FileRecord};

use crate::column::Column;
use crate::derived::{CACHE, TRIAL};
use crate::layout::Report;
use crate::result::ReportResult;
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
];

/// Columns of latencies. `--columns` and CSV offer more percentiles.
const LATENCIES: &[&str] = &["latency_ns_p50", "latency_ns_p99", "latency_ns_max"];

impl Report for Files {
    type Body = FileBody;

    fn same_section(_: FileRecord<'_>, _: FileRecord<'_>) -> bool {
        false
    }

    fn configuration(first: FileRecord<'_>, _: &[FileRecord<'_>]) -> Vec<String> {
        title::configuration(first)
    }

    fn result(records: &[FileRecord<'_>]) -> Option<ReportResult> {
        records.first().map(|record| cache::result(*record))
    }

    fn tables(records: &[FileRecord<'_>]) -> Vec<TitledTable> {
        let tables = records.iter().filter_map(|record| phases(*record));
        tables.collect()
    }

    fn footers(records: &[FileRecord<'_>]) -> Vec<String> {
        let lines = records.iter().map(|record| footnotes::lines(*record));
        lines.flatten().collect()
    }
}

/// One row per phase. If a phase has several trials, one row per trial precedes it. If a phase both reads and writes,
/// two rows with the latencies of reads and of writes follow it.
fn phases(record: FileRecord<'_>) -> Option<TitledTable> {
    let (mut lines, mut trials, mut caches) = (Vec::new(), Vec::new(), Vec::new());
    for (at, phase) in record.body.phases.iter().enumerate() {
        let row = |part| Row {
            record: record.record,
            part,
        };
        let repeated = phase.trials.len() > 1;
        for (place, trial) in phase.trials.iter().enumerate().filter(|_| repeated) {
            lines.push(Line {
                row: row(Part::Nth(at)),
                trial: Some(place),
            });
            trials.push(trial.trial.to_string());
            caches.push(cache::cell(record, phase, Some(trial)));
        }
        lines.push(Line::from(row(Part::Nth(at))));
        trials.push(if repeated { "mean" } else { "" }.to_owned());
        caches.push(cache::cell(record, phase, None));
        let directions = (0..phase.latencies.len()).filter(|_| phase.latencies.len() > 1);
        for direction in directions {
            lines.push(Line::from(row(Part::Inside(at, direction))));
            trials.push(String::new());
            caches.push(String::new());
        }
    }
    let has_parts = lines
        .iter()
        .any(|line| matches!(line.row.part, Part::Inside(..)));
    let latencies = latencies(&lines);
    let builder = TableBuilder::new(lines)
        .keyed_by(&["phase", "transfers"])
        .if_known(if has_parts {
            &["phase", "transfers"]
        } else {
            &["phase"]
        });
    let builder = match trials.iter().all(String::is_empty) {
        true => builder,
        false => builder.column(Column::words(TRIAL.name, trials, true)),
    };
    let builder = builder.if_known(PHASES);
    let builder = latencies.into_iter().fold(builder, TableBuilder::column);
    builder
        .if_known(&["cpu_ns_per_operation", "utilization"])
        .marks(CACHE.name, caches)
        .table()
}

/// Latencies of single transfers. They cover all trials of a phase, so rows of single trials show none.
fn latencies(lines: &[Line<'_>]) -> Vec<Column> {
    let figures = LATENCIES.iter().filter_map(|field| figure_by_field(field));
    let columns = figures.filter_map(|figure| {
        let values: Vec<Value> = lines
            .iter()
            .map(|line| match line.trial {
                Some(_) => Value::Unknown,
                None => (figure.value)(&line.row),
            })
            .collect();
        let is_known = values.iter().any(|value| *value != Value::Unknown);
        is_known.then(|| Column::values(figure, values, false))
    });
    columns.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_a_table_exists() {
        for field in PHASES.iter().chain(LATENCIES) {
            assert!(figure_by_field(field).is_some(), "{field}");
        }
    }
}
