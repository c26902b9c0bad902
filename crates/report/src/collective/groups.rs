//! Tables of rank groups that ran concurrently.

use tonnage_collective::bus::bus_factor;
use tonnage_record::CollectiveRecord;
use tonnage_record::body::Part;
use tonnage_record::collective::{BackendResult, GroupTimes};
use tonnage_units::quantity::human::exact_size;

use crate::column::Column;
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

fn table(record: &CollectiveRecord<'_>, backend: &BackendResult) -> Option<TitledTable> {
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
    let algbw = |it: &GroupTimes| bytes.map(|bytes| bytes / it.call_ns(across) * 1e9);
    let busbw = |it: &GroupTimes| Some(algbw(it)? * factor?);
    let is_slowest = |it: &GroupTimes| match it.group == slowest.group {
        true => "slowest".to_owned(),
        false => String::new(),
    };
    let members = groups.iter().map(|it| grouping.describe_members(it.group));
    let columns = vec![
        Column::numbers(GROUP.name, 1.0, groups.iter().map(|it| it.group)).identifying(),
        Column::words("Ranks", members.collect(), false),
        Column::numbers(
            "Time (us)",
            1e-3,
            groups.iter().map(|it| it.call_ns(across)),
        ),
        Column::numbers("AlgBW (GB/s)", 1e-9, groups.iter().map(algbw)),
        Column::numbers("BusBW (GB/s)", 1e-9, groups.iter().map(busbw)),
        Column::words("", groups.iter().map(is_slowest).collect(), false),
    ];
    let size = exact_size(point.shape().size_bytes());
    let title = format!("groups of {} {size} by {}", point.op, backend.backend);
    Some(TitledTable::of_columns(columns).with_title(title))
}
