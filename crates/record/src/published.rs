//! Published figures for comparison: the columns that a table can have, and the row that belongs to a record.
//!
//! Columns have the names that tables print. Columns with options of the point (size, batch, rails) select the row.
//! Measured columns are compared in the published unit, which may be any unit of the same quantity.
//! [`tonnage_plan::published`] reads the tables in plans, and reports print the comparison.

use tonnage_plan::published::{PublishedCell, PublishedTable};
use tonnage_units::names::{nearest, quote};
use tonnage_units::{Bytes, Error, Result};

use crate::envelope::{PublishedRow, Record};
use crate::figures::units::{split_header, units_like};
use crate::figures::{Figure, Row, Style, Value};
use crate::kinds::collective::figures as collective;
use crate::kinds::transfer::figures::{FIGURES, FROM_POINT};

/// A column of a published table.
#[derive(Clone, Copy)]
pub struct PublishedColumn {
    /// The figure that the column shows.
    pub figure: &'static Figure,
    /// Factor that converts a value from the unit of CSV to the published unit.
    pub factor: f64,
    /// True if the column is an option of the point, which selects the row.
    pub is_key: bool,
}

impl PublishedColumn {
    /// Returns the column with this header.
    ///
    /// # Errors
    /// `Usage` for an unknown column. The message suggests the most similar known one.
    pub fn from_header(header: &str) -> Result<Self> {
        let mut all = columns();
        if let Some(column) = all.find(|column| column.figure.name == header) {
            return Ok(column);
        }
        let (stem, unit) = split_header(header);
        let stem = current_name(stem);
        let Some(column) = columns().find(|column| split_header(column.figure.name).0 == stem)
        else {
            return Err(unknown_column_error(header));
        };
        let own = split_header(column.figure.name).1;
        let units = units_like(own).filter(|_| !column.is_key);
        let known = units.into_iter().flatten();
        if let Some((_, factor)) = known.clone().find(|(name, _)| *name == unit) {
            return Ok(Self {
                factor: *factor,
                ..column
            });
        }
        let units: Vec<_> = known.map(|(name, _)| *name).collect();
        Err(Error::Usage(match units.is_empty() {
            true => format!(
                "unknown column {} of published: write {:?}",
                quote(header),
                column.figure.name
            ),
            false => format!(
                "unknown unit of the column {} of published: write {:?}, or one of the units {}",
                quote(header),
                column.figure.name,
                units.join(", ")
            ),
        }))
    }

    /// Returns the measured value in the published unit.
    pub fn measured_value(&self, row: &Row<'_>) -> Option<f64> {
        let ours = (self.figure.value)(row).number();
        ours.map(|number| number * self.factor)
    }

    /// Returns whether the record has the value in this cell.
    fn matches_cell(&self, row: &Row<'_>, cell: &PublishedCell) -> bool {
        match ((self.figure.value)(row), cell) {
            (Value::Count(ours), PublishedCell::Text(text)) => {
                text.parse().is_ok_and(|Bytes(bytes)| bytes == ours)
            }
            (Value::Text(ours), PublishedCell::Text(text)) => ours == *text,
            (Value::Count(ours), cell) => cell.number() == Some(ours as f64),
            (Value::Number(ours), cell) => cell.number() == Some(ours),
            (Value::AtLeast(_) | Value::Text(_) | Value::Unknown, _) => false,
        }
    }
}

/// Returns the current name of a column that was renamed. Plans for an older version may use the old name.
fn current_name(name: &str) -> &str {
    match name {
        "Window" => "Depth",
        "Limit" => "Bound",
        "Addresses" => "Access",
        "Local addresses" => "Local access",
        "Workers" => "Threads",
        name => name,
    }
}

