//! Reports a comparison: the result, a verdict per point, then other differences between the sides.
//!
//! | file | content |
//! | --- | --- |
//! | this | the page as plain text and as Markdown |
//! | `result` | the result and its reason |
//! | `labels` | labels of points: the keys that distinguish them |
//! | `machine` | CSV and JSON for programs |

mod labels;
mod machine;
mod result;

use std::collections::BTreeSet;

use tonnage_judge::compare::Comparison;
use tonnage_judge::criteria::{FailOn, PointVerdict};
use tonnage_judge::judging::{PointJudgement, SideRatio, counted};
use tonnage_judge::surroundings::{Difference, DifferenceWeight};
use tonnage_judge::values::SideFigure;
use tonnage_record::figures::{Value, figure_by_field};
use tonnage_units::quantity::human::{number, percent};
use tonnage_units::{Result, names};

use crate::derived::{
    AREA, COUNTS, DIFFERS, DerivedColumn, METRIC, MORE_RUNS, NOTE, RUNS, SIDE_A, SIDE_B,
    SIDES_INTERVAL, SIDES_RATIO, VERDICT,
};
use crate::markdown;
use crate::result::ReportResult;
use crate::table::{Markup, TitledTable, format_value};
use crate::text::{WIDTH, distinct, wrap};
use crate::view::View;
use labels::Labels;

/// Maximum width of a value in the table of differences. JSON has the full value.
const VALUE_COLUMNS_MAX: usize = 32;

/// Minimum width of a value, next to a long key.
const VALUE_COLUMNS_MIN: usize = 8;

/// Width of the other columns and gaps in the table of differences.
const OTHER_COLUMNS: usize = 26;

/// Maximum width of a key's value within its cell.
const CELL_COLUMNS_MAX: usize = 30;

names! {
    /// Formats of a comparison.
    pub enum CompareFormat: "format" {
        /// Plain-text tables.
        Table = "table",
        /// Markdown tables.
        Markdown = "markdown",
        /// One JSON object.
        Json = "json",
        /// A header line, and one row per point.
        Csv = "csv",
    }
}

/// Draws a comparison. `names` are the names of the two sides, and `fail_on` the verdicts that make a comparison fail.
///
/// # Errors
/// If JSON serialization fails.
pub fn render(
    format: CompareFormat,
    comparison: &Comparison,
    names: [&str; 2],
    fail_on: &[FailOn],
) -> Result<String> {
    let parts = || parts(comparison, names, fail_on);
    match format {
        CompareFormat::Table => Ok(plain(&parts(), &View::default())),
        CompareFormat::Markdown => Ok(in_markdown(&parts())),
        CompareFormat::Json => machine::json(comparison, names),
        CompareFormat::Csv => Ok(machine::csv(comparison)),
    }
}

/// Parts of a comparison, for custom layout.
#[derive(Debug, Clone)]
pub struct ComparisonTables {
    /// The result and its reason.
    pub result: ReportResult,
    /// Sides, margin and confidence, and what all points share.
    pub head: Vec<String>,
    /// Table of points.
    pub verdicts: TitledTable,
    /// Runs that were left out, and remarks, referenced by number in the table.
    pub notes: Vec<String>,
    /// Differences in program, configuration, machine and variables; `None` if there are none.
    pub differences: Option<TitledTable>,
    /// Remarks on the differences.
    pub about: Vec<String>,
    /// Label of each point, in comparison order.
    pub points: Vec<String>,
}

/// Builds the parts of a comparison. `names` are the names of the two sides, and `fail_on` the verdicts that make a
/// comparison fail.
pub fn parts(comparison: &Comparison, names: [&str; 2], fail_on: &[FailOn]) -> ComparisonTables {
    let labels = Labels::new(&comparison.points);
    let some = comparison.differences.as_slice();
    let about = match some.is_empty() {
        true => vec![NO_DIFFERENCES.to_owned()],
        false => Vec::from_iter(Some(engines(some)).filter(|line| !line.is_empty())),
    };
    let table = |rows: Vec<Vec<String>>, right: &[&str]| {
        let header = rows.first().cloned().unwrap_or_default();
        TitledTable::new(rows, |at| right.contains(&header[at].as_str()))
    };
    let (rows, remarks) = verdict_rows(comparison, &labels);
    ComparisonTables {
        result: result::of(comparison, &labels, fail_on),
        head: head(comparison, names, &labels),
        verdicts: table(rows, &RIGHT.map(|column| column.name)),
        notes: left_out(comparison).into_iter().chain(remarks).collect(),
        differences: (!some.is_empty()).then(|| table(differences(some), &[])),
        about,
        points: labels.points,
    }
}

/// Right-aligned columns of the point table.
const RIGHT: [DerivedColumn; 5] = [SIDE_A, SIDE_B, SIDES_RATIO, RUNS, MORE_RUNS];

const NO_DIFFERENCES: &str =
    "Program, effective configuration, machine and variables do not differ.";

