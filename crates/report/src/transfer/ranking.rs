//! Compares the rows of a table: each row's rate relative to the first row, the best row, and the cheapest row that is
//! equally good.
//!
//! Rates are message rates. For rows of equal size, they are equivalent to bandwidth.

use tonnage_plan::transfer::Pacing;
use tonnage_record::TransferRecord;
use tonnage_record::figures::{Row, Value, figure_by_field};
use tonnage_record::spread::Spread;
use tonnage_units::quantity::human::number;

use super::footers::row_name;

/// Cells that compare each row with the first row that differs only in `compared` columns. A cell has the ratio of the
/// rates, with the half-width of its 95 % confidence interval. First rows show 1. Empty if no row can be compared.
pub fn ratios_to_first(
    records: &[TransferRecord<'_>],
    compared: &[&str],
    fields: &[&str],
) -> Vec<String> {
    if compared.is_empty() {
        return Vec::new();
    }
    let others: Vec<&str> = fields
        .iter()
        .copied()
        .filter(|field| !compared.contains(field))
        .collect();
    let places: Vec<Vec<Value>> = records
        .iter()
        .map(|record| values(record, &others))
        .collect();
    let cells = records.iter().enumerate().map(|(at, record)| {
        let first = places.iter().position(|place| *place == places[at]);
        let first = first.map_or(record, |first| &records[first]);
        match (rate(record), rate(first)) {
            _ if std::ptr::eq(record, first) => Some("1".to_owned()),
            (Some(own), Some(first)) => Some(ratio(own, first)),
            _ => None,
        }
    });
    let cells: Vec<Option<String>> = cells.collect();
    let is_alone = cells.iter().flatten().all(|cell| cell == "1");
    match is_alone {
        true => Vec::new(),
        false => cells.into_iter().map(Option::unwrap_or_default).collect(),
    }
}

fn values(record: &TransferRecord<'_>, fields: &[&str]) -> Vec<Value> {
    let rows = Row::all_of_record(record.record);
    let figures = fields.iter().filter_map(|field| figure_by_field(field));
    let values = figures.map(|figure| rows.first().map_or(Value::Unknown, figure.value));
    values.collect()
}

/// Message rate of a row; `None` if the user prescribed the rate.
fn rate<'a>(record: &TransferRecord<'a>) -> Option<&'a Spread> {
    let summary = record.body.summary.as_ref()?;
    let is_free = !matches!(record.body.point.pacing, Pacing::Paced { .. });
    (is_free && summary.message_rate_per_s.mean > 0.0).then_some(&summary.message_rate_per_s)
}

/// Ratio of two means with its interval. The relative half-width is √(a² + b²), where a and b are those of the means.
/// This is the first-order error, valid for narrow intervals.
fn ratio(own: &Spread, first: &Spread) -> String {
    let ratio = own.mean / first.mean;
    let parts = own.ci95_fraction().zip(first.ci95_fraction());
    match parts {
        Some((own, first)) => format!("{} ± {}", number(ratio), number(ratio * own.hypot(first))),
        None => number(ratio),
    }
}

/// A row counts as cheaper if its CPU time is below this fraction of the best row's CPU time. Smaller differences also
/// occur between equivalent rows.
const CHEAPER_MAX: f64 = 0.98;

