//! Rows of a verification run, for engines and backends.

use std::collections::BTreeSet;

use tonnage_record::Outcome;
use tonnage_record::figures::figure_by_field;
use tonnage_record::grouping::by_answer;
use tonnage_units::quantity::human::size;

use crate::derived::{CHECKED, RANGE, RESULT, RIGHT, SIZES};
use crate::table::TitledTable;

/// A verified point, as counted in its row.
pub struct VerifiedPoint<'a> {
    /// Engine with its options, or backend.
    pub engine: String,
    /// Operation.
    pub op: &'static str,
    /// Size of the point.
    pub size_bytes: u64,
    /// Number of verified bytes.
    pub checked_bytes: u64,
    /// Element type and reduction; empty for bytes.
    pub elements: String,
    /// Outcome of the point.
    pub outcome: &'a Outcome,
}

/// Maximum number of types and reductions to list.
const ELEMENTS_LISTED: usize = 4;

/// Sizes and elements at which a problem occurred.
#[derive(Default)]
struct Affected {
    sizes: BTreeSet<u64>,
    elements: BTreeSet<String>,
}

/// Results of one operation on one engine.
#[derive(Default)]
struct Row {
    engine: String,
    op: &'static str,
    sizes: BTreeSet<u64>,
    checked_bytes: u64,
    right: usize,
    unchecked: usize,
    /// Reasons for skips.
    skipped: Vec<(String, Affected)>,
    /// Failures.
    failed: Vec<(String, Affected)>,
}

/// Rows, in order of first appearance.
#[derive(Default)]
pub struct Rows(Vec<Row>);

impl<'a> FromIterator<VerifiedPoint<'a>> for Rows {
    fn from_iter<I: IntoIterator<Item = VerifiedPoint<'a>>>(points: I) -> Self {
        let mut rows = Self::default();
        for point in points {
            rows.add(point);
        }
        rows
    }
}

impl Rows {
    fn add(&mut self, point: VerifiedPoint<'_>) {
        let rows = &mut self.0;
        let is_its = |row: &Row| (&row.engine, row.op) == (&point.engine, point.op);
        let at = rows.iter().position(is_its).unwrap_or_else(|| {
            rows.push(Row {
                engine: point.engine.clone(),
                op: point.op,
                ..Row::default()
            });
            rows.len() - 1
        });
        rows[at].add(&point);
    }

    /// The table.
    pub fn table(&self) -> TitledTable {
        let of_figure = |field| figure_by_field(field).map_or(field, |figure| figure.name);
        let header = [
            of_figure("engine"),
            of_figure("op"),
            SIZES.name,
            RANGE.name,
            RIGHT.name,
            CHECKED.name,
            RESULT.name,
        ];
        let cells = self.0.iter().map(Row::cells);
        TitledTable::headed(header, cells, |at| matches!(at, 2 | 4 | 5))
    }

    /// Each mismatch and reason for a skip, once for all operations of an engine.
    pub fn reasons(&self) -> Vec<String> {
        let engines = self.0.chunk_by(|one, next| one.engine == next.engine);
        engines.flat_map(of_engine).collect()
    }

    /// One-line summary. `right` completes the sentence if all data is correct.
    pub fn verdict(&self, right: &str) -> String {
        let rows = &self.0;
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
        let partly = rows.len() - of("ok");
        let partly = match partly {
            0 => String::new(),
            _ => format!(
                "; of {partly} of {} operations not everything could be tried",
                rows.len()
            ),
        };
        format!("verify: every one of {checked} {right}{partly}")
    }
}

impl Row {
    fn add(&mut self, point: &VerifiedPoint<'_>) {
        match point.outcome {
            Outcome::Measured if point.checked_bytes == 0 => self.unchecked += 1,
            Outcome::Measured => {
                self.right += 1;
                self.sizes.insert(point.size_bytes);
                self.checked_bytes += point.checked_bytes;
            }
            Outcome::Skipped { why } => add_reason(&mut self.skipped, why, point),
            Outcome::Failed { why } => add_reason(&mut self.failed, why, point),
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

    /// Result label. Unverified data never counts as correct.
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
}

/// Adds the point to the places where a problem occurred.
fn add_reason(all: &mut Vec<(String, Affected)>, why: &str, point: &VerifiedPoint<'_>) {
    let at = all.iter().position(|(known, _)| known == why);
    let at = at.unwrap_or_else(|| {
        all.push((why.to_owned(), Affected::default()));
        all.len() - 1
    });
    all[at].1.sizes.insert(point.size_bytes);
    if !point.elements.is_empty() {
        all[at].1.elements.insert(point.elements.clone());
    }
}

impl Affected {
    /// Lists the elements, with a leading space: the first few, and the number of others.
    fn elements(&self) -> String {
        let all = self.elements.iter().map(String::as_str);
        let listed: Vec<&str> = all.take(ELEMENTS_LISTED).collect();
        match self.elements.len().saturating_sub(listed.len()) {
            _ if listed.is_empty() => String::new(),
            0 => format!(" ({})", listed.join(", ")),
            others => format!(" ({} and {others} more)", listed.join(", ")),
        }
    }
}

/// Reasons from all rows of an engine.
fn of_engine(rows: &[Row]) -> Vec<String> {
    let failed = rows.iter().flat_map(|row| {
        let all = row.failed.iter();
        all.map(|(why, at)| {
            let (sizes, elements) = (at_sizes(&at.sizes), at.elements());
            (row.op, format!("{sizes}{elements}: {why}"))
        })
    });
    let skipped = rows.iter().flat_map(|row| {
        let is_whole = row.right + row.unchecked == 0 && row.skipped.len() == 1;
        row.skipped.iter().map(move |(why, at)| {
            let elements = if is_whole {
                String::new()
            } else {
                at.elements()
            };
            (row.op, format!("{elements}: {why}"))
        })
    });
    let unchecked = rows.iter().filter(|row| row.unchecked > 0).map(|row| {
        let count = row.unchecked;
        let why = format!(": nothing looked at the bytes of {count} measured points");
        (row.op, why)
    });
    let lines = [
        group_reasons(rows, "FAILED at ", failed),
        group_reasons(rows, "skipped", skipped),
        group_reasons(rows, "not checked", unchecked),
    ];
    lines.concat()
}

/// One line per reason, with the affected operations; they are left out if all are affected.
fn group_reasons<'a>(
    rows: &[Row],
    what: &str,
    reasons: impl Iterator<Item = (&'a str, String)>,
) -> Vec<String> {
    let engine = rows.first().map_or("", |row| row.engine.as_str());
    let line = |(why, ops): (String, Vec<&str>)| {
        let ops = match ops.len() == rows.len() && rows.len() > 1 {
            true => String::new(),
            false => format!(" {}", ops.join(", ")),
        };
        format!("{engine}{ops} {what}{why}")
    };
    let grouped = by_answer(reasons);
    grouped.into_iter().map(line).collect()
}

fn at_sizes(sizes: &BTreeSet<u64>) -> String {
    match (sizes.first(), sizes.last()) {
        (Some(least), Some(most)) if least != most => format!("{least} B to {most} B"),
        (Some(only), _) => format!("{only} B"),
        _ => String::new(),
    }
}
