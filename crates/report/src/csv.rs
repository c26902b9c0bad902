//! Records as CSV (RFC 4180): every column, with its unit in its name, in base units and full precision.
//!
//! Records of transfers have the columns of transfers, one row each; those of file experiments have the columns of files,
//! one row for each repetition of each phase. Where there are both, the table has the columns of both, so that it stays
//! one table: what a row does not know is an empty field, and the column `kind` tells rows apart.

use tonnage_record::figures::{self, Figure};
use tonnage_record::{Body, ConnectRecord, FileRecord, Record, TransferRecord};

use super::columns::{self, Column, Value};
use super::files::columns::{self as file_columns, FileColumn};
use super::files::row::Row;

/// One field of a row, and where each kind of record has its value.
struct Field {
    name: String,
    transfer: Option<&'static Column>,
    /// A column of file experiments, with the transfers (writes or reads) whose latencies it is about.
    file: Option<(&'static FileColumn, Option<bool>)>,
    connect: Option<&'static Figure>,
}

impl Field {
    fn of_transfer(&self, record: TransferRecord<'_>) -> Value {
        self.transfer
            .map_or(Value::Unknown, |column| (column.value)(record))
    }

    fn of_connect(&self, row: &figures::Row<'_>) -> Value {
        self.connect
            .map_or(Value::Unknown, |figure| (figure.value)(row))
    }

    fn of_file(&self, row: &Row<'_>) -> Value {
        self.file.map_or(Value::Unknown, |(column, write)| {
            (column.value)(&Row { write, ..*row })
        })
    }
}

/// A header and the rows of all records; without any, the header of transfers.
pub fn csv(records: &[Record]) -> String {
    let has_files = records.iter().any(|record| record.file().is_some());
    let has_transfers = records.iter().any(|record| record.transfer().is_some());
    let has_connections = records.iter().any(|record| record.connect().is_some());
    let is_empty = !has_files && !has_connections;
    let fields = fields(has_transfers || is_empty, has_files, has_connections);
    let mut text = row(fields.iter().map(|field| field.name.clone()));
    for record in records {
        match &record.body {
            Body::Transfer(body) => {
                let record = TransferRecord { record, body };
                let values = fields.iter().map(|field| field.of_transfer(record));
                text.push_str(&row(values.map(self::field)));
            }
            Body::Connect(body) => {
                for one in figures::Row::of_connect(ConnectRecord { record, body }) {
                    let values = fields.iter().map(|field| field.of_connect(&one));
                    text.push_str(&row(values.map(self::field)));
                }
            }
            Body::File(body) => {
                for one in Row::all(FileRecord { record, body }) {
                    let values = fields.iter().map(|field| field.of_file(&one));
                    text.push_str(&row(values.map(self::field)));
                }
            }
        }
    }
    text
}

/// The fields of the kinds that there are, those of transfers first; what both have stands once.
fn fields(transfers: bool, files: bool, connections: bool) -> Vec<Field> {
    let mut fields: Vec<Field> = Vec::new();
    if transfers {
        fields.extend(columns::all().map(|column| Field {
            name: column.field.to_owned(),
            transfer: Some(column),
            file: None,
            connect: None,
        }));
    }
    let of_files = file_columns::all().filter(|_| files);
    for (column, (name, write)) in of_files.flat_map(|column| {
        let names = column.fields().into_iter();
        names.map(move |named| (column, named))
    }) {
        let file = Some((column, write));
        match fields.iter_mut().find(|field| field.name == name) {
            Some(field) => field.file = file,
            None => fields.push(Field {
                name,
                file,
                transfer: None,
                connect: None,
            }),
        }
    }
    for figure in figures::of_connect().filter(|_| connections) {
        match fields.iter_mut().find(|field| field.name == figure.field) {
            Some(field) => field.connect = Some(figure),
            None => fields.push(Field {
                name: figure.field.to_owned(),
                transfer: None,
                file: None,
                connect: Some(figure),
            }),
        }
    }
    fields
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
