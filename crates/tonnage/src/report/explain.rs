//! What a column means, for `tonnage explain`.

use tonnage_core::{Error, Result};

use super::columns::{self, Column, ELSEWHERE, Elsewhere, Style};
use super::text::entry;

/// How many near names an error offers.
const SUGGESTIONS: usize = 3;

/// Explains one column, named by its header with or without the unit or by its CSV name, in any case; without a name
/// lists all columns. Columns that only one report shows are explained too.
///
/// # Errors
/// [`Error::Usage`] with the nearest names when there is no such column.
pub fn explain(name: Option<&str>) -> Result<String> {
    let Some(name) = name else {
        return Ok(list());
    };
    let wanted = name.trim().to_lowercase();
    let found = columns::all().find(|column| names(column).contains(&wanted));
    let elsewhere = || {
        let is_wanted = |column: &&Elsewhere| names_of(column.name).contains(&wanted);
        ELSEWHERE.iter().find(is_wanted).map(one_elsewhere)
    };
    found
        .map(one)
        .or_else(elsewhere)
        .ok_or_else(|| unknown(name, &wanted))
}

fn one_elsewhere(column: &Elsewhere) -> String {
    let entries = [("means", column.meaning), ("where", column.place)];
    let entries = entries.map(|(head, body)| entry(&format!("  {head}"), 12, body));
    format!("{}\n{}", column.name, entries.concat())
}

fn one(column: &Column) -> String {
    let table = match column.style {
        Style::Rate => "with a prefix k, M or G (1e3, 1e6, 1e9)",
        Style::Scaled(_) => "in the unit that the header names",
        Style::Plain => "as it is",
    };
    let csv = format!(
        "{}, in base units and full precision. Tables print it {table}.",
        column.field
    );
    let mut entries = vec![
        ("means", column.meaning),
        ("computed", column.computed),
        ("in CSV", &csv),
    ];
    if column.field.starts_with("latency_ns") {
        entries.insert(
            1,
            ("sample", "The table's title says what one latency is; see `tonnage explain \"Latency kind\"`."),
        );
    }
    let entries = entries
        .into_iter()
        .map(|(head, body)| entry(&format!("  {head}"), 12, body));
    format!("{}\n{}", column.name, entries.collect::<String>())
}

fn list() -> String {
    let all = || {
        let elsewhere = ELSEWHERE.iter().map(|column| (column.name, column.meaning));
        columns::all()
            .map(|column| (column.name, column.meaning))
            .chain(elsewhere)
    };
    let width = all().map(|(name, _)| name.chars().count()).max();
    let width = width.unwrap_or(0) + 2;
    let entries = all().map(|(name, meaning)| {
        let first = meaning.split_inclusive(". ").next().unwrap_or(meaning);
        entry(name, width, first)
    });
    format!(
        "{}\n`tonnage explain COLUMN` says more about one of them.\n",
        entries.collect::<String>()
    )
}

/// All names that a column answers to, in lower case.
fn names(column: &Column) -> [String; 3] {
    let [name, bare] = names_of(column.name);
    [name, bare, column.field.to_lowercase()]
}

/// A header with its unit and without.
fn names_of(name: &str) -> [String; 2] {
    let bare = name.split(" (").next().unwrap_or(name);
    [name, bare].map(str::to_lowercase)
}

fn unknown(name: &str, wanted: &str) -> Error {
    let near = |names: &[String]| {
        let near = names
            .iter()
            .map(|name| strsim::normalized_damerau_levenshtein(name, wanted));
        near.fold(0.0, f64::max)
    };
    let elsewhere = ELSEWHERE
        .iter()
        .map(|column| (near(&names_of(column.name)), column.name));
    let mut near: Vec<_> = columns::all()
        .map(|column| (near(&names(column)), column.name))
        .chain(elsewhere)
        .collect();
    near.sort_by(|left, right| right.0.total_cmp(&left.0));
    let near: Vec<_> = near
        .iter()
        .take(SUGGESTIONS)
        .map(|(_, name)| format!("\"{name}\""))
        .collect();
    Error::Usage(format!(
        "there is no column {name:?}; the nearest are {}. `tonnage explain` lists all",
        near.join(", ")
    ))
}

#[cfg(test)]
mod tests {
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
    fn an_unknown_name_gets_the_nearest() {
        let error = explain(Some("msgrate")).unwrap_err();
        assert!(matches!(error, Error::Usage(_)));
        assert!(error.to_string().contains("\"Msg rate (op/s)\""), "{error}");
    }

    #[test]
    fn every_column_is_listed_and_explained_within_the_width() {
        let all = explain(None).unwrap();
        let elsewhere = ELSEWHERE.iter().map(|column| (column.name, column.name));
        let fields = columns::all().map(|column| (column.name, column.field));
        for (name, asked) in fields.chain(elsewhere) {
            assert!(all.contains(name));
            let text = explain(Some(asked)).unwrap();
            assert!(text.starts_with(name), "{text}");
            assert!(
                text.lines().all(|line| line.chars().count() <= WIDTH),
                "{text}"
            );
        }
        assert!(
            all.lines().all(|line| line.chars().count() <= WIDTH),
            "{all}"
        );
    }

    #[test]
    fn explanations_look_as_agreed() {
        insta::assert_snapshot!("explain_max_bw", explain(Some("Max BW")).unwrap());
        insta::assert_snapshot!("explain_note", explain(Some("note")).unwrap());
        insta::assert_snapshot!("explain_all", explain(None).unwrap());
    }
}
