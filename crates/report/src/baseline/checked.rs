//! Draws a check report: the result, one row per figure, points skipped for lack of time, then the reason on one line.

use tonnage_judge::check::entry::EntryVerdict;
use tonnage_judge::check::nodelist::fold_names;
use tonnage_judge::check::reason::{with_unit, worst};
use tonnage_judge::check::{CheckReport, CheckVerdict};
use tonnage_units::quantity::human::whole_percent;

use super::cases::Cases;
use super::{NAME_COLUMNS_MAX, drawn, header};
use crate::derived::{
    BASE_DEVICE, BASE_FAIL, BASE_HOST, BASE_MEDIAN, BASE_POINT, BASE_WARN, CHECK_MEASURED,
    CHECK_WHY, METRIC, VERDICT,
};
use crate::result::{ReportResult, ResultWord};
use crate::text::{WIDTH, counted, wrap};

/// Maximum width of a reason within its cell.
const WHY_COLUMNS_MAX: usize = 30;

/// Maximum number of left-out points to name.
const NAMED_MAX: usize = 5;

/// Draws a check report. The last line is the reason.
pub fn page(report: &CheckReport) -> String {
    let mut text = result(report).plain(WIDTH) + "\n";
    let entries = report.entries.iter();
    let cases = entries.map(|it| (it.name.as_str(), it.metric.as_str(), it.unit.as_str()));
    let cases = Cases::new(cases);
    let is_of_one = report.hosts.len() < 2;
    let mut rows = vec![header(&[
        BASE_HOST,
        BASE_POINT,
        BASE_DEVICE,
        METRIC,
        CHECK_MEASURED,
        BASE_MEDIAN,
        BASE_WARN,
        BASE_FAIL,
        VERDICT,
        CHECK_WHY,
    ])];
    let entries = report.entries.iter();
    rows.extend(entries.map(|entry| row(entry, &cases, is_of_one)));
    if rows.len() > 1 {
        text += &cases.line();
        text += &drawn(rows, &[CHECK_MEASURED, BASE_MEDIAN, BASE_WARN, BASE_FAIL]);
    }
    let left = &report.not_measured;
    if !left.is_empty() {
        let named = left.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
        let more = match left.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let line = format!(
            "not run (budget {} s): {}: {}{more}",
            report.budget_s,
            counted(left.len() as u64, "case"),
            named.join("; ")
        );
        text += &(wrap(&line, WIDTH, 4) + "\n");
    }
    format!("{text}{}\n", report.reason)
}

/// The result, with the worst row as its reason.
fn result(report: &CheckReport) -> ReportResult {
    let word = ResultWord::from(report.verdict);
    let figures = counted(report.entries.len() as u64, "figure");
    let result = match (report.verdict, worst(report.verdict, &report.entries)) {
        (CheckVerdict::Pass, _) => word.with(format!("{figures} within {}", report.baseline)),
        (_, Some(entry)) => word.with(of_entry(entry)),
        (verdict, None) => {
            let opening = format!("{verdict}: ");
            let reason = report.reason.strip_prefix(&opening);
            word.with(reason.unwrap_or(&report.reason))
        }
    };
    let counts = CheckVerdict::ALL.into_iter().filter_map(|verdict| {
        let own = report.entries.iter().filter(|it| it.verdict == verdict);
        let count = own.count();
        (count > 0).then(|| format!("{count} {verdict}"))
    });
    let counts: Vec<String> = counts.collect();
    let result = match report.entries.len() > 1 && report.verdict != CheckVerdict::Pass {
        true => result.then(format!("{figures}: {}", counts.join(", "))),
        false => result,
    };
    match report.cached_for_s {
        Some(age_s) => result.then(format!("cached result, {age_s:.0} s old")),
        None => result,
    }
}

/// Describes an entry with its distance from the median, or with the reason why it was not measured.
fn of_entry(entry: &EntryVerdict) -> String {
    let hosts = match entry.hosts.is_empty() {
        true => String::new(),
        false => fold_names(entry.hosts.iter().map(String::as_str)) + ": ",
    };
    let figure = |value| with_unit(&entry.unit, value);
    let Some(value) = entry.value.filter(|_| entry.why.is_none()) else {
        let why = entry.why.as_deref().unwrap_or("not measured");
        return match entry.is_of_device() {
            true => format!("{hosts}{why}"),
            false => format!("{hosts}{}: {why}", entry.name),
        };
    };
    let (verb, threshold) = match entry.verdict {
        CheckVerdict::Warn => ("warns", entry.warn),
        _ => ("fails", entry.fail),
    };
    let side = match entry.is_high_better() {
        true => "below",
        false => "above",
    };
    let tries = match entry.tries.len() {
        0 | 1 => String::new(),
        tries => format!("; best of {tries} tries"),
    };
    format!(
        "{hosts}{} {}, {} the median {}; {verb} {side} {}{tries}",
        entry.name,
        figure(value),
        distance(entry, value),
        figure(entry.median),
        figure(threshold)
    )
}

/// The distance from the median, such as "27 % below".
fn distance(entry: &EntryVerdict, value: f64) -> String {
    let part = value / entry.median - 1.0;
    let side = if part < 0.0 { "below" } else { "above" };
    format!("{} {side}", whole_percent(part.abs()))
}

fn row(entry: &EntryVerdict, cases: &Cases, is_of_one: bool) -> Vec<String> {
    let figure = |value| cases.figure(&entry.unit, value);
    let side = if entry.is_high_better() { '<' } else { '>' };
    // Entries for devices have a verdict but no measured value.
    let of_point = |text: String| match entry.is_of_device() {
        true => "-".to_owned(),
        false => text,
    };
    let why = match (&entry.why, entry.value, entry.verdict) {
        (Some(why), ..) => why.clone(),
        (None, Some(value), CheckVerdict::Warn | CheckVerdict::Fail) => {
            distance(entry, value) + " median"
        }
        _ => String::new(),
    };
    vec![
        match is_of_one {
            true => String::new(),
            false => wrap(&entry.hosts.join(" "), WHY_COLUMNS_MAX, 0),
        },
        wrap(&cases.name(&entry.name), NAME_COLUMNS_MAX, 0),
        entry.device.clone().unwrap_or_default(),
        cases.metric(&entry.metric),
        entry.value.map_or_else(|| "-".to_owned(), figure),
        of_point(figure(entry.median)),
        of_point(format!("{side} {}", figure(entry.warn))),
        of_point(format!("{side} {}", figure(entry.fail))),
        entry.verdict.name().to_owned(),
        wrap(&why, WHY_COLUMNS_MAX, 0),
    ]
}
