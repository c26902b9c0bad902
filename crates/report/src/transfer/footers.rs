//! Lines below a table of transfers that hold for all of it.

use super::title::same;
use tonnage_plan::transfer::Pacing;
use tonnage_record::transfer::Summary;
use tonnage_record::{Canary, TransferRecord};
use tonnage_units::quantity::human::{number, size, whole_percent};

use crate::{engine, wire_proof};

/// All lines, in their order.
pub fn lines(records: &[TransferRecord<'_>]) -> Vec<String> {
    let mut lines = engine::lines(records.iter().map(|record| record.record));
    let of_all = [limit(records), canary(records), verified(records)];
    lines.extend(of_all.into_iter().flatten());
    lines.extend(parts(records));
    lines.extend(wire_proof::lines(records.iter().copied()));
    lines.extend(remarks(records));
    lines
}

/// Pairs or rails that a line names; the record has all.
const PARTS_NAMED_MAX: usize = 8;

/// Rails and pairs of the row with the most bandwidth, of which the record has those of all rows.
fn parts(records: &[TransferRecord<'_>]) -> Vec<String> {
    let summaries = records.iter().filter_map(|record| {
        let summary = record.body.summary.as_ref()?;
        let has_parts = summary.rails.len() + summary.pairs.len() > 0;
        has_parts.then_some((record.body.point.size_bytes, summary))
    });
    let bandwidth = |summary: &Summary| summary.bandwidth_bytes_per_s.mean;
    let most = summaries.max_by(|(_, one), (_, other)| bandwidth(one).total_cmp(&bandwidth(other)));
    let Some((size_bytes, summary)) = most else {
        return Vec::new();
    };
    let rails = summary.rails.iter().map(|rail| {
        let device = rail.device.as_ref().map(|name| format!(" ({name})"));
        format!(
            "{}{} {} GB/s in {} of the time",
            rail.rail,
            device.unwrap_or_default(),
            number(rail.busy_bytes_per_s * 1e-9),
            whole_percent(rail.busy_fraction)
        )
    });
    let mut pairs: Vec<_> = summary.pairs.iter().collect();
    if pairs.len() > PARTS_NAMED_MAX {
        pairs.sort_by(|one, other| {
            one.bandwidth_bytes_per_s
                .total_cmp(&other.bandwidth_bytes_per_s)
        });
    }
    let slowest = if pairs.len() > PARTS_NAMED_MAX {
        "the slowest "
    } else {
        ""
    };
    let pairs = pairs.into_iter().map(|pair| {
        let rate = number(pair.bandwidth_bytes_per_s * 1e-9);
        format!("{}-{} {rate} GB/s", pair.initiator, pair.target)
    });
    let size = size(size_bytes.into());
    let lists = [
        ("", "rails", rails.collect::<Vec<_>>()),
        (slowest, "pairs", pairs.collect()),
    ];
    let named = lists.into_iter().filter(|(_, _, parts)| !parts.is_empty());
    named
        .map(|(which, what, mut parts)| {
            let more = parts.len().saturating_sub(PARTS_NAMED_MAX);
            parts.truncate(PARTS_NAMED_MAX);
            if more > 0 {
                parts.push(format!("{more} more in the record"));
            }
            format!("{which}{what} at {size}: {}", parts.join(", "))
        })
        .collect()
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
            && record.body.batches_at_once() > 1
    });
    let crowd = crowd.then(|| {
        "Max BW is n/a: several batches are under way at once, and the fastest one says nothing about all of them"
            .to_owned()
    });
    let crowd = yielding(records).into_iter().chain(crowd);
    crowd.chain(told(records))
}

/// Remarks of the records, each said once.
fn told(records: &[TransferRecord<'_>]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for remark in records.iter().flat_map(|record| &record.record.remarks) {
        if !all.contains(remark) {
            all.push(remark.clone());
        }
    }
    all
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
