//! Report of a comparison: differences first, then a verdict on each point.
//!
//! | file | what it draws |
//! | --- | --- |
//! | this | the page, for people and for Markdown |
//! | `labels` | points by the keys that tell them apart |
//! | `machine` | CSV and JSON, for programs |

mod labels;
mod machine;

use tonnage_judge::compare::Comparison;
use tonnage_judge::criteria::PointVerdict;
use tonnage_judge::judging::{Judged, counted};
use tonnage_judge::surroundings::{Difference, Weight};
use tonnage_record::figures::{Value, by_field};
use tonnage_units::quantity::human::{number, percent};
use tonnage_units::{Result, names};

use crate::derived::{
    AREA, COUNTS, DIFFERS, Derived, METRIC, MORE_RUNS, NOTE, POINT, POINT_RUNS, SIDE_A, SIDE_B,
    SIDES_RATIO, VERDICT,
};
use crate::markdown;
use crate::table::{TitledTable, draw, shown};
use crate::text::{WIDTH, wrap};
use labels::Labels;

/// Greatest width of a value in the table of differences; JSON has all of it.
const VALUE_COLUMNS_MAX: usize = 32;

/// Least width of it, beside a long key.
const VALUE_COLUMNS_MIN: usize = 8;

/// Width of the areas, the consequences and the gaps in the table of differences.
const OTHER_COLUMNS: usize = 26;

/// Greatest width of a point's name in a line of its cell.
const POINT_COLUMNS_MAX: usize = 30;

names! {
    /// Formats of a comparison.
    pub enum CompareFormat: "format" {
        /// A page for people.
        Table = "table",
        /// One page with tables in Markdown.
        Markdown = "markdown",
        /// One JSON object.
        Json = "json",
        /// A row for each point, with a head line.
        Csv = "csv",
    }
}

/// Draws a comparison; `names` are those of the two sides.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn render(format: CompareFormat, comparison: &Comparison, names: [&str; 2]) -> Result<String> {
    match format {
        CompareFormat::Table => Ok(page(comparison, names, &draw_plain)),
        CompareFormat::Markdown => Ok(page(comparison, names, &draw_markdown)),
        CompareFormat::Json => machine::json(comparison, names),
        CompareFormat::Csv => Ok(machine::csv(comparison)),
    }
}

/// A comparison in parts, for whoever lays them out in another way.
#[derive(Debug, Clone)]
pub struct ComparisonTables {
    /// Sides, margin and confidence, number of points.
    pub head: Vec<String>,
    /// Differences of the surroundings; none where they are alike.
    pub differences: Option<TitledTable>,
    /// Lines about the differences, and keys that all points share.
    pub about: Vec<String>,
    /// The table of points.
    pub verdicts: TitledTable,
    /// Remarks that its rows name by number.
    pub notes: Vec<String>,
    /// Number of points with each verdict.
    pub totals: String,
    /// Name of each point among the others, in the order of the comparison.
    pub points: Vec<String>,
}

/// The parts of a comparison; `names` are those of the two sides.
pub fn parts(comparison: &Comparison, names: [&str; 2]) -> ComparisonTables {
    let labels = Labels::of(&comparison.points);
    let some = comparison.differences.as_slice();
    let mut about = match some.is_empty() {
        true => vec![ALIKE.to_owned()],
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

/// Columns of the table of points that are aligned to the right.
const RIGHT: [Derived; 5] = [SIDE_A, SIDE_B, SIDES_RATIO, POINT_RUNS, MORE_RUNS];

const ALIKE: &str = "Program, effective configuration, machine and variables are alike.";

/// Draws rows, the first of which is the header; the columns that are named are aligned to the right.
type Draw<'a> = &'a dyn Fn(Vec<Vec<String>>, &[&str]) -> String;

fn page(comparison: &Comparison, names: [&str; 2], draw: Draw<'_>) -> String {
    let labels = Labels::of(&comparison.points);
    let mut parts = vec![head(comparison, names).join("\n") + "\n"];
    parts.push(match comparison.differences.as_slice() {
        [] => format!("{ALIKE}\n"),
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

/// Lines of keys that are alike for all points.
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

/// Key of the name of an engine, from which everything else about it follows.
const ENGINE_NAME: &str = "engine.name";

/// Returns whether a difference follows from another engine.
fn follows_from_engine(all: &[Difference], one: &Difference) -> bool {
    let differ = all.iter().any(|it| it.key == ENGINE_NAME);
    differ && one.key != ENGINE_NAME && one.key.starts_with("engine.")
}

/// A line about differences that follow from another engine.
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
    // Keys stand whole, for they are what --accept takes; values get what is left.
    let keys = shown().map(|it| it.key.chars().count()).max().unwrap_or(0);
    let left = WIDTH.saturating_sub(OTHER_COLUMNS + keys) / 2;
    let columns = left.clamp(VALUE_COLUMNS_MIN, VALUE_COLUMNS_MAX);
    let rows = shown().map(|difference| {
        let weight = match difference.weight {
            Weight::Counts => "yes",
            Weight::Accepted => "accepted",
            Weight::Told => "no",
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

/// The table of points, and the remarks on them.
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

/// Rows of the table of points, the first of which is the header, and the remarks with their numbers.
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

/// Runs of both sides that the values of a point are of.
fn runs(judged: &Judged) -> [usize; 2] {
    [judged.a, judged.b].map(|side| side.map_or(0, |side| side.runs))
}

/// Returns whether its values, if it has any, are of so many runs.
fn has_all_runs(judged: &Judged, all: [usize; 2]) -> bool {
    judged.a.or(judged.b).is_none() || runs(judged) == all
}

fn row(judged: &Judged, label: &str, notes: String) -> Vec<String> {
    let figure = judged.field.and_then(by_field);
    let side = |side: &Option<tonnage_judge::values::SideFigure>| match (side, figure) {
        (Some(side), Some(figure)) => {
            let value = match side.is_lower_bound {
                true => Value::AtLeast(side.value),
                false => Value::Number(side.value),
            };
            shown(value, figure.style, "-")
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
