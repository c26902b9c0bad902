//! What a column means, for `tonnage explain`.

use tonnage_core::{Error, Result};

use super::columns::{COLUMNS, Column, Style};
use super::text::entry;

/// How many near names an error offers.
const SUGGESTIONS: usize = 3;

/// Explains one column, named by its header with or without the unit or by its CSV name, in any case; without a name
/// lists all columns.
///
/// # Errors
/// [`Error::Usage`] with the nearest names when there is no such column.
pub fn explain(name: Option<&str>) -> Result<String> {
    let Some(name) = name else {
        return Ok(list());
    };
    let wanted = name.trim().to_lowercase();
    let found = COLUMNS
        .iter()
        .find(|column| names(column).contains(&wanted));
    found.map(one).ok_or_else(|| unknown(name, &wanted))
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
    let width = COLUMNS
        .iter()
        .map(|column| column.name.len())
        .max()
        .unwrap_or(0)
        + 2;
    let entries = COLUMNS.iter().map(|Column { name, meaning, .. }| {
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
    let bare = column.name.split(" (").next().unwrap_or(column.name);
    [column.name, bare, column.field].map(str::to_lowercase)
}

fn unknown(name: &str, wanted: &str) -> Error {
    let nearness = |column: &Column| {
        let near = names(column).map(|name| strsim::normalized_damerau_levenshtein(&name, wanted));
        near.into_iter().fold(0.0, f64::max)
    };
    let mut near: Vec<_> = COLUMNS
        .iter()
        .map(|column| (nearness(column), column.name))
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
        for column in COLUMNS {
            assert!(all.contains(column.name));
            let text = explain(Some(column.field)).unwrap();
            assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        }
        assert!(all.lines().all(|line| line.len() <= WIDTH), "{all}");
    }

    #[test]
    fn explanations_look_as_agreed() {
        insta::assert_snapshot!("explain_max_bw", explain(Some("Max BW")).unwrap());
        insta::assert_snapshot!("explain_all", explain(None).unwrap());
    }
}
