//! What `tonnage ior --help` says about IOR's options; the same list that the parser reads.

use std::fmt::Write;

use super::options::refused::REFUSED;
use super::options::rows::HONOURED;
use super::options::table::Row;

/// Columns of text.
const WIDTH: usize = 100;
/// Where the second column begins.
const INDENT: usize = 34;

/// The tables of options, and what is refused.
pub fn options() -> String {
    let mut out = String::from("Options of IOR:\n");
    table(&mut out, HONOURED);
    out.push_str("\nOptions of IOR that are an error here, and what to use instead:\n");
    table(&mut out, REFUSED);
    out
}

fn table(out: &mut String, rows: &[Row]) {
    for row in rows {
        let mut before = format!("  {}", names(row).join(", "));
        let mut lines = wrap(row.does, WIDTH - INDENT).into_iter();
        // Names that leave no room get lines of their own.
        if before.chars().count() + 2 > INDENT {
            for names in wrap(&before[2..], WIDTH - 2) {
                line(out, &format!("  {names}"));
            }
            before = String::new();
        }
        let first = lines.next().unwrap_or_default();
        line(out, &format!("{before:<INDENT$}{first}"));
        for more in lines {
            line(out, &format!("{:<INDENT$}{more}", ""));
        }
    }
}

fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}", text.trim_end());
}

/// `-b SIZE`, or `-U FILE` and `--mpiio.hintsFileName=FILE`.
fn names(row: &Row) -> Vec<String> {
    let value = |mark: &str| match row.value {
        "" => String::new(),
        value => format!("{mark}{value}"),
    };
    let mut names = Vec::new();
    names.extend(row.short.map(|short| format!("-{short}{}", value(" "))));
    let long = row.long.iter();
    names.extend(long.map(|long| format!("--{long}{}", value("="))));
    // Keys of options that have another name are spared.
    if names.is_empty() {
        let assigned = if row.value.is_empty() {
            "=1".to_owned()
        } else {
            value("=")
        };
        names.extend(row.keys.iter().map(|key| format!("-O {key}{assigned}")));
    }
    names
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last().map_or(0, |line| line.chars().count());
        match lines.last_mut() {
            Some(line) if last == 0 => line.push_str(word),
            Some(line) if last + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_the_help_within_the_width() {
        let text = options();
        for row in HONOURED.iter().chain(REFUSED) {
            for name in names(row) {
                assert!(text.contains(&name), "{name}");
            }
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }

    #[test]
    fn the_help_reads_from_top_to_bottom() {
        insta::assert_snapshot!(options());
    }
}
