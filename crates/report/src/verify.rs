//! The table of `tonnage verify`: one row for each engine and operation, with what was checked and what was found.

use std::collections::BTreeSet;

use tonnage_record::figures::by_field;
use tonnage_record::{Outcome, Record, TransferBody, TransferRecord};
use tonnage_units::quantity::human::size;

use crate::derived::{CHECKED, RANGE, RESULT, RIGHT, SIZES};
use crate::drawer::Report;
use crate::table::draw;
use crate::{engine, wire_proof};

/// The name of the plan whose records are drawn this way.
pub const PLAN: &str = "verify";

/// Outcome of one engine's operation.
#[derive(Default)]
struct Row {
    /// Engine with its options.
    engine: String,
    op: &'static str,
    sizes: BTreeSet<u32>,
    checked_bytes: u64,
    right: usize,
    unchecked: usize,
    skipped: Vec<String>,
    failed: Vec<String>,
}

/// Runs of `tonnage verify`: one table for all records, and below it every mismatch and every reason to skip, each
/// once.
pub struct VerifyReport;

impl Report for VerifyReport {
    type Body = TransferBody;

    fn takes(record: &Record) -> bool {
        record.plan == PLAN && record.transfer().is_some()
    }

    fn together(_: TransferRecord<'_>, _: TransferRecord<'_>) -> bool {
        true
    }

    fn configuration(_: &[TransferRecord<'_>]) -> Vec<String> {
        Vec::new()
    }

    fn tables(records: &[TransferRecord<'_>]) -> Vec<String> {
        let of_figure = |field| by_field(field).map_or(field, |figure| figure.name);
        let header = [
            of_figure("engine"),
            of_figure("op"),
            SIZES.name,
            RANGE.name,
            RIGHT.name,
            CHECKED.name,
            RESULT.name,
        ];
        let header = header.map(str::to_owned).to_vec();
        let rows = rows(records);
        let cells = std::iter::once(header).chain(rows.iter().map(Row::cells));
        vec![draw(cells.collect(), |at| matches!(at, 2 | 4 | 5))]
    }

    fn footers(records: &[TransferRecord<'_>]) -> Vec<String> {
        let rows = rows(records);
        let mut lines: Vec<String> = rows.iter().flat_map(Row::below).collect();
        lines.extend(engine::lines(records.iter().map(|record| record.record)));
        lines.extend(wire_proof::lines(records.iter().copied()));
        let unproven = records.iter();
        let mut unproven: Vec<String> = unproven
            .filter_map(|record| wire_proof::unproven(*record))
            .collect();
        unproven.dedup();
        lines.extend(unproven);
        lines.push(verdict(&rows));
        lines
    }
}

/// A row for each engine and operation.
fn rows(records: &[TransferRecord<'_>]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for record in records {
        let (engine, op) = (
            engine::name(&record.body.point),
            record.body.point.op.name(),
        );
        let at = rows
            .iter()
            .position(|row| (&row.engine, row.op) == (&engine, op))
            .unwrap_or_else(|| {
                rows.push(Row {
                    engine,
                    op,
                    ..Row::default()
                });
                rows.len() - 1
            });
        rows[at].add(*record);
    }
    rows
}

impl Row {
    fn add(&mut self, record: TransferRecord<'_>) {
        let checked = record
            .body
            .trials
            .iter()
            .filter_map(|trial| trial.verified_bytes)
            .sum::<u64>();
        let note = |notes: &mut Vec<String>, why: &str| {
            if !notes.iter().any(|known| known == why) {
                notes.push(why.to_owned());
            }
        };
        match &record.outcome {
            Outcome::Measured if checked == 0 => self.unchecked += 1,
            Outcome::Measured => {
                self.right += 1;
                self.sizes.insert(record.body.point.size_bytes);
                self.checked_bytes += checked;
            }
            Outcome::Skipped { why } => note(&mut self.skipped, why),
            Outcome::Failed { why } => {
                note(
                    &mut self.failed,
                    &format!("{} B: {why}", record.body.point.size_bytes),
                );
            }
        }
    }

    fn cells(&self) -> Vec<String> {
        let range = match (self.sizes.first(), self.sizes.last()) {
            (Some(first), Some(last)) if first != last => format!("{first} B to {last} B"),
            (Some(only), _) => format!("{only} B"),
            _ => "-".to_owned(),
        };
        let sizes = self.sizes.len().to_string();
        let right = self.right.to_string();
        let checked = size(self.checked_bytes);
        vec![
            self.engine.clone(),
            self.op.to_owned(),
            sizes,
            range,
            right,
            checked,
            self.result().to_owned(),
        ]
    }

    /// Word for the result: nothing is right that was not checked.
    fn result(&self) -> &'static str {
        match self {
            Row { failed, .. } if !failed.is_empty() => "FAILED",
            Row {
                right: 0, skipped, ..
            } if !skipped.is_empty() => "skipped",
            Row { right: 0, .. } => "NOT CHECKED",
            Row {
                unchecked: 0,
                skipped,
                ..
            } if skipped.is_empty() => "ok",
            _ => "ok in part",
        }
    }

    fn below(&self) -> Vec<String> {
        let of = |what: &str, why: &str| format!("{} {} {what}: {why}", self.engine, self.op);
        let unchecked = (self.unchecked > 0).then(|| {
            of(
                "not checked",
                &format!(
                    "nothing looked at the bytes of {} measured points",
                    self.unchecked
                ),
            )
        });
        let skipped = self.skipped.iter().map(|why| of("skipped", why));
        self.failed
            .iter()
            .map(|why| of("FAILED", why))
            .chain(skipped)
            .chain(unchecked)
            .collect()
    }
}

fn verdict(rows: &[Row]) -> String {
    let checked = size(rows.iter().map(|row| row.checked_bytes).sum());
    let of = |result: &str| rows.iter().filter(|row| row.result() == result).count();
    let (failed, unchecked) = (of("FAILED"), of("NOT CHECKED"));
    if failed > 0 {
        return format!(
            "verify: {failed} of {} operations moved wrong bytes or failed",
            rows.len()
        );
    }
    if of("ok") + of("ok in part") == 0 {
        return "verify: nothing was checked".to_owned();
    }
    if unchecked > 0 {
        return format!(
            "verify: {unchecked} of {} operations were not checked",
            rows.len()
        );
    }
    format!("verify: every one of {checked} arrived as it was sent")
}
