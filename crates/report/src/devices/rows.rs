//! Groups of aligned rows, and what is cut to fit into them.

use tonnage_units::quantity::human::size;

/// Names of a longer list that are printed; all of them are in the JSON.
const NAMES_SHOWN: usize = 6;

/// A heading and its rows in columns; nothing for a group without rows, which is under "Not here" instead.
pub(super) fn group(page: &mut String, heading: &str, rows: &[DeviceRow]) {
    if rows.is_empty() {
        return;
    }
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter(|row| row.len() > column + 1)
            .filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    page.push_str(&format!("\n{heading}\n"));
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        page.push_str(&format!("  {}\n", line.trim_end()));
    }
}

pub(super) type DeviceRow = Vec<String>;

pub(super) fn row<const N: usize>(cells: [&str; N]) -> DeviceRow {
    cells.into_iter().map(str::to_owned).collect()
}

/// The first few names, and how many more there are.
pub(super) fn shortened(names: &[&str]) -> String {
    let shown = names
        .iter()
        .take(NAMES_SHOWN)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

pub(super) fn free_of(free: Option<u64>, total: Option<u64>) -> String {
    match (free, total) {
        (Some(free), Some(total)) => format!("{}, {} free", size(total), size(free)),
        (None, Some(total)) => size(total),
        _ => "size unknown".to_owned(),
    }
}
