//! Records as CSV (RFC 4180): all figures in base units and full precision, with the unit in the column name.
//!
//! Each part of a record is one row. Records of several kinds form one table: columns are the union of their figures,
//! and column `kind` names each row's kind. Figures that a row lacks are empty.

use tonnage_record::Record;
use tonnage_record::figures::{self, KINDS, Row, Value, distinct_figures};

/// Formats a header and the rows of all records. Without records, it is the header of the first kind.
pub fn csv(records: &[Record]) -> String {
    let has = |kind: &str| records.iter().any(|record| record.body.kind() == kind);
    let present = KINDS.iter().filter(|(kind, _)| has(kind));
    let first = KINDS.iter().filter(|_| records.is_empty()).take(1);
    let groups = present.chain(first).flat_map(|(_, groups)| *groups);
    let figures = distinct_figures(groups.copied().flatten());
    let mut text = line(figures.iter().map(|figure| figure.field.to_owned()));
    for row in records.iter().flat_map(Row::all_of_record) {
        let own: Vec<_> = figures::of(&row.record.body)
            .map(|figure| figure.field)
            .collect();
        let values = figures
            .iter()
            .map(|figure| match own.contains(&figure.field) {
                true => field((figure.value)(&row)),
                false => String::new(),
            });
        text.push_str(&line(values));
    }
    text
}

/// Joins fields to one line and quotes them if necessary.
pub(crate) fn line(fields: impl Iterator<Item = String>) -> String {
    let mut line = fields.map(quoted).collect::<Vec<_>>().join(",");
    line.push_str("\r\n");
    line
}

fn field(value: Value) -> String {
    match value {
        Value::Unknown => String::new(),
        Value::Text(text) => harmless(text),
        Value::Count(count) => count.to_string(),
        Value::Number(number) | Value::AtLeast(number) => number.to_string(),
    }
}

/// Prevents spreadsheets from treating text as a formula. Numbers stay unchanged.
pub(crate) fn harmless(text: String) -> String {
    let is_number = text.parse().is_ok_and(f64::is_finite);
    match text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) && !is_number {
        true => format!("'{text}"),
        false => text,
    }
}

fn quoted(field: String) -> String {
    if field.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        for (field, expected) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("a\nb", "\"a\nb\""),
        ] {
            assert_eq!(quoted(field.to_owned()), expected);
        }
    }

    #[test]
    fn formulas_are_text_and_numbers_are_numbers() {
        for (text, expected) in [
            ("=1+2", "'=1+2"),
            ("+cmd|x", "'+cmd|x"),
            ("-x", "'-x"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("\r=1", "'\r=1"),
            ("-inf", "'-inf"),
            ("-1.5e3", "-1.5e3"),
            ("x=1", "x=1"),
            ("", ""),
        ] {
            assert_eq!(field(Value::Text(text.to_owned())), expected);
        }
        assert_eq!(field(Value::Number(-2.5)), "-2.5");
        // Cells are made harmless before they are quoted.
        assert_eq!(
            line(
                ["=A1,\"x\""]
                    .map(|text| harmless(text.to_owned()))
                    .into_iter()
            ),
            "\"'=A1,\"\"x\"\"\"\r\n"
        );
    }
}
