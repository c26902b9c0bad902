//! Draws rows as plain text: columns two spaces apart, numbers aligned at the decimal point, no cell wrapped.

use unicode_width::UnicodeWidthStr;

/// Spaces between two columns.
pub const GAP: usize = 2;

/// Draws rows, starting with the header. `right` selects right-aligned columns.
pub fn draw(rows: Vec<Vec<String>>, right: impl Fn(usize) -> bool) -> String {
    let count = rows.first().map_or(0, Vec::len);
    let mut columns: Vec<Vec<String>> = vec![Vec::new(); count];
    for row in rows {
        let cells = row.into_iter().chain(std::iter::repeat_with(String::new));
        for (column, cell) in columns.iter_mut().zip(cells) {
            column.push(cell);
        }
    }
    draw_columns(columns, right)
}

/// Draws columns, each of which starts with its header.
pub fn draw_columns(mut columns: Vec<Vec<String>>, right: impl Fn(usize) -> bool) -> String {
    for (at, column) in columns.iter_mut().enumerate() {
        if right(at) {
            align(column);
        }
    }
    let widths: Vec<usize> = columns.iter().map(|column| width(column)).collect();
    let rows = columns.first().map_or(0, Vec::len);
    let mut lines = Vec::new();
    for row in 0..rows {
        let cells = columns.iter().map(|column| column[row].lines().collect());
        let cells: Vec<Vec<&str>> = cells.collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
        for line in 0..height {
            let mut text = String::new();
            for (at, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let cell = cell.get(line).copied().unwrap_or("");
                let blanks = " ".repeat(width.saturating_sub(cell.width()));
                text += &match right(at) {
                    true => blanks + cell,
                    false => cell.to_owned() + &blanks,
                };
                text += &" ".repeat(GAP);
            }
            lines.push(text.trim_end().to_owned());
        }
        if row == 0 {
            lines.push("-".repeat(total_width(&widths)));
        }
    }
    lines.join("\n")
}

/// Width of a table with columns of these widths, including the gaps.
pub fn total_width(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Width of a column. Cells can have several lines.
pub fn width(cells: &[String]) -> usize {
    let lines = cells.iter().flat_map(|cell| cell.lines());
    lines.map(UnicodeWidthStr::width).max().unwrap_or(0)
}

/// Aligns decimal points by appending blanks to the cells below a header. Columns with anything but numbers, such as
/// sizes with units, stay unchanged.
pub fn align(column: &mut [String]) {
    let cells = column.get_mut(1..).unwrap_or_default();
    let has_words = |cell: &String| cell.contains(|it: char| it.is_alphabetic() || it == '\n');
    if cells.iter().any(has_words) || !cells.iter().any(|cell| cell.contains('.')) {
        return;
    }
    // Width from the decimal point to the end of the cell; zero for a whole number.
    let tail = |cell: &str| {
        let digits = cell.find(|it: char| !(it.is_ascii_digit() || "≥-".contains(it)));
        cell.width() - digits.map_or(cell.width(), |end| cell[..end].width())
    };
    let longest = cells.iter().map(|cell| tail(cell)).max().unwrap_or(0);
    for cell in cells {
        let blanks = longest - tail(cell);
        cell.push_str(&" ".repeat(blanks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(rows: &[&[&str]]) -> String {
        let rows = rows.iter();
        let rows = rows.map(|row| row.iter().map(|cell| (*cell).to_owned()).collect());
        draw(rows.collect(), |at| at > 0)
    }

    #[test]
    fn numbers_are_aligned_at_the_point() {
        let text = drawn(&[
            &["Name", "Time\n(us)", "Size"],
            &["a", "0.845", "1 KiB"],
            &["b", "12088", "1.5 KiB"],
            &["c", "≥2.51", "-"],
            &["d", "-", "64 B"],
        ]);
        let expected = "\
Name       Time     Size
           (us)
------------------------
a         0.845    1 KiB
b     12088      1.5 KiB
c        ≥2.51         -
d         -         64 B";
        assert_eq!(text, expected);
    }

    #[test]
    fn ratios_are_aligned_with_their_intervals() {
        let text = drawn(&[&["a", "b"], &["", "1"], &["", "12.5 (1.1…3)"]]);
        assert_eq!(
            text,
            "a             b\n---------------\n    1\n   12.5 (1.1…3)"
        );
    }
}
