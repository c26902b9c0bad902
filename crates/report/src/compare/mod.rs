//! Reports a comparison: differences first, then a verdict per point.
//!
//! | file | what it draws |
//! | --- | --- |
//! | this | the page as plain text and as Markdown |
//! | `labels` | labels of points: the keys that distinguish them |
//! | `machine` | CSV and JSON for programs |

mod labels;
mod machine;

use tonnage_judge::compare::Comparison;
use tonnage_judge::criteria::PointVerdict;
use tonnage_judge::judging::{PointJudgement, counted};
use tonnage_judge::surroundings::{Difference, DifferenceWeight};
use tonnage_record::figures::{Value, figure_by_field};
use tonnage_units::quantity::human::{number, percent};
use tonnage_units::{Result, names};

use crate::derived::{
    AREA, COUNTS, DIFFERS, DerivedColumn, METRIC, MORE_RUNS, NOTE, POINT, POINT_RUNS, SIDE_A,
    SIDE_B, SIDES_RATIO, VERDICT,
};
use crate::markdown;
use crate::table::{TitledTable, draw, format_value};
use crate::text::{WIDTH, wrap};
use labels::Labels;

/// Maximum width of a value in the table of differences. JSON has the full value.
const VALUE_COLUMNS_MAX: usize = 32;

/// Minimum width of a value, next to a long key.
const VALUE_COLUMNS_MIN: usize = 8;

/// Width of the other columns and gaps in the table of differences.
const OTHER_COLUMNS: usize = 26;

/// Maximum width of a point label within its cell.
const POINT_COLUMNS_MAX: usize = 30;

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

/// Draws a comparison. `names` are the names of the two sides.
///
/// # Errors
/// If JSON serialization fails.
pub fn render(format: CompareFormat, comparison: &Comparison, names: [&str; 2]) -> Result<String> {
    match format {
        CompareFormat::Table => Ok(page(comparison, names, &draw_plain)),
        CompareFormat::Markdown => Ok(page(comparison, names, &draw_markdown)),
        CompareFormat::Json => machine::json(comparison, names),
        CompareFormat::Csv => Ok(machine::csv(comparison)),
    }
}

/// Parts of a comparison, for custom layout.
#[derive(Debug, Clone)]
pub struct ComparisonTables {
    /// Sides, margin and confidence, number of points.
    pub head: Vec<String>,
    /// Differences in the surroundings; `None` if there are none.
    pub differences: Option<TitledTable>,
    /// Remarks on the differences, and keys that all points share.
    pub about: Vec<String>,
    /// Table of points.
    pub verdicts: TitledTable,
    /// Remarks, referenced by number in the table.
    pub notes: Vec<String>,
    /// Number of points with each verdict.
    pub totals: String,
    /// Label of each point, in comparison order.
    pub points: Vec<String>,
}

/// Builds the parts of a comparison. `names` are the names of the two sides.
pub fn parts(comparison: &Comparison, names: [&str; 2]) -> ComparisonTables {
    let labels = Labels::new(&comparison.points);
    let some = comparison.differences.as_slice();
    let mut about = match some.is_empty() {
        true => vec![NO_DIFFERENCES.to_owned()],
        false => Vec::from_iter(Some(engines(some)).filter(|line| !line.is_empty())),
    };
    about.extend(keys_of_all(&labels));
    let (rows, notes) = verdict_rows(comparison, &labels);
    let table = |rows: Vec<Vec<String>>, right: &[&str]| {
        let header = rows.first().cloned().unwrap_or_default();
        TitledTable::new(rows, |at| right.contains(&header[at].as_str()))
    };
    ComparisonTables {
        head: head(comparison, names),
        differences: (!some.is_empty()).then(|| table(differences(some), &[])),
        about,
        verdicts: table(rows, &RIGHT.map(|column| column.name)),
        notes,
        totals: totals(comparison),
        points: labels.points,
    }
}

/// Right-aligned columns of the point table.
const RIGHT: [DerivedColumn; 5] = [SIDE_A, SIDE_B, SIDES_RATIO, POINT_RUNS, MORE_RUNS];

const NO_DIFFERENCES: &str =
    "Program, effective configuration, machine and variables do not differ.";

/// Draws rows with a header. The named columns are right-aligned.
type Draw<'a> = &'a dyn Fn(Vec<Vec<String>>, &[&str]) -> String;

fn page(comparison: &Comparison, names: [&str; 2], draw: Draw<'_>) -> String {
    let labels = Labels::new(&comparison.points);
    let mut parts = vec![head(comparison, names).join("\n") + "\n"];
    parts.push(match comparison.differences.as_slice() {
        [] => format!("{NO_DIFFERENCES}\n"),
        some => draw(differences(some), &[]) + &engines(some),
    });
    let keys = keys_of_all(&labels);
    parts.extend(keys.iter().map(|line| wrap(line, WIDTH, 4) + "\n"));
    parts.push(verdicts(comparison, &labels, draw));
    parts.push(totals(comparison) + "\n");
    parts.join("\n")
}

fn head(comparison: &Comparison, names: [&str; 2]) -> Vec<String> {
    let criteria = &comparison.criteria;
    let side = |at: usize| counted(comparison.runs[at], "run");
    vec![
        format!("A: {}, {}", names[0], side(0)),
        format!("B: {}, {}", names[1], side(1)),
        format!(
            "margin {}, confidence {}, {}",
            percent(criteria.margin),
            percent(criteria.confidence),
            counted(comparison.points.len(), "point"),
        ),
    ]
}

