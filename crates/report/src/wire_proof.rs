//! Wire proof in tables: which devices the payload crossed, where that is not proven, and what went wrong on the way.

use std::collections::BTreeMap;

use tonnage_machine::counters::is_trouble;
use tonnage_record::read::final_attempts;
use tonnage_record::{Outcome, Record, TransferRecord, WireProof};

/// Devices above which they are counted instead of named.
const NAMED_MAX: usize = 6;

/// Counters above which the rest is left to the records.
const TROUBLES_MAX: usize = 8;

/// Reason why the path of a measured point is not proven; `None` where it is, and where its engine names no device.
pub fn unproven(record: TransferRecord<'_>) -> Option<String> {
    let path = record.wire_proof.as_ref().filter(|path| !path.crossed)?;
    Some(format!("path not proven: {}", path.why.join("; ")))
}

/// The transfer of a record, which for a search is the winner's last run.
fn transfer(record: &Record) -> Option<TransferRecord<'_>> {
    let run = || Some(&record.tune()?.winner.as_ref()?.run);
    let body = record.transfer().or_else(run)?;
    Some(TransferRecord { record, body })
}

/// Message that `--require-path` ends with: how many measured points are not proven, and why the first of them is not.
/// `None` where all are. File experiments move no bytes between ranks, so they have nothing to prove.
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
        first.body.point.size_bytes
    ))
}

/// Lines that hold for all rows of a table together.
pub fn lines<'a>(records: impl Iterator<Item = TransferRecord<'a>> + Clone) -> Vec<String> {
    let paths = records.filter_map(|record| record.record.wire_proof.as_ref());
    crossed(paths.clone())
        .into_iter()
        .chain(trouble(paths))
        .collect()
}

/// The devices that the payload of every point crossed.
fn crossed<'a>(paths: impl Iterator<Item = &'a WireProof> + Clone) -> Option<String> {
    if !paths.clone().all(|path| path.crossed) {
        return None;
    }
    let most = paths.clone().map(|path| path.devices_crossed).max()?;
    // A large run lists only devices with trouble.
    let all_listed = paths
        .clone()
        .all(|path| path.devices.len() == path.devices_named as usize);
    let mut titles: Vec<String> = Vec::new();
    for device in paths.flat_map(|path| &path.devices) {
        let title = format!("{} of {}", device.title(), device.host);
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    let titles = if !all_listed || titles.len() > NAMED_MAX {
        format!("{most} devices")
    } else {
        titles.join(", ")
    };
    Some(format!(
        "path: the payload crossed {titles}, whose counters moved by at least as much"
    ))
}

/// Describes what was counted in all points together that should have stood still.
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
        texts.push(format!("and {left} more, which the records list"));
    }
    (!texts.is_empty()).then(|| {
        format!(
            "trouble on the path of {troubled} of {points} points, other traffic of these hosts included: {}",
            texts.join(", ")
        )
    })
}

/// Counters that moved and should not have: where, which, how far.
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
        tcp.counters
            .iter()
            .map(move |(name, moved)| (place.clone(), name.as_str(), *moved))
    });
    devices
        .chain(tcp)
        .filter(|(_, name, moved)| *moved > 0 && is_trouble(name))
}
