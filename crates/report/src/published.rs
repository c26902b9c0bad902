//! Compares published figures with ours: one table per published table, in the units of that table.
//!
//! Each record lists the published rows to compare it with. Published figures for files appear as separate lines in the
//! file report.

use tonnage_plan::published::PublishedCell;
use tonnage_record::figures::{Figure, Row, Style, figure_by_field};
use tonnage_record::published::PublishedColumn;
use tonnage_record::{PublishedRow, Record};
use tonnage_units::quantity::human::{number, prefixed};

use crate::column::{Column, NO_VALUE};
use crate::derived::{RATIO, THEIRS};
use crate::table::{TitledTable, format_value};

/// One table for each published table that these records refer to.
pub fn tables<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> Vec<TitledTable> {
    let mut tables: Vec<&PublishedRow> = Vec::new();
    for row in records.clone().flat_map(|record| &record.published_rows) {
        if !tables.iter().any(|table| is_of(table, row)) {
            tables.push(row);
        }
    }
    let drawn = tables.into_iter().filter_map(|table| {
        let rows = records.clone().flat_map(|record| {
            let rows = record.published_rows.iter();
            let rows = rows.filter(|row| is_of(table, row));
            rows.map(move |row| (record, row))
        });
        one(table, rows)
    });
    drawn.collect()
}

fn is_of(table: &PublishedRow, row: &PublishedRow) -> bool {
    table.what == row.what && table.columns == row.columns
}

/// Draws one table; `None` if it has columns unknown to this version.
fn one<'a>(
    table: &PublishedRow,
    rows: impl Iterator<Item = (&'a Record, &'a PublishedRow)>,
) -> Option<TitledTable> {
    let columns = table.columns.iter().map(|header| {
        let column = PublishedColumn::from_header(header).ok()?;
        Some((header.as_str(), column))
    });
    let columns: Vec<_> = columns.collect::<Option<_>>()?;
    let rows: Vec<_> = rows.collect();
    let engine = engine_column(&columns, &rows);
    let of_columns = columns
        .iter()
        .flat_map(|(header, column)| match column.is_key {
            true => vec![(*header, Place::Key)],
            false => vec![
                (*header, Place::Ours),
                (THEIRS.name, Place::Attached),
                (RATIO.name, Place::Attached),
            ],
        });
    let head = engine.iter().map(|column| (column.name, Place::Key));
    let head: Vec<_> = head.chain(of_columns).collect();
    let lines = rows.iter().map(|(record, row)| {
        let of_engine = engine.iter().flat_map(|column| {
            let rows = Row::all_of_record(record);
            rows.first()
                .map(|row| format_value((column.value)(row), column.style))
        });
        let cells = columns.iter().zip(&row.row);
        let cells = cells.flat_map(|(column, theirs)| cells_of(record, column, theirs));
        of_engine.chain(cells).collect()
    });
    let lines: Vec<Vec<String>> = lines.collect();
    let columns = head.into_iter().enumerate().map(|(at, (name, place))| {
        let cells = lines.iter().filter_map(|line| line.get(at)).cloned();
        let column = Column::words(name, cells.collect(), true);
        match place {
            Place::Key => column,
            Place::Ours => column.droppable(),
            Place::Attached => column.attached(),
        }
    });
    let drawn = TitledTable::of_columns(columns.collect());
    Some(drawn.with_title(format!("beside {}:", table.what)))
}

/// Role of a column in a table.
#[derive(Clone, Copy)]
enum Place {
    /// Identifies rows.
    Key,
    /// A measured value.
    Ours,
    /// The published value or the ratio, printed only with the measured value before it.
    Attached,
}

/// The engine column. `None` if the table already has it, or if all rows have the same engine.
fn engine_column(
    columns: &[(&str, PublishedColumn)],
    rows: &[(&Record, &PublishedRow)],
) -> Option<&'static Figure> {
    let engine = figure_by_field("engine")?;
    let is_there = columns
        .iter()
        .any(|(_, column)| column.figure.field == engine.field);
    let name = |record: &Record| {
        let rows = Row::all_of_record(record);
        rows.first()
            .map(|row| format_value((engine.value)(row), engine.style))
    };
    let mut names = rows.iter().map(|(record, _)| name(record));
    let first = names.next()?;
    (!is_there && names.any(|other| other != first)).then_some(engine)
}

/// Cells of a column. An option has one cell: our value. A figure has three: ours, theirs and the ratio.
fn cells_of(
    record: &Record,
    (header, column): &(&str, PublishedColumn),
    theirs: &PublishedCell,
) -> Vec<String> {
    let rows = Row::all_of_record(record);
    let Some(row) = rows.first() else {
        return Vec::new();
    };
    if column.is_key {
        let value = (column.figure.value)(row);
        return vec![format_value(value, column.figure.style)];
    }
    let ours = column.measured_value(row);
    let as_published = column.figure.style == Style::Rate && *header == column.figure.name;
    let text = |value: f64| match as_published {
        true => prefixed(value),
        false => number(value),
    };
    let ratio = ours.zip(theirs.number().filter(|theirs| *theirs > 0.0));
    let ratio = ratio.map(|(ours, theirs)| number(ours / theirs));
    vec![
        ours.map_or_else(|| NO_VALUE.to_owned(), text),
        words(theirs),
        ratio.unwrap_or_else(|| NO_VALUE.to_owned()),
    ]
}

/// A published value, with its original digits.
fn words(cell: &PublishedCell) -> String {
    match cell {
        PublishedCell::Count(count) => count.to_string(),
        PublishedCell::Number(number) => number.to_string(),
        PublishedCell::Text(text) => text.clone(),
    }
}
