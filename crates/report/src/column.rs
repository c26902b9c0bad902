//! One column of a table: its header, and values or words.
//!
//! Markdown and HTML print values in the header's unit. Plain-text tables choose a readable unit for each column.
//! Columns of times share one unit, so that readers can compare them.

use tonnage_record::figures::units::{BANDWIDTHS, TIMES, Unit, factor, split_header};
use tonnage_record::figures::{Figure, Style, Value};
use tonnage_units::quantity::human::{at_least, exact_size, fixed, number, prefixed, size};

use super::view::{View, bare_name};

/// Printed in place of a value that does not exist or was not measured.
pub const NO_VALUE: &str = "-";

/// A column of a table.
#[derive(Debug, Clone)]
pub struct Column {
    /// Header, with its unit.
    name: String,
    content: Content,
    is_right: bool,
    /// Priority on narrow screens, as in [`Figure::keep`]; `None` for a column that is always printed.
    pub keep: Option<u8>,
    /// True if this column makes no sense without the column before it.
    pub is_attached: bool,
    /// True if this column repeats another column in another unit. It is left out if the user chose a unit.
    pub is_in_another_unit: bool,
    /// True if all values are equal and the title shows the value. Plain-text tables leave out this column.
    pub is_in_title: bool,
}

#[derive(Debug, Clone)]
enum Content {
    Values(Style, Vec<Value>),
    Words(Vec<String>),
}

impl Column {
    /// Creates a column of a figure's values. If `identifies` is true, it is printed on any screen.
    pub fn values(figure: &Figure, values: Vec<Value>, identifies: bool) -> Self {
        Self {
            name: figure.name.to_owned(),
            is_right: !values.iter().any(|value| matches!(value, Value::Text(_))),
            content: Content::Values(figure.style, values),
            keep: (!identifies).then_some(figure.keep),
            is_attached: false,
            is_in_another_unit: false,
            is_in_title: false,
        }
    }

    /// Creates a column of numbers that are not figures of records. `values` are in the unit of CSV; `scale` converts
    /// them to the unit of the header.
    pub fn numbers<T: Into<Value>>(
        header: &str,
        scale: f64,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        let values: Vec<Value> = values.into_iter().map(Into::into).collect();
        let is_count = |value: &Value| matches!(value, Value::Count(_) | Value::Unknown);
        let style = match scale == 1.0 && values.iter().all(is_count) {
            true => Style::Plain,
            false => Style::Scaled(scale),
        };
        Self {
            name: header.to_owned(),
            content: Content::Values(style, values),
            is_right: true,
            keep: Some(Figure::KEEP),
            is_attached: false,
            is_in_another_unit: false,
            is_in_title: false,
        }
    }

    /// Marks the column as identifying rows, so that it is printed on any screen.
    #[must_use]
    pub fn identifying(self) -> Self {
        Self { keep: None, ..self }
    }

    /// Marks the column as one that narrow screens may leave out.
    #[must_use]
    pub fn droppable(self) -> Self {
        Self {
            keep: Some(Figure::KEEP),
            ..self
        }
    }

    /// Marks the column as attached: it is printed together with the column before it or not at all.
    #[must_use]
    pub fn attached(self) -> Self {
        Self {
            is_attached: true,
            ..self
        }
    }

    /// Creates a column of words, or of numbers as text, that is always printed.
    pub fn words(name: impl Into<String>, cells: Vec<String>, is_right: bool) -> Self {
        Self {
            name: name.into(),
            content: Content::Words(cells),
            is_right,
            keep: None,
            is_attached: false,
            is_in_another_unit: false,
            is_in_title: false,
        }
    }

    /// Whether cells are right-aligned.
    pub fn is_right(&self) -> bool {
        self.is_right
    }

    /// The header, with its unit.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether all rows have the same cell.
    pub fn is_same(&self) -> bool {
        let text = self.text();
        text.windows(2).skip(1).all(|cells| cells[0] == cells[1])
    }

    /// The header without its unit.
    pub fn bare_name(&self) -> &str {
        bare_name(&self.name)
    }

    /// Header and cells, in the unit of the header.
    pub fn text(&self) -> Vec<String> {
        let header = self.name.replacen(" (", "\n(", 1);
        let cells: Vec<String> = match &self.content {
            Content::Words(cells) => cells.clone(),
            Content::Values(style, values) => {
                let values = values.iter();
                values
                    .map(|value| format_value(value.clone(), *style))
                    .collect()
            }
        };
        std::iter::once(header).chain(cells).collect()
    }
}

