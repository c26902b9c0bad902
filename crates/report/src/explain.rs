//! Explains columns, and terms of the glossary, for `tonnage explain`.

mod glossary;

use tonnage_record::figures::{self, Figure, KINDS, Style};
use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

use super::derived::{DERIVED, DerivedColumn};
use super::text::entry;
use super::view::bare_name;

/// Definition of a column, for listing the columns of displayed tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definition {
    /// Header.
    pub name: &'static str,
    /// Name in CSV; `None` for a derived column.
    pub field: Option<&'static str>,
    /// Meaning of the figure or column.
    pub meaning: &'static str,
    /// Computation from measured values. `None` for a derived column, where `meaning` includes it.
    pub computed: Option<&'static str>,
}

/// Definitions of all columns whose header or CSV name is wanted, in listing order.
pub fn definitions(wanted: impl Fn(&str) -> bool) -> Vec<Definition> {
    let all = all().map(|column| match column {
        Column::Figure(figure) => Definition {
            name: figure.name,
            field: Some(figure.field),
            meaning: figure.meaning,
            computed: Some(figure.computed),
        },
        Column::Derived(derived) => Definition {
            name: derived.name,
            field: None,
            meaning: derived.meaning,
            computed: None,
        },
    });
    let wanted = all.filter(|it| wanted(it.name) || it.field.is_some_and(&wanted));
    wanted.collect()
}

/// Maximum number of similar names in an error.
const SUGGESTIONS: usize = 3;

/// A figure of records, or a derived column of one report.
#[derive(Clone, Copy)]
enum Column {
    Figure(&'static Figure),
    Derived(&'static DerivedColumn),
}

/// All columns, in listing order.
fn all() -> impl Iterator<Item = Column> {
    let figures = figures::all_figures().into_iter().map(Column::Figure);
    figures.chain(DERIVED.iter().map(Column::Derived))
}

/// Explains all columns and glossary terms with this name; case is ignored. A column matches by header, with or without
/// unit, or by CSV name. A term also matches by its name in other tools. If nothing matches, lists the columns whose
/// names contain the text. Without a name, lists all columns.
///
/// # Errors
/// [`Error::Usage`] with the nearest names if nothing matches.
pub fn explain(name: Option<&str>) -> Result<String> {
    let Some(name) = name else {
        return Ok(list());
    };
    let wanted = name.trim().to_lowercase();
    let named = all().filter(|column| column.names().contains(&wanted));
    let mut texts: Vec<String> = named.map(Column::explained).collect();
    let is_column = !texts.is_empty();
    texts.extend(glossary::explained(&wanted));
    if !is_column {
        texts.extend(columns_with(&wanted));
    }
    if texts.is_empty() {
        return Err(unknown(name, &wanted));
    }
    Ok(texts.join("\n"))
}

/// Returns the field of a figure from the name that the user gave: the header, with or without unit, or the CSV name.
/// Case is ignored.
///
/// # Errors
/// [`Error::Usage`] with the nearest names if there is no such figure.
pub fn field_of_column(name: &str) -> Result<&'static str> {
    let wanted = name.trim().to_lowercase();
    let mut figures = figures::all_figures().into_iter();
    let figure = figures.find(|figure| Column::Figure(figure).names().contains(&wanted));
    figure.map(|figure| figure.field).ok_or_else(|| {
        let near = nearest(&wanted, |column| matches!(column, Column::Figure(_)));
        Error::Usage(format!(
            "there is no column {}; the nearest are {near}. `tonnage explain` lists all",
            quote(name)
        ))
    })
}

/// Minimum length of a text to search for in column names. Shorter texts occur in most names.
const SEARCHED_MIN: usize = 3;

/// Lists the columns with this text in one of their names.
fn columns_with(text: &str) -> Option<String> {
    if text.len() < SEARCHED_MIN {
        return None;
    }
    let has_text = |column: &Column| column.names().iter().any(|name| name.contains(text));
    let columns: Vec<Column> = all().filter(has_text).collect();
    let width = columns
        .iter()
        .map(|column| column.name().chars().count())
        .max()?
        + 4;
    let lines = columns.iter().map(|column| {
        entry(
            &format!("  {}", column.name()),
            width,
            column.first_sentence(),
        )
    });
    Some(format!(
        "Columns with \"{text}\" in their names; `tonnage explain COLUMN` explains one\n{}",
        lines.collect::<String>()
    ))
}

impl Column {
    fn name(self) -> &'static str {
        match self {
            Self::Figure(figure) => figure.name,
            Self::Derived(derived) => derived.name,
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Figure(figure) => figure.meaning,
            Self::Derived(derived) => derived.meaning,
        }
    }

