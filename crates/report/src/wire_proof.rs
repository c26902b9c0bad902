//! Proof of path in tables: devices that the payload crossed, missing proof, and trouble on the path.

use std::collections::BTreeMap;

use tonnage_machine::counters::{Counters, Reordering, is_trouble};
use tonnage_record::read::final_attempts;
use tonnage_record::wire_proof::TcpPath;
use tonnage_record::{Outcome, Record, TransferRecord, WireProof};

use crate::text::distinct;

/// Maximum number of devices to name. More are only counted.
const NAMED_MAX: usize = 6;

/// Maximum number of counters to list. The records have the rest.
const TROUBLES_MAX: usize = 8;

/// Why the path of a measured point is not proven; `None` if it is proven, or if the engine names no device.
pub fn unproven(record: TransferRecord<'_>) -> Option<String> {
    let path = record.wire_proof.as_ref().filter(|path| !path.crossed)?;
    Some(format!("path not proven: {}", path.why.join("; ")))
}

/// The transfer of a record. For a search, this is the winner's last run.
fn transfer(record: &Record) -> Option<TransferRecord<'_>> {
    let run = || Some(&record.tune()?.winner.as_ref()?.run);
    let body = record.transfer().or_else(run)?;
    Some(TransferRecord { record, body })
}

/// Error message of `--require-path`: the number of measured points without proof, and the reason for the first one.
/// `None` if all points are proven. File experiments move no data between ranks, so they need no proof.
pub fn lacks_proof(records: &[Record]) -> Option<String> {
    let records = final_attempts(records);
    let measured = records
        .iter()
        .filter(|record| record.outcome == Outcome::Measured)
        .filter_map(transfer);
    let is_unproven =
        |record: &TransferRecord<'_>| record.wire_proof.as_ref().is_none_or(|path| !path.crossed);
    let first = measured.clone().find(is_unproven)?;
    let why = unproven(first).unwrap_or_else(|| {
        format!(
            "engine {} names no device that could count its payload: leave --require-path out, or use an engine that \
             goes through a network device",
            first.body.point.engine
        )
    });
    Some(format!(
        "--require-path: {} of {} measured points have no proof of their path. {} {} B: {why}",
        measured.clone().filter(is_unproven).count(),
        measured.count(),
        first.body.point.op.name(),
        first.body.point.slots.size_bytes
    ))
}

/// Lines that apply to all rows of a table.
pub fn lines<'a>(records: impl Iterator<Item = TransferRecord<'a>> + Clone) -> Vec<String> {
    let paths = records.filter_map(|record| record.record.wire_proof.as_ref());
    crossed(paths.clone())
        .into_iter()
        .chain(trouble(paths.clone()))
        .chain(reordering(paths))
        .collect()
}

/// Devices that the payload crossed; `None` unless the path of every point is proven.
fn crossed<'a>(paths: impl Iterator<Item = &'a WireProof> + Clone) -> Option<String> {
    if !paths.clone().all(|path| path.crossed) {
        return None;
    }
    let most = paths.clone().map(|path| path.devices_crossed).max()?;
    // Records of large runs list only devices with errors.
    let all_listed = paths
        .clone()
        .all(|path| path.devices.len() == path.devices_named as usize);
    let devices = paths.flat_map(|path| &path.devices);
    let titles = distinct(devices.map(|device| format!("{} of {}", device.title(), device.host)));
    let titles = if !all_listed || titles.len() > NAMED_MAX {
        format!("{most} devices")
    } else {
        titles.join(", ")
    };
    Some(format!(
        "path: the payload crossed {titles}; their counters grew by at least the payload"
    ))
}

/// Sums up error counters over all points.
fn trouble<'a>(paths: impl Iterator<Item = &'a WireProof> + Clone) -> Option<String> {
    let points = paths.clone().count();
    let troubled = paths.clone().filter(|path| path.troubles() > 0).count();
    let mut sums: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for (place, name, moved) in paths.flat_map(places) {
        let sum = sums.entry((place, name)).or_default();
        *sum = sum.saturating_add(moved);
    }
    let left = sums.len().saturating_sub(TROUBLES_MAX);
    let mut texts: Vec<String> = sums
        .iter()
        .take(TROUBLES_MAX)
        .map(|((place, name), moved)| format!("{place} counted {moved} {name}"))
        .collect();
    if left > 0 {
        texts.push(format!("and {left} more, listed in the records"));
    }
    (!texts.is_empty()).then(|| {
        format!(
            "trouble on the path of {troubled} of {points} points, other traffic of these hosts included: {}",
            texts.join(", ")
        )
    })
}

