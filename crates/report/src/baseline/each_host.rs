//! Draws a check of several hosts: one row per group of hosts with the same result, then the one-line reason.

use tonnage_judge::check::each_host::EachHostReport;

use super::{drawn, header};
use crate::derived::{BASE_HOST, CHECK_VERDICT, CHECK_WHY};
use crate::text::wrap;

/// Maximum width of host names within their cell.
const HOSTS_COLUMNS_MAX: usize = 36;

/// Maximum width of a reason within its cell.
const WHY_COLUMNS_MAX: usize = 60;

/// Draws the report, the worst verdict first. Its last line is the reason.
pub fn page(report: &EachHostReport) -> String {
    let mut rows = vec![header(&[BASE_HOST, CHECK_VERDICT, CHECK_WHY])];
    rows.extend(report.grouped().into_iter().map(|group| {
        vec![
            wrap(&group.hosts, HOSTS_COLUMNS_MAX, 0),
            group.verdict.name().to_owned(),
            wrap(group.why, WHY_COLUMNS_MAX, 0),
        ]
    }));
    format!("{}\n{}\n", drawn(rows, &[]), report.reason)
}