/// Formats the columns of one table for people. Each text starts with the header.
pub fn texts_for_people<'a>(columns: &'a [Column], view: &View) -> Vec<(&'a Column, Vec<String>)> {
    let mut texts: Vec<(&Column, Vec<String>)> = Vec::new();
    for column in columns {
        if column.is_in_title || (column.is_in_another_unit && view.unit.is_some()) {
            continue;
        }
        let text = text_for_people(column, columns, view);
        // A chosen unit can make two columns identical; print only the first.
        let is_repeated = |(_, other): &(&Column, Vec<String>)| {
            matches!(column.content, Content::Values(..)) && *other == text
        };
        if !texts.iter().any(is_repeated) {
            texts.push((column, text));
        }
    }
    texts
}

fn text_for_people(column: &Column, columns: &[Column], view: &View) -> Vec<String> {
    let Content::Values(style, values) = &column.content else {
        return column.text();
    };
    let (name, unit) = split_header(&column.name);
    let cells = |format: &dyn Fn(f64) -> String| values.iter().map(|it| cell(it, format)).collect();
    let headed = |unit: &str, cells: Vec<String>| {
        let header = match unit {
            "" => name.to_owned(),
            unit => format!("{name}\n({unit})"),
        };
        std::iter::once(header).chain(cells).collect()
    };
    if unit == "B" {
        return headed("", cells(&|bytes| size_of_row(bytes as u64)));
    }
    if *style == Style::Rate {
        let (prefix, factor) = fitting(&numbers(values, 1.0), PREFIXES, 1.0);
        let unit = format!("{prefix}{unit}");
        return headed(&unit, cells(&|value| fixed(value * factor)));
    }
    if let (Some(own), Some(wanted)) = (factor(BANDWIDTHS, unit), view.unit) {
        let to_base = style.scale() / own;
        let factor = factor(BANDWIDTHS, wanted.name()).unwrap_or(own) * to_base;
        return headed(wanted.name(), cells(&|value| fixed(value * factor)));
    }
    if let Some(own) = factor(TIMES, unit) {
        let compared = columns
            .iter()
            .filter(|other| split_header(&other.name).1 == unit);
        let compared = compared.filter_map(|other| match &other.content {
            Content::Values(style, values) => Some(numbers(values, style.scale() / own)),
            Content::Words(_) => None,
        });
        let compared: Vec<f64> = compared.flatten().collect();
        let (unit, factor) = fitting(&compared, TIMES, own);
        let factor = style.scale() / own * factor;
        return headed(unit, cells(&|value| fixed(value * factor)));
    }
    let scale = style.scale();
    let whole = values
        .iter()
        .all(|value| !matches!(value, Value::Number(_)));
    match whole && *style == Style::Plain {
        true => headed(unit, cells(&|value| value.to_string())),
        false => headed(unit, cells(&|value| fixed(value * scale))),
    }
}

const PREFIXES: &[Unit] = &[("", 1.0), ("k", 1e-3), ("M", 1e-6), ("G", 1e-9)];

/// Range of numbers that are easy to read. A column whose numbers all lie in it keeps the unit of its header.
const EASY: (f64, f64) = (0.1, 1e5);

/// If any number is at least this large, the column gets a larger unit, even if its smallest number then drops below 1.
const LARGE: f64 = 1e6;

fn numbers(values: &[Value], factor: f64) -> Vec<f64> {
    let numbers = values.iter().filter_map(Value::number);
    numbers.map(|number| number * factor).collect()
}

/// Chooses one unit for all values. Keeps the unit with factor `own` if all numbers are in the range [`EASY`].
/// Otherwise takes the largest unit in which no number is below 1. `units` are sorted from smallest to largest.
fn fitting(values: &[f64], units: &[Unit], own: f64) -> Unit {
    let sizes = values.iter().map(|value| value.abs());
    let sizes = sizes.filter(|size| *size > 0.0 && size.is_finite());
    let (least, most) = sizes.fold((f64::INFINITY, 0.0_f64), |(least, most), size| {
        (least.min(size), most.max(size))
    });
    let is_own = |unit: &&Unit| unit.1 == own;
    let own = units.iter().find(is_own).copied().unwrap_or(("", own));
    if most == 0.0 || (least * own.1 >= EASY.0 && most * own.1 < EASY.1) {
        return own;
    }
    let fits = |unit: &&Unit| least * unit.1 >= 1.0 || most * unit.1 >= LARGE;
    let largest = units.iter().rfind(fits);
    let first = units.first().copied().unwrap_or(own);
    let Some(found) = largest else { return first };
    // The largest number is still too long: take the next larger unit, if any.
    let next = units.iter().find(|unit| unit.1 < found.1);
    match most * found.1 >= LARGE {
        true => next.copied().unwrap_or(*found),
        false => *found,
    }
}

