//! Columns that exist or don't, and the rows that belong to a point.

use super::*;
use crate::figures::units::GIBI;

fn table(columns: &[&str], rows: &[&[PublishedCell]]) -> PublishedTable {
    PublishedTable {
        what: "a machine".to_owned(),
        columns: columns.iter().map(|&name| name.to_owned()).collect(),
        rows: rows.iter().map(|row| row.to_vec()).collect(),
    }
}

fn text(text: &str) -> PublishedCell {
    PublishedCell::Text(text.to_owned())
}

#[test]
fn a_column_may_have_another_unit_of_the_same_quantity() {
    // Each header is followed by a value in the unit of CSV, and the same value in the header's unit.
    for (header, value, expected) in [
        ("Avg BW (GB/s)", 1e9, 1.0),
        ("Avg BW (Gb/s)", 1e9, 8.0),
        ("Avg BW (MiB/s)", 1048576.0, 1.0),
        ("Avg BW (Gib/s)", GIBI, 8.0),
        ("Avg Lat (us)", 1e6, 1000.0),
        ("Avg Lat (ms)", 1e6, 1.0),
        ("Msg rate (Mop/s)", 1e6, 1.0),
        ("BusBW all (%)", 0.5, 50.0),
    ] {
        let column = PublishedColumn::from_header(header).unwrap();
        assert!(!column.is_key, "{header}");
        let ours = value * column.factor;
        assert!((ours - expected).abs() < 1e-9, "{header}: {ours}");
    }
    for header in [
        "MsgSize (B)",
        "BatchSize",
        "Count",
        "Rails",
        "Ranks",
        "Op",
        "Size (B)",
    ] {
        assert!(
            PublishedColumn::from_header(header).unwrap().is_key,
            "{header}"
        );
    }
}

#[test]
fn the_nearest_column_is_named() {
    for (header, said) in [
        ("Avg BV (GB/s)", "did you mean \"Avg BW (GB/s)\"?"),
        ("avg bw (GB/s)", "did you mean \"Avg BW (GB/s)\"?"),
        ("Avg BW (furlongs)", "units GB/s, MB/s, Gb/s"),
        ("Avg BW", "units GB/s, MB/s, Gb/s"),
        ("MsgSize (kB)", "write \"MsgSize (B)\""),
        (
            "Library",
            "columns of transfers and collectives that are numbers",
        ),
        (
            "TotalSize (MB)",
            "columns of transfers and collectives that are numbers",
        ),
        ("", "`tonnage explain` lists them"),
    ] {
        let refused = check(&[table(&[header, "Avg Lat (us)"], &[])]).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        assert!(refused.to_string().contains(said), "{header}: {refused}");
    }
}

#[test]
fn rows_identify_one_point_each_and_have_a_measured_column() {
    let size = PublishedCell::Count(8);
    let twice = table(
        &["MsgSize (B)", "Avg Lat (us)"],
        &[
            &[size.clone(), PublishedCell::Number(1.0)],
            &[size.clone(), PublishedCell::Number(2.0)],
        ],
    );
    for (wrong, said) in [
        (
            twice,
            "rows 1 and 2 of published of \"a machine\" are of the same point",
        ),
        (
            table(&["MsgSize (B)", "Op"], &[&[size.clone(), text("write")]]),
            "no measured column",
        ),
        (
            table(&["MsgSize (B)", "Avg Lat (us)"], &[&[size, text("long")]]),
            "has text in column \"Avg Lat (us)\"",
        ),
    ] {
        let refused = check(&[wrong]).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn a_row_belongs_to_the_point_that_has_all_its_options() {
    let record = crate::tests::sample(64);
    let point = &record.transfer().unwrap().point;
    let (op, size) = (point.op.name(), u64::from(point.slots.size_bytes));
    let columns = ["MsgSize (B)", "Op", "Avg Lat (us)"];
    let found = |size: PublishedCell, op: &str| {
        let other: &[PublishedCell] = &[
            PublishedCell::Count(1 << 40),
            text(op),
            PublishedCell::Count(1),
        ];
        let tables = [table(
            &columns,
            &[other, &[size, text(op), PublishedCell::Number(7.5)]],
        )];
        check(&tables).unwrap();
        rows_of(&record, &tables)
    };
    let row = found(PublishedCell::Count(size), op);
    assert_eq!(row.len(), 1);
    assert_eq!(row[0].what, "a machine");
    assert_eq!(row[0].row[2], PublishedCell::Number(7.5));
    assert_eq!(found(text(&size.to_string()), op).len(), 1);
    assert_eq!(found(PublishedCell::Number(size as f64), op).len(), 1);
    assert_eq!(found(PublishedCell::Count(size + 1), op), []);
    assert_eq!(found(PublishedCell::Count(size), "nothing"), []);
}
