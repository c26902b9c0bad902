//! Meaning of a column, for `tonnage explain`.

use tonnage_units::{Error, Result};

use super::columns::{self, Column, DERIVED, Derived, Style};
use super::files::columns::{self as file_columns, FileColumn, InCsv};
use super::text::entry;

/// Near names that an error offers.
const SUGGESTIONS: usize = 3;

/// Explains one column, named by its header with or without the unit or by its CSV name, in any case; without a name
/// lists all columns. What transfers and file experiments call by one name is explained for both, and columns that only
/// one report shows are explained too.
///
/// # Errors
/// [`Error::Usage`] with the nearest names when there is no such column.
pub fn explain(name: Option<&str>) -> Result<String> {
    let Some(name) = name else {
        return Ok(list());
    };
    let wanted = name.trim().to_lowercase();
    let transfers = columns::all().filter(|column| names(column).contains(&wanted));
    let files = of_files().filter(|column| names_in_files(column).contains(&wanted));
    let derived = DERIVED
        .iter()
        .filter(|column| names_of(column.name).contains(&wanted));
    let texts: Vec<String> = transfers
        .map(one)
        .chain(files.map(one_of_files))
        .chain(derived.map(one_elsewhere))
        .collect();
    if texts.is_empty() {
        return Err(unknown(name, &wanted));
    }
    Ok(texts.join("\n"))
}

/// Columns of file experiments that mean something else than those of transfers, or are not theirs.
fn of_files() -> impl Iterator<Item = &'static FileColumn> {
    file_columns::all().filter(|column| {
        columns::by_field(column.field).is_none_or(|transfers| transfers.meaning != column.meaning)
    })
}

fn one_elsewhere(column: &Derived) -> String {
    let entries = [("means", column.meaning), ("where", column.place)];
    let entries = entries.map(|(head, body)| entry(&format!("  {head}"), 12, body));
    format!("{}\n{}", column.name, entries.concat())
}

/// Describes the style of a column in tables.
fn in_tables(style: Style) -> &'static str {
    match style {
        Style::Rate => "with a prefix k, M or G (1e3, 1e6, 1e9)",
        Style::Scaled(_) => "in the unit that the header names",
        Style::Plain => "as it is",
    }
}

fn one(column: &Column) -> String {
    let csv = format!(
        "{}, in base units and full precision. Tables print it {}.",
        column.field,
        in_tables(column.style)
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

fn one_of_files(column: &FileColumn) -> String {
    let fields: Vec<String> = column
        .fields()
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    let csv = match column.in_csv {
        InCsv::Not => "Not there: rows of CSV are not cut up that way.".to_owned(),
        InCsv::Once | InCsv::Twice => format!(
            "{}, in base units and full precision. Tables print it {}.",
            fields.join(" and "),
            in_tables(column.style)
        ),
    };
    let entries = [
        ("means", column.meaning),
        ("computed", column.computed),
        ("in CSV", &csv),
    ];
    let entries = entries.map(|(head, body)| entry(&format!("  {head}"), 12, body));
    format!("{}, of file experiments\n{}", column.name, entries.concat())
}

fn list() -> String {
    let transfers = columns::all().map(|column| (column.name, column.meaning));
    let derived = DERIVED.iter().map(|column| (column.name, column.meaning));
    let transfers: Vec<_> = transfers.chain(derived).collect();
    let files: Vec<_> = of_files()
        .map(|column| (column.name, column.meaning))
        .collect();
    let all = transfers.iter().chain(&files);
    let width = all.map(|(name, _)| name.chars().count()).max();
    let width = width.unwrap_or(0) + 2;
    let entries = |columns: &[(&str, &str)]| -> String {
        let entries = columns.iter().map(|(name, meaning)| {
            let first = meaning.split_inclusive(". ").next().unwrap_or(meaning);
            entry(name, width, first)
        });
        entries.collect()
    };
    format!(
        "{}\nOf file experiments, beside those above that hold for them too:\n\n{}\n`tonnage explain COLUMN` says more \
         about one of them.\n",
        entries(&transfers),
        entries(&files)
    )
}

/// All names that a column answers to, in lower case.
fn names(column: &Column) -> [String; 3] {
    let [name, bare] = names_of(column.name);
    [name, bare, column.field.to_lowercase()]
}

/// Lists the names of a column of file experiments, as [`names`] does.
fn names_in_files(column: &FileColumn) -> Vec<String> {
    let fields = column.fields().into_iter().map(|(field, _)| field);
    names_of(column.name)
        .into_iter()
        .chain([column.field.to_owned()])
        .chain(fields)
        .collect()
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
    let derived = DERIVED
        .iter()
        .map(|column| (near(&names_of(column.name)), column.name));
    let files = of_files().map(|column| (near(&names_in_files(column)), column.name));
    let mut near: Vec<_> = columns::all()
        .map(|column| (near(&names(column)), column.name))
        .chain(files)
        .chain(derived)
        .collect();
    near.sort_by(|left, right| right.0.total_cmp(&left.0));
    let mut near: Vec<_> = near.iter().map(|(_, name)| *name).collect();
    // Both kinds may have a column of one name.
    near.dedup();
    let near: Vec<_> = near
        .iter()
        .take(SUGGESTIONS)
        .map(|name| format!("\"{name}\""))
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
    fn what_both_kinds_have_is_explained_for_both_unless_it_is_the_same() {
        let both = explain(Some("p99")).unwrap();
        assert!(both.contains("\np99 (us), of file experiments\n"), "{both}");
        let same = explain(Some("plan")).unwrap();
        assert!(!same.contains("of file experiments"), "{same}");
        let split = explain(Some("write_latency_ns_p99")).unwrap();
        assert!(
            split.starts_with("p99 (us), of file experiments\n"),
            "{split}"
        );
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
        let derived = DERIVED.iter().map(|column| (column.name, column.name));
        let fields = columns::all().map(|column| (column.name, column.field));
        let files = file_columns::all().map(|column| (column.name, column.field));
        for (name, asked) in fields.chain(derived).chain(files) {
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
        insta::assert_snapshot!("explain_p99", explain(Some("p99")).unwrap());
        insta::assert_snapshot!("explain_note", explain(Some("note")).unwrap());
        insta::assert_snapshot!("explain_all", explain(None).unwrap());
    }
}