    fn first_sentence(self) -> &'static str {
        let meaning = self.meaning();
        meaning.split_inclusive(". ").next().unwrap_or(meaning)
    }

    /// All names of the column in lower case: header with and without unit, and CSV name.
    fn names(self) -> Vec<String> {
        let bare = bare_name(self.name());
        let field = match self {
            Self::Figure(figure) => Some(figure.field),
            Self::Derived(_) => None,
        };
        let names = [self.name(), bare].into_iter().chain(field);
        names.map(str::to_lowercase).collect()
    }

    /// Heading in the list: the kinds that have the column, or `Of one report:` for a derived column.
    fn heading(self) -> String {
        let Self::Figure(figure) = self else {
            return "Of one report:".to_owned();
        };
        let kinds = kinds_of(figure);
        match kinds.len() == KINDS.len() {
            true => "Of every kind:".to_owned(),
            false => format!("Of {}:", kinds.join(" and ")),
        }
    }

    fn explained(self) -> String {
        let entries = match self {
            Self::Figure(figure) => of_figure(figure),
            Self::Derived(derived) => vec![
                ("means", derived.meaning.to_owned()),
                ("where", derived.place.to_owned()),
            ],
        };
        let entries = entries.iter();
        let entries = entries.map(|(head, body)| entry(&format!("  {head}"), 12, body));
        format!("{}\n{}", self.name(), entries.collect::<String>())
    }
}

/// Names of the kinds that have the figure.
fn kinds_of(figure: &Figure) -> Vec<&'static str> {
    let has = KINDS.iter().filter(|(_, groups)| {
        let mut figures = groups.iter().copied().flatten();
        figures.any(|own| own.field == figure.field)
    });
    has.map(|(kind, _)| *kind).collect()
}

fn of_figure(figure: &Figure) -> Vec<(&'static str, String)> {
    let in_tables = match figure.style {
        Style::Rate => "with a prefix k, M or G (1e3, 1e6, 1e9)",
        Style::Scaled(_) => "in the unit that the header names",
        Style::Plain => "as it is",
    };
    let csv = format!(
        "{}, in base units and full precision. Tables print it {in_tables}.",
        figure.field
    );
    let mut entries = vec![
        ("means", figure.meaning.to_owned()),
        ("computed", figure.computed.to_owned()),
        ("in CSV", csv),
        ("of", kinds_of(figure).join(", ")),
    ];
    if figure.field.starts_with("latency_ns") {
        let sample = "See `tonnage explain \"Latency kind\"`; the table's title also names it.";
        entries.insert(1, ("sample", sample.to_owned()));
    }
    entries
}

fn list() -> String {
    let width = all().map(|column| column.name().chars().count()).max();
    let width = width.unwrap_or(0) + 2;
    let mut parts: Vec<(String, String)> = Vec::new();
    for column in all() {
        let line = entry(column.name(), width, column.first_sentence());
        let heading = column.heading();
        match parts.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, text)) => text.push_str(&line),
            None => parts.push((heading, line)),
        }
    }
    let parts = parts.iter();
    let parts = parts.map(|(heading, text)| format!("{heading}\n\n{text}\n"));
    format!(
        "{}`tonnage explain COLUMN` explains one of them, and terms such as lane or bound.\n",
        parts.collect::<String>()
    )
}

fn unknown(name: &str, wanted: &str) -> Error {
    Error::Usage(format!(
        "there is no column or term {name:?}; the nearest columns are {}. `tonnage explain` lists all",
        nearest(wanted, |_| true)
    ))
}

