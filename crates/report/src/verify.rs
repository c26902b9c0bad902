//! The table of `tonnage verify`: one row for each engine and operation, with what was checked and what was found.

use std::collections::BTreeSet;

use tonnage_record::{Outcome, Record, TransferRecord};

use super::engine;
use super::table::draw;
use super::text::{WIDTH, bytes_rounded, wrap};
use crate::wire_proof;

/// The name of the plan whose records are drawn this way.
pub const PLAN: &str = "verify";

/// Returns whether a record belongs to a run that checks bytes.
pub fn is_verify(record: &Record) -> bool {
    record.plan == PLAN
}

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

/// One table for all records, and below it every mismatch and every reason to skip, each once.
pub fn verify(records: &[TransferRecord<'_>]) -> String {
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
    let header = [
        "Engine",
        "Op",
        "Sizes",
        "Range",
        "Points right",
        "Bytes checked",
        "Result",
    ]
    .map(str::to_owned);
    let cells = std::iter::once(header.to_vec()).chain(rows.iter().map(Row::cells));
    let mut text = draw(cells.collect(), |at| matches!(at, 2 | 4 | 5));
    let mut unproven: Vec<String> = records
        .iter()
        .filter_map(|record| wire_proof::unproven(*record))
        .collect();
    unproven.dedup();
    let below = rows.iter().flat_map(Row::below);
    let by = engine::lines(records.iter().copied());
    let path = wire_proof::lines(records.iter().copied());
    for line in below.chain(by).chain(path).chain(unproven) {
        text.push('\n');
        text.push_str(&wrap(&line, WIDTH, 4));
    }
    text.push_str(&format!("\n{}\n", verdict(&rows)));
    text
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
        let checked = bytes_rounded(self.checked_bytes);
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
    let checked = bytes_rounded(rows.iter().map(|row| row.checked_bytes).sum());
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
