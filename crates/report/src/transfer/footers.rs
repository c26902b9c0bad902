//! Lines below a table of transfers that apply to all its rows.

use super::title::{same, setup};
use tonnage_plan::point::Traffic;
use tonnage_plan::transfer::Pacing;
use tonnage_record::figures::{Figure, Row, figure_by_field};
use tonnage_record::spread::median;
use tonnage_record::transfer::Summary;
use tonnage_record::{Canary, TransferRecord};
use tonnage_units::quantity::human::{number, size, whole_percent};

use crate::column::cell_for_people;
use crate::text::{distinct, extremes};
use crate::{driver_start, engine, filling, wire_proof};

/// Whether a record's pairs are shown in a grid or a table.
fn has_grid(record: &TransferRecord<'_>) -> bool {
    matches!(
        record.body.point.roles.traffic,
        Traffic::Matrix | Traffic::File
    )
}

/// All lines, in order. `distinguishing` are the columns that identify rows.
pub fn lines(records: &[TransferRecord<'_>], distinguishing: &[&str]) -> Vec<String> {
    let mut lines = engine::lines(records.iter().map(|record| record.record));
    let of_all = [bound(records), canary(records), verified(records)];
    lines.extend(of_all.into_iter().flatten());
    lines.extend(filling::lines(records.iter().map(|record| record.record)));
    lines.extend(driver_start::line(records));
    lines.extend(parts(records, distinguishing));
    lines.extend(wire_proof::lines(records.iter().copied()));
    lines.extend(remarks(records));
    let first = records.first();
    lines.extend(first.map(|first| setup(&first.body.point, records)));
    lines
}

/// Maximum number of pairs or rails per line. The record lists all of them.
const PARTS_NAMED_MAX: usize = 8;

/// Rails and pairs of the row with the highest bandwidth. For other rows, see the records.
fn parts(records: &[TransferRecord<'_>], distinguishing: &[&str]) -> Vec<String> {
    let summaries = records.iter().filter_map(|record| {
        let summary = record.body.summary.as_ref()?;
        let pairs = if has_grid(record) {
            0
        } else {
            summary.pairs.len()
        };
        let has_parts = summary.rails.len() + pairs > 0;
        has_parts.then_some((record, summary))
    });
    let bandwidth = |summary: &Summary| summary.bandwidth_bytes_per_s.mean;
    let most = summaries.max_by(|(_, one), (_, other)| bandwidth(one).total_cmp(&bandwidth(other)));
    let Some((record, summary)) = most else {
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
    let mut pairs: Vec<_> = match has_grid(record) {
        true => Vec::new(),
        false => summary.pairs.iter().collect(),
    };
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
    let row = row_name(record, records, distinguishing);
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
            format!("{which}{what} at {row}: {}", parts.join(", "))
        })
        .collect()
}

/// Name of a row: its size, and columns that distinguish it from other rows of that size.
pub(super) fn row_name(
    record: &TransferRecord<'_>,
    records: &[TransferRecord<'_>],
    distinguishing: &[&str],
) -> String {
    let size_bytes = record.body.point.slots.size_bytes;
    let cell = |record: &TransferRecord<'_>, figure: &Figure| {
        let row = Row::all_of_record(record.record).into_iter().next();
        row.map(|row| cell_for_people(figure, (figure.value)(&row)))
    };
    let alike = |other: &&TransferRecord<'_>| other.body.point.slots.size_bytes == size_bytes;
    let words = distinguishing.iter().filter_map(|field| {
        let figure = figure_by_field(field)?;
        let own = cell(record, figure)?;
        let mut others = records.iter().filter(alike);
        if others.all(|other| cell(other, figure).as_ref() == Some(&own)) {
            return None;
        }
        // Print no unit after a word such as "full".
        let is_number = own.starts_with(|first: char| first.is_ascii_digit());
        let (name, unit) = figure.name.split_once(" (").unwrap_or((figure.name, ""));
        let unit = if is_number {
            unit.trim_end_matches(')')
        } else {
            ""
        };
        Some(format!("{name} {own} {unit}").trim_end().to_owned())
    });
    let words: Vec<String> = words.collect();
    let size = size(size_bytes.into());
    match &words[..] {
        [] => size,
        words => format!("{size} ({})", words.join(", ")),
    }
}

/// Lists the upper bounds of the bandwidths, one entry per kind of bound.
fn bound(records: &[TransferRecord<'_>]) -> Option<String> {
    let bounds: Vec<_> = records
        .iter()
        .filter_map(|record| record.bound.as_ref())
        .collect();
    let mut whats: Vec<&str> = bounds.iter().map(|bound| bound.what.as_str()).collect();
    whats.sort_unstable();
    whats.dedup();
    let texts = whats.iter().map(|what| {
        let values = bounds
            .iter()
            .filter(|bound| bound.what == *what)
            .map(|bound| bound.bytes_per_s);
        let (least, most) = extremes(values);
        let (least, most) = (number(least * 1e-9), number(most * 1e-9));
        let range = if least == most {
            least
        } else {
            format!("{least} to {most}")
        };
        format!("{range} GB/s ({what})")
    });
    let texts: Vec<_> = texts.collect();
    (!texts.is_empty()).then(|| format!("bound: {}", texts.join("; ")))
}

/// Summarizes the canaries of all rows, or the reason for missing ones.
fn canary(records: &[TransferRecord<'_>]) -> Option<String> {
    let (mut before, mut after, mut why) = (Vec::new(), Vec::new(), None);
    let (mut on, mut harmless) = (None, 0);
    for record in records {
        match &record.canary {
            Some(Canary::Measured {
                before_ns,
                after_ns,
                cpus,
                changed,
            }) => {
                harmless += usize::from(*changed && record.canary_doubt().is_none());
                before.push(*before_ns);
                after.push(*after_ns);
                on = Some(*cpus);
            }
            Some(Canary::Skipped { why: reason }) => why = Some(reason),
            None => {}
        }
    }
    match (median(&before), median(&after), on, why) {
        (Some(before), Some(after), Some([first, second]), _) => Some(format!(
            "canary: a cache line takes {} ns from CPU {first} to CPU {second} before the points and {} ns after \
             (medians){}",
            number(before),
            number(after),
            match harmless {
                0 => String::new(),
                _ => format!(
                    "; it changed by more than a fifth around {harmless} of {} points, but their trials agree",
                    records.len()
                ),
            }
        )),
        (_, _, _, Some(why)) => Some(format!("canary: skipped, {why}")),
        _ => None,
    }
}

fn verified(records: &[TransferRecord<'_>]) -> Option<String> {
    let trials = records.iter().flat_map(|record| &record.body.trials);
    let mut sums = None;
    for trial in trials {
        if let Some(bytes) = trial.verified_bytes {
            let (verified, moved) = sums.unwrap_or((0u64, 0u64));
            let moved = moved.saturating_add(trial.payload_bytes);
            sums = Some((verified.saturating_add(bytes), moved));
        }
    }
    let (verified, moved) = sums?;
    let (verified, moved, is_all) = (size(verified), size(moved), verified >= moved);
    let point = &records.first()?.body.point;
    Some(
        match (point.verify.is_each() || point.op.is_atomic(), is_all) {
            (true, true) => format!("verified: every operation, all of {moved}"),
            (true, false) => format!("verified: every operation, {verified} of {moved}"),
            (false, true) => format!("verified: each slot had one visit, all of {moved}"),
            (false, false) => {
                format!(
                    "verified: last visit of each slot, {verified} of {moved}; --verify=each compares every operation"
                )
            }
        },
    )
}

/// Remarks that apply to the whole table.
fn remarks(records: &[TransferRecord<'_>]) -> impl Iterator<Item = String> {
    let overlapping = records.iter().any(|record| {
        let latency = record
            .body
            .summary
            .as_ref()
            .and_then(|summary| summary.latency.as_ref());
        matches!(record.body.point.pacing, Pacing::Batch { .. })
            && latency.is_some()
            && record.body.batches_at_once() > 1
    });
    let overlapping = overlapping.then(|| {
        "Max BW is missing: several batches are under way at once, and the fastest one does not represent all of them"
            .to_owned()
    });
    let overlapping = yielding(records).into_iter().chain(overlapping);
    let remarks = records.iter().flat_map(|record| &record.record.remarks);
    overlapping.chain(distinct(remarks.cloned()))
}

/// Remark that threads share CPUs, with the smallest affected number of threads if rows differ.
fn yielding(records: &[TransferRecord<'_>]) -> Option<String> {
    let yields = |record: &&TransferRecord<'_>| record.effective.iter().any(|ranks| ranks.yielding);
    let crowded = records.iter().filter(yields);
    let fewest = crowded.map(|record| record.body.point.threads).min()?;
    let why = "because there are more of them than CPUs";
    Some(match same(records, |point| point.threads) {
        Some(_) => format!("threads yield, {why}"),
        None => format!("threads yield from {fewest} a rank on, {why}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use tonnage_engine::paths::Rails;
    use tonnage_record::Record;
    use tonnage_record::transfer::Rail;

    /// Two rows: a plain one, modified by `change`, and one striped over rails.
    fn striped(change: fn(&mut tonnage_plan::transfer::TransferPoint)) -> Vec<String> {
        let rail = |rail| Rail {
            rail,
            device: Some(format!("eth{rail}")),
            payload_bytes: 1,
            busy_bytes_per_s: 1e9,
            busy_fraction: 0.5,
        };
        let row = |stripe: bool| {
            let mut record: Record = samples::streams()[0].clone();
            let body = samples::transfer(&mut record);
            if stripe {
                body.point.division.rails = Rails::Stripe;
                body.summary.as_mut().unwrap().rails = vec![rail(0), rail(1)];
            } else {
                change(&mut body.point);
            }
            record
        };
        let records = [row(false), row(true)];
        let records: Vec<_> = records.iter().filter_map(Record::as_transfer).collect();
        parts(&records, &["depth", "rails", "chunk_bytes"])
    }

    #[test]
    fn rails_name_their_row_where_others_have_its_size() {
        let rails =
            "0 (eth0) 1.00 GB/s in 50 % of the time, 1 (eth1) 1.00 GB/s in 50 % of the time";
        let named = striped(|_| {});
        assert_eq!(named, [format!("rails at 4 KiB (Rails stripe): {rails}")]);
        let named = striped(|point| point.pacing = Pacing::Stream { depth: 2 });
        assert_eq!(
            named,
            [format!("rails at 4 KiB (Depth 1, Rails stripe): {rails}")]
        );
        // If the sizes differ, the size alone identifies the row.
        let named = striped(|point| point.slots.size_bytes = 1);
        assert_eq!(named, [format!("rails at 4 KiB: {rails}")]);
    }
}