/// Names the row with the highest bandwidth. Other rows of that size are equally good if they are within its interval.
/// Of these, names the row with the least initiator CPU time per operation, and the one with the fewest queue pairs.
/// `None` if fewer than two rows have a free rate: ping-pongs and prescribed rates do not count.
pub fn best(records: &[TransferRecord<'_>], distinguishing: &[&str]) -> Option<String> {
    let rows: Vec<_> = records.iter().filter_map(Candidate::new).collect();
    let best = rows.iter().max_by(|one, other| {
        let bandwidths = [one, other].map(|candidate| candidate.bandwidth.mean);
        bandwidths[0].total_cmp(&bandwidths[1])
    })?;
    if rows.len() < 2 {
        return None;
    }
    let name = |candidate: &Candidate<'_>| row_name(candidate.record, records, distinguishing);
    let rate = number(best.bandwidth.mean * 1e-9);
    let head = format!("best: {rate} GB/s at {}", name(best));
    let alike = |candidate: &&Candidate<'_>| candidate.size_bytes() == best.size_bytes();
    let alike: Vec<_> = rows.iter().filter(alike).collect();
    if alike.len() < 2 {
        return Some(head);
    }
    let Some((ci95, part)) = best.bandwidth.ci95.zip(best.bandwidth.ci95_fraction()) else {
        return Some(format!(
            "{head}; one trial has no interval to compare others with"
        ));
    };
    let interval = format!("its interval, ± {} %", number(part * 100.0));
    let as_good =
        |candidate: &&Candidate<'_>| candidate.bandwidth.mean >= best.bandwidth.mean - ci95;
    let as_good: Vec<_> = alike.into_iter().filter(as_good).collect();
    if as_good.len() == 1 {
        return Some(format!(
            "{head}; clearly best for this size: no other row is within {interval}"
        ));
    }
    let by_cpu =
        |one: &&&Candidate<'_>, other: &&&Candidate<'_>| one.cpu_ns.total_cmp(&other.cpu_ns);
    let cheapest = as_good.iter().min_by(by_cpu).copied();
    let is_cheaper = |candidate: &&Candidate<'_>| candidate.cpu_ns < best.cpu_ns * CHEAPER_MAX;
    let cheapest = cheapest.filter(is_cheaper).unwrap_or(best);
    let price = format!("{} ns of CPU an operation", number(cheapest.cpu_ns));
    let mut words = match std::ptr::eq(cheapest, best) {
        true => format!("{head}; also the cheapest within {interval}, {price}"),
        false => {
            let instead = number(best.cpu_ns);
            let cheapest = name(cheapest);
            format!(
                "{head}; the cheapest within {interval}: {cheapest}, {price} instead of {instead}"
            )
        }
    };
    let fewest = as_good
        .iter()
        .min_by_key(|candidate| candidate.queue_pairs());
    let fewest = fewest.filter(|candidate| candidate.queue_pairs() < cheapest.queue_pairs());
    if let Some(fewest) = fewest {
        words += &format!("; with the fewest queue pairs: {}", name(fewest));
    }
    Some(words)
}

/// A row whose bandwidth was not limited by a prescribed rate.
struct Candidate<'a> {
    record: &'a TransferRecord<'a>,
    bandwidth: &'a Spread,
    cpu_ns: f64,
}

impl<'a> Candidate<'a> {
    fn new(record: &'a TransferRecord<'a>) -> Option<Self> {
        let summary = record.body.summary.as_ref()?;
        let bandwidth = &summary.bandwidth_bytes_per_s;
        let pacing = record.body.point.pacing;
        let is_free = matches!(pacing, Pacing::Stream { .. } | Pacing::Batch { .. });
        (is_free && bandwidth.mean > 0.0).then_some(Self {
            record,
            bandwidth,
            cpu_ns: summary.initiator_cpu_ns_per_operation,
        })
    }

    fn size_bytes(&self) -> u32 {
        self.record.body.point.slots.size_bytes
    }

    /// Queue pairs per rank and peer.
    fn queue_pairs(&self) -> u64 {
        let point = &self.record.body.point;
        u64::from(point.threads) * u64::from(point.division.queue_pairs)
    }
}

#[cfg(test)]
mod tests {
    use tonnage_engine::paths::Rails;
    use tonnage_plan::transfer::Batching;
    use tonnage_record::Record;
    use tonnage_record::spread::spread;

    use super::*;
    use crate::samples;

    /// A row of 4 KiB operations with a depth, a number of queue pairs, trial bandwidths in GB/s, and CPU time.
    fn row((depth, queue_pairs): (u32, u32), trials: &[f64], cpu_ns: f64) -> Record {
        let mut record: Record = samples::streams()[0].clone();
        let body = samples::transfer(&mut record);
        body.point.pacing = Pacing::Stream { depth };
        body.point.division.queue_pairs = queue_pairs;
        let summary = body.summary.as_mut().unwrap();
        let scaled = |factor: f64| {
            let values: Vec<_> = trials.iter().map(|trial| trial * factor).collect();
            spread(&values)
        };
        summary.bandwidth_bytes_per_s = scaled(1e9);
        summary.message_rate_per_s = scaled(1e9 / 4096.0);
        summary.initiator_cpu_ns_per_operation = cpu_ns;
        record
    }

