//! Draws a check report: one row per figure, then points left out for lack of time, then the one-line reason.

use tonnage_judge::check::CheckReport;
use tonnage_judge::check::entry::EntryVerdict;
use tonnage_judge::check::reason::with_unit;

use super::{NAME_COLUMNS_MAX, drawn, header};
use crate::derived::{
    BASE_FAIL, BASE_HOST, BASE_MEDIAN, BASE_METRIC, BASE_POINT, BASE_WARN, CHECK_MEASURED,
    CHECK_VERDICT, CHECK_WHY,
};
use crate::text::{WIDTH, wrap};

/// Maximum width of a reason within its cell.
const WHY_COLUMNS_MAX: usize = 30;

/// Maximum number of left-out points to name.
const NAMED_MAX: usize = 5;

/// Draws a check report. The last line is the reason.
pub fn page(report: &CheckReport) -> String {
    let mut rows = vec![header(&[
        BASE_HOST,
        BASE_POINT,
        BASE_METRIC,
        CHECK_MEASURED,
        BASE_MEDIAN,
        BASE_WARN,
        BASE_FAIL,
        CHECK_VERDICT,
        CHECK_WHY,
    ])];
    let is_of_one = report.hosts.len() < 2;
    rows.extend(report.entries.iter().map(|entry| row(entry, is_of_one)));
    let mut text = match rows.len() {
        1 => String::new(),
        _ => drawn(rows, &[CHECK_MEASURED, BASE_MEDIAN, BASE_WARN, BASE_FAIL]) + "\n",
    };
    let left = &report.not_measured;
    if !left.is_empty() {
        let named = left.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
        let more = match left.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let line = format!(
            "no time for {} in {} s: {}{more}",
            left.len(),
            report.budget_s,
            named.join("; ")
        );
        text += &(wrap(&line, WIDTH, 4) + "\n");
    }
    if let Some(age) = report.cached_for_s {
        text += &format!("cached: measured {age:.0} s ago\n");
    }
    format!("{text}{}\n", report.reason)
}

fn row(entry: &EntryVerdict, is_of_one: bool) -> Vec<String> {
    let figure = |value| with_unit(&entry.unit, value);
    vec![
        match is_of_one {
            true => String::new(),
            false => wrap(&entry.hosts.join(" "), WHY_COLUMNS_MAX, 0),
        },
        wrap(&entry.name, NAME_COLUMNS_MAX, 0),
        entry.metric.clone(),
        entry.value.map_or_else(|| "-".to_owned(), figure),
        figure(entry.median),
        figure(entry.warn),
        figure(entry.fail),
        entry.verdict.name().to_owned(),
        wrap(entry.why.as_deref().unwrap_or_default(), WHY_COLUMNS_MAX, 0),
    ]
}