/// Error counters that increased: where, which, and by how much.
fn places(path: &WireProof) -> impl Iterator<Item = (String, &str, u64)> {
    let devices = path.devices.iter().flat_map(|device| {
        let place = format!("{} of {}", device.title(), device.host);
        device
            .counters
            .iter()
            .map(move |(name, moved)| (place.clone(), name.as_str(), *moved))
    });
    let tcp = path.tcp.iter().flat_map(|tcp| {
        let place = format!("TCP of {}", tcp.host);
        tcp.troubles()
            .map(move |(name, moved)| (place.clone(), name.as_str(), *moved))
    });
    devices
        .filter(|(_, name, moved)| *moved > 0 && is_trouble(name))
        .chain(tcp)
}

/// Distinguishes reordering from loss on each host with TCP retransmissions, over all points.
fn reordering<'a>(paths: impl Iterator<Item = &'a WireProof>) -> Vec<String> {
    let mut hosts: BTreeMap<&str, Counters> = BTreeMap::new();
    let is_reordered = |tcp: &&TcpPath| {
        Reordering::from_counters(&tcp.counters).is_some_and(|found| found.is_likely())
    };
    for tcp in paths.flat_map(|path| &path.tcp).filter(is_reordered) {
        let sums = hosts.entry(&tcp.host).or_default();
        for (name, moved) in &tcp.counters {
            let sum = sums.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*moved);
        }
    }
    let line = |(host, sums): (&str, Counters)| {
        let found = Reordering::from_counters(&sums)?;
        let verdict = match found.is_all() {
            true => "their receivers had all of them already, so it was reordering, not loss",
            false => "reordering may explain them, and loss is not proven",
        };
        Some(format!(
            "TCP of {host} sent {} segments again: {verdict} ({} reorderings, {} duplicates reported by DSACK)",
            found.retransmitted, found.reorderings, found.duplicates
        ))
    };
    hosts.into_iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    /// Lines for a point with these TCP counters on its first host.
    fn lines_for(counters: &[(&str, u64)]) -> String {
        let mut records = samples::paths();
        records.truncate(1);
        let path = records[0].wire_proof.as_mut().unwrap();
        path.devices[1].counters.remove("rx_dropped");
        path.tcp[0].counters = counters
            .iter()
            .map(|(name, moved)| ((*name).to_owned(), *moved))
            .collect();
        let records: Vec<_> = records.iter().filter_map(Record::as_transfer).collect();
        lines(records.iter().copied()).join("\n")
    }

    #[test]
    fn retransmits_of_received_segments_are_not_loss() {
        let counters = [
            ("RetransSegs", 1734),
            ("TCPFastRetrans", 1734),
            ("TCPSACKReorder", 9),
            ("TCPDSACKRecv", 1734),
        ];
        let text = lines_for(&counters);
        assert!(!text.contains("trouble on the path"), "{text}");
        let expected = "reordering, not loss (9 reorderings, 1734 duplicates reported by DSACK)";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn loss_stays_trouble() {
        let lost = lines_for(&[("RetransSegs", 12), ("TCPFastRetrans", 12)]);
        assert!(lost.contains("counted 12 RetransSegs"), "{lost}");
        assert!(!lost.contains("reordering"), "{lost}");
        // If only a few retransmissions were duplicates, the others still count as loss.
        let some = lines_for(&[("RetransSegs", 12), ("TCPDSACKRecv", 5)]);
        assert!(some.contains("counted 12 RetransSegs"), "{some}");
        // Reordering was observed, and no loss is proven.
        let both = lines_for(&[("RetransSegs", 12), ("TCPTSReorder", 5)]);
        assert!(!both.contains("trouble on the path"), "{both}");
        assert!(both.contains("loss is not proven"), "{both}");
        // Other problems are not attributed to reordering.
        let late = lines_for(&[("RetransSegs", 3), ("TCPTimeouts", 1), ("TCPDSACKRecv", 3)]);
        assert!(late.contains("counted 1 TCPTimeouts"), "{late}");
        // Reordering without retransmissions needs no remark.
        assert!(!lines_for(&[("TCPSACKReorder", 9)]).contains("reordering"));
    }
}
