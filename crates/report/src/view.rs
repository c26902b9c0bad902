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

/// How tables are printed for people. The default prints every column, however wide, with short notes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Characters in a line of the screen. Columns that do not fit are left out, and named. `None` prints all of them.
    pub width: Option<usize>,
    /// Fields of the figures to print in place of the columns of the reports; empty for those of the reports.
    pub fields: Vec<&'static str>,
    /// Unit of all bandwidths; `None` for the units of the columns.
    pub unit: Option<BandwidthUnit>,
    /// Prints only tables, without titles, notes and other lines.
    pub quiet: bool,
    /// Prints the whole text of notes.
    pub full_notes: bool,
    /// Marks failures and warnings with colours. Their words say the same.
    pub colored: bool,
}

impl View {
    /// Maximum length of lines of text: longer ones are hard to read, however wide the screen is.
    pub fn text_width(&self) -> usize {
        self.width.map_or(WIDTH, |width| width.min(WIDTH))
    }
}

/// Words that mark failures, and words of warnings. Both are in the text that has no colours too.
const MARKED: [(&[&str], &str); 2] = [
    (&["FAILED", "FAIL ", "OFF PATH"], "\x1b[1;31m"),
    (&["WARN ", "! "], "\x1b[1;33m"),
];

/// Marks words for a terminal.
pub(crate) fn colored(text: &str) -> String {
    let line = |line: &str| {
        let mut line = line.to_owned();
        for (words, color) in MARKED {
            for word in words {
                // Warnings begin a line.
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
