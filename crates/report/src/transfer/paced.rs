//! Operations at a fixed rate: columns of their table, and remarks on stalls and overload.

use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_record::TransferRecord;
use tonnage_record::transfer::{Stall, TrialBackground};
use tonnage_units::quantity::human::{duration, whole_percent};

use super::{BACK, FORWARD, TableColumns};

/// Columns of the table.
pub(super) const COLUMNS: TableColumns = TableColumns {
    always: &["size_bytes", "depth"],
    known: &[
        "initiators",
        "offered_bytes_per_s",
        "offered_per_s",
        "reached_per_s",
        "late_fraction",
        "swapped_fraction",
        FORWARD,
        BACK,
        "latency_ns_p50",
        "latency_ns_p90",
        "latency_ns_p99",
        "latency_ns_p999",
        "latency_ns_max",
        "cpu_ns_per_operation",
    ],
};

/// Describes the pacing if it issues bursts of several operations; otherwise `None`.
pub(super) fn words(point: &TransferPoint) -> Option<String> {
    let Pacing::Paced { rate, .. } = point.pacing else {
        return None;
    };
    let name = point.pacing.name();
    (rate.burst > 1).then(|| format!("{name}, {} operations at once", rate.burst))
}

/// An open loop is overloaded if it reaches less than this fraction of the offered rate, and more operations than the
/// fraction `LATE_MOST` are late. A low rate alone is not enough: in short trials, the staggered start of threads and
/// the last latency also reduce the rate.
const CARRIED_LEAST: f64 = 0.98;
const LATE_MOST: f64 = 0.05;

/// Minimum length of a stall, as a fraction of the time without stalls. Longer stalls determine the 99th percentile.
const STALL_LEAST: f64 = 0.01;

/// Stalls of an open loop's trials that deserve a remark, and the rate outside of these stalls.
struct Stalls {
    /// Trial numbers, from 1, and their stalls.
    all: Vec<(usize, Stall)>,
    /// Operations per second over all trials, without the time of their stalls.
    moving_per_s: f64,
}

impl Stalls {
    /// Collects stalls from each trial's measured interval, number of operations and longest stall.
    fn new(trials: impl Iterator<Item = (u64, u64, Option<Stall>)> + Clone) -> Option<Self> {
        let length_ns = |stall: &Option<Stall>| stall.map_or(0, |stall| stall.length_ns);
        let moving_ns = |(window_ns, _, stall): (u64, u64, Option<Stall>)| {
            window_ns.saturating_sub(length_ns(&stall))
        };
        let moving_ns: u64 = trials.clone().map(moving_ns).sum();
        let operations: u64 = trials.clone().map(|(_, operations, _)| operations).sum();
        let all = trials
            .zip(1..)
            .filter_map(|((.., stall), number)| Some((number, stall?)));
        let least_ns = moving_ns as f64 * STALL_LEAST;
        let all: Vec<_> = all
            .filter(|(_, stall)| stall.length_ns as f64 >= least_ns)
            .collect();
        (!all.is_empty()).then(|| Self {
            all,
            moving_per_s: operations as f64 * 1e9 / moving_ns.max(1) as f64,
        })
    }

    /// Position, length and likely cause of the longest stall.
    fn text(&self) -> Option<String> {
        let (trial, stall) = self.all.iter().max_by_key(|(_, stall)| stall.length_ns)?;
        let several = match self.all.len() {
            1 => "a stall".to_owned(),
            trials => format!("stalls in {trials} trials, the longest"),
        };
        // If one iteration of the issuing loop took most of the stall, the loop itself was stopped.
        let loop_text = match stall.loop_ns > stall.length_ns / 2 {
            true => {
                "the loop that issues them stood still as well, so that its process was stopped, its CPU was taken, or a \
                 call of the engine took so long"
            }
            false => {
                "the loop that issues them went on, so that the cause lies behind it: the engine, the path or the target"
            }
        };
        Some(format!(
            "{several} of {} in trial {trial}, {} after its start: no operation of one thread from rank {} to \
             rank {} ended; {loop_text}",
            duration(stall.length_ns as f64),
            duration(stall.begin_ns as f64),
            stall.rank,
            stall.peer,
        ))
    }
}

fn stalls(record: TransferRecord<'_>) -> Option<Stalls> {
    let trials = record.body.trials.iter();
    Stalls::new(trials.map(|trial| (trial.window_ns, trial.operations, trial.stall)))
}