    fn best_of(records: &[Record]) -> Option<String> {
        let records: Vec<_> = records.iter().filter_map(Record::as_transfer).collect();
        best(&records, &["depth", "queue_pairs"])
    }

    #[test]
    fn the_best_row_is_named_with_the_cheapest_that_is_as_good() {
        let slow = row((1, 1), &[1.0, 1.1, 1.05], 900.0);
        let best = row((8, 4), &[9.9, 10.0, 10.1], 400.0);
        let cheaper = row((4, 2), &[9.8, 9.9, 9.85], 300.0);
        let fewer = row((8, 1), &[9.8, 9.9, 9.85], 350.0);
        assert_eq!(best_of(std::slice::from_ref(&best)), None);
        assert_eq!(
            best_of(&[slow.clone(), best.clone()]).unwrap(),
            "best: 10.00 GB/s at 4 KiB (Depth 8, Queue pairs 4); clearly best for this size: no other row is within its \
             interval, ± 2.48 %"
        );
        assert_eq!(
            best_of(&[slow.clone(), best.clone(), cheaper.clone()]).unwrap(),
            "best: 10.00 GB/s at 4 KiB (Depth 8, Queue pairs 4); the cheapest within its interval, ± 2.48 %: 4 KiB (Depth 4, \
             Queue pairs 2), 300.0 ns of CPU an operation instead of 400.0"
        );
        let all = [slow, best.clone(), cheaper, fewer.clone()];
        let all = best_of(&all).unwrap();
        assert!(
            all.ends_with("; with the fewest queue pairs: 4 KiB (Depth 8, Queue pairs 1)"),
            "{all}"
        );
        let cheap = row((8, 4), &[9.9, 10.0, 10.1], 200.0);
        assert_eq!(
            best_of(&[cheap, fewer]).unwrap(),
            "best: 10.00 GB/s at 4 KiB (Queue pairs 4); also the cheapest within its interval, ± 2.48 %, 200.0 ns of CPU an \
             operation; with the fewest queue pairs: 4 KiB (Queue pairs 1)"
        );
        let one = row((4, 4), &[10.2], 200.0);
        assert_eq!(
            best_of(&[best, one]).unwrap(),
            "best: 10.20 GB/s at 4 KiB (Depth 4); one trial has no interval to compare others with"
        );
    }

    #[test]
    fn rows_without_a_choice_have_no_best_row() {
        let mut given = row((8, 1), &[1.0, 1.0, 1.0], 1.0);
        let body = samples::transfer(&mut given);
        body.point.pacing = Pacing::PingPong;
        assert_eq!(best_of(&[given.clone(), given]), None);
    }

    /// Each row must be compared with the first row of its depth; a row without trials must not be compared.
    #[test]
    fn rows_are_compared_with_the_first_that_differs_only_in_options() {
        let with = |rails, record: Record| {
            let mut record = record;
            let body = samples::transfer(&mut record);
            body.point.division.rails = rails;
            body.point.batching = Batching::default();
            record
        };
        let single = |depth, trials: &[f64]| with(Rails::Single, row((depth, 1), trials, 1.0));
        let stripe = |depth, trials: &[f64]| with(Rails::Stripe, row((depth, 1), trials, 1.0));
        let mut lost = stripe(16, &[1.0]);
        let body = samples::transfer(&mut lost);
        body.summary = None;
        let records = [
            single(4, &[2.0, 2.0, 2.0]),
            single(8, &[3.0, 3.1, 2.9]),
            stripe(4, &[4.0, 4.0, 4.0]),
            stripe(8, &[1.5, 1.5, 1.5]),
            single(16, &[1.0]),
            lost,
        ];
        let records: Vec<_> = records.iter().filter_map(Record::as_transfer).collect();
        let fields = ["size_bytes", "depth", "rails"];
        let cells = ratios_to_first(&records, &["rails"], &fields);
        // The half-width of 3.0 is 4.3027 · 0.1 / √3 = 0.2484, a fraction of 0.0828. That of the ratio is 0.5 · 0.0828
        // = 0.0414.
        assert_eq!(cells, ["1", "1", "2.00 ± 0", "0.500 ± 0.0414", "1", ""]);
        assert!(ratios_to_first(&records, &[], &fields).is_empty());
        assert!(ratios_to_first(&records[..2], &["rails"], &fields).is_empty());
    }
}
