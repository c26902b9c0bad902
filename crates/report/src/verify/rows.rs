//! Rows of a verification run, for engines and backends.

use std::collections::BTreeSet;

use tonnage_record::Outcome;
use tonnage_record::figures::figure_by_field;
use tonnage_record::grouping::by_answer;
use tonnage_units::quantity::human::size;

use crate::derived::{CHECKED, RANGE, RESULT, RIGHT, SIZES};
use crate::result::{ReportResult, ResultWord};
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

    /// Failures, then missing checks, then reasons for skips. Each reason is listed once per engine, with its
    /// operations.
    fn reasons(&self) -> Vec<String> {
        let engines = self.0.chunk_by(|one, next| one.engine == next.engine);
        let each: Vec<[Vec<String>; 3]> = engines.map(of_engine).collect();
        let of_sort = |sort: usize| each.iter().flat_map(move |reasons| reasons[sort].clone());
        (0..3).flat_map(of_sort).collect()
    }

    /// The result. `correct` is the text after the number of bytes; `is_fine` is false if the run must end with an
    /// error.
    pub fn result(&self, correct: &str, is_fine: bool) -> ReportResult {
        let rows = &self.0;
        let checked = size(rows.iter().map(|row| row.checked_bytes).sum());
        let of = |result: &str| rows.iter().filter(|row| row.result() == result).count();
        let whole = of("ok");
        let [failed, unchecked, skipped, partly] =
            ["FAILED", "NOT CHECKED", "skipped", "ok in part"].map(of);
        let faults = [
            (failed, "moved wrong data or failed"),
            (unchecked, "not checked"),
            (skipped, "skipped"),
            (partly, "done in part"),
        ];
        let faults = faults.iter().filter(|(count, _)| *count > 0);
        let faults: Vec<String> = faults
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let all = rows.len();
        let faults = faults
            .join(", ")
            .replacen(' ', &format!(" of {all} operations "), 1);
        let word = match () {
            () if !is_fine || failed + unchecked > 0 => ResultWord::Fail,
            () if whole + partly == 0 => ResultWord::Skip,
            () => ResultWord::Pass,
        };
        let found = match () {
            () if whole == rows.len() => format!("all {checked} {correct}"),
            () if whole + partly + failed == 0 => format!("nothing was checked; {faults}"),
            () if failed > 0 => faults,
            () => format!("all checked {checked} {correct}; {faults}"),
        };
        let result = word.with(found);
        match self.reasons().into_iter().next() {
            Some(first) => result.then(first),
            None => result,
        }
    }

    /// All reasons except the first one, which [`result`](Self::result) includes.
    pub fn further_reasons(&self) -> Vec<String> {
        self.reasons().into_iter().skip(1).collect()
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

/// Adds the point's size and elements to those affected by this reason.
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

/// Reasons from all rows of an engine: for failures, missing checks, and skips.
fn of_engine(rows: &[Row]) -> [Vec<String>; 3] {
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
        let why = format!(": the data of {count} measured points was not compared");
        (row.op, why)
    });
    [
        group_reasons(rows, "FAILED at ", failed),
        group_reasons(rows, "not checked", unchecked),
        group_reasons(rows, "skipped", skipped),
    ]
}

/// One line per reason, with the affected operations. Operations are left out if the reason affects all of them.
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
