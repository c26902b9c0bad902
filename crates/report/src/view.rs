//! The choices of a user who looks at tables: width, columns, units, and how much text is around them.

use tonnage_units::names;

use super::text::WIDTH;

names! {
    /// Values of `--unit`.
    pub enum BandwidthUnit: "unit" {
        /// 1e9 bytes per second.
        GigabytesPerS = "GB/s",
        /// 1e9 bits per second.
        GigabitsPerS = "Gb/s",
        /// 2^30 bytes per second.
        GibibytesPerS = "GiB/s",
        /// 1e6 bytes per second.
        MegabytesPerS = "MB/s",
        /// 2^20 bytes per second.
        MebibytesPerS = "MiB/s",
    }
}

/// How tables are printed for people. The default prints all columns at any width, with short notes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Width of the screen in characters. Columns that do not fit are left out, and a line names them. `None` prints
    /// all columns.
    pub width: Option<usize>,
    /// Fields of the figures that the user chose as columns; if empty, each report prints its own columns.
    pub fields: Vec<&'static str>,
    /// Unit of all bandwidths; `None` keeps each column's own unit.
    pub unit: Option<BandwidthUnit>,
    /// Prints only tables, without titles, notes and other lines.
    pub quiet: bool,
    /// Prints the whole text of notes.
    pub full_notes: bool,
    /// Colours the words that mark failures and warnings.
    pub colored: bool,
}

impl View {
    /// Maximum length of a line of text. It is limited on wide screens too, because long lines are hard to read.
    pub fn text_width(&self) -> usize {
        self.width.map_or(WIDTH, |width| width.min(WIDTH))
    }
}

/// Words to colour as failures, then words to colour as warnings. Uncoloured text has the same words.
const MARKED: [(&[&str], &str); 2] = [
    (&["FAILED", "FAIL ", "OFF PATH"], "\x1b[1;31m"),
    (&["WARN ", "! "], "\x1b[1;33m"),
];

/// Colours the marked words for a terminal.
pub(crate) fn colored(text: &str) -> String {
    let line = |line: &str| {
        let mut line = line.to_owned();
        for (words, color) in MARKED {
            for word in words {
                // Words that end with a blank count only at the start of a line.
                let is_marked = match word.ends_with(' ') {
                    true => line.starts_with(word),
                    false => line.contains(word),
                };
                if is_marked {
                    line = line.replacen(word, &format!("{color}{word}\x1b[0m"), 1);
                }
            }
        }
        line + "\n"
    };
    text.lines().map(line).collect()
}

/// A header without its unit.
pub fn bare_name(header: &str) -> &str {
    header.split(" (").next().unwrap_or(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_mark_words_that_are_there_without_them() {
        let text = "! 2 of 2 rows: late\nfine 1 KiB !\n4 KiB  FAILED [1]\n";
        let marked = colored(text);
        assert_eq!(marked.matches("\x1b[0m").count(), 2);
        let plain = ["\x1b[1;31m", "\x1b[1;33m", "\x1b[0m"].iter();
        let plain = plain.fold(marked, |text, code| text.replace(code, ""));
        assert_eq!(plain, text);
    }
}
