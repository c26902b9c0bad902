//! Line wrapping. Number formatting is in [`human`](tonnage_units::quantity::human).

/// Maximum line width of a report.
pub const WIDTH: usize = 120;

/// Wraps text at spaces to at most `width` characters per line, and indents continuation lines by `indent`. Keeps
/// existing line breaks, and does not split words longer than `width`.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if !out.is_empty() {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
        }
        let mut used = if out.is_empty() { 0 } else { indent };
        for (at, word) in line.split_whitespace().enumerate() {
            let length = word.chars().count();
            if at > 0 && used + 1 + length > width {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                used = indent;
            } else if at > 0 {
                out.push(' ');
                used += 1;
            }
            out.push_str(word);
            used += length;
        }
    }
    out
}

/// A heading in a column of `indent` characters, followed by the body, wrapped to [`WIDTH`].
pub fn entry(head: &str, indent: usize, body: &str) -> String {
    entry_in(WIDTH, head, indent, body)
}

/// An [`entry`] wrapped to this width.
pub fn entry_in(width: usize, head: &str, indent: usize, body: &str) -> String {
    let body = wrap(body, width.saturating_sub(indent), 0);
    format!(
        "{head:<indent$}{}\n",
        body.replace('\n', &format!("\n{:indent$}", ""))
    )
}

/// Formats a number with its noun: `1 rank`, `2 ranks`.
pub(crate) fn counted(number: impl Into<u64>, what: &str) -> String {
    match number.into() {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

/// Minimum and maximum of positive values.
pub(crate) fn extremes(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let values = values.into_iter();
    values.fold((f64::INFINITY, 0.0), |(least, most), value| {
        (value.min(least), value.max(most))
    })
}

/// Removes duplicates and keeps the order.
pub(crate) fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    extend_distinct(&mut kept, all);
    kept
}

/// Appends values that are not yet present.
pub(crate) fn extend_distinct<T: PartialEq>(kept: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    for one in more {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_in_time() {
        assert_eq!(wrap("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrap("a\nb", 9, 1), "a\n b");
        assert_eq!(wrap("unbreakable", 3, 1), "unbreakable");
        let long = entry("head", 6, &"word ".repeat(40));
        assert!(
            long.starts_with("head  word") && long.contains("\n      word"),
            "{long}"
        );
    }
}