fn plain(parts: &ComparisonTables, view: &View) -> String {
    let width = view.text_width();
    let lines = |lines: &[String]| {
        let lines = lines.iter().map(|line| wrap(line, width, 4) + "\n");
        lines.collect::<String>()
    };
    let differences = parts.differences.as_ref();
    let differences = differences.map(|table| table.draw(Markup::Plain(view)) + "\n");
    let all = [
        parts.result.plain(width) + "\n" + &lines(&parts.head),
        parts.verdicts.draw(Markup::Plain(view)) + "\n" + &lines(&parts.notes),
        differences.unwrap_or_default() + &lines(&parts.about),
    ];
    all.join("\n")
}

fn in_markdown(parts: &ComparisonTables) -> String {
    let paragraphs = |lines: &[String]| {
        let lines = lines.iter().map(|line| markdown::paragraph(line));
        lines.collect::<Vec<_>>()
    };
    let mut all = vec![parts.result.markdown()];
    all.extend(paragraphs(&parts.head));
    all.push(parts.verdicts.draw(Markup::Markdown) + "\n");
    all.extend(paragraphs(&parts.notes));
    let differences = parts.differences.iter();
    all.extend(differences.map(|table| table.draw(Markup::Markdown) + "\n"));
    all.extend(paragraphs(&parts.about));
    all.join("\n")
}

fn head(comparison: &Comparison, names: [&str; 2], labels: &Labels) -> Vec<String> {
    let criteria = &comparison.criteria;
    let side = |at: usize| format!("{}, {}", names[at], counted(comparison.runs[at], "run"));
    let metrics = metrics(comparison).join(", ");
    let head = format!(
        "A {}; B {}; {metrics}; margin {}, confidence {}",
        side(0),
        side(1),
        percent(criteria.margin),
        percent(criteria.confidence),
    );
    let keys = [
        ("ignored", &labels.differing),
        ("all points", &labels.shared),
    ];
    let keys = keys.into_iter().filter(|(_, text)| !text.is_empty());
    let keys = keys.map(|(head, text)| format!("{head}: {text}"));
    std::iter::once(head).chain(keys).collect()
}

/// All metrics that occur in the comparison, with their units.
fn metrics(comparison: &Comparison) -> Vec<&'static str> {
    let measured = comparison.points.iter().filter(|it| it.field.is_some());
    distinct(measured.map(metric))
}

/// Counts the runs that were left out because the machine changed during them.
fn left_out(comparison: &Comparison) -> Option<String> {
    let side = |side: usize| {
        let runs = comparison.points.iter().map(|point| point.left_out[side]);
        let (runs, points) = runs
            .filter(|runs| *runs > 0)
            .fold((0, 0), |(all, points), runs| (all + runs, points + 1));
        let letter = ["A", "B"][side];
        let (runs, points) = (counted(runs, "run"), counted(points, "point"));
        (!points.starts_with('0')).then(|| format!("{letter} {runs} of {points}"))
    };
    let sides: Vec<String> = [side(0), side(1)].into_iter().flatten().collect();
    (!sides.is_empty()).then(|| {
        format!(
            "left out because the canary changed: {}; --accept canary keeps them",
            sides.join(", ")
        )
    })
}

/// Key of the engine name. A different engine implies differences in its other facts.
const ENGINE_NAME: &str = "engine.name";

/// Whether a difference is a consequence of a different engine.
fn follows_from_engine(all: &[Difference], one: &Difference) -> bool {
    let differ = all.iter().any(|it| it.key == ENGINE_NAME);
    differ && one.key != ENGINE_NAME && one.key.starts_with("engine.")
}

/// Summarizes differences that follow from a different engine.
fn engines(all: &[Difference]) -> String {
    match all.iter().filter(|it| follows_from_engine(all, it)).count() {
        0 => String::new(),
        more => format!(
            "and {} of the engines, which --format json has\n",
            counted(more, "other fact")
        ),
    }
}

fn differences(all: &[Difference]) -> Vec<Vec<String>> {
    let header = [AREA, DIFFERS, SIDE_A, SIDE_B, COUNTS].map(|column| column.name.to_owned());
    let shown = || all.iter().filter(|it| !follows_from_engine(all, it));
    // Keys are not truncated, because --accept needs them in full. Values share the remaining width.
    let keys = shown().map(|it| it.key.chars().count()).max().unwrap_or(0);
    let left = WIDTH.saturating_sub(OTHER_COLUMNS + keys) / 2;
    let columns = left.clamp(VALUE_COLUMNS_MIN, VALUE_COLUMNS_MAX);
    let rows = shown().map(|difference| {
        let weight = match difference.weight {
            DifferenceWeight::Counts => "yes",
            DifferenceWeight::Accepted => "accepted",
            DifferenceWeight::Reported => "no",
        };
        vec![
            difference.area.name().to_owned(),
            difference.key.clone(),
            cut(&values(&difference.a), columns),
            cut(&values(&difference.b), columns),
            weight.to_owned(),
        ]
    });
    std::iter::once(header.to_vec()).chain(rows).collect()
}

