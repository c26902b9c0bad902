//! Judges all entries of one point. If entries differ only in devices and links, judges the one for the path that was
//! used.

use tonnage_record::Record;
use tonnage_record::figures::Row;

use super::entry::{EntryVerdict, judge_entry};
use crate::baseline::BaselineEntry;
use crate::baseline::host_kind::carriers;

/// Returns the verdicts on the entries of one point, one for each part and metric, in the order of the entries.
///
/// A failure counts only if `tries_min` records fail, as in [`judge_entry`].
pub fn judge_point(
    entries: &[&BaselineEntry],
    records: &[&Record],
    tries_min: u32,
) -> Vec<EntryVerdict> {
    let each = distinct_entries(entries).into_iter().map(|entry| {
        let same_metric = |other: &&BaselineEntry| is_same_metric(entry, other);
        let others: Vec<&BaselineEntry> = entries.iter().copied().filter(same_metric).collect();
        let fits = others.iter().find(|other| {
            let mut rows = records.iter().flat_map(|record| Row::all_of_record(record));
            rows.any(|row| {
                let (device, link) = carriers(&row);
                device == other.device && link == other.link_bytes_per_s
            })
        });
        judge_entry(fits.copied().unwrap_or(entry), &others, records, tries_min)
    });
    each.collect()
}

/// Returns the first entry of each part and metric.
pub(super) fn distinct_entries<'a>(entries: &[&'a BaselineEntry]) -> Vec<&'a BaselineEntry> {
    let mut seen: Vec<&BaselineEntry> = Vec::new();
    for entry in entries {
        if !seen.iter().any(|known| is_same_metric(known, entry)) {
            seen.push(entry);
        }
    }
    seen
}

fn is_same_metric(one: &BaselineEntry, other: &BaselineEntry) -> bool {
    one.part == other.part && one.metric == other.metric
}
