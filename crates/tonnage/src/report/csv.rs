//! Records as CSV (RFC 4180): every column, with its unit in its name, in base units and full precision.

use tonnage_core::record::Line;

use super::columns::{self, Value};

/// A header and one row for each record; what a record does not know is an empty field.
pub fn csv(lines: &[Line]) -> String {
    let mut text = row(columns::all().map(|column| column.field.to_owned()));
    for record in lines.iter().filter_map(Line::as_transfer) {
        text.push_str(&row(
            columns::all().map(|column| field((column.value)(record)))
        ));
    }
    text
}

fn row(fields: impl Iterator<Item = String>) -> String {
    let mut line = fields.map(quoted).collect::<Vec<_>>().join(",");
    line.push_str("\r\n");
    line
}

fn field(value: Value) -> String {
    match value {
        Value::Unknown => String::new(),
        Value::Text(text) => text,
        Value::Count(count) => count.to_string(),
        Value::Number(number) => number.to_string(),
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
}
