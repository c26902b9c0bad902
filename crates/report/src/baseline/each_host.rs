//! Draws a check of several hosts: the result, one row per group of hosts with equal results, then the reason on one
//! line.

use tonnage_judge::check::each_host::EachHostReport;

use super::{drawn, header};
use crate::derived::{BASE_HOST, CHECK_WHY, VERDICT};
use crate::result::ResultWord;
use crate::text::{WIDTH, wrap};

/// Maximum width of host names within their cell.
const HOSTS_COLUMNS_MAX: usize = 36;

/// Maximum width of a reason within its cell.
const WHY_COLUMNS_MAX: usize = 60;

/// Draws the report with the worst verdict first. The last line is the reason.
pub fn page(report: &EachHostReport) -> String {
    let own = report
        .each
        .iter()
        .filter(|one| one.verdict == report.verdict);
    let count = format!(
        "{} of {} hosts: {}",
        own.count(),
        report.each.len(),
        report.verdict
    );
    let word = ResultWord::from(report.verdict);
    let result = match report.grouped().first() {
        Some(group) => word.with(format!("{count}; {}: {}", group.hosts, group.why)),
        None => word.with(count),
    };
    let mut rows = vec![header(&[BASE_HOST, VERDICT, CHECK_WHY])];
    rows.extend(report.grouped().into_iter().map(|group| {
        vec![
            wrap(&group.hosts, HOSTS_COLUMNS_MAX, 0),
            group.verdict.name().to_owned(),
            wrap(group.why, WHY_COLUMNS_MAX, 0),
        ]
    }));
    let rows = drawn(rows, &[]);
    format!("{}\n{rows}\n{}\n", result.plain(WIDTH), report.reason)
}
