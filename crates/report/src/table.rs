//! Plain-text tables of figures and words.

use comfy_table::{CellAlignment, ContentLineStyle, LineStyle, Table, TableStyle};
use tonnage_record::Outcome;
use tonnage_record::figures::{Figure, Row, Style, Value, figure_by_field};

use tonnage_units::quantity::human::{at_least, number, prefixed};

use super::blocks::{ColumnRole, FURTHER, blocks};
use super::markdown;
use super::text::{WIDTH, wrap};

/// A table under construction: its lines and the columns added so far.
pub struct TableBuilder<'a> {
    lines: Vec<Line<'a>>,
    unknown: &'static str,
    columns: Vec<Column>,
    keys: Vec<String>,
}

/// One line of a table.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// Source of the values.
    pub row: Row<'a>,
    /// Index of the trial to show; `None` for the values over all trials.
    pub trial: Option<usize>,
}

enum Column {
    Figure(&'static Figure),
    Words {
        name: &'static str,
        cells: Vec<String>,
        right: bool,
    },
}

impl<'a> From<Row<'a>> for Line<'a> {
    fn from(row: Row<'a>) -> Self {
        Self { row, trial: None }
    }
}

impl Line<'_> {
    fn value(&self, figure: &Figure) -> Value {
        match (self.trial, figure.trials) {
            (Some(at), Some(trials)) => trials(&self.row).get(at).copied().flatten().into(),
            _ => (figure.value)(&self.row),
        }
    }
}

impl<'a> TableBuilder<'a> {
    /// Starts a table of these lines. `unknown` replaces missing values of measured records; for unmeasured ones it is
    /// "-".
    pub fn new(lines: Vec<Line<'a>>, unknown: &'static str) -> Self {
        Self {
            lines,
            unknown,
            columns: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Sets the fields that identify rows. If the table is wider than the screen, each block repeats their columns.
    #[must_use]
    pub fn keyed_by(mut self, fields: &[&str]) -> Self {
        self.keys = fields.iter().map(|field| (*field).to_owned()).collect();
        self
    }

    /// Adds columns for these fields.
    #[must_use]
    pub fn always(mut self, fields: &[&str]) -> Self {
        self.columns.extend(figures(fields).map(Column::Figure));
        self
    }

    /// Adds columns for those fields that have a value in any line.
    #[must_use]
    pub fn if_known(mut self, fields: &[&str]) -> Self {
        let known = figures(fields).filter(|figure| {
            let mut lines = self.lines.iter();
            lines.any(|line| line.value(figure) != Value::Unknown)
        });
        let known: Vec<_> = known.map(Column::Figure).collect();
        self.columns.extend(known);
        self
    }

    /// Adds a column of words, right-aligned if `right`, unless all are empty.
    #[must_use]
    pub fn text_column(mut self, name: &'static str, cells: Vec<String>, right: bool) -> Self {
        if cells.iter().any(|cell| !cell.is_empty()) {
            self.columns.push(Column::Words { name, cells, right });
        }
        self
    }

    /// The finished table; `None` without lines.
    pub fn table(self) -> Option<TitledTable> {
        if self.lines.is_empty() {
            return None;
        }
        let header = self.columns.iter().map(Column::header).collect();
        let lines = self.lines.iter().enumerate().map(|(at, line)| {
            let cells = self.columns.iter();
            cells.map(|column| self.cell(column, at, line)).collect()
        });
        let rows = std::iter::once(header).chain(lines).collect();
        let right: Vec<bool> = self
            .columns
            .iter()
            .map(|column| self.is_right(column))
            .collect();
        let roles: Vec<ColumnRole> = self.columns.iter().map(|it| self.role(it)).collect();
        Some(TitledTable::new(rows, |at| right[at]).in_roles(|at| roles[at]))
    }

    fn role(&self, column: &Column) -> ColumnRole {
        match column {
            Column::Words { .. } => ColumnRole::First,
            Column::Figure(figure) if self.keys.iter().any(|key| key == figure.field) => {
                ColumnRole::Key
            }
            Column::Figure(_) => ColumnRole::Figure,
        }
    }

    fn cell(&self, column: &Column, at: usize, line: &Line<'_>) -> String {
        let unknown = match line.row.record.outcome {
            Outcome::Measured => self.unknown,
            _ => "-",
        };
        match column {
            Column::Figure(figure) => format_value(line.value(figure), figure.style, unknown),
            Column::Words { cells, .. } => cells.get(at).cloned().unwrap_or_default(),
        }
    }

    /// Numbers are right-aligned.
    fn is_right(&self, column: &Column) -> bool {
        match column {
            Column::Figure(figure) => {
                let mut lines = self.lines.iter();
                !lines.any(|line| matches!(line.value(figure), Value::Text(_)))
            }
            Column::Words { right, .. } => *right,
        }
    }
}

/// Looks up figures by name, in order. Unknown names are skipped; debug builds panic.
fn figures(fields: &[&str]) -> impl Iterator<Item = &'static Figure> {
    debug_assert!(
        fields.iter().all(|field| figure_by_field(field).is_some()),
        "{fields:?}"
    );
    fields.iter().filter_map(|field| figure_by_field(field))
}

impl Column {
    fn header(&self) -> String {
        let (Self::Figure(Figure { name, .. }) | Self::Words { name, .. }) = self;
        name.replacen(" (", "\n(", 1)
    }
}

/// A table before drawing: rows, starting with the header, and lines above and below.
#[derive(Debug, Clone)]
pub struct TitledTable {
    above: String,
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
    roles: Vec<ColumnRole>,
    below: Vec<String>,
    plain_text: Option<String>,
}

/// Output format of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Markup {
    /// Plain text.
    Plain,
    /// GitHub-flavoured Markdown.
    Markdown,
}

