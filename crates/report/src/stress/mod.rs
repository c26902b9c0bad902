//! Reports on stress runs: the result, a table with one row per engine and operation, and the command line that
//! repeats the first failed transfer.

use tonnage_plan::stress::StressPoint;
use tonnage_record::figures::Row;
use tonnage_record::{Outcome, Record, StressBody, StressRecord};
use tonnage_units::quantity::human::{exact_duration, exact_size, seconds, size};

use crate::layout::Report;
use crate::result::{ReportResult, ResultWord, not_done};
use crate::table::{Line, TableBuilder, TitledTable};
use crate::{engine, filling};

/// Report on randomized transfers.
pub struct StressReport;

/// Columns of the table.
const ROWS: &[&str] = &[
    "engine",
    "op",
    "draws",
    "operations",
    "verified_bytes",
    "bandwidth_bytes_per_s_mean",
    "message_rate_per_s_mean",
    "latency_ns_p50",
    "latency_ns_p99",
    "latency_ns_max",
    "draw_failures",
    "draws_skipped",
];

impl Report for StressReport {
    type Body = StressBody;

    /// Each run has its own verdict.
    fn same_section(_left: StressRecord<'_>, _right: StressRecord<'_>) -> bool {
        false
    }

    fn configuration(first: StressRecord<'_>, _: &[StressRecord<'_>]) -> Vec<String> {
        let point = &first.body.point;
        vec![
            format!(
                "{} stress",
                engine::name(&point.engine, &point.engine_options)
            ),
            format!("{} ranks", point.ranks),
            format!("seed {}", point.seed),
            format!("{} drawn", exact_duration(point.duration_ns)),
            format!("sizes up to {}", exact_size(point.size_bytes_max.into())),
            threads(point),
            format!("{} memory", point.memory),
            "latency of one operation".to_owned(),
        ]
    }

    fn result(records: &[StressRecord<'_>]) -> Option<ReportResult> {
        records.first().map(result)
    }

    fn tables(records: &[StressRecord<'_>]) -> Vec<TitledTable> {
        let drawn = records.iter().filter(|record| !record.body.rows.is_empty());
        let rows = drawn.flat_map(|record| Row::all_of_record(record.record));
        let builder = TableBuilder::new(rows.map(Line::from).collect());
        builder.always(ROWS).table().into_iter().collect()
    }

    fn footers(records: &[StressRecord<'_>]) -> Vec<String> {
        let skips = records.iter().flat_map(skips);
        engines(records).into_iter().chain(skips).collect()
    }

    fn commands(records: &[StressRecord<'_>]) -> Vec<String> {
        let failures = records
            .iter()
            .filter_map(|it| it.body.first_failure.as_ref());
        failures.map(|failure| failure.command.clone()).collect()
    }
}

/// Libraries and devices per engine, and devices that do not fill their own memory.
fn engines(records: &[StressRecord<'_>]) -> Vec<String> {
    let chosen = |record: &StressRecord<'_>| {
        let each = record.effective.iter();
        let alone = each.map(|effective| Record {
            effective: vec![effective.clone()],
            ..record.record.clone()
        });
        alone.collect::<Vec<_>>()
    };
    let alone: Vec<Record> = records.iter().flat_map(chosen).collect();
    let engines = engine::lines(alone.iter()).into_iter();
    engines.chain(filling::lines(alone.iter())).collect()
}

fn threads(point: &StressPoint) -> String {
    let numbers: Vec<_> = point.threads.iter().map(u32::to_string).collect();
    match point.threads[..] {
        [1] => "1 thread".to_owned(),
        _ => format!("{} threads", numbers.join(" or ")),
    }
}

/// Reasons for skips.
fn skips(record: &StressRecord<'_>) -> Vec<String> {
    let rows = record.body.rows.iter();
    let skips = rows.filter_map(|row| {
        let why = row.skipped_why.as_ref()?;
        let (engine, op, skipped) = (&row.engine, row.op, row.skipped);
        Some(format!(
            "skipped: {skipped} of {engine} {op}, the first because {why}"
        ))
    });
    skips.collect()
}

fn result(record: &StressRecord<'_>) -> ReportResult {
    let body = record.body;
    let (draws, failures) = (body.sum(|row| row.draws), body.sum(|row| row.failures));
    let verified = body.sum(|row| row.verified_bytes);
    let (bytes, moved) = (size(verified), body.sum(|row| row.payload_bytes));
    // If a slot is written twice, the first write can no longer be checked.
    let checked = match verified >= moved {
        true => format!("all {bytes} that moved were checked and are correct"),
        false => format!(
            "{bytes} of {} moved were checked (the last visit of each slot) and are correct",
            size(moved)
        ),
    };
    let time = seconds(body.elapsed_ns);
    let tried = format!("{draws} transfers in {time}");
    match (&record.outcome, &body.first_failure) {
        (Outcome::Measured, _) => ResultWord::Pass.with(format!("{tried}: {checked}")),
        (Outcome::Skipped { why }, _) => not_done(record.record, why),
        (Outcome::Failed { .. }, Some(first)) => ResultWord::Fail
            .with(format!("{failures} of {tried} failed"))
            .then(format!(
                "first: transfer {}, {} {}: {}",
                first.draw, first.engine, first.op, first.why
            )),
        (Outcome::Failed { why }, None) if draws > 0 => ResultWord::Fail
            .with(format!("stopped early: {why}"))
            .then(format!("until then {tried}: {checked}")),
        (Outcome::Failed { why }, None) => ResultWord::Fail.with(why),
    }
}

#[cfg(test)]
mod tests {
    use crate::samples::stress::stresses;
    use crate::tests::table_of;
    use crate::{Format, render};

    #[test]
    fn tables_look_as_agreed() {
        let records = stresses();
        insta::assert_snapshot!("stress", table_of(&records));
        let csv = render(Format::Csv, &records).unwrap();
        insta::assert_snapshot!("csv_stress", csv.replace("\r\n", "\n"));
    }
}
