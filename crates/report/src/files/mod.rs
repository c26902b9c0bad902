//! Reports of file experiments: a record makes a title that states the experiment, a table of its phases, one of the
//! latencies of single transfers, and below them what a reader has to know.
//!
//! | module | what it makes |
//! | --- | --- |
//! | [`columns`] | the one list of columns that tables, CSV and `tonnage explain` read |
//! | [`row`] | the source of a column's value: a repetition of a phase, or all of them |
//! | `title` | the configuration in the field's words |
//! | `footnotes` | where the files were, what limits them, whether reads were cold, stonewall, slow ranks, … |
//! | `series` | the rate over time as one line of digits |
//! | `published` | what others measured beside what was measured here |
//!
//! Nothing here knows an engine or a file system by name.

pub mod columns;
mod footnotes;
mod published;
pub mod row;
mod series;
mod title;
mod words;

use tonnage_record::FileRecord;
use tonnage_record::Outcome;
use tonnage_record::files::PhaseRecord;

use super::columns::Value;
use super::table::{draw, shown};
use super::text::{WIDTH, wrap};
use columns::{FileColumn, by_field};
use row::Row;

/// Columns of the table of phases; the first two are words.
const PHASES: &[&str] = &[
    "phase",
    "trial",
    "bandwidth_bytes_per_s",
    "bandwidth_mib_per_s",
    "operations_per_s",
    "open_ns",
    "transfer_ns",
    "sync_ns",
    "close_ns",
    "total_ns",
    "cpu_ns_per_operation",
    "cpu_ns_per_gib",
    "utilization",
];

/// Columns of the table of latencies; the first two are words.
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

/// Tables for all experiments, in their order, with an empty line between two.
pub fn table(records: &[FileRecord<'_>]) -> String {
    records
        .iter()
        .map(|record| one_experiment(*record))
        .collect::<Vec<_>>()
        .join("\n")
}

fn one_experiment(record: FileRecord<'_>) -> String {
    let mut parts = vec![title::title(record)];
    let rows = phase_rows(record);
    let repeated = record
        .body
        .phases
        .iter()
        .any(|phase| phase.trials.len() > 1);
    let is_shown = |column: &FileColumn| column.field != "trial" || repeated;
    parts.extend(drawn(PHASES, &rows, is_shown));
    let latencies = drawn(LATENCIES, &latency_rows(record), |_| true);
    parts.extend(latencies.map(|table| format!("\n{table}\n")));
    let lines = footnotes::lines(record).into_iter();
    parts.extend(lines.map(|line| wrap(&line, WIDTH, 4)));
    parts.join("\n") + "\n"
}

/// One row for each repetition, and where there are several one for their mean.
fn phase_rows(record: FileRecord<'_>) -> Vec<Row<'_>> {
    let of_phase = |phase: &'_ PhaseRecord| {
        let mean = (phase.trials.len() > 1).then_some(None);
        (0..phase.trials.len())
            .map(Some)
            .chain(mean)
            .collect::<Vec<_>>()
    };
    let phases = record.body.phases.iter();
    let rows = phases.flat_map(|phase| {
        of_phase(phase)
            .into_iter()
            .map(move |at| Row::of(record, phase, at.and_then(|at| phase.trials.get(at))))
    });
    rows.collect()
}

/// One row for the writes of a phase and one for its reads, as far as it made any.
fn latency_rows(record: FileRecord<'_>) -> Vec<Row<'_>> {
    let phases = record.body.phases.iter();
    let rows = phases.flat_map(|phase| {
        let latencies = phase.latencies.iter();
        latencies.map(move |one| Row::of(record, phase, None).with_transfers(one.write))
    });
    rows.collect()
}

/// A table of those columns that are wanted and of which any row has a value; `None` without rows.
fn drawn(
    fields: &[&str],
    rows: &[Row<'_>],
    is_wanted: impl Fn(&FileColumn) -> bool,
) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let has_value =
        |column: &&FileColumn| rows.iter().any(|row| (column.value)(row) != Value::Unknown);
    let columns: Vec<&FileColumn> = fields
        .iter()
        .filter_map(|field| by_field(field))
        .filter(|column| is_wanted(column))
        .filter(has_value)
        .collect();
    let header = columns
        .iter()
        .map(|column| column.name.replacen(" (", "\n(", 1));
    let mut cells = vec![header.collect()];
    cells.extend(rows.iter().map(|row| {
        let cells = columns
            .iter()
            .map(|column| shown((column.value)(row), column.style, "-"));
        cells.collect()
    }));
    let words = columns
        .iter()
        .filter(|column| matches!(column.field, "phase" | "transfers"))
        .count();
    Some(draw(cells, |at| at >= words))
}

/// Outcome of an experiment that was not measured to its end.
fn outcome(record: FileRecord<'_>) -> Option<String> {
    let kept = match record.body.phases.len() {
        0 => "",
        1 => " (the phase above had ended before)",
        _ => " (the phases above had ended before)",
    };
    match &record.outcome {
        Outcome::Measured => None,
        Outcome::Skipped { why } => Some(format!("skipped: {why}")),
        Outcome::Failed { why } => Some(format!("FAILED: {why}{kept}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_of_a_table_exists() {
        for field in PHASES.iter().chain(LATENCIES) {
            assert!(by_field(field).is_some(), "{field}");
        }
    }
}
