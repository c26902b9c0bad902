//! Compares two baselines of the same kinds of hosts: changed, added and removed entries.

use serde::Serialize;
use tonnage_units::{Error, Result};

use super::{Baseline, BaselineEntry, HostKind};

tonnage_units::names! {
    /// Result of comparing an entry in two baselines.
    pub enum Drift: "drift" {
        /// The new median is beyond the old failure threshold.
        Failing = "failing",
        /// The new median is beyond the old warning threshold.
        Slower = "slower",
        /// The new median is better than the old one by more than the distance of the old warning threshold.
        Faster = "faster",
        /// The new median is within the old thresholds.
        Same = "same",
        /// One of the medians comes from fewer than 3 runs.
        Unclear = "unclear",
        /// Only the new baseline has this entry.
        Added = "added",
        /// Only the old baseline has this entry.
        Gone = "gone",
    }
}

impl Drift {
    /// Returns whether the new median is beyond a threshold of the old baseline.
    pub fn is_worse(self) -> bool {
        matches!(self, Self::Slower | Self::Failing)
    }
}

/// An entry compared across two baselines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DriftedEntry {
    /// Kind of host, in words.
    pub kind: String,
    /// Name of the point.
    pub name: String,
    /// Metric.
    pub metric: String,
    /// Unit of the medians.
    pub unit: String,
    /// Median of the old baseline.
    pub old: Option<f64>,
    /// Median of the new one.
    pub new: Option<f64>,
    /// Result of the comparison.
    pub drift: Drift,
}

/// Compares two baselines.
///
/// # Errors
/// `Usage` if they have no entry in common; the message lists the kinds of hosts in each.
pub fn drift(old: &Baseline, new: &Baseline) -> Result<Vec<DriftedEntry>> {
    let mut found = Vec::new();
    for kind in &new.kinds {
        let before = old.kinds.iter().find(|known| known.facts == kind.facts);
        for entry in &kind.entries {
            let known = before.and_then(|kind| find_match(kind, entry));
            found.push(compare_entry(kind, known, Some(entry)));
        }
    }
    for kind in &old.kinds {
        let after = new.kinds.iter().find(|known| known.facts == kind.facts);
        for entry in &kind.entries {
            if after.and_then(|kind| find_match(kind, entry)).is_none() {
                found.push(compare_entry(kind, Some(entry), None));
            }
        }
    }
    let in_common = found
        .iter()
        .any(|entry| entry.old.is_some() && entry.new.is_some());
    match in_common {
        true => Ok(found),
        false => Err(Error::Usage(format!(
            "the baselines have no point in common: one is of {}, the other of {}",
            kind_titles(old),
            kind_titles(new)
        ))),
    }
}

fn kind_titles(baseline: &Baseline) -> String {
    let titles: Vec<String> = baseline.kinds.iter().map(HostKind::title).collect();
    titles.join("; ")
}

fn find_match<'a>(kind: &'a HostKind, entry: &BaselineEntry) -> Option<&'a BaselineEntry> {
    kind.entries.iter().find(|known| {
        known.point == entry.point
            && known.part == entry.part
            && known.metric == entry.metric
            && known.device == entry.device
            && known.link_bytes_per_s == entry.link_bytes_per_s
    })
}

fn compare_entry(
    kind: &HostKind,
    old: Option<&BaselineEntry>,
    new: Option<&BaselineEntry>,
) -> DriftedEntry {
    let drift = match (old, new) {
        (Some(old), Some(new)) if !(old.has_spread() && new.has_spread()) => Drift::Unclear,
        (Some(old), Some(new)) => classify(old, new.median),
        (None, _) => Drift::Added,
        (_, None) => Drift::Gone,
    };
    let (name, metric, unit) = new.or(old).map_or(("", "", ""), |entry| {
        (&entry.name, &entry.metric, &entry.unit)
    });
    DriftedEntry {
        kind: kind.title(),
        name: name.to_owned(),
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        old: old.map(|entry| entry.median),
        new: new.map(|entry| entry.median),
        drift,
    }
}

fn classify(old: &BaselineEntry, median: f64) -> Drift {
    // The warning threshold, mirrored to the better side of the median.
    let opposite = 2.0 * old.median - old.warn;
    let is_faster = match old.is_high_better() {
        true => median > opposite,
        false => median < opposite,
    };
    match () {
        () if old.is_beyond(median, old.fail) => Drift::Failing,
        () if old.is_beyond(median, old.warn) => Drift::Slower,
        () if is_faster => Drift::Faster,
        () => Drift::Same,
    }
}
