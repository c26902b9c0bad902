//! Tables of figures and words, for screens and Markdown.

use tonnage_record::figures::{Figure, Row, Value, figure_by_field};

pub use super::column::format_value;
use super::column::{Column, NO_VALUE, texts_for_people};
use super::fit::fit;
pub use super::grid::draw;
use super::grid::draw_columns;
use super::markdown;
use super::text::wrap;
use super::view::View;

/// A table under construction: its lines and the columns added so far.
pub struct TableBuilder<'a> {
    lines: Vec<Line<'a>>,
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
    /// Starts a table of these lines.
    pub fn new(lines: Vec<Line<'a>>) -> Self {
        Self {
            lines,
            columns: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Sets the fields that identify rows, before columns are added. Their columns are printed on any screen.
    #[must_use]
    pub fn keyed_by(mut self, fields: &[&str]) -> Self {
        self.keys = fields.iter().map(|field| (*field).to_owned()).collect();
        self
    }

    /// Adds columns for these fields.
    #[must_use]
    pub fn always(mut self, fields: &[&str]) -> Self {
        let columns: Vec<Column> = figures(fields)
            .map(|figure| self.of_figure(figure))
            .collect();
        self.columns.extend(columns);
        self
    }

    /// Adds a column for each field that has a value in at least one line.
    #[must_use]
    pub fn if_known(mut self, fields: &[&str]) -> Self {
        let known = figures(fields).filter(|figure| {
            let mut lines = self.lines.iter();
            lines.any(|line| line.value(figure) != Value::Unknown)
        });
        let known: Vec<_> = known.map(|figure| self.of_figure(figure)).collect();
        self.columns.extend(known);
        self
    }

    fn of_figure(&self, figure: &Figure) -> Column {
        let values = self.lines.iter().map(|line| line.value(figure));
        let identifies = self.keys.iter().any(|key| key == figure.field);
        Column::values(figure, values.collect(), identifies)
    }

    /// Adds a column.
    #[must_use]
    pub fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Adds a column after the column of a figure.
    #[must_use]
    pub fn after(mut self, field: &str, column: Option<Column>) -> Self {
        let name = figure_by_field(field).map(|figure| figure.name);
        let place = self.columns.iter().position(|it| Some(it.name()) == name);
        if let Some((place, column)) = place.zip(column) {
            self.columns.insert(place + 1, column);
        }
        self
    }

    /// Leaves out the column of a figure in plain text if all rows have the same value, because the title then shows
    /// it.
    #[must_use]
    pub fn in_title_if_same(mut self, field: &str) -> Self {
        let name = figure_by_field(field).map(|figure| figure.name);
        for column in &mut self.columns {
            column.is_in_title |= Some(column.name()) == name && column.is_same();
        }
        self
    }

    /// Adds a column of numbers as text, unless all are empty.
    #[must_use]
    pub fn text_column(mut self, name: &'static str, cells: Vec<String>) -> Self {
        if cells.iter().any(|cell| !cell.is_empty()) {
            let or_no_value = |cell: String| match cell.is_empty() {
                true => NO_VALUE.to_owned(),
                false => cell,
            };
            let cells = cells.into_iter().map(or_no_value).collect();
            self.columns
                .push(Column::words(name, cells, true).droppable());
        }
        self
    }

    /// Adds a column of marks at the end of the rows, unless all are empty. It is printed on any screen.
    #[must_use]
    pub fn marks(mut self, name: &'static str, cells: Vec<String>) -> Self {
        if cells.iter().any(|cell| !cell.is_empty()) {
            self.columns.push(Column::words(name, cells, false));
        }
        self
    }

    /// The finished table; `None` without lines.
    pub fn table(self) -> Option<TitledTable> {
        (!self.lines.is_empty()).then(|| TitledTable::of_columns(self.columns))
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

/// A table before drawing: its columns, and lines above and below.
#[derive(Debug, Clone)]
pub struct TitledTable {
    above: String,
    columns: Vec<Column>,
    below: Vec<String>,
    plain_text: Option<String>,
}

/// Output format of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Markup<'a> {
    /// Plain text.
    Plain(&'a View),
    /// GitHub-flavoured Markdown.
    Markdown,
}

impl TitledTable {
    /// A table of these columns.
    pub fn of_columns(columns: Vec<Column>) -> Self {
        Self {
            above: String::new(),
            columns,
            below: Vec::new(),
            plain_text: None,
        }
    }

    /// Creates a table of rows, starting with the header. `right` selects right-aligned columns. Narrow screens may
    /// leave out these columns.
    pub fn new(rows: Vec<Vec<String>>, right: impl Fn(usize) -> bool) -> Self {
        let mut rows = rows.into_iter();
        let header = rows.next().unwrap_or_default();
        let mut cells: Vec<Vec<String>> = vec![Vec::new(); header.len()];
        for row in rows {
            for (column, cell) in cells.iter_mut().zip(row) {
                column.push(cell);
            }
        }
        let columns = header.into_iter().zip(cells).enumerate();
        let columns = columns.map(|(at, (name, cells))| {
            let mut column = Column::words(name.replacen("\n(", " (", 1), cells, right(at));
            column.keep = (at > 0 && right(at)).then_some(Figure::KEEP);
            column
        });
        Self::of_columns(columns.collect())
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

    /// Sets the text to print instead of the rows in plain text, for tables with narrow column gaps. A screen that is
    /// too narrow for this text gets the rows.
    #[must_use]
    pub fn with_plain_text(mut self, lines: String) -> Self {
        self.plain_text = Some(lines);
        self
    }

    /// The line above the table; empty if there is none.
    pub fn above(&self) -> &str {
        &self.above
    }

    /// The rows, starting with the header, in the units of the header.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let columns: Vec<Vec<String>> = self.columns.iter().map(Column::text).collect();
        let count = columns.iter().map(Vec::len).max().unwrap_or(0);
        let row = |at: usize| {
            let cells = columns.iter().map(|column| column.get(at).cloned());
            cells.map(Option::unwrap_or_default).collect()
        };
        (0..count).map(row).collect()
    }

    /// Whether a column is right-aligned.
    pub fn is_right(&self, column: usize) -> bool {
        self.columns.get(column).is_some_and(Column::is_right)
    }

    /// The lines directly below the table.
    pub fn below(&self) -> &[String] {
        &self.below
    }

    /// Draws the table, without a trailing newline.
    pub fn draw(&self, markup: Markup<'_>) -> String {
        match markup {
            Markup::Plain(view) if view.quiet => self.fitted(view).0,
            Markup::Plain(view) => {
                let (rows, dropped) = self.fitted(view);
                let above = wrap(&self.above, view.text_width(), 2);
                let above = Some(above).filter(|above| !above.is_empty());
                let below = dropped.iter().chain(&self.below);
                let below = below.map(|line| wrap(line, view.text_width(), 4));
                let parts: Vec<String> = above.into_iter().chain([rows]).chain(below).collect();
                parts.join("\n")
            }
            Markup::Markdown => {
                let mut parts: Vec<String> = Vec::new();
                if !self.above.is_empty() {
                    parts.push(markdown::paragraph(&self.above));
                }
                parts.push(markdown::table(&self.rows(), |at| self.is_right(at)));
                parts.extend(self.below.iter().map(|line| markdown::paragraph(line)));
                parts.join("\n").trim_end().to_owned()
            }
        }
    }

    /// Draws the rows for a screen, and names the columns that do not fit.
    fn fitted(&self, view: &View) -> (String, Option<String>) {
        let most = view.width.unwrap_or(usize::MAX);
        let is_narrow = |text: &&String| text.lines().all(|line| line.chars().count() <= most);
        if let Some(text) = self.plain_text.as_ref().filter(is_narrow) {
            return (text.clone(), None);
        }
        let fitted = fit(texts_for_people(&self.columns, view), most);
        let dropped = (!fitted.dropped.is_empty()).then(|| {
            format!(
                "not shown at {most} columns: {}; --wide shows all",
                fitted.dropped.join(", ")
            )
        });
        let rows = draw_columns(fitted.columns, |at| fitted.right[at]);
        (rows, dropped)
    }
}
