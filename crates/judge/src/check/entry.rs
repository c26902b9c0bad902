//! Judges one baseline entry against new measurements.

use serde::{Deserialize, Serialize};
use tonnage_record::figures::Row;
use tonnage_record::{Outcome, Record};

use super::blame::SlowPaths;
use super::verdict::CheckVerdict;
use crate::baseline::BaselineEntry;
use crate::baseline::host_kind::{LINK_TOLERANCE, carriers, hosts_of, off_path};
use crate::criteria::RUNS_MIN;
use crate::judging::counted;
use crate::keys::{PointKeys, current_value};

/// Verdict on one entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EntryVerdict {
    /// Short name of the point, or name of the device.
    pub name: String,
    /// Engine, operation and size, for one-line output.
    pub short: String,
    /// Metric.
    pub metric: String,
    /// Unit of the figures.
    pub unit: String,
    /// Devices that carry the bytes, as the baseline lists them; absent if the engine has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Hosts that took part.
    pub hosts: Vec<String>,
    /// Hosts that a matrix identifies as slow. If empty, a failure applies to all hosts.
    #[serde(default)]
    pub blamed: Vec<String>,
    /// Verdict.
    pub verdict: CheckVerdict,
    /// The deciding figure: that of the best try.
    pub value: Option<f64>,
    /// Figures of all tries, in order.
    pub tries: Vec<f64>,
    /// Median of the baseline.
    pub median: f64,
    /// Warning threshold.
    pub warn: f64,
    /// Failure threshold.
    pub fail: f64,
    /// Reason, if the figures do not explain the verdict.
    pub why: Option<String>,
}

impl EntryVerdict {
    /// Creates a verdict for an entry without measurements.
    pub fn unmeasured(entry: &BaselineEntry) -> Self {
        Self {
            name: entry.name.clone(),
            short: short_name(entry),
            metric: entry.metric.clone(),
            unit: entry.unit.clone(),
            device: entry.device.clone(),
            hosts: Vec::new(),
            blamed: Vec::new(),
            verdict: CheckVerdict::Skip,
            value: None,
            tries: Vec::new(),
            median: entry.median,
            warn: entry.warn,
            fail: entry.fail,
            why: None,
        }
    }

    /// Returns the hosts that failed; empty unless the verdict is a failure.
    pub fn failed_hosts(&self) -> &[String] {
        match (self.verdict, self.blamed.is_empty()) {
            (CheckVerdict::Fail, true) => &self.hosts,
            (CheckVerdict::Fail, false) => &self.blamed,
            _ => &[],
        }
    }

    /// Returns whether this is about a device, not about a figure.
    pub fn is_of_device(&self) -> bool {
        self.device.as_ref() == Some(&self.name)
    }

    /// Returns whether higher figures are better.
    pub fn is_high_better(&self) -> bool {
        self.fail < self.median
    }

    /// Returns the value as a fraction of the failure threshold; lower is worse.
    pub fn ratio(&self) -> f64 {
        match self.value {
            Some(value) if self.is_high_better() => value / self.fail,
            Some(value) => self.fail / value,
            None => 0.0,
        }
    }
}

