//! Finds the knee of latency under increasing background load.

use tonnage_plan::transfer::{Background, TransferPoint};
use tonnage_record::TransferRecord;
use tonnage_record::spread::{GeometricSpread, Spread};
use tonnage_record::transfer::{CpuSharing, TrialBackground};
use tonnage_units::quantity::human::number;

use super::footers::row_name;

/// Minimum number of loads for a knee.
const LOADS_MIN: usize = 3;

/// A row and its load.
struct Loaded<'a> {
    record: &'a TransferRecord<'a>,
    load: Spread,
    /// Median latency under load, and its ratio to the latency without load.
    p50_ns: f64,
    p50_ratio: f64,
    /// Load divided by median latency under load, over the trials. It is largest at the knee (L. Kleinrock, "Power and
    /// deterministic rules of thumb for probabilistic problems in computer communications", ICC 1979).
    power: GeometricSpread,
}

impl Loaded<'_> {
    /// Whether the power intervals of two rows overlap.
    fn has_power_of(&self, other: &Self) -> bool {
        let ends = |row: &Self| {
            let power = row.power;
            (
                power.low.unwrap_or(power.mean),
                power.high.unwrap_or(power.mean),
            )
        };
        meet(ends(self), ends(other))
    }

    /// Whether the load intervals of two rows overlap.
    fn has_load_of(&self, other: &Self) -> bool {
        let ends = |row: &Self| {
            let (mean, half) = (row.load.mean, row.load.ci95.unwrap_or(0.0));
            (mean - half, mean + half)
        };
        meet(ends(self), ends(other))
    }
}

fn meet((low, high): (f64, f64), (other_low, other_high): (f64, f64)) -> bool {
    low <= other_high && other_low <= high
}

