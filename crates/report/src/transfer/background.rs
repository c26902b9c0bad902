//! Latency over the load of a background: the knee, and loads that were not reached.

use tonnage_plan::transfer::{Background, TransferPoint};
use tonnage_record::TransferRecord;
use tonnage_record::transfer::{BackgroundSummary, Summary};
use tonnage_units::quantity::human::{number, prefixed, whole_percent};

use super::footers::row_name;

/// Loads that a knee is looked for among, at least.
const LOADS_MIN: usize = 3;

/// Part of the asked load that has to be reached.
const REACHED_LEAST: f64 = 0.95;

/// One row with its load.
struct Loaded<'a> {
    record: &'a TransferRecord<'a>,
    summary: &'a Summary,
    background: &'a BackgroundSummary,
}

impl Loaded<'_> {
    fn bytes_per_s(&self) -> f64 {
        self.background.bandwidth_bytes_per_s.mean
    }

    fn latency_ns(&self) -> f64 {
        let latency = self.summary.latency.as_ref();
        latency.map_or(f64::INFINITY, |latency| latency.latency_ns_mean)
    }

    /// Load for each unit of the latency that it costs. Its greatest value is at the knee (L. Kleinrock, "Power and
    /// deterministic rules of thumb for probabilistic problems in computer communications", ICC 1979).
    fn power(&self) -> f64 {
        self.bytes_per_s() / self.latency_ns()
    }
}

/// A line for each latency that was measured beside several loads: where its knee is.
pub fn lines(records: &[TransferRecord<'_>], distinguishing: &[&str]) -> Vec<String> {
    let mut curves: Vec<(TransferPoint, Vec<Loaded<'_>>)> = Vec::new();
    for record in records {
        let point = without_rate(&record.body.point);
        let Some(loaded) = loaded(record) else {
            continue;
        };
        match curves.iter_mut().find(|(known, _)| *known == point) {
            Some((_, curve)) => curve.push(loaded),
            None => curves.push((point, vec![loaded])),
        }
    }
    let knees = curves
        .iter()
        .map(|(_, curve)| knee(curve, records, distinguishing));
    knees.flatten().collect()
}

fn loaded<'a>(record: &'a TransferRecord<'a>) -> Option<Loaded<'a>> {
    let summary = record.body.summary.as_ref()?;
    Some(Loaded {
        record,
        summary,
        background: summary.background.as_ref()?,
    })
}

fn without_rate(point: &TransferPoint) -> TransferPoint {
    let background = point.background.map(|background| Background {
        rate_per_s: None,
        ..background
    });
    TransferPoint {
        background,
        ..point.clone()
    }
}

fn knee(
    curve: &[Loaded<'_>],
    records: &[TransferRecord<'_>],
    distinguishing: &[&str],
) -> Option<String> {
    if curve.len() < LOADS_MIN {
        return None;
    }
    let by_power = |one: &&Loaded<'_>, other: &&Loaded<'_>| one.power().total_cmp(&other.power());
    let by_load = |one: &&Loaded<'_>, other: &&Loaded<'_>| {
        let loads = [one, other].map(|row| row.bytes_per_s());
        loads[0].total_cmp(&loads[1])
    };
    let knee = curve.iter().max_by(by_power)?;
    let heaviest = curve.iter().max_by(by_load)?;
    let row = row_name(knee.record, records, distinguishing);
    let load = number(knee.bytes_per_s() * 1e-9);
    if std::ptr::eq(knee, heaviest) {
        return Some(format!(
            "no knee up to {row}, {load} GB/s: latency grows by a smaller part than the load does"
        ));
    }
    let p50 = knee.summary.latency.as_ref()?.latency_ns_p50 as f64;
    Some(format!(
        "knee at {row}: {load} GB/s beside a p50 of {} us, {} of that without load; above it latency grows by a greater \
         part than the load does",
        number(p50 * 1e-3),
        number(knee.background.latency_ratio_p50.mean)
    ))
}

/// Tells that a background did not reach the rate that was asked for.
pub fn not_reached(record: TransferRecord<'_>) -> Option<String> {
    let point = &record.body.point;
    let asked_per_s = point.background?.rate_per_s?;
    let background = record.body.summary.as_ref()?.background.as_ref()?;
    let initiators = f64::from(point.roles().initiating_at_once());
    let size_bytes = f64::from(point.background?.size_bytes);
    let per_s = background.bandwidth_bytes_per_s.mean / size_bytes / initiators.max(1.0);
    (per_s < REACHED_LEAST * asked_per_s).then(|| {
        format!(
            "the background reached {} of the {} op/s that each initiator was asked for: the load is what the column \
             says, in GB/s",
            whole_percent(per_s / asked_per_s),
            prefixed(asked_per_s)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use tonnage_record::{Body, Record};

    /// Rows with these loads, in GB/s, and mean latencies, in microseconds.
    fn curve(rows: &[(f64, f64)]) -> Vec<Record> {
        let all = samples::loaded();
        let row = |(at, &(gigabytes_per_s, latency_us)): (usize, &(f64, f64))| {
            let mut record = all[0].clone();
            let Body::Transfer(body) = &mut record.body else {
                unreachable!("a sample of transfers");
            };
            body.point.background.as_mut().unwrap().rate_per_s = Some(1000.0 * (at + 1) as f64);
            let summary = body.summary.as_mut().unwrap();
            summary.latency.as_mut().unwrap().latency_ns_mean = latency_us * 1e3;
            let background = summary.background.as_mut().unwrap();
            background.bandwidth_bytes_per_s.mean = gigabytes_per_s * 1e9;
            record
        };
        rows.iter().enumerate().map(row).collect()
    }

    fn said(rows: &[(f64, f64)]) -> Vec<String> {
        let records = curve(rows);
        let records: Vec<_> = records.iter().filter_map(Record::as_transfer).collect();
        lines(&records, &["background_rate_per_s"])
    }

    /// An M/M/1 queue of 10 GB/s with an empty latency of 1 us has its knee at half of its load.
    #[test]
    fn the_knee_of_a_queue_is_at_half_of_its_load() {
        let loads = [1.0, 3.0, 5.0, 7.0, 9.0];
        let rows = loads.map(|load| (load, 1.0 / (1.0 - load / 10.0)));
        let [line] = &said(&rows)[..] else {
            panic!("one line");
        };
        assert!(line.starts_with("knee at 8 B (Load asked 3.00k"), "{line}");
        assert!(line.contains(": 5.00 GB/s beside a p50"), "{line}");
        assert!(said(&rows[..2]).is_empty());
        let [none] = &said(&rows[..3])[..] else {
            panic!("one line");
        };
        assert!(none.starts_with("no knee up to"), "{none}");
    }

    #[test]
    fn a_load_that_was_not_reached_is_told() {
        let record = |gigabytes_per_s| curve(&[(gigabytes_per_s, 1.0)]).remove(0);
        // 1,000 operations of 1 MiB a second.
        let note = |record: &Record| not_reached(record.as_transfer().unwrap());
        assert_eq!(note(&record(1.04)), None);
        let told = note(&record(0.524288)).unwrap();
        assert!(
            told.starts_with("the background reached 50 % of the 1.00k op/s"),
            "{told}"
        );
    }
}