/// Judges an entry by the records of its point, one per try. A point may have several entries of the same part and
/// metric, which differ in devices and links; `others` holds them.
///
/// A failure counts only if `tries_min` tries fail; with fewer failed tries it is a warning. It is also a warning if
/// the threshold rests on fewer than [`RUNS_MIN`] runs.
pub fn judge_entry(
    entry: &BaselineEntry,
    others: &[&BaselineEntry],
    records: &[&Record],
    tries_min: u32,
) -> EntryVerdict {
    let mut found = EntryVerdict::unmeasured(entry);
    let mut tries: Vec<Try> = Vec::new();
    for record in records {
        let hosts = hosts_of(record);
        found.hosts = hosts.split(',').map(str::to_owned).collect();
        tries.push(judge_try(entry, others, record));
    }
    found.tries = tries.iter().filter_map(|it| it.value).collect();
    // A single pass or warning decides. An error does not decide, because it is no evidence about the host.
    let fails = tries
        .iter()
        .filter(|it| it.verdict == CheckVerdict::Fail)
        .count();
    let better = tries
        .iter()
        .filter(|it| matches!(it.verdict, CheckVerdict::Pass | CheckVerdict::Warn))
        .min_by_key(|it| it.verdict.weight());
    let counts = better.or_else(|| tries.iter().find(|it| it.verdict == CheckVerdict::Fail));
    let Some(counts) = counts.or(tries.last()) else {
        found.verdict = CheckVerdict::Error;
        found.why = Some("it was not measured".to_owned());
        return found;
    };
    found.verdict = counts.verdict;
    found.value = counts.value;
    found.why.clone_from(&counts.why);
    attribute_failure(&mut found, &tries);
    if found.verdict == CheckVerdict::Fail && fails < tries_min as usize {
        found.verdict = CheckVerdict::Warn;
        let why = found.why.take().map_or(String::new(), |why| why + "; ");
        let errors = tries.iter().filter(|it| it.verdict == CheckVerdict::Error);
        let then = errors.filter_map(|it| it.why.as_deref()).next_back();
        found.why = Some(match then {
            Some(then) => format!("{why}failed {fails} of {} times; then: {then}", tries.len()),
            None => {
                format!("{why}failed {fails} of {tries_min} times, no time to measure it again")
            }
        });
    }
    found
}

/// Attributes a failure to the hosts that are slow in every failed try of a matrix. If each try has different slow
/// hosts and a total is within its threshold, other programs interfered, and the verdict becomes a warning.
fn attribute_failure(found: &mut EntryVerdict, tries: &[Try]) {
    let failed = || {
        let all = tries.iter();
        all.filter(|it| it.verdict == CheckVerdict::Fail)
    };
    if found.verdict != CheckVerdict::Fail || failed().all(|it| it.blame.is_empty()) {
        return;
    }
    let common = SlowPaths::intersection(failed().map(|it| &it.blame));
    if !common.is_empty() {
        found.blamed = common.hosts();
        found.why = Some(common.describe());
    } else if failed().any(|it| !it.is_beyond) {
        found.verdict = CheckVerdict::Warn;
        let each = failed().map(|it| it.blame.describe());
        let each: Vec<String> = each.collect();
        found.why = Some(format!(
            "different hosts were slow in each try: {}",
            each.join("; then ")
        ));
    }
}

struct Try {
    verdict: CheckVerdict,
    value: Option<f64>,
    why: Option<String>,
    /// Slow hosts and pairs of a matrix.
    blame: SlowPaths,
    /// Whether the figure itself proves a failure: it is beyond the threshold, and the threshold's spread is known.
    is_beyond: bool,
}

impl Try {
    fn new(verdict: CheckVerdict, value: Option<f64>, why: impl Into<Option<String>>) -> Self {
        Self {
            verdict,
            value,
            why: why.into(),
            blame: SlowPaths::default(),
            is_beyond: verdict == CheckVerdict::Fail,
        }
    }
}