/// Lines with the keys that all points share.
fn keys_of_all(labels: &Labels) -> Vec<String> {
    let lines = [
        ("ignored", &labels.differing),
        ("all points", &labels.shared),
    ];
    let lines = lines.into_iter().filter(|(_, text)| !text.is_empty());
    lines
        .map(|(head, text)| format!("{head}: {text}"))
        .collect()
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

/// Draws the point table and its remarks.
fn verdicts(comparison: &Comparison, labels: &Labels, draw: Draw<'_>) -> String {
    let (rows, notes) = verdict_rows(comparison, labels);
    let notes = notes.iter().map(|line| wrap(line, WIDTH, 3) + "\n");
    let notes: String = notes.collect();
    let table = draw(rows, &RIGHT.map(|column| column.name));
    match notes.is_empty() {
        true => table,
        false => table + "\n" + &notes,
    }
}

/// Rows of the point table, starting with the header, and the numbered remarks.
fn verdict_rows(comparison: &Comparison, labels: &Labels) -> (Vec<Vec<String>>, Vec<String>) {
    let mut notes: Vec<&str> = Vec::new();
    let mut rows = vec![
        [
            POINT,
            METRIC,
            SIDE_A,
            SIDE_B,
            SIDES_RATIO,
            VERDICT,
            POINT_RUNS,
            MORE_RUNS,
            NOTE,
        ]
        .map(|column| column.name.to_owned())
        .to_vec(),
    ];
    for (judged, label) in comparison.points.iter().zip(&labels.points) {
        let mut numbers = Vec::new();
        for why in &judged.why {
            let known = notes.iter().position(|note| note == why);
            let at = known.unwrap_or_else(|| {
                notes.push(why);
                notes.len() - 1
            });
            numbers.push((at + 1).to_string());
        }
        rows.push(row(judged, label, numbers.join(" ")));
    }
    if comparison
        .points
        .iter()
        .all(|judged| has_all_runs(judged, comparison.runs))
    {
        let at = rows[0].iter().position(|head| head == POINT_RUNS.name);
        rows[1..]
            .iter_mut()
            .for_each(|row| at.into_iter().for_each(|at| row[at].clear()));
    }
    let drop_column = |rows: &mut Vec<Vec<String>>, name: &str| {
        let at = rows[0].iter().position(|head| head == name);
        if let Some(at) = at.filter(|&at| rows[1..].iter().all(|row| row[at].is_empty())) {
            rows.iter_mut().for_each(|row| drop(row.remove(at)));
        }
    };
    for column in [POINT, POINT_RUNS, MORE_RUNS, NOTE] {
        drop_column(&mut rows, column.name);
    }
    let notes = notes.iter().zip(1..);
    let notes = notes.map(|(note, at)| format!("{at}  {note}"));
    (rows, notes.collect())
}

/// Number of runs on both sides behind a point's values.
fn runs(judged: &PointJudgement) -> [usize; 2] {
    [judged.a, judged.b].map(|side| side.map_or(0, |side| side.runs))
}

/// Whether the values, if any, come from all these runs.
fn has_all_runs(judged: &PointJudgement, all: [usize; 2]) -> bool {
    judged.a.or(judged.b).is_none() || runs(judged) == all
}

fn row(judged: &PointJudgement, label: &str, notes: String) -> Vec<String> {
    let figure = judged.field.and_then(figure_by_field);
    let side = |side: &Option<tonnage_judge::values::SideFigure>| match (side, figure) {
        (Some(side), Some(figure)) => {
            let value = match side.is_lower_bound {
                true => Value::AtLeast(side.value),
                false => Value::Number(side.value),
            };
            format_value(value, figure.style, "-")
        }
        _ => "-".to_owned(),
    };
    let ratio = match (judged.ratio, judged.a, judged.b) {
        (Some(ratio), _, _) => {
            let (low, high) = (number(ratio.low), number(ratio.high));
            format!("{} ({low}…{high})", number(ratio.value))
        }
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
        wrap(label, POINT_COLUMNS_MAX, 0),
        figure.map_or("-", |figure| figure.name).to_owned(),
        side(&judged.a),
        side(&judged.b),
        ratio,
        verdict,
        match judged.a.or(judged.b) {
            Some(_) => runs(judged).map(|runs| runs.to_string()).join(", "),
            None => "-".to_owned(),
        },
        more.unwrap_or_default(),
        notes,
    ]
}

fn totals(comparison: &Comparison) -> String {
    let each = PointVerdict::ALL.into_iter().filter_map(|verdict| {
        let count = comparison.count(verdict);
        let name = verdict.name().replace('-', " ");
        (count > 0).then(|| format!("{count} {name}"))
    });
    each.collect::<Vec<_>>().join(", ")
}

fn draw_plain(rows: Vec<Vec<String>>, right: &[&str]) -> String {
    let header = rows.first().cloned().unwrap_or_default();
    draw(rows, |at| right.contains(&header[at].as_str())) + "\n"
}

fn draw_markdown(rows: Vec<Vec<String>>, right: &[&str]) -> String {
    let header = rows.first().cloned().unwrap_or_default();
    markdown::table(&rows, |at| right.contains(&header[at].as_str()))
}

#[cfg(test)]
mod tests;
