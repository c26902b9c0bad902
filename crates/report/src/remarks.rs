//! Remarks on rows of a table. Each text is printed once: above the table if it applies to all rows, otherwise below.
//! Remarks below the table are numbered, and the rows have their numbers as marks.

use super::text::distinct;

/// A remark on one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Word to print in the row before the number, such as FAILED; empty for none.
    pub word: &'static str,
    /// The remark without the details of the row. Rows with the same word and short remark share a number.
    pub short: String,
    /// The remark with details, and the next thing to do.
    pub full: String,
}

impl Remark {
    /// A remark whose details every reader needs.
    pub fn plain(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            word: "",
            short: text.clone(),
            full: text,
        }
    }

    /// A remark with details that are printed on request.
    pub fn with_details(short: impl Into<String>, full: impl Into<String>) -> Self {
        Self {
            word: "",
            short: short.into(),
            full: full.into(),
        }
    }

    /// The remark with a word in its rows.
    #[must_use]
    pub fn with_word(self, word: &'static str) -> Self {
        Self { word, ..self }
    }
}

/// Remarks of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableRemarks {
    /// For each row, words and numbers of its remarks.
    pub marks: Vec<String>,
    /// Remarks on all rows.
    pub of_all: Vec<GroupedRemark>,
    /// Remarks on some rows, numbered from 1.
    pub numbered: Vec<GroupedRemark>,
}

/// A remark with its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupedRemark {
    /// Start of the line: the remark's number such as `[1]`, or `! 5 of 5 rows` for a remark on all rows.
    head: String,
    short: String,
    /// Each distinct detailed text, with the names of its rows.
    full: Vec<(String, Vec<String>)>,
    rows: Vec<String>,
}

impl TableRemarks {
    /// Groups equal remarks. `rows` are the names of rows with their remarks.
    pub fn new(rows: &[(String, Vec<Remark>)]) -> Self {
        let all = rows.iter().flat_map(|(_, remarks)| remarks);
        let keys = distinct(all.map(|remark| (remark.word, &remark.short)));
        let has = |remarks: &[Remark], key: &(&'static str, &String)| {
            let mut remarks = remarks.iter();
            remarks.any(|remark| (remark.word, &remark.short) == *key)
        };
        let is_of_all = |key: &&(&'static str, &String)| {
            key.0.is_empty() && rows.len() > 1 && rows.iter().all(|(_, own)| has(own, key))
        };
        let (of_all, numbered): (Vec<_>, Vec<_>) = keys.iter().partition(is_of_all);
        let grouped = |head: String, key: &(&'static str, &String)| {
            let mut full: Vec<(String, Vec<String>)> = Vec::new();
            let mut names = Vec::new();
            for (name, remarks) in rows {
                let own = remarks.iter();
                for remark in own.filter(|remark| (remark.word, &remark.short) == *key) {
                    match full.iter_mut().find(|(text, _)| *text == remark.full) {
                        Some((_, rows)) => rows.push(name.clone()),
                        None => full.push((remark.full.clone(), vec![name.clone()])),
                    }
                    names.push(name.clone());
                }
            }
            GroupedRemark {
                head,
                short: key.1.clone(),
                full,
                rows: if rows.len() > 1 { names } else { Vec::new() },
            }
        };
        let count = rows.len();
        let all = of_all.into_iter();
        let of_all = all.map(|key| grouped(format!("! {count} of {count} rows"), key));
        let below = numbered.iter().enumerate();
        let below = below.map(|(at, key)| grouped(format!("[{}]", at + 1), key));
        let marks = rows.iter().map(|(_, own)| {
            let numbers = numbered.iter().enumerate();
            let numbers = numbers.filter(|(_, key)| has(own, key));
            let marks = numbers.map(|(at, (word, _))| format!("{word} [{}]", at + 1));
            let marks: Vec<String> = marks.collect();
            marks.join(" ").trim_start().replace("  ", " ")
        });
        Self {
            marks: marks.collect(),
            of_all: of_all.collect(),
            numbered: below.collect(),
        }
    }
}

/// Maximum number of rows that a remark lists by name. For more rows, it prints their number.
const NAMED_MAX: usize = 4;

impl GroupedRemark {
    /// Lines of the remark.
    pub fn lines(&self, with_details: bool) -> Vec<String> {
        let is_of_all = self.head.starts_with('!');
        if !with_details {
            let rows = if is_of_all {
                String::new()
            } else {
                names(&self.rows)
            };
            return vec![format!(
                "{}{}{}",
                self.head,
                rows_in_line(is_of_all, &rows),
                self.short
            )];
        }
        let lines = self.full.iter().map(|(text, rows)| {
            let rows = match self.full.len() == 1 && is_of_all || self.rows.is_empty() {
                true => String::new(),
                false => names(rows),
            };
            format!("{}{}{text}", self.head, rows_in_line(is_of_all, &rows))
        });
        lines.collect()
    }
}

fn rows_in_line(is_of_all: bool, rows: &str) -> String {
    match (is_of_all, rows) {
        (true, "") => ": ".to_owned(),
        (true, rows) => format!(", {rows}: "),
        (false, "") => " ".to_owned(),
        (false, rows) => format!(" {rows}: "),
    }
}

fn names(rows: &[String]) -> String {
    match rows.len() {
        0..=NAMED_MAX => rows.join(", "),
        count => format!("{count} rows"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(remarks: &[GroupedRemark], with_details: bool) -> Vec<String> {
        let lines = remarks.iter().map(|remark| remark.lines(with_details));
        lines.flatten().collect()
    }

    #[test]
    fn remarks_on_all_rows_stand_above_and_the_others_in_the_order_of_rows() {
        let busy = |part: u32| Remark::with_details("CPU contention", format!("{part} % lost"));
        let failed = Remark::plain("no link").with_word("FAILED");
        let rows = [
            ("1 KiB".to_owned(), vec![busy(10), Remark::plain("late")]),
            (
                "4 KiB".to_owned(),
                vec![failed, Remark::plain("late"), busy(20)],
            ),
            ("1 MiB".to_owned(), vec![busy(10)]),
        ];
        let remarks = TableRemarks::new(&rows);
        assert_eq!(remarks.marks, ["[1]", "[1] FAILED [2]", ""]);
        assert_eq!(
            lines(&remarks.of_all, false),
            ["! 3 of 3 rows: CPU contention"]
        );
        assert_eq!(
            lines(&remarks.of_all, true),
            [
                "! 3 of 3 rows, 1 KiB, 1 MiB: 10 % lost",
                "! 3 of 3 rows, 4 KiB: 20 % lost"
            ]
        );
        let below = ["[1] 1 KiB, 4 KiB: late", "[2] 4 KiB: no link"];
        assert_eq!(lines(&remarks.numbered, false), below);
    }

    #[test]
    fn the_remark_on_a_single_row_does_not_name_it() {
        let remarks = TableRemarks::new(&[("8 B".to_owned(), vec![Remark::plain("late")])]);
        assert_eq!(lines(&remarks.numbered, true), ["[1] late"]);
    }
}