fn judge_try(entry: &BaselineEntry, others: &[&BaselineEntry], record: &Record) -> Try {
    match &record.outcome {
        Outcome::Measured => {}
        Outcome::Skipped { why, .. } | Outcome::Failed { why, .. } => {
            return Try::new(CheckVerdict::Error, None, why.clone());
        }
    }
    let rows = Row::all_of_record(record);
    let parts = PointKeys::for_parts(&rows);
    let own = parts.iter().find(|(keys, _)| is_part(keys, entry));
    let value = own.and_then(|(_, row)| entry.metric()?.value(row));
    let (Some((_, row)), Some(value)) = (own, value.filter(|value| value.is_finite())) else {
        let why = "its record has no such part or figure".to_owned();
        return Try::new(CheckVerdict::Error, None, why);
    };
    if let Some(why) = path_difference(entry, others, row) {
        return Try::new(CheckVerdict::Fail, Some(value), why);
    }
    let is_bound = entry
        .metric()
        .is_some_and(|metric| metric.is_lower_bound(row));
    let is_beyond = entry.is_beyond(value, entry.fail);
    let fail_part = match entry.is_high_better() {
        true => entry.fail / entry.median,
        false => entry.median / entry.fail,
    };
    let blame = SlowPaths::from_record(record, fail_part);
    // A threshold without a known spread cannot prove a failure.
    let proves = is_beyond && entry.has_spread();
    let verdict = match () {
        () if proves || !blame.is_empty() => CheckVerdict::Fail,
        () if is_beyond || entry.is_beyond(value, entry.warn) => CheckVerdict::Warn,
        () if is_bound && !entry.is_high_better() => CheckVerdict::Warn,
        () => CheckVerdict::Pass,
    };
    let why = match verdict {
        CheckVerdict::Warn if is_beyond => Some(format!(
            "beyond the failure of a baseline of {}, fewer than {RUNS_MIN}",
            counted(entry.runs as usize, "run")
        )),
        CheckVerdict::Warn if is_bound => Some(
            "its value is a lower bound (≥): the true one may be beyond the threshold".to_owned(),
        ),
        _ => None,
    };
    Try {
        blame,
        is_beyond: proves,
        ..Try::new(verdict, Some(value), why)
    }
}

fn is_part(keys: &PointKeys, entry: &BaselineEntry) -> bool {
    let own = keys.part_keys();
    keys.part_keys().count() == entry.part.len()
        && own.into_iter().all(|(key, value)| {
            let known = entry.part.get(key);
            known.is_some_and(|known| current_value(key, known) == value)
        })
}

/// Describes how the path of the bytes differs from the entry's path. `None` if another entry has this path.
fn path_difference(
    entry: &BaselineEntry,
    others: &[&BaselineEntry],
    row: &Row<'_>,
) -> Option<String> {
    if let Some(why) = off_path(row).filter(|_| entry.device.is_some()) {
        return Some(format!("off path: {why}"));
    }
    let (device, link) = carriers(row);
    let is_path_of = |known: &BaselineEntry| known.device == device;
    if let (Some(device), Some(known)) = (&device, &entry.device)
        && !is_path_of(entry)
    {
        return match others.iter().any(|other| is_path_of(other)) {
            true => None,
            false => Some(format!("off path: over {device}, fleet over {known}")),
        };
    }
    // The baseline keeps hosts with slower links in an entry of their own. Still, a link slower than the fastest
    // entry's is a fault.
    let same_path = others
        .iter()
        .copied()
        .filter(|other| other.device == entry.device);
    let links = same_path
        .chain([entry])
        .filter_map(|it| it.link_bytes_per_s);
    match (link, links.max_by(f64::total_cmp)) {
        (Some(link), Some(known)) if link < known * LINK_TOLERANCE => Some(format!(
            "link {:.0} Gb/s, fleet {:.0}",
            link * 8e-9,
            known * 8e-9
        )),
        _ => None,
    }
}

/// Abbreviates the engine, operation and size of an entry's point.
fn short_name(entry: &BaselineEntry) -> String {
    let part = |key: &str| entry.part.get(key).map(String::as_str);
    let point: serde_json::Value = serde_json::from_str(&entry.point).unwrap_or_default();
    let size = ["size_bytes", "transfer_bytes", "call_size_bytes"]
        .into_iter()
        .find_map(|key| point.get(key)?.as_u64());
    let words = [
        part("engine").map(str::to_owned),
        part("op").or_else(|| part("phase")).map(str::to_owned),
        part("step").map(str::to_owned),
        size.map(format_size),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    match words.is_empty() {
        true => entry.name.clone(),
        false => words.join(" "),
    }
}

/// Formats a size as in sweeps: 64, 4k, 1M.
fn format_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "k")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}