/// Prints the exact size if it is short, otherwise a rounded one.
fn size_of_row(bytes: u64) -> String {
    const LENGTH_MAX: usize = 9;
    let exact = exact_size(bytes);
    match exact.len() <= LENGTH_MAX {
        true => exact,
        false => size(bytes),
    }
}

fn cell(value: &Value, format: &dyn Fn(f64) -> String) -> String {
    match value {
        Value::Unknown => NO_VALUE.to_owned(),
        Value::Text(text) => text.clone(),
        Value::Count(count) => format(*count as f64),
        Value::Number(number) => format(*number),
        Value::AtLeast(bound) => at_least(format(*bound), true),
    }
}

/// Formats a single value as in a column for people, without its unit.
pub fn cell_for_people(figure: &Figure, value: Value) -> String {
    match (split_header(figure.name).1, value.number()) {
        ("B", Some(bytes)) => size_of_row(bytes as u64),
        _ => format_value(value, figure.style),
    }
}

/// Formats a value in the unit of its header.
pub fn format_value(value: Value, style: Style) -> String {
    cell(&value, &|value_in_csv| match style {
        Style::Plain if matches!(value, Value::Count(_)) => value_in_csv.to_string(),
        Style::Plain | Style::Scaled(_) => number(value_in_csv * style.scale()),
        Style::Rate => prefixed(value_in_csv),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_record::figures::figure_by_field;

    use crate::view::BandwidthUnit;

    fn column(field: &str, values: &[f64]) -> Column {
        let values = values.iter().map(|value| Value::Number(*value)).collect();
        Column::values(figure_by_field(field).unwrap(), values, false)
    }

    fn texts(columns: &[Column], unit: Option<BandwidthUnit>) -> Vec<Vec<String>> {
        let view = View {
            unit,
            ..View::default()
        };
        let texts = texts_for_people(columns, &view).into_iter();
        texts.map(|(_, text)| text).collect()
    }

    #[test]
    fn a_column_has_one_unit_that_suits_its_values() {
        for (field, values, text) in [
            (
                "latency_ns_p50",
                [690.0, 12088e3],
                ["p50\n(us)", "0.690", "12088"],
            ),
            (
                "latency_ns_p50",
                [73.0, 2050.0],
                ["p50\n(ns)", "73.00", "2050"],
            ),
            (
                "latency_ns_p50",
                [50.0, 12e6],
                ["p50\n(us)", "0.0500", "12000"],
            ),
            ("latency_ns_p50", [2e9, 4e9], ["p50\n(s)", "2.00", "4.00"]),
            ("latency_ns_p50", [0.0, 0.0], ["p50\n(us)", "0", "0"]),
            (
                "message_rate_per_s_mean",
                [8.59e6, 971e3],
                ["Msg rate\n(kop/s)", "8590", "971.0"],
            ),
            (
                "bandwidth_bytes_per_s_mean",
                [8.8e9, 3.2e5],
                ["Avg BW\n(GB/s)", "8.80", "0.000320"],
            ),
            (
                "size_bytes",
                [1024.0, 1000.0],
                ["MsgSize", "1 KiB", "1000 B"],
            ),
        ] {
            assert_eq!(texts(&[column(field, &values)], None), [text]);
        }
    }

    #[test]
    fn latencies_of_a_table_have_the_same_unit() {
        let columns = [
            column("latency_ns_p50", &[73.0]),
            column("latency_ns_max", &[9000.0]),
        ];
        assert_eq!(
            texts(&columns, None),
            [["p50\n(ns)", "73.00"], ["Max Lat\n(ns)", "9000"]]
        );
    }

    #[test]
    fn bandwidths_are_in_the_unit_that_was_asked_for() {
        let columns = [
            column("bandwidth_bytes_per_s_mean", &[1e9]),
            column("cpu_ns_per_operation", &[1.0]),
        ];
        assert_eq!(
            texts(&columns, Some(BandwidthUnit::GigabitsPerS)),
            [["Avg BW\n(Gb/s)", "8.00"], ["CPU\n(ns/op)", "1.00"]]
        );
    }
}
