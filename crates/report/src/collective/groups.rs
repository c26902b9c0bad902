//! Tables of rank groups that ran concurrently.

use tonnage_collective::bus::bus_factor;
use tonnage_record::CollectiveRecord;
use tonnage_record::body::Part;
use tonnage_record::collective::{BackendRecord, GroupTimes};
use tonnage_units::quantity::human::{exact_size, number};

use crate::derived::GROUP;
use crate::table::TitledTable;

/// One table of groups per backend, with the slowest group marked.
pub fn tables(record: &CollectiveRecord<'_>) -> Vec<TitledTable> {
    let backends = 0..record.body.backends.len();
    let backends = backends.filter_map(|at| record.body.backend(Part::Nth(at)));
    backends
        .filter_map(|backend| table(record, backend))
        .collect()
}

fn table(record: &CollectiveRecord<'_>, backend: &BackendRecord) -> Option<TitledTable> {
    let point = &record.body.point;
    let (grouping, across) = (point.grouping(), point.across);
    let summary = backend.summary.as_ref()?;
    let groups = &summary.group_times;
    let slowest = groups.iter().max_by(|one, other| {
        let (one, other) = (one.call_ns(across), other.call_ns(across));
        one.total_cmp(&other)
    })?;
    // A barrier has no bandwidth.
    let bytes = summary
        .algbw_bytes_per_s
        .map(|_| point.shape().size_bytes() as f64);
    let factor = bus_factor(point.op, grouping.size());
    let line = |it: &GroupTimes| {
        let algbw = bytes.map(|bytes| bytes / it.call_ns(across));
        let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), number);
        vec![
            it.group.to_string(),
            grouping.describe_members(it.group),
            number(it.call_ns(across) * 1e-3),
            rate(algbw),
            rate(algbw.zip(factor).map(|(algbw, factor)| algbw * factor)),
            if it.group == slowest.group {
                "slowest"
            } else {
                ""
            }
            .to_owned(),
        ]
    };
    let header = [
        GROUP.name,
        "Ranks",
        "Time\n(us)",
        "AlgBW\n(GB/s)",
        "BusBW\n(GB/s)",
        "",
    ];
    let rows = groups.iter().map(line);
    let size = exact_size(point.shape().size_bytes());
    let title = format!("groups of {} {size} by {}", point.op, backend.backend);
    Some(TitledTable::headed(header, rows, |column| !matches!(column, 1 | 5)).with_title(title))
}
