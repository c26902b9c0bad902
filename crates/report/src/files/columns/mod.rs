//! The one list of columns of file experiments: what each is called, in which unit, what it means, how it is computed, and
//! its value. Tables, CSV and `tonnage explain` all read [`all`].
//!
//! CSV has a row for each repetition of each phase. Columns of latencies stand there twice, with `read_` and `write_` before
//! their names, because a mixed phase has both.

mod asked;
mod figures;
mod latencies;

pub use super::super::columns::{Style, Value};
use super::row::Row;

/// One figure of a file experiment.
pub struct FileColumn {
    /// The header of tables, with its unit.
    pub name: &'static str,
    /// The name in CSV, with the unit in which CSV gives it.
    pub field: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
    /// Computation from measured values.
    pub computed: &'static str,
    /// Style of its values in tables.
    pub style: Style,
    /// Number of times that it stands in CSV.
    pub in_csv: InCsv,
    /// Its value, in the unit of `field`.
    pub value: fn(&Row<'_>) -> Value,
}

/// Number of times that a column stands in CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InCsv {
    /// Under the name of its field.
    Once,
    /// For reads and for writes, each with its own name.
    Twice,
    /// Only tables have it, where rows are cut up otherwise.
    Not,
}

impl FileColumn {
    /// The names that it has in CSV, each with the transfers whose latencies it is about.
    pub fn fields(&self) -> Vec<(String, Option<bool>)> {
        let of = |name: &str, write| (format!("{name}_{}", self.field), Some(write));
        match self.in_csv {
            InCsv::Once => vec![(self.field.to_owned(), None)],
            InCsv::Twice => vec![of("read", false), of("write", true)],
            InCsv::Not => Vec::new(),
        }
    }
}

/// All columns, in the order of CSV.
pub fn all() -> impl Iterator<Item = &'static FileColumn> + Clone {
    let figures = figures::FIGURES.iter().chain(latencies::LATENCIES);
    asked::ASKED.iter().chain(figures)
}

/// The column with this name, as the list has it.
pub fn by_field(field: &str) -> Option<&'static FileColumn> {
    all().find(|column| column.field == field)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::super::columns;
    use super::*;

    #[test]
    fn names_are_unique_and_definitions_are_sentences() {
        let names: HashSet<_> = all().map(|column| column.name.to_lowercase()).collect();
        let fields = || all().flat_map(FileColumn::fields).map(|(field, _)| field);
        let different: HashSet<_> = fields().collect();
        assert_eq!(names.len(), all().count());
        assert_eq!(different.len(), fields().count());
        for column in all() {
            for text in [column.meaning, column.computed] {
                assert!(
                    text.ends_with('.') && !text.contains("  "),
                    "{}: {text:?}",
                    column.name
                );
            }
        }
    }

    #[test]
    fn a_field_of_transfers_and_files_has_one_header() {
        for column in all().filter(|column| column.in_csv == InCsv::Once) {
            if let Some(transfers) = columns::by_field(column.field) {
                assert_eq!(column.name, transfers.name, "{}", column.field);
            }
        }
    }
}