/// One line per curve of latency over load, with its knee.
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
    let background = record.body.summary.as_ref()?.background.as_ref()?;
    if background.p50.loaded_at_least {
        // The latency is a lower bound, so the power is only an upper bound.
        return None;
    }
    let power = |load: &TrialBackground| {
        load.bandwidth_bytes_per_s / load.loaded.latency_ns_p50.max(1) as f64
    };
    let trials = record.body.trials.iter();
    let loads = trials.filter_map(|trial| trial.background.as_ref());
    let powers: Vec<f64> = loads.map(power).filter(|&power| power > 0.0).collect();
    Some(Loaded {
        record,
        load: background.bandwidth_bytes_per_s,
        p50_ns: background.p50.loaded_latency_ns,
        p50_ratio: background.p50.ratio.mean,
        power: GeometricSpread::from_values(&powers)?,
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
    let is_of_path = |row: &Loaded<'_>| {
        let cpus = row.record.body.measuring_cpus;
        cpus.is_none_or(|cpus| cpus == CpuSharing::Own)
    };
    if !curve.iter().all(is_of_path) {
        return Some(
            "no search for a knee, because the scheduler dominates the latencies".to_owned(),
        );
    }
    let by_power =
        |one: &&Loaded<'_>, other: &&Loaded<'_>| one.power.mean.total_cmp(&other.power.mean);
    let by_load =
        |one: &&Loaded<'_>, other: &&Loaded<'_>| one.load.mean.total_cmp(&other.load.mean);
    let best = curve.iter().max_by(by_power)?;
    let heaviest = curve.iter().max_by(by_load)?;
    let name = |row: &Loaded<'_>| row_name(row.record, records, distinguishing);
    let load = |row: &Loaded<'_>| number(row.load.mean * 1e-9);
    if best.has_load_of(heaviest) {
        return Some(format!(
            "no knee among these loads: up to {}, {} GB/s, latency grows by a smaller part than the load does",
            name(heaviest),
            load(heaviest)
        ));
    }
    let alike: Vec<_> = curve.iter().filter(|row| row.has_power_of(best)).collect();
    if let Some(saturated) = alike.iter().find(|row| row.has_load_of(heaviest)) {
        return Some(format!(
            "no clear knee: {} and {} have the same load for their latency within their intervals; use more or \
             longer trials",
            name(best),
            name(saturated)
        ));
    }
    let others: Vec<String> = alike
        .iter()
        .filter(|row| !std::ptr::eq(**row, best))
        .map(|row| name(row))
        .collect();
    let or = match &others[..] {
        [] => String::new(),
        others => format!(" (or {}, which cannot be distinguished)", others.join(", ")),
    };
    Some(format!(
        "knee at {}{or}: {} GB/s at a p50 of {} us, {} times that without load; beyond it, latency grows faster than load",
        name(best),
        load(best),
        number(best.p50_ns * 1e-3),
        number(best.p50_ratio)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use tonnage_record::Record;

    /// Lines for rows with these loads (GB/s) and latencies (us). Loads of two trials deviate by `noise`, one up and
    /// one down.
    fn knee_lines(rows: &[(f64, f64)], noise: f64) -> Vec<String> {
        let all = samples::loaded();
        let row = |(at, &(gigabytes_per_s, latency_us)): (usize, &(f64, f64))| {
            let mut record = all[0].clone();
            let body = samples::transfer(&mut record);
            body.point.background.as_mut().unwrap().rate_per_s = Some(1000.0 * (at + 1) as f64);
            for (trial, sign) in body.trials.iter_mut().zip([0.0, 1.0, -1.0]) {
                let load = trial.background.as_mut().unwrap();
                load.bandwidth_bytes_per_s = gigabytes_per_s * 1e9 * (1.0 + sign * noise);
                load.loaded.latency_ns_p50 = (latency_us * 1e6) as u64;
            }
            body.summary.as_mut().unwrap().background = None;
            let background = body.background().unwrap().into_owned();
            body.summary.as_mut().unwrap().background = Some(background);
            record
        };
        let records: Vec<Record> = rows.iter().enumerate().map(row).collect();
        let records: Vec<_> = records.iter().filter_map(Record::as_transfer).collect();
        lines(&records, &["background_rate_per_s"])
    }

    /// An M/M/1 queue with a capacity of 10 GB/s and an idle latency of 1 us has its knee at half its capacity.
    #[test]
    fn the_knee_of_a_queue_is_at_half_of_its_load() {
        let loads = [1.0, 3.0, 5.0, 7.0, 9.0];
        let rows = loads.map(|load| (load, 1.0 / (1.0 - load / 10.0)));
        let [line] = &knee_lines(&rows, 0.001)[..] else {
            panic!("one line");
        };
        assert!(
            line.starts_with("knee at 8 B (Load asked 3.00k op/s): 5.00 GB/s"),
            "{line}"
        );
        assert!(knee_lines(&rows[..2], 0.001).is_empty());
        let none = knee_lines(&rows[..3], 0.001).concat();
        assert!(
            none.starts_with("no knee among these loads: up to 8 B"),
            "{none}"
        );
        let near = knee_lines(&rows, 0.05).concat();
        assert!(
            near.contains("which cannot be distinguished): 5.00 GB/s"),
            "{near}"
        );
        let wide = knee_lines(&rows, 0.5).concat();
        assert!(wide.starts_with("no knee"), "{wide}");
    }

    #[test]
    fn latencies_of_the_scheduler_have_no_knee() {
        let mut records = samples::loaded();
        for record in &mut records {
            let body = samples::transfer(record);
            body.measuring_cpus = Some(CpuSharing::WithLoad);
        }
        let records: Vec<_> = records.iter().filter_map(Record::as_transfer).collect();
        let told = lines(&records, &[]).concat();
        assert!(told.starts_with("no search for a knee"), "{told}");
    }

    #[test]
    fn loads_equal_to_the_heaviest_are_not_a_knee() {
        let rows = [(1.0, 1.0), (9.0, 2.0), (9.01, 2.1)];
        let none = knee_lines(&rows, 0.01).concat();
        assert!(
            none.starts_with("no knee among these loads: up to 8 B (Load asked 3.00k"),
            "{none}"
        );
    }
}
