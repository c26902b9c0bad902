//! The page of `tonnage report`: one file of HTML that asks the network for nothing.
//!
//! It is complete where scripts and styles are forbidden: plots are SVG with attributes instead of styles, marks differ
//! in shape as well as in colour, and every plot has its description and its numbers as text. The style makes it
//! pleasant, and the script only adds values under the pointer, zoom, sorting and filters.
//!
//! | module | what it makes |
//! | --- | --- |
//! | this | a page from its parts |
//! | `document` | the frame: head, contents, parts in their order |
//! | [`embed`] | the records inside of a page, and reading them back |
//! | `verdicts` | a comparison, hosts beside a baseline |
//! | `findings` | what failed, what was skipped, what a reader must know |
//! | `places` | what ran where; hosts that are alike |
//! | `results` | records of one configuration: plots, tables, every figure |
//! | `definitions` | meanings of all columns that the page shows |
//! | `tables` | tables of reports as HTML |
//! | `bidi` | names that are written from right to left |
//! | `plot` | drawings |
//!
//! Nothing here reads or writes a file. What the tables say comes from `tonnage_report`, verdicts from `tonnage_judge`.

#![forbid(unsafe_code)]

mod bidi;
mod definitions;
mod document;
pub mod embed;
mod findings;
mod places;
mod plot;
mod results;
mod tables;
#[cfg(test)]
mod tests;
mod verdicts;

use std::collections::{BTreeSet, HashMap};

use tonnage_judge::baseline::Baseline;
use tonnage_judge::check::of_records::check_records;
use tonnage_judge::compare::Comparison;
use tonnage_record::Record;
use tonnage_record::read::kept_attempts;
use tonnage_units::Result;

use document::PageParts;
pub use embed::PageFile;
use plot::Numbers;

/// Wishes for a page.
#[derive(Debug)]
pub struct PageRequest {
    /// Its title.
    pub title: String,
    /// Files of records, which the page shows and holds.
    pub files: Vec<PageFile>,
    /// A comparison, with the names of its two sides.
    pub comparison: Option<(Comparison, [String; 2])>,
    /// A baseline beside which the hosts of the records are judged, with the name of its file.
    pub baseline: Option<(Baseline, String)>,
    /// True for a page without a script and without a style, for viewers that forbid both and say so.
    pub plain: bool,
}

/// Makes a page. Attempts that failed and were made again in the same file are in the page, and are not shown.
///
/// # Errors
/// When a record cannot be written as JSON; `Usage` for a baseline without any kind of host of the records.
pub fn page(request: PageRequest) -> Result<String> {
    let links = request.files.iter().map(embed::link);
    let links: Vec<_> = links.collect::<Result<_>>()?;
    let files: Vec<String> = request.files.iter().map(|it| it.name.clone()).collect();
    let left_out = request.files.iter().filter_map(|it| it.left_out.clone());
    let left_out: Vec<String> = left_out.collect();
    let kept = request.files.into_iter();
    let records: Vec<Record> = kept
        .flat_map(|file| in_order(kept_attempts(file.records)))
        .collect();
    let mut columns: BTreeSet<String> = BTreeSet::new();
    let comparison = request.comparison.as_ref();
    let mut numbers = Numbers::default();
    let compared = comparison.map(|(comparison, names)| {
        verdicts::compared(comparison, names, &mut numbers, &mut columns)
    });
    let beside = match &request.baseline {
        Some((baseline, file)) => {
            let check = check_records(baseline, &records)?;
            Some(verdicts::beside_baseline(&check, file, &mut columns))
        }
        None => None,
    };
    let findings = findings::findings(&records, &left_out);
    let overview = places::overview(&records);
    let results = results::results(&records, numbers, &mut columns);
    let parts = PageParts {
        title: &request.title,
        files: &files,
        counts: findings::counts(&records),
        verdicts: compared.into_iter().chain(beside).collect(),
        findings,
        overview,
        results,
        definitions: definitions::definitions(&columns),
        environment: places::environment(&records),
        links,
    };
    // The page is about as large as what its records take.
    drop(records);
    Ok(document::document(&parts, request.plain).into_string())
}

/// The records of a file with those of one side together, and of these the runs of one point.
fn in_order(mut records: Vec<Record>) -> Vec<Record> {
    let has_runs = |record: &Record| record.repetition.is_some() || record.side.is_some();
    if records.iter().any(has_runs) {
        let mut places: HashMap<String, usize> = HashMap::new();
        records.sort_by_cached_key(|record| {
            let next = places.len();
            let point = format!("{:?}", record.body.point());
            let side = record.side.as_ref().map(|side| side.name.letter());
            (side, *places.entry(point).or_insert(next))
        });
    }
    records
}
