//! The one-line reason that ends a check's output.

use tonnage_units::quantity::human::{duration, number, rate};

use super::entry::EntryVerdict;
use super::verdict::CheckVerdict;

/// Longest line, in bytes.
pub const REASON_BYTES_MAX: usize = 80;

/// Returns the reason for several entries: that of the worst one.
pub fn reason(verdict: CheckVerdict, entries: &[EntryVerdict], not_measured: usize) -> String {
    match (verdict, worst(verdict, entries)) {
        (CheckVerdict::Pass, Some(_)) => {
            let left = match not_measured {
                0 => String::new(),
                some => format!(", {some} left out for time"),
            };
            let figures = match entries.len() {
                1 => "1 figure".to_owned(),
                several => format!("{several} figures"),
            };
            truncate(&format!("pass: {figures} within the baseline{left}"))
        }
        (CheckVerdict::Skip, _) | (_, None) => {
            truncate(&format!("{verdict}: nothing to compare with the baseline"))
        }
        (_, Some(worst)) => entry_reason(verdict, worst),
    }
}

/// Returns the entry with this verdict that is furthest from its threshold.
pub fn worst(verdict: CheckVerdict, entries: &[EntryVerdict]) -> Option<&EntryVerdict> {
    let of_verdict = entries.iter().filter(|entry| entry.verdict == verdict);
    of_verdict.min_by(|left, right| left.ratio().total_cmp(&right.ratio()))
}

/// Returns the reason for one entry.
fn entry_reason(verdict: CheckVerdict, entry: &EntryVerdict) -> String {
    let hosts = match entry.hosts.len() {
        // The entry's reason already names the slow hosts.
        _ if !entry.blamed.is_empty() => String::new(),
        0 | 1 => String::new(),
        2 | 3 => format!("{} ", entry.hosts.join(",")),
        more => format!("{more} hosts "),
    };
    match (entry.value, &entry.why) {
        (Some(value), None) => {
            let threshold = match verdict {
                CheckVerdict::Warn => entry.warn,
                _ => entry.fail,
            };
            let word = match entry.is_high_better() {
                true => "least",
                false => "most",
            };
            let [value, median, threshold] = in_unit(&entry.unit, [value, entry.median, threshold]);
            truncate(&format!(
                "{verdict}: {hosts}{} {value}, fleet {median}, {word} {threshold}",
                entry.short
            ))
        }
        // The reason for a device already contains the device's name.
        (None, Some(why)) if why.contains(&entry.name) => {
            truncate(&format!("{verdict}: {hosts}{why}"))
        }
        (_, Some(why)) => truncate(&format!("{verdict}: {hosts}{}: {why}", entry.short)),
        (None, None) => truncate(&format!("{verdict}: {hosts}{}", entry.short)),
    }
}

/// Formats a value with its unit.
pub fn with_unit(unit: &str, value: f64) -> String {
    match unit {
        "bytes/s" => format!("{} GB/s", number(value * 1e-9)),
        "ns" => duration(value),
        "1/s" => rate(value),
        _ => number(value),
    }
}

/// Formats three values in one unit. Only the first value shows it.
fn in_unit(unit: &str, values: [f64; 3]) -> [String; 3] {
    match unit {
        "bytes/s" => {
            let [value, median, threshold] = values.map(|value| number(value * 1e-9));
            [format!("{value} GB/s"), median, threshold]
        }
        other => values.map(|value| with_unit(other, value)),
    }
}

/// Removes control characters and truncates to [`REASON_BYTES_MAX`] bytes.
pub fn truncate(text: &str) -> String {
    truncate_before(text, "")
}

/// Like [`truncate`], but always keeps `end` whole.
pub fn truncate_before(text: &str, end: &str) -> String {
    let bytes_max = REASON_BYTES_MAX.saturating_sub(end.len());
    let plain: String = text
        .chars()
        .map(|it| if it.is_control() { ' ' } else { it })
        .collect();
    if plain.len() <= bytes_max {
        return plain + end;
    }
    let mut at = bytes_max.saturating_sub('…'.len_utf8());
    while !plain.is_char_boundary(at) {
        at -= 1;
    }
    format!("{}…{end}", &plain[..at])
}
