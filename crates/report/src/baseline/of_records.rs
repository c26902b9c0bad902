//! Compares records with a baseline and returns separate parts for custom layout: one table per kind of host, and notes
//! on points without an entry.

use std::collections::BTreeSet;

use tonnage_judge::check::CheckVerdict;
use tonnage_judge::check::nodelist::fold_names;
use tonnage_judge::check::of_records::{RecordsCheck, RunsVerdict};
use tonnage_judge::check::reason::with_unit;

use super::{header, without_empty};
use crate::derived::{
    BASE_FAIL, BASE_HOST, BASE_MEDIAN, BASE_POINT, BASE_WARN, CHECK_MEASURED, CHECK_WHY,
    DerivedColumn, METRIC, RUNS, VERDICT,
};
use crate::table::TitledTable;

/// Columns of the tables.
const COLUMNS: [DerivedColumn; 10] = [
    BASE_HOST,
    BASE_POINT,
    METRIC,
    CHECK_MEASURED,
    BASE_MEDIAN,
    BASE_WARN,
    BASE_FAIL,
    RUNS,
    VERDICT,
    CHECK_WHY,
];

/// Right-aligned columns.
const RIGHT: [DerivedColumn; 5] = [CHECK_MEASURED, BASE_MEDIAN, BASE_WARN, BASE_FAIL, RUNS];

/// Parts of a comparison of records with a baseline.
#[derive(Debug, Clone)]
pub struct RecordsCheckTables {
    /// Overall verdict and its reason.
    pub reason: String,
    /// Number of entries per verdict, and the failed hosts.
    pub totals: String,
    /// One table per kind of host, titled with the kind.
    pub kinds: Vec<TitledTable>,
    /// Notes on how to read the tables, and on points without an entry or record.
    pub notes: Vec<String>,
}

/// Builds the parts from the verdicts.
pub fn of_records(check: &RecordsCheck) -> RecordsCheckTables {
    let kinds: BTreeSet<&str> = check.entries.iter().map(|it| it.kind.as_str()).collect();
    let totals = CheckVerdict::ALL.into_iter().filter_map(|verdict| {
        let is_it = |it: &&RunsVerdict| it.entry.verdict == verdict;
        let count = check.entries.iter().filter(is_it).count();
        (count > 0).then(|| format!("{count} {verdict}"))
    });
    let totals = totals.collect::<Vec<_>>().join(", ");
    let failed = fold_names(check.failed_hosts.iter().map(String::as_str));
    RecordsCheckTables {
        reason: check.reason.clone(),
        totals: match failed.is_empty() {
            true => totals,
            false => format!("{totals}; failed: {failed}"),
        },
        kinds: kinds.into_iter().map(|kind| table(check, kind)).collect(),
        notes: notes(check),
    }
}

fn table(check: &RecordsCheck, kind: &str) -> TitledTable {
    let own = check.entries.iter().filter(|it| it.kind == kind);
    let rows = std::iter::once(header(&COLUMNS)).chain(own.map(row));
    let rows = without_empty(rows.collect());
    let header = rows.first().cloned().unwrap_or_default();
    let is_right = |at: usize| RIGHT.iter().any(|column| column.name == header[at]);
    TitledTable::new(rows, is_right).with_title(kind)
}

fn row(runs: &RunsVerdict) -> Vec<String> {
    let entry = &runs.entry;
    let figure = |value| with_unit(&entry.unit, value);
    let hosts = fold_names(entry.hosts.iter().map(String::as_str));
    vec![
        match runs.side {
            Some(side) => format!("{hosts}, side {side}"),
            None => hosts,
        },
        entry.name.clone(),
        entry.metric.clone(),
        entry.value.map_or_else(|| "-".to_owned(), figure),
        figure(entry.median),
        figure(entry.warn),
        figure(entry.fail),
        entry.tries.len().to_string(),
        entry.verdict.name().to_owned(),
        entry.why.clone().unwrap_or_default(),
    ]
}

fn notes(check: &RecordsCheck) -> Vec<String> {
    let mut notes = vec![
        "A host's run in the middle counts, of two in the middle the better one: it fails where more than half of its \
         runs do. Runs without a figure do not count."
            .to_owned(),
    ];
    match check.points_without_entry {
        0 => {}
        1 => notes.push("1 point of the records has no entry in the baseline.".to_owned()),
        some => notes.push(format!(
            "{some} points of the records have no entry in the baseline."
        )),
    }
    let unknown = check.unknown_kinds.iter().map(|(kind, hosts)| {
        let hosts = fold_names(hosts.iter().map(String::as_str));
        format!("The baseline has nothing for the kind of {hosts} ({kind}).")
    });
    notes.extend(unknown);
    let absent = check.absent_kinds.iter();
    notes.extend(absent.map(|kind| format!("No record is of this kind of the baseline: {kind}.")));
    notes
}
