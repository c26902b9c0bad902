//! Draws records of any kind. Records of one configuration share a title, tables and footer lines.
//!
//! Each kind provides the content through [`Report`]. This module decides order, widths and spacing, and which report
//! draws a record.

use tonnage_record::figures::Row;
use tonnage_record::kinds::Kind;
use tonnage_record::{Outcome, Record, TypedRecord};

use super::derived::NOTE;
use super::remarks::{GroupedRemark, TableRemarks};
use super::result::ReportResult;
use super::table::{Markup, TableBuilder, TitledTable};
use super::text::{extend_distinct, wrap};
use super::view::View;
use super::{
    collective, connect, cpu_loss, files, layers, markdown, stress, transfer, tune, verify,
};

/// Report for one kind of records, or for a subset of a kind.
pub trait Report {
    /// Body type of these records.
    type Body: Kind;

    /// Whether this report handles the record.
    fn handles(record: &Record) -> bool {
        Self::Body::of(&record.body).is_some()
    }

    /// Whether two consecutive records belong under one title.
    fn same_section(left: TypedRecord<'_, Self::Body>, right: TypedRecord<'_, Self::Body>) -> bool;

    /// Shared configuration, as parts of a sentence. Empty for a report without a title.
    fn configuration(
        first: TypedRecord<'_, Self::Body>,
        records: &[TypedRecord<'_, Self::Body>],
    ) -> Vec<String>;

    /// The result and its reason, printed before everything else. `None` for a report that only lists figures.
    fn result(_records: &[TypedRecord<'_, Self::Body>]) -> Option<ReportResult> {
        None
    }

    /// Tables of the report.
    fn tables(records: &[TypedRecord<'_, Self::Body>]) -> Vec<TitledTable>;

    /// Lines below the tables, such as bounds and canaries.
    fn footers(records: &[TypedRecord<'_, Self::Body>]) -> Vec<String>;

    /// Remarks on rows of the first table. Rows with remarks are marked in that table.
    fn remarks(_records: &[TypedRecord<'_, Self::Body>]) -> TableRemarks {
        TableRemarks::default()
    }

    /// Command lines that reproduce the result. Each stays on one line, so it can be pasted into a shell.
    fn commands(_records: &[TypedRecord<'_, Self::Body>]) -> Vec<String> {
        Vec::new()
    }
}

/// Entry in the list of reports.
pub struct ReportEntry {
    /// Whether this report handles the record.
    pub handles: fn(&Record) -> bool,
    /// Draws records that this report handles.
    pub draw: fn(&[Record], Markup<'_>) -> String,
    /// Returns the parts of the report, for custom layout.
    pub sections: fn(&[Record]) -> Vec<Section>,
}

/// Report on consecutive records of one configuration, as separate parts.
#[derive(Debug, Clone)]
pub struct Section {
    /// Number of records.
    pub records: usize,
    /// Heading from the plan.
    pub label: Option<String>,
    /// The result and its reason. `None` for a report that only lists figures.
    pub result: Option<ReportResult>,
    /// Shared configuration, as parts of a sentence. Empty for a report without a title.
    pub configuration: Vec<String>,
    /// Tables of the report.
    pub tables: Vec<TitledTable>,
    /// Remarks on rows of the first table.
    pub remarks: TableRemarks,
    /// Lines below the tables.
    pub footers: Vec<String>,
    /// Command lines that reproduce the result.
    pub commands: Vec<String>,
}

impl ReportEntry {
    /// Creates the entry for a report.
    pub const fn new<R: Report>() -> Self {
        Self {
            handles: R::handles,
            draw: draw_as::<R>,
            sections: sections_as::<R>,
        }
    }
}

/// All reports. The first report that handles a record draws it.
const REPORTS: &[ReportEntry] = &[
    layers::LAYERS,
    ReportEntry::new::<verify::VerifyTransfers>(),
    ReportEntry::new::<verify::VerifyCollectives>(),
    ReportEntry::new::<transfer::Transfers>(),
    ReportEntry::new::<files::Files>(),
    ReportEntry::new::<connect::Connections>(),
    ReportEntry::new::<stress::StressReport>(),
    ReportEntry::new::<tune::TuneReport>(),
    ReportEntry::new::<collective::CollectiveReport>(),
];

/// Draws records. Each sequence of records handled by one report becomes a part of the text.
pub fn tables(records: &[Record], markup: Markup<'_>) -> String {
    let drawn = split_by_report(records).map(|(entry, part)| match markup {
        Markup::Plain(view) if !view.fields.is_empty() => chosen_columns(entry, part, view),
        markup => (entry.draw)(part, markup),
    });
    drawn.collect::<Vec<_>>().join("\n")
}

/// Draws records of an unfinished run, without a result.
pub fn unfinished(records: &[Record], view: &View) -> String {
    let sections = sections(records).into_iter();
    let drawn = sections.map(|section| {
        let section = Section {
            result: None,
            ..section
        };
        draw_plain(&section, view)
    });
    drawn.collect::<Vec<_>>().join("\n")
}

/// Returns the report parts of all records, for custom layout.
pub fn sections(records: &[Record]) -> Vec<Section> {
    let sections = split_by_report(records).flat_map(|(entry, part)| (entry.sections)(part));
    sections.collect()
}

/// Splits records into sequences handled by one report.
fn split_by_report(records: &[Record]) -> impl Iterator<Item = (&'static ReportEntry, &[Record])> {
    let report = |record: &Record| REPORTS.iter().position(|report| (report.handles)(record));
    let parts = records.chunk_by(move |left, right| report(left) == report(right));
    parts.filter_map(move |part| {
        let entry = &REPORTS[report(part.first()?)?];
        Some((entry, part))
    })
}

/// Draws each section with one table of the columns that the user chose.
fn chosen_columns(entry: &ReportEntry, records: &[Record], view: &View) -> String {
    let mut rest = records;
    let mut drawn = Vec::new();
    for mut section in (entry.sections)(records) {
        let (own, others) = rest.split_at(section.records.min(rest.len()));
        rest = others;
        let lines: Vec<_> = own.iter().flat_map(Row::all_of_record).collect();
        let marks = std::mem::take(&mut section.remarks.marks);
        let has_marks = marks.len() == lines.len();
        let builder = TableBuilder::new(lines.into_iter().map(Into::into).collect());
        let builder = builder.keyed_by(&view.fields).always(&view.fields);
        let builder = builder.marks(
            NOTE.name,
            if has_marks && !view.quiet {
                marks
            } else {
                Vec::new()
            },
        );
        section.tables = builder.table().into_iter().collect();
        drawn.push(draw_plain(&section, view));
    }
    drawn.join("\n")
}

/// Draws records in order, with an empty line between configurations.
fn draw_as<R: Report>(records: &[Record], markup: Markup<'_>) -> String {
    let sections = sections_as::<R>(records);
    let sections = sections.iter().map(|section| match markup {
        Markup::Plain(view) => draw_plain(section, view),
        Markup::Markdown => draw_markdown(section),
    });
    sections.collect::<Vec<_>>().join("\n")
}

fn sections_as<R: Report>(records: &[Record]) -> Vec<Section> {
    let records: Vec<_> = records.iter().filter_map(Record::of_kind).collect();
    let groups = records.chunk_by(|left, right| R::same_section(*left, *right));
    groups.map(section::<R>).collect()
}

fn section<R: Report>(records: &[TypedRecord<'_, R::Body>]) -> Section {
    let first = records.first();
    let mut configuration = first.map_or_else(Vec::new, |it| R::configuration(*it, records));
    if configuration.iter().all(String::is_empty) {
        configuration.clear();
    }
    let label = first.and_then(|it| it.record.body.any().options().label);
    let mut footers = R::footers(records);
    // Lost CPU time and remarks are printed for every kind.
    footers.extend(cpu_loss::lines(records.iter().map(|it| it.record)));
    let remarks = records.iter().flat_map(|it| &it.record.remarks);
    extend_distinct(&mut footers, remarks.cloned());
    Section {
        records: records.len(),
        label: label
            .filter(|_| !configuration.is_empty())
            .map(str::to_owned),
        result: R::result(records),
        configuration,
        tables: R::tables(records),
        remarks: R::remarks(records),
        footers,
        commands: R::commands(records),
    }
}

/// Heading of the command lines below a report.
pub const REPRODUCE: &str = "Reproduce with:";

/// Explains why `who` was not measured; `None` if it was. `skipped` is the word to print for a skip.
pub(crate) fn not_measured(who: &str, outcome: &Outcome, skipped: &str) -> Option<String> {
    match outcome {
        Outcome::Measured => None,
        Outcome::Skipped { why } => Some(format!("{who}: {skipped}: {why}")),
        Outcome::Failed { why } => Some(format!("{who}: FAILED: {why}")),
    }
}

/// Draws a section: title, remarks on all rows, tables, lines about all rows, then remarks on some rows.
pub(crate) fn draw_plain(section: &Section, view: &View) -> String {
    let tables = section.tables.iter();
    let tables: Vec<String> = tables
        .map(|table| table.draw(Markup::Plain(view)))
        .collect();
    let tables = tables.join("\n\n");
    if view.quiet {
        return tables + "\n";
    }
    let lines = |remarks: &[GroupedRemark]| -> Vec<String> {
        let lines = remarks
            .iter()
            .flat_map(|remark| remark.lines(view.full_notes));
        lines
            .map(|line| wrap(&line, view.text_width(), 4))
            .collect()
    };
    let mut parts: Vec<String> = section.label.iter().cloned().collect();
    parts.extend(
        section
            .result
            .as_ref()
            .map(|it| it.plain(view.text_width())),
    );
    if !section.configuration.is_empty() {
        let configuration = section.configuration.join("; ");
        parts.push(wrap(&configuration, view.text_width(), 2));
    }
    parts.extend(lines(&section.remarks.of_all));
    if !tables.is_empty() {
        // An empty line shows that the text after several tables is about all of them.
        let end = if section.tables.len() > 1 { "\n" } else { "" };
        parts.push(tables + end);
    }
    let footers = section.footers.iter();
    parts.extend(footers.map(|line| wrap(line, view.text_width(), 4)));
    parts.extend(lines(&section.remarks.numbered));
    if !section.commands.is_empty() {
        parts.push(REPRODUCE.to_owned());
        parts.extend(section.commands.iter().cloned());
    }
    parts.join("\n").trim_end().to_owned() + "\n"
}

/// Markdown: a heading if there is a label, then paragraphs, tables, and commands as code.
pub(crate) fn draw_markdown(section: &Section) -> String {
    let mut parts: Vec<String> = Vec::new();
    let label = section.label.as_deref().map(markdown::escaped);
    parts.extend(label.map(|label| format!("### {label}\n")));
    parts.extend(section.result.as_ref().map(ReportResult::markdown));
    if !section.configuration.is_empty() {
        parts.push(markdown::paragraph(&section.configuration.join("; ")));
    }
    let tables = section.tables.iter();
    parts.extend(tables.map(|table| table.draw(Markup::Markdown) + "\n"));
    let lines = section.lines_below();
    parts.extend(lines.iter().map(|line| markdown::paragraph(line)));
    if !section.commands.is_empty() {
        parts.push(markdown::paragraph(REPRODUCE));
        parts.extend(section.commands.iter().map(|line| markdown::code(line)));
    }
    parts.join("\n")
}

impl Section {
    /// All lines below the tables, with the remarks on rows.
    pub fn lines_below(&self) -> Vec<String> {
        let remarks = self.remarks.of_all.iter().chain(&self.remarks.numbered);
        let remarks = remarks.flat_map(|remark| remark.lines(true));
        self.footers.iter().cloned().chain(remarks).collect()
    }
}