/// Columns that a table of transfers or collectives can have.
fn columns() -> impl Iterator<Item = PublishedColumn> {
    let asked = FROM_POINT.iter().chain(collective::FROM_POINT);
    let keys = asked.copied().flatten();
    let keys = keys.filter(|figure| figure.style == Style::Plain);
    let keys = keys.map(|figure| (figure, true));
    let measured = FIGURES.iter().chain(collective::FIGURES);
    let measured = measured.copied().flatten();
    let measured = measured.filter(|figure| figure.better.is_some());
    let measured = measured.map(|figure| (figure, false));
    keys.chain(measured)
        .map(|(figure, is_key)| PublishedColumn {
            figure,
            factor: figure.style.scale(),
            is_key,
        })
}

fn unknown_column_error(header: &str) -> Error {
    let stem = |name: &str| split_header(name).0.to_lowercase();
    let stems: Vec<_> = columns().map(|column| stem(column.figure.name)).collect();
    let stems: Vec<_> = stems.iter().map(String::as_str).collect();
    let near = nearest(&stem(header), &stems);
    let near = near.and_then(|near| columns().find(|column| stem(column.figure.name) == near));
    let hint = match near {
        Some(column) => format!("did you mean {:?}? ", column.figure.name),
        None => String::new(),
    };
    Error::Usage(format!(
        "unknown column {} of published: {hint}it has columns of transfers and collectives that are numbers, and options such as {:?}; \
         `tonnage explain` lists them",
        quote(header),
        "MsgSize (B)"
    ))
}

/// Rejects tables that have unknown columns, no measured column, or several rows for one point.
///
/// # Errors
/// `Usage`. For an unknown column, the message suggests the most similar known one.
pub fn check(tables: &[PublishedTable]) -> Result<()> {
    for table in tables {
        let columns = table
            .columns
            .iter()
            .map(|header| PublishedColumn::from_header(header));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let named = quote(&table.what);
        if columns.iter().all(|column| column.is_key) {
            return Err(Error::Usage(format!(
                "published of {named} has no measured column: add one, such as \"Avg BW (GB/s)\""
            )));
        }
        let mut cells: Vec<Vec<&PublishedCell>> = Vec::new();
        for (row, number) in table.rows.iter().zip(1..) {
            let words = columns.iter().zip(row).find(|(column, cell)| {
                // Cells of measured columns must be numbers, because only numbers can be compared.
                !column.is_key && cell.number().is_none()
            });
            if let Some((column, _)) = words {
                return Err(Error::Usage(format!(
                    "row {number} of published of {named} has text in column {:?}: write a number",
                    column.figure.name
                )));
            }
            let keys = columns.iter().zip(row).filter(|(column, _)| column.is_key);
            let keys: Vec<_> = keys.map(|(_, cell)| cell).collect();
            if let Some(before) = cells.iter().position(|known| *known == keys) {
                return Err(Error::Usage(format!(
                    "rows {} and {number} of published of {named} are of the same point: add a column in which they \
                     differ, such as \"MsgSize (B)\"",
                    before + 1
                )));
            }
            cells.push(keys);
        }
    }
    Ok(())
}

/// Returns the rows of published tables that belong to the point of a record.
pub fn rows_of(record: &Record, tables: &[PublishedTable]) -> Vec<PublishedRow> {
    let Some(cell) = Row::all_of_record(record).into_iter().next() else {
        return Vec::new();
    };
    let of_table = |table: &PublishedTable| {
        let columns = table
            .columns
            .iter()
            .map(|header| PublishedColumn::from_header(header));
        let columns: Vec<_> = columns.collect::<Result<_>>().ok()?;
        let row = table.rows.iter().find(|row| {
            let mut keys = columns.iter().zip(*row).filter(|(column, _)| column.is_key);
            keys.all(|(column, value)| column.matches_cell(&cell, value))
        })?;
        Some(PublishedRow {
            what: table.what.clone(),
            columns: table.columns.clone(),
            row: row.clone(),
        })
    };
    tables.iter().filter_map(of_table).collect()
}

#[cfg(test)]
mod tests;
