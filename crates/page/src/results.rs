//! Results per configuration: plots, tables and all figures.

use std::collections::BTreeSet;

use maud::{Markup, html};
use tonnage_record::Record;
use tonnage_record::figures::{self, Figure, Row, Value, distinct_figures};
use tonnage_report::layout::{REPRODUCE, Section};
use tonnage_report::result::ReportResult;
use tonnage_report::sections;
use tonnage_units::quantity::human::at_least;

use crate::bidi::without_direction_marks;
use crate::plot::{Numbers, PagePlots};
use crate::tables;

/// Maximum number of configuration parts in a heading. The full configuration follows below it.
const HEADING_PARTS: usize = 3;

/// Results of one configuration.
pub(crate) struct ResultPart {
    /// Heading, also used in the contents.
    pub(crate) heading: String,
    /// Content below the heading.
    pub(crate) body: Markup,
}

/// Results in the order of the records, each side of a comparison separately. Inserts the names of all shown columns
/// into `columns`.
pub(crate) fn results(
    records: &[Record],
    numbers: Numbers,
    columns: &mut BTreeSet<String>,
) -> Vec<ResultPart> {
    let mut plots = PagePlots::new(numbers);
    let mut all = Vec::new();
    for of_side in records.chunk_by(|left, right| side(left) == side(right)) {
        let mut begin = 0;
        for section in sections(of_side) {
            let own = &of_side[begin..begin + section.records];
            begin += section.records;
            all.push(ResultPart {
                heading: heading(&section, own, all.len() + 1),
                body: body(&section, own, &mut plots, columns),
            });
        }
    }
    all
}

/// Side of the comparison (A or B) that a record belongs to.
fn side(record: &Record) -> Option<&'static str> {
    record.side.as_ref().map(|side| side.name.letter())
}

/// Heading of a section: its label, or otherwise the first parts of its configuration, or otherwise its number.
fn heading(section: &Section, records: &[Record], number: usize) -> String {
    let heading = match (&section.label, section.configuration.as_slice()) {
        (Some(label), _) => label.clone(),
        (None, []) => format!("Part {number}"),
        (None, parts) => parts[..parts.len().min(HEADING_PARTS)].join("; "),
    };
    match records.first().and_then(side) {
        Some(side) => format!("Side {side}: {heading}"),
        None => heading,
    }
}

/// Draws a result: one paragraph per line, with the verdict's word before the first line.
pub(crate) fn result(result: &ReportResult) -> Markup {
    html! {
        @for (at, line) in result.lines.iter().enumerate() {
            p {
                @if at == 0 { strong { (result.word.name()) } " " }
                (without_direction_marks(line))
            }
        }
    }
}

fn body(
    section: &Section,
    records: &[Record],
    plots: &mut PagePlots,
    columns: &mut BTreeSet<String>,
) -> Markup {
    html! {
        @if let Some(found) = &section.result { (result(found)) }
        @if !section.configuration.is_empty() { p { (without_direction_marks(&section.configuration.join("; "))) } }
        (plots.draw(section, records))
        @for table in &section.tables { (tables::titled(table, columns)) }
        @for line in &section.lines_below() { p { small { (without_direction_marks(line)) } } }
        @if !section.commands.is_empty() { p { (REPRODUCE) } }
        @for line in &section.commands { pre { (line) } }
        (every_figure(records, columns))
    }
}

/// All figures of these records in CSV form. A figure with the same value in all rows gets one line instead of a
/// column.
fn every_figure(records: &[Record], columns: &mut BTreeSet<String>) -> Markup {
    let rows: Vec<Row<'_>> = records.iter().flat_map(Row::all_of_record).collect();
    let mut kinds: Vec<&Record> = Vec::new();
    for record in records {
        if !kinds
            .iter()
            .any(|known| known.body.kind() == record.body.kind())
        {
            kinds.push(record);
        }
    }
    let mut equal: Vec<(&'static str, String)> = Vec::new();
    let mut shown: Vec<FigureColumn> = Vec::new();
    for figure in distinct_figures(kinds.iter().flat_map(|kind| figures::of(&kind.body))) {
        let having = kinds.iter().filter(|kind| has(kind, figure.field));
        let one = FigureColumn {
            figure,
            kinds: having.map(|kind| kind.body.kind()).collect(),
        };
        let mut values = rows.iter().map(|row| one.value(row));
        let first = values.next().unwrap_or(Value::Unknown);
        match values.all(|value| value == first) {
            true if first == Value::Unknown => continue,
            true => equal.push((figure.field, text(first))),
            false => shown.push(one),
        }
        columns.insert(figure.field.to_owned());
    }
    let header = shown.iter().map(|it| it.figure.field.to_owned());
    let header: Vec<String> = header.collect();
    let lines = rows.iter().map(|row| {
        let cells = shown.iter();
        cells.map(move |it| text(it.value(row)))
    });
    html! {
        details open class="numbers" {
            summary { "Every figure, in base units and full precision" }
            p {
                small {
                    "Alike in all rows: "
                    @for (at, (field, value)) in equal.iter().enumerate() {
                        @if at > 0 { "; " }
                        code { (field) } " " bdi { (value) }
                    }
                }
            }
            @if !shown.is_empty() { (tables::lined(&header, lines, |_| true)) }
        }
    }
}

/// A figure with a column, and the kinds of records that have it.
struct FigureColumn {
    figure: &'static Figure,
    kinds: Vec<&'static str>,
}

impl FigureColumn {
    fn value(&self, row: &Row<'_>) -> Value {
        match self.kinds.contains(&row.record.body.kind()) {
            true => (self.figure.value)(row),
            false => Value::Unknown,
        }
    }
}

/// Whether records of this kind have the figure.
fn has(record: &Record, field: &str) -> bool {
    figures::of(&record.body).any(|figure| figure.field == field)
}

/// A value as in CSV; empty if unknown.
fn text(value: Value) -> String {
    match value {
        Value::Unknown => String::new(),
        Value::Text(text) => text,
        Value::Count(count) => count.to_string(),
        Value::Number(number) => number.to_string(),
        Value::AtLeast(number) => at_least(number.to_string(), true),
    }
}
