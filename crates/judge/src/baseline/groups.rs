//! Groups the rows of a point by host kind, devices and link speed.

use tonnage_record::Outcome;
use tonnage_record::figures::Row;

use super::figures::RunValue;
use super::host_kind::{KindFacts, LINK_TOLERANCE, carriers, hosts_of, kind_of_record, off_path};
use crate::keys::KeyNames;
use crate::matching::SidePoint;

/// Rows of a point from equal hosts: same kind, same devices, same link speed.
pub(super) struct RowGroup<'a> {
    pub facts: KindFacts,
    pub device: Option<String>,
    pub link_bytes_per_s: Option<f64>,
    pub rows: Vec<Row<'a>>,
}

impl<'a> RowGroup<'a> {
    /// Returns this group with only the rows of hosts that have a run.
    pub(super) fn of_hosts(&self, run_values: &[RunValue]) -> Self {
        let is_kept = |row: &&Row<'a>| {
            let host = hosts_of(row.record);
            run_values.iter().any(|run| run.host == host)
        };
        Self {
            facts: self.facts.clone(),
            device: self.device.clone(),
            link_bytes_per_s: self.link_bytes_per_s,
            rows: self.rows.iter().filter(is_kept).copied().collect(),
        }
    }
}

/// Groups a point's measured rows by host kind, devices and link speed. Runs that bypassed the named device are left
/// out; the second value gives the reason.
pub(super) fn groups<'a>(
    point: &SidePoint<'a>,
    matched: &KeyNames,
) -> (Vec<RowGroup<'a>>, Option<String>) {
    let mut groups: Vec<RowGroup<'a>> = Vec::new();
    let mut off_path_reason = None;
    let measured = |row: &&Row<'_>| row.record.outcome == Outcome::Measured;
    for row in point.rows.iter().filter(measured) {
        if let Some(why) = off_path(row) {
            off_path_reason = Some(format!("runs off path are left out: {why}"));
            continue;
        }
        let facts = kind_of_record(row.record, matched);
        let (device, link_bytes_per_s) = carriers(row);
        let known = groups.iter_mut().find(|group| {
            group.facts == facts
                && group.device == device
                && group.link_bytes_per_s == link_bytes_per_s
        });
        match known {
            Some(group) => group.rows.push(*row),
            None => groups.push(RowGroup {
                facts,
                device,
                link_bytes_per_s,
                rows: vec![*row],
            }),
        }
    }
    (groups, off_path_reason)
}

/// Returns the group with the fastest links among those with the same host kind and devices. `None` if this group's
/// links are as fast.
pub(super) fn find_faster_links<'g, 'a>(
    groups: &'g [RowGroup<'a>],
    own: &RowGroup<'_>,
) -> Option<&'g RowGroup<'a>> {
    let alike = groups
        .iter()
        .filter(|other| other.facts == own.facts && other.device == own.device);
    let speed = |group: &RowGroup<'_>| group.link_bytes_per_s.unwrap_or(0.0);
    let fastest = alike.max_by(|left, right| speed(left).total_cmp(&speed(right)))?;
    (own.link_bytes_per_s? < speed(fastest) * LINK_TOLERANCE).then_some(fastest)
}
