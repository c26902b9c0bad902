//! The page of `tonnage report`: a single HTML file without network requests.
//!
//! The page is complete without scripts and styles. Plots are SVG with attributes instead of styles, marks differ in
//! shape as well as colour, and every plot has a description and its numbers as text. The style only improves
//! appearance; the script only adds tooltips, zoom, sorting and filters.
//!
//! | module | output |
//! | --- | --- |
//! | this | a page from its parts |
//! | `document` | the frame: head, contents, parts in order |
//! | [`embed`] | embeds records in a page, and reads them back |
//! | `verdicts` | a comparison, and hosts compared with a baseline |
//! | `findings` | failures, skips and doubts |
//! | `places` | what ran where; equal hosts are described once |
//! | `results` | records of one configuration: plots, tables, all figures |
//! | `definitions` | explanations of all columns on the page |
//! | `tables` | tables of reports as HTML |
//! | `bidi` | right-to-left text |
//! | `plot` | drawings |
//!
//! Nothing here reads or writes files. Tables come from `tonnage_report`, verdicts from `tonnage_judge`.

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

#[derive(Debug)]
pub struct PageRequest {
    pub title: String,
    /// Files of records to show and embed.
    pub files: Vec<PageFile>,
    /// A comparison to show, with the names of its two sides.
    pub comparison: Option<(Comparison, [String; 2])>,
    /// A baseline to compare the hosts with, and its file name.
    pub baseline: Option<(Baseline, String)>,
    /// Whether to leave out script and style, for viewers that block them and report an error.
    pub plain: bool,
}

/// Makes a page. Failed attempts that were repeated successfully in the same file are embedded but not shown.
///
/// # Errors
/// `Usage` if the baseline does not cover any kind of host in the records; otherwise if a record cannot be serialized.
pub fn page(request: PageRequest) -> Result<String> {
    let links = request.files.iter().map(embed::link);
    let links: Vec<_> = links.collect::<Result<_>>()?;
    let files: Vec<String> = request.files.iter().map(|it| it.name.clone()).collect();
    let left_out = request.files.iter().filter_map(|it| it.left_out.clone());
    let left_out: Vec<String> = left_out.collect();
    let kept = request.files.into_iter();
    let records: Vec<Record> = kept
        .flat_map(|file| group_runs(kept_attempts(file.records)))
        .collect();
    let mut columns: BTreeSet<String> = BTreeSet::new();
    let comparison = request.comparison.as_ref();
    let mut numbers = Numbers::default();
    let compared = comparison.map(|(comparison, names)| {
        verdicts::compared(comparison, names, &mut numbers, &mut columns)
    });
    let against = match &request.baseline {
        Some((baseline, file)) => {
            let check = check_records(baseline, &records)?;
            Some(verdicts::against_baseline(&check, file, &mut columns))
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
        verdicts: compared.into_iter().chain(against).collect(),
        findings,
        overview,
        results,
        definitions: definitions::definitions(&columns),
        environment: places::environment(&records),
        links,
    };
    // Halves the peak memory: the page is about as large as its records.
    drop(records);
    Ok(document::document(&parts, request.plain).into_string())
}

/// Sorts the records of a file by side, then by point, so that the runs of a point are adjacent.
fn group_runs(mut records: Vec<Record>) -> Vec<Record> {
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
