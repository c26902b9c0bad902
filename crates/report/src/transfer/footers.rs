//! Lines below a table of transfers that hold for all of it.

use super::title::same;
use tonnage_plan::transfer::Pacing;
use tonnage_record::{Canary, TransferRecord};
use tonnage_units::quantity::human::{number, size};

use crate::{engine, wire_proof};

/// All lines, in their order.
pub fn lines(records: &[TransferRecord<'_>]) -> Vec<String> {
    let mut lines = engine::lines(records.iter().map(|record| record.record));
    let of_all = [limit(records), canary(records), verified(records)];
    lines.extend(of_all.into_iter().flatten());
    lines.extend(wire_proof::lines(records.iter().copied()));
    lines.extend(remarks(records));
    lines
}

/// Names the upper bounds of the bandwidths, each kind of limit once.
fn limit(records: &[TransferRecord<'_>]) -> Option<String> {
    let limits: Vec<_> = records
        .iter()
        .filter_map(|record| record.limit.as_ref())
        .collect();
    let mut whats: Vec<&str> = limits.iter().map(|limit| limit.what.as_str()).collect();
    whats.sort_unstable();
    whats.dedup();
    let texts = whats.iter().map(|what| {
        let values = limits
            .iter()
            .filter(|limit| limit.what == *what)
            .map(|limit| limit.bytes_per_s);
        let (least, most) = values.fold((f64::INFINITY, 0.0), |(least, most), value| {
            (f64::min(least, value), f64::max(most, value))
        });
        let (least, most) = (number(least * 1e-9), number(most * 1e-9));
        let range = if least == most {
            least
        } else {
            format!("{least} to {most}")
        };
        format!("{range} GB/s ({what})")
    });
    let texts: Vec<_> = texts.collect();
    (!texts.is_empty()).then(|| format!("limit: {}", texts.join("; ")))
}

/// The canaries of all rows together, or why there are none.
fn canary(records: &[TransferRecord<'_>]) -> Option<String> {
    let (mut before, mut after, mut why) = (Vec::new(), Vec::new(), None);
    let mut on = None;
    for record in records {
        match &record.canary {
            Some(Canary::Measured {
                before_ns,
                after_ns,
                cpus,
                ..
            }) => {
                before.push(*before_ns);
                after.push(*after_ns);
                on = Some(*cpus);
            }
            Some(Canary::Skipped { why: reason }) => why = Some(reason),
            None => {}
        }
    }
    match (median(before), median(after), on, why) {
        (Some(before), Some(after), Some([first, second]), _) => Some(format!(
            "canary: a cache line takes {} ns from CPU {first} to CPU {second} before the points and {} ns after \
             (medians)",
            number(before),
            number(after)
        )),
        (_, _, _, Some(why)) => Some(format!("canary: skipped, {why}")),
        _ => None,
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (lower, upper) = (
        values.get(values.len().saturating_sub(1) / 2)?,
        values.get(values.len() / 2)?,
    );
    Some(f64::midpoint(*lower, *upper))
}

fn verified(records: &[TransferRecord<'_>]) -> Option<String> {
    let trials = records.iter().flat_map(|record| &record.body.trials);
    let sum = trials
        .filter_map(|trial| trial.verified_bytes)
        .reduce(u64::saturating_add)?;
    Some(format!("verified: {} checked and right", size(sum)))
}

/// Remarks that hold for the whole table.
fn remarks(records: &[TransferRecord<'_>]) -> impl Iterator<Item = String> {
    let crowd = records.iter().any(|record| {
        let latency = record
            .body
            .summary
            .as_ref()
            .and_then(|summary| summary.latency.as_ref());
        matches!(record.body.point.pacing, Pacing::Batch { .. })
            && latency.is_some()
            && record.body.lanes() > 1
    });
    let crowd = crowd.then(|| {
        "Max BW is n/a: several lanes post batches at once, and the fastest batch of one says nothing about all"
            .to_owned()
    });
    yielding(records).into_iter().chain(crowd)
}

/// Says that workers share CPUs, and from how many on where rows differ in their number.
fn yielding(records: &[TransferRecord<'_>]) -> Option<String> {
    let yields = |record: &&TransferRecord<'_>| record.effective.iter().any(|ranks| ranks.yielding);
    let crowded = records.iter().filter(yields);
    let fewest = crowded.map(|record| record.body.point.workers).min()?;
    let why = "because there are more of them than CPUs";
    Some(match same(records, |point| point.workers) {
        Some(_) => format!("workers yield, {why}"),
        None => format!("workers yield from {fewest} a rank on, {why}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
