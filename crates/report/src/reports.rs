//! The list of reports, and records drawn by them.

use tonnage_record::Record;

use super::drawer::{Drawer, Section};
use super::table::Markup;
use super::{collective, connect, files, layers, stress, transfer, tune, verify};

/// The reports. The first that takes a record draws it.
const REPORTS: &[Drawer] = &[
    layers::LAYERS,
    Drawer::of::<verify::VerifyTransfers>(),
    Drawer::of::<verify::VerifyCollectives>(),
    Drawer::of::<transfer::Transfers>(),
    Drawer::of::<files::Files>(),
    Drawer::of::<connect::Connections>(),
    Drawer::of::<stress::StressReport>(),
    Drawer::of::<tune::TuneReport>(),
    Drawer::of::<collective::CollectiveReport>(),
];

/// Consecutive records that one report draws make a part of the text.
pub fn tables(records: &[Record], markup: Markup) -> String {
    let drawn = parts(records).map(|(drawer, part)| (drawer.draw)(part, markup));
    drawn.collect::<Vec<_>>().join("\n")
}

/// Parts of the reports of all records, for whoever lays them out in another way.
pub fn sections(records: &[Record]) -> Vec<Section> {
    let sections = parts(records).flat_map(|(drawer, part)| (drawer.sections)(part));
    sections.collect()
}

/// Consecutive records that one report draws, with it.
fn parts(records: &[Record]) -> impl Iterator<Item = (&'static Drawer, &[Record])> {
    let report = |record: &Record| REPORTS.iter().position(|report| (report.takes)(record));
    let parts = records.chunk_by(move |left, right| report(left) == report(right));
    parts.filter_map(move |part| {
        let drawer = &REPORTS[report(part.first()?)?];
        Some((drawer, part))
    })
}