impl TitledTable {
    /// A table of rows. `right` selects right-aligned columns.
    pub fn new(rows: Vec<Vec<String>>, right: impl Fn(usize) -> bool) -> Self {
        let columns = rows.first().map_or(0, Vec::len);
        Self {
            above: String::new(),
            rows,
            right: (0..columns).map(right).collect(),
            roles: vec![ColumnRole::Figure; columns],
            below: Vec::new(),
            plain_text: None,
        }
    }

    /// A table with these headers.
    pub fn headed<const N: usize>(
        header: [&str; N],
        rows: impl Iterator<Item = Vec<String>>,
        right: impl Fn(usize) -> bool,
    ) -> Self {
        let header = header.map(str::to_owned).to_vec();
        Self::new(std::iter::once(header).chain(rows).collect(), right)
    }

    /// Assigns column roles, used when the table is wider than the screen. Without keys they have no effect.
    #[must_use]
    pub fn in_roles(mut self, role: impl Fn(usize) -> ColumnRole) -> Self {
        self.roles = (0..self.roles.len()).map(role).collect();
        self
    }

    /// Sets the line above the table.
    #[must_use]
    pub fn with_title(mut self, above: impl Into<String>) -> Self {
        self.above = above.into();
        self
    }

    /// Sets the lines directly below the table.
    #[must_use]
    pub fn with_lines_below(mut self, below: Vec<String>) -> Self {
        self.below = below;
        self
    }

    /// Replaces the rows in plain text, for tables with narrower column gaps than usual.
    #[must_use]
    pub fn with_plain_text(mut self, lines: String) -> Self {
        self.plain_text = Some(lines);
        self
    }

    /// The line above the table; empty if there is none.
    pub fn above(&self) -> &str {
        &self.above
    }

    /// The rows, starting with the header.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Whether a column is right-aligned.
    pub fn is_right(&self, column: usize) -> bool {
        self.right.get(column).copied().unwrap_or(false)
    }

    /// The lines directly below the table.
    pub fn below(&self) -> &[String] {
        &self.below
    }

    /// Draws the table, without a trailing newline.
    pub fn draw(&self, markup: Markup) -> String {
        match markup {
            Markup::Plain => {
                let above = wrap(&self.above, WIDTH, 2);
                let above = Some(above).filter(|above| !above.is_empty());
                let rows = self.plain_text.clone();
                let rows = rows.unwrap_or_else(|| self.in_blocks());
                let below = self.below.iter().map(|line| wrap(line, WIDTH, 4));
                let parts: Vec<String> = above.into_iter().chain([rows]).chain(below).collect();
                parts.join("\n")
            }
            Markup::Markdown => {
                let mut parts: Vec<String> = Vec::new();
                if !self.above.is_empty() {
                    parts.push(markdown::paragraph(&self.above));
                }
                parts.push(markdown::table(&self.rows, |at| self.right[at]));
                parts.extend(self.below.iter().map(|line| markdown::paragraph(line)));
                parts.join("\n").trim_end().to_owned()
            }
        }
    }
}

impl TitledTable {
    /// Draws the rows in as many blocks as their columns need.
    fn in_blocks(&self) -> String {
        let blocks = blocks(&self.rows, &self.roles);
        let drawn = blocks.iter().map(|block| {
            let cells = |row: &Vec<String>| {
                let cells = block.iter().filter_map(|at| row.get(*at));
                cells.cloned().collect()
            };
            let rows = self.rows.iter().map(cells).collect();
            draw(rows, |at| self.right[block[at]])
        });
        let drawn: Vec<String> = drawn.collect();
        drawn.join(&format!("\n\n{FURTHER}\n"))
    }
}

/// Formats a value for tables; `unknown` replaces a missing value.
pub fn format_value(value: Value, style: Style, unknown: &str) -> String {
    match (value, style) {
        (Value::AtLeast(bound), _) => {
            at_least(format_value(Value::Number(bound), style, unknown), true)
        }
        (Value::Unknown, _) => unknown.to_owned(),
        (Value::Text(text), _) => text,
        (Value::Count(count), Style::Plain) => count.to_string(),
        (Value::Number(value), Style::Plain) => number(value),
        (Value::Count(count), Style::Scaled(scale)) => number(count as f64 * scale),
        (Value::Number(value), Style::Scaled(scale)) => number(value * scale),
        (Value::Count(count), Style::Rate) => prefixed(count as f64),
        (Value::Number(value), Style::Rate) => prefixed(value),
    }
}

/// Draws rows, starting with the header. `right` selects right-aligned columns.
pub fn draw(rows: Vec<Vec<String>>, right: impl Fn(usize) -> bool) -> String {
    let lines = ContentLineStyle::none();
    let rule = LineStyle::none().fill('-').junction('-');
    let style = TableStyle::new()
        .header_lines(lines)
        .header_separator(rule)
        .content_lines(lines);
    let mut table = Table::new();
    table.load_style(style);
    let mut rows = rows.into_iter();
    if let Some(header) = rows.next() {
        table.set_header(header);
    }
    table.add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        // Together with the column separator, the gap is two spaces.
        column.set_padding((0, 1));
        column.set_cell_alignment(if right(at) {
            CellAlignment::Right
        } else {
            CellAlignment::Left
        });
    }
    table.trim_fmt()
}
