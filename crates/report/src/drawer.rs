//! One way to draw records of any kind: those of one configuration share a title, tables and lines below them.
//!
//! A kind says what these are ([`Report`]); their order, the widths and the empty lines are decided here.

use tonnage_record::kinds::Kind;
use tonnage_record::{Of, Record};

use super::markdown;
use super::table::{Markup, TitledTable};
use super::text::{WIDTH, wrap};

/// The report of a kind of records, or of some of a kind.
pub trait Report {
    /// Body of these records.
    type Body: Kind;

    /// Returns whether it draws this record.
    fn takes(record: &Record) -> bool {
        Self::Body::of(&record.body).is_some()
    }

    /// Returns whether two neighbours belong under one title.
    fn together(left: Of<'_, Self::Body>, right: Of<'_, Self::Body>) -> bool;

    /// The configuration that all of these share, in parts of a sentence; none for a report without a title.
    fn configuration(records: &[Of<'_, Self::Body>]) -> Vec<String>;

    /// The tables.
    fn tables(records: &[Of<'_, Self::Body>]) -> Vec<TitledTable>;

    /// Lines below the tables: limits, canaries, whatever a reader has to know.
    fn footers(records: &[Of<'_, Self::Body>]) -> Vec<String>;

    /// Command lines at the very end, each in one line however long it is, so that a shell takes it as it stands.
    fn commands(_records: &[Of<'_, Self::Body>]) -> Vec<String> {
        Vec::new()
    }
}

/// A report, as the list of them has it.
pub struct Drawer {
    /// Returns whether it draws this record.
    pub takes: fn(&Record) -> bool,
    /// Draws records that it takes.
    pub draw: fn(&[Record], Markup) -> String,
}

impl Drawer {
    /// The row of a report.
    pub const fn of<R: Report>() -> Self {
        Self {
            takes: R::takes,
            draw: draw::<R>,
        }
    }
}

/// Records in their order, with an empty line between two configurations.
fn draw<R: Report>(records: &[Record], markup: Markup) -> String {
    let records: Vec<_> = records.iter().filter_map(Record::of_kind).collect();
    let groups = records.chunk_by(|left, right| R::together(*left, *right));
    let one = match markup {
        Markup::Plain => plain::<R>,
        Markup::Markdown => in_markdown::<R>,
    };
    groups.map(one).collect::<Vec<_>>().join("\n")
}

fn plain<R: Report>(records: &[Of<'_, R::Body>]) -> String {
    let mut parts: Vec<String> = title::<R>(records).into_iter().collect();
    let tables = R::tables(records);
    let tables: Vec<String> = tables
        .iter()
        .map(|table| table.draw(Markup::Plain))
        .collect();
    // Several tables are set off from each other and from what follows.
    let end = if tables.len() > 1 { "\n" } else { "" };
    if !tables.is_empty() {
        parts.push(tables.join("\n\n") + end);
    }
    let footers = R::footers(records);
    parts.extend(footers.iter().map(|line| wrap(line, WIDTH, 4)));
    parts.extend(R::commands(records));
    parts.join("\n").trim_end().to_owned() + "\n"
}

/// Markdown: a heading where there is a label, paragraphs, tables, and commands as code.
fn in_markdown<R: Report>(records: &[Of<'_, R::Body>]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let configuration = R::configuration(records).join("; ");
    if !configuration.is_empty() {
        let label = records
            .first()
            .map(|it| it.record.body.any().point().label());
        let label = label.flatten().map(markdown::escaped);
        parts.extend(label.map(|label| format!("### {label}\n")));
        parts.push(markdown::paragraph(&configuration));
    }
    let tables = R::tables(records);
    parts.extend(
        tables
            .iter()
            .map(|table| table.draw(Markup::Markdown) + "\n"),
    );
    parts.extend(
        R::footers(records)
            .iter()
            .map(|line| markdown::paragraph(line)),
    );
    parts.extend(R::commands(records).iter().map(|line| markdown::code(line)));
    parts.join("\n")
}

fn title<R: Report>(records: &[Of<'_, R::Body>]) -> Option<String> {
    let configuration = R::configuration(records).join("; ");
    if configuration.is_empty() {
        return None;
    }
    let label = records.first()?.record.body.any().point().label();
    let label = label.map(|label| format!("{label}\n"));
    Some(label.unwrap_or_default() + &wrap(&configuration, WIDTH, 2))
}