fn values(all: &[String]) -> String {
    match all.is_empty() {
        true => "-".to_owned(),
        false => all.join(" | "),
    }
}

fn cut(text: &str, columns: usize) -> String {
    match text.char_indices().nth(columns) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Rows of the point table, starting with the header, and the numbered remarks.
fn verdict_rows(comparison: &Comparison, labels: &Labels) -> (Vec<Vec<String>>, Vec<String>) {
    let mut notes: Vec<&str> = Vec::new();
    let figures = [
        METRIC,
        SIDE_A,
        SIDE_B,
        SIDES_RATIO,
        SIDES_INTERVAL,
        VERDICT,
        RUNS,
        MORE_RUNS,
        NOTE,
    ];
    let figures = figures.map(|column| column.name.to_owned());
    let mut rows = vec![[labels.columns.as_slice(), &figures].concat()];
    for (judged, cells) in comparison.points.iter().zip(&labels.cells) {
        let mut numbers = BTreeSet::new();
        for why in judged.further_reasons() {
            let known = notes.iter().position(|note| note == why);
            let at = known.unwrap_or_else(|| {
                notes.push(why);
                notes.len() - 1
            });
            numbers.insert(at + 1);
        }
        let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
        let cells = cells.iter().map(|cell| wrap(cell, CELL_COLUMNS_MAX, 0));
        rows.push(cells.chain(row(judged, numbers.join(","))).collect());
    }
    if comparison
        .points
        .iter()
        .all(|judged| has_all_runs(judged, comparison.runs))
    {
        let at = rows[0].iter().position(|head| head == RUNS.name);
        rows[1..]
            .iter_mut()
            .for_each(|row| at.into_iter().for_each(|at| row[at].clear()));
    }
    if metrics(comparison).len() < 2 {
        // With a single metric, the line above the table names it.
        let at = labels.columns.len();
        rows[1..].iter_mut().for_each(|row| row[at].clear());
    }
    let drop_column = |rows: &mut Vec<Vec<String>>, name: &str| {
        let at = rows[0].iter().rposition(|head| head == name);
        if let Some(at) = at.filter(|&at| rows[1..].iter().all(|row| row[at].is_empty())) {
            rows.iter_mut().for_each(|row| drop(row.remove(at)));
        }
    };
    for column in [METRIC, RUNS, MORE_RUNS, NOTE] {
        drop_column(&mut rows, column.name);
    }
    let notes = notes.iter().zip(1..);
    let notes = notes.map(|(note, at)| format!("{at}  {note}"));
    (rows, notes.collect())
}

/// Number of runs on each side from which the point's values come.
fn runs(judged: &PointJudgement) -> [usize; 2] {
    [judged.a, judged.b].map(|side| side.map_or(0, |side| side.runs))
}

/// Whether the point's values come from all runs of each side. True if the point has no values.
fn has_all_runs(judged: &PointJudgement, all: [usize; 2]) -> bool {
    judged.a.or(judged.b).is_none() || runs(judged) == all
}

/// Name of the metric, with its unit.
fn metric(judged: &PointJudgement) -> &'static str {
    let figure = judged.field.and_then(figure_by_field);
    figure.map_or("-", |figure| figure.name)
}

/// Value of a side, in the metric's unit.
fn value(judged: &PointJudgement, side: Option<SideFigure>) -> String {
    match (side, judged.field.and_then(figure_by_field)) {
        (Some(side), Some(figure)) => {
            let value = match side.is_lower_bound {
                true => Value::AtLeast(side.value),
                false => Value::Number(side.value),
            };
            format_value(value, figure.style)
        }
        _ => "-".to_owned(),
    }
}

fn interval(ratio: SideRatio) -> String {
    format!("{}…{}", number(ratio.low), number(ratio.high))
}

fn row(judged: &PointJudgement, notes: String) -> Vec<String> {
    let ratio = match (judged.ratio, judged.a, judged.b) {
        (Some(ratio), _, _) => number(ratio.value),
        (None, Some(a), Some(b)) if a.value > 0.0 && b.value > 0.0 => number(b.value / a.value),
        _ => "-".to_owned(),
    };
    let verdict = match (judged.verdict, judged.of_these_runs_only) {
        (
            PointVerdict::Worse | PointVerdict::Better | PointVerdict::Same | PointVerdict::Unclear,
            true,
        ) => {
            format!("{}, of these runs only", judged.verdict.name())
        }
        (verdict, _) => verdict.name().replace('-', " "),
    };
    let more = judged.more_runs.map(|more| more.to_string());
    vec![
        metric(judged).to_owned(),
        value(judged, judged.a),
        value(judged, judged.b),
        ratio,
        judged.ratio.map_or_else(|| "-".to_owned(), interval),
        verdict,
        match judged.a.or(judged.b) {
            Some(_) => runs(judged).map(|runs| runs.to_string()).join(", "),
            None => "-".to_owned(),
        },
        more.unwrap_or_default(),
        notes,
    ]
}

#[cfg(test)]
mod tests;