/// Lists the columns with the most similar names.
fn nearest(wanted: &str, may: impl Fn(&Column) -> bool) -> String {
    let near = |column: Column| {
        let names = column.names();
        // A word of a name may be meant, such as "bandwith" of bandwidth_bytes_per_s.
        let words = names.iter().flat_map(|name| name.split([' ', '_']));
        let near = names.iter().map(String::as_str).chain(words);
        let near = near.map(|name| strsim::normalized_damerau_levenshtein(name, wanted));
        near.fold(0.0, f64::max)
    };
    let columns = all().filter(may);
    let mut near: Vec<_> = columns
        .map(|column| (near(column), column.name()))
        .collect();
    near.sort_by(|left, right| right.0.total_cmp(&left.0));
    let near = near.iter().take(SUGGESTIONS);
    let near: Vec<_> = near.map(|(_, name)| format!("\"{name}\"")).collect();
    near.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::text::WIDTH;
    use super::*;

    #[test]
    fn any_name_and_case_finds_the_column() {
        for name in [
            "Max BW (GB/s)",
            "max bw",
            " MAX BW ",
            "bandwidth_bytes_per_s_max_batch",
        ] {
            assert!(
                explain(Some(name)).unwrap().starts_with("Max BW (GB/s)\n"),
                "{name}"
            );
        }
    }

    #[test]
    fn a_figure_of_several_kinds_is_explained_once_with_its_kinds() {
        let p90 = explain(Some("p90")).unwrap();
        assert_eq!(p90.matches("p90 (us)").count(), 1, "{p90}");
        assert!(
            p90.contains("of        transfer, file, connect, stress, collective\n"),
            "{p90}"
        );
        // Reports print p99 in different units, so both columns must be explained.
        let p99 = explain(Some("p99")).unwrap();
        assert!(
            p99.contains("p99 (us)\n") && p99.contains("\np99 (ns)\n"),
            "{p99}"
        );
    }

    #[test]
    fn columns_of_the_tables_below_collectives_are_explained() {
        for (name, part) in [
            ("group", "tables of groups"),
            ("rank", "--per-rank"),
            ("began last", "after all others"),
        ] {
            let text = explain(Some(name)).unwrap().replace("\n            ", " ");
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_part_of_a_name_lists_the_columns_that_have_it() {
        let text = explain(Some("latency")).unwrap();
        assert!(text.starts_with("latency\n  means "), "{text}");
        for column in ["\n  p99 (us) ", "\n  Avg Lat (us) "] {
            assert!(text.contains(column), "{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(explain(Some("zz")).is_err());
    }

    #[test]
    fn an_unknown_name_gets_the_nearest() {
        let error = explain(Some("msgrate")).unwrap_err();
        assert!(matches!(error, Error::Usage(_)));
        assert!(error.to_string().contains("\"Msg rate (op/s)\""), "{error}");
    }

    #[test]
    fn headers_are_unique_and_derived_columns_are_sentences() {
        let names: HashSet<_> = all().map(|column| column.name().to_lowercase()).collect();
        assert_eq!(names.len(), all().count());
        for DerivedColumn {
            name,
            place,
            meaning,
        } in DERIVED
        {
            for text in [place, meaning] {
                assert!(
                    text.ends_with('.') && !text.contains("  "),
                    "{name}: {text:?}"
                );
            }
        }
    }

    #[test]
    fn every_column_is_listed_and_explained_within_the_width() {
        let list = explain(None).unwrap();
        for (_, groups) in KINDS {
            for figure in groups.iter().copied().flatten() {
                let text = explain(Some(figure.field)).unwrap();
                assert!(text.starts_with(figure.name), "{text}");
            }
        }
        for column in all() {
            assert!(list.contains(column.name()));
            let text = explain(Some(column.name())).unwrap();
            assert!(
                text.contains(column.meaning().split(' ').next().unwrap()),
                "{text}"
            );
            assert!(
                text.lines().all(|line| line.chars().count() <= WIDTH),
                "{text}"
            );
        }
        assert!(
            list.lines().all(|line| line.chars().count() <= WIDTH),
            "{list}"
        );
    }

    #[test]
    fn explanations_look_as_agreed() {
        insta::assert_snapshot!("explain_max_bw", explain(Some("Max BW")).unwrap());
        insta::assert_snapshot!("explain_p99", explain(Some("p99")).unwrap());
        insta::assert_snapshot!("explain_note", explain(Some("note")).unwrap());
        insta::assert_snapshot!("explain_all", explain(None).unwrap());
    }
}