/// Note that the path cannot carry the offered rate. The time of stalls is excluded because they have their own remark.
pub(super) fn above_capacity(record: TransferRecord<'_>) -> Option<String> {
    let pace = record.body.summary.as_ref()?.pace.as_ref()?;
    let moving_per_s = stalls(record).map_or(pace.reached_per_s, |stalls| stalls.moving_per_s);
    let carried = moving_per_s / pace.offered_per_s;
    (carried < CARRIED_LEAST && pace.late_fraction > LATE_MOST).then(|| {
        format!(
            "overload: only {} of the offered rate completed, so that latencies grow with the length of a trial; lower \
             --rate to learn the latency under load",
            whole_percent(carried)
        )
    })
}

/// Position, length and likely cause of a point's longest stall, if it deserves a remark.
pub(super) fn stall(record: TransferRecord<'_>) -> Option<String> {
    stalls(record)?.text()
}

/// Describes the longest stall of an open-loop background, if the load reached its rate outside of stalls.
pub(super) fn background_stall(trials: &[&TrialBackground], asked_per_s: f64) -> Option<String> {
    let trials = trials.iter();
    let stalls = Stalls::new(trials.map(|trial| (trial.window_ns, trial.operations, trial.stall)))?;
    match stalls.moving_per_s < CARRIED_LEAST * asked_per_s {
        true => None,
        false => stalls.text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use tonnage_record::Record;

    #[test]
    fn a_rate_above_capacity_is_reported() {
        let record = samples::paced()[0].clone();
        let note_at = |carried: f64, late_fraction: f64| {
            let mut record = record.clone();
            let body = samples::transfer(&mut record);
            let pace = body.summary.as_mut().unwrap().pace.as_mut().unwrap();
            pace.reached_per_s = carried * pace.offered_per_s;
            pace.late_fraction = late_fraction;
            above_capacity(record.of_kind().unwrap())
        };
        assert_eq!(note_at(1.0, 0.5), None);
        assert_eq!(note_at(0.985, 0.5), None);
        assert_eq!(note_at(0.5, 0.01), None, "few operations");
        let text = note_at(0.5, 0.5).unwrap();
        assert!(
            text.starts_with("overload: only 50 % of the offered rate"),
            "{text}"
        );
    }

    /// One of three trials has a stall of `length_ns` in which no operation completed.
    fn stalled(length_ns: u64, loop_ns: u64) -> Record {
        let mut record = samples::paced()[0].clone();
        let body = samples::transfer(&mut record);
        let pace = body.summary.as_mut().unwrap().pace.as_mut().unwrap();
        // Mean rate over all trials, including the trial that the stall made longer.
        pace.reached_per_s = 0.7 * pace.offered_per_s;
        pace.late_fraction = 0.3;
        for trial in &mut body.trials {
            trial.operations = (pace.offered_per_s * trial.window_ns as f64 / 1e9) as u64 + 1;
        }
        let trial = &mut body.trials[1];
        trial.window_ns += length_ns;
        trial.stall = Some(Stall {
            length_ns,
            begin_ns: 50_000_000,
            loop_ns,
            rank: 0,
            peer: 1,
        });
        record
    }

    #[test]
    fn a_stall_is_not_an_overload_and_is_located() {
        for (loop_ns, cause) in [(0, "went on"), (1_190_000_000, "stood still as well")] {
            let record = stalled(1_200_000_000, loop_ns);
            let record = record.of_kind().unwrap();
            let text = stalls(record).unwrap().text().unwrap();
            for part in [
                "a stall of 1.20 s in trial 2, 50.0 ms after its start",
                "from rank 0 to rank 1",
                cause,
            ] {
                assert!(text.contains(part), "{part:?} is not in {text}");
            }
            assert_eq!(above_capacity(record), None);
        }
        // Too short to affect any percentile in the table.
        let short = stalled(100, 0);
        assert!(stalls(short.of_kind().unwrap()).is_none());
    }

    #[test]
    fn a_stall_hides_no_overload() {
        let mut record = stalled(1_200_000_000, 0);
        let body = samples::transfer(&mut record);
        for trial in &mut body.trials {
            trial.operations /= 2;
        }
        let record = record.of_kind().unwrap();
        assert!(stalls(record).is_some() && above_capacity(record).is_some());
    }
}
