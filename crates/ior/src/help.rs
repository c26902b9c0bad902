//! Help on IOR's options for `tonnage ior --help`, from the declarations that the parser reads.

use std::fmt::Write;

use clap::Arg;

use super::options::words::{OptionNames, honoured, refused, takes_value};

/// Width of the help in columns.
const WIDTH: usize = 100;
/// Column of the descriptions.
const INDENT: usize = 34;

/// Returns the tables of supported and of refused options.
pub fn options() -> String {
    let mut out = String::from("Options of IOR:\n");
    table(&mut out, &honoured());
    out.push_str("\nOptions of IOR that are an error here, with their replacements:\n");
    table(&mut out, &refused());
    out
}

fn table(out: &mut String, args: &[Arg]) {
    for arg in args {
        let does = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let mut before = format!("  {}", names(arg).join(", "));
        let mut lines = wrap(&does, WIDTH - INDENT).into_iter();
        // If the names are too long for their column, they get lines of their own.
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

/// Returns an option's names, such as `-b SIZE`, or `-U FILE` and `--mpiio.hintsFileName=FILE`.
fn names(arg: &Arg) -> Vec<String> {
    let names = OptionNames::new(arg);
    let value = takes_value(arg)
        .then(|| arg.get_value_names()?.first())
        .flatten();
    let value = |mark: &str| value.map_or(String::new(), |value| format!("{mark}{value}"));
    let short = names.short.map(|short| format!("-{short}{}", value(" ")));
    let long = names
        .long
        .iter()
        .map(|long| format!("--{long}{}", value("=")));
    let mut shown: Vec<String> = short.into_iter().chain(long).collect();
    // The keys of `-O` are listed only for options without another name.
    if shown.is_empty() {
        let assigned = if takes_value(arg) {
            value("=")
        } else {
            "=1".to_owned()
        };
        shown.extend(names.keys.iter().map(|key| format!("-O {key}{assigned}")));
    }
    shown
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
        for arg in honoured().iter().chain(&refused()) {
            for name in names(arg) {
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
