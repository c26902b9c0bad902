//! Remarks on individual rows of a transfer table: a mark in the row, the text below.

use tonnage_machine::Processors;
use tonnage_plan::point::BoundChoice;
use tonnage_plan::transfer::{Pacing, TrialLength};
use tonnage_record::{CanaryDoubt, Outcome, TransferRecord};
use tonnage_units::quantity::human::{duration, number, size, whole_percent};

use super::footers::row_name;
use super::{background, paced};
use crate::remarks::{Remark, TableRemarks};
use crate::{cpu_loss, wire_proof};

/// Remarks of a table. `distinguishing` are the columns that identify rows.
pub fn remarks(records: &[TransferRecord<'_>], distinguishing: &[&str]) -> TableRemarks {
    let rows = records.iter().map(|record| {
        let name = row_name(record, records, distinguishing);
        (name, of_record(*record))
    });
    TableRemarks::new(&rows.collect::<Vec<_>>())
}

/// A row gets a remark if the threads had their CPUs for less than this fraction of the time.
pub const CPU_SHARE_LEAST: f64 = 0.9;

/// Remarks on a row.
pub fn of_record(record: TransferRecord<'_>) -> Vec<Remark> {
    let outcome = match &record.outcome {
        Outcome::Measured => None,
        Outcome::Skipped { why } => {
            let text = format!("{}: {why}", record.skip_reason());
            Some(Remark::plain(text).with_word("skipped"))
        }
        Outcome::Failed { why } => {
            Some(Remark::plain(format!("failed: {why}")).with_word("FAILED"))
        }
    };
    let starts = record.body.trials.iter();
    let starts = starts.map(|trial| (trial.start_skew_ns, trial.window_ns));
    let canary = record.canary_doubt().map(|doubt| {
        let short = "the way between two CPUs changed during this row; distrust small differences";
        Remark::with_details(short, canary_doubt(&doubt))
    });
    let off_path = wire_proof::unproven(record).map(|why| Remark::plain(why).with_word("OFF PATH"));
    let short = |short: &'static str| move |full| Remark::with_details(short, full);
    let texts = [
        not_narrow_enough(record).map(Remark::plain),
        late_start(starts).map(short(
            "the last rank began late: the figures are too low; take longer trials",
        )),
        paced::stall(record).map(Remark::plain),
        paced::above_capacity(record).map(Remark::plain),
        lower_bounds(record).map(Remark::plain),
        background::not_reached(record).map(Remark::plain),
        long_drain(record).map(short(
            "trials took longer than asked for, until all in flight had ended; use a longer --trial-time",
        )),
        above_bound(record),
        slow_rail(record).map(Remark::plain),
    ];
    let texts = texts.into_iter().flatten();
    let doubts = canary.into_iter().chain(lost_cpu_time(record));
    let doubts = doubts.chain(in_cache(record));
    outcome
        .into_iter()
        .chain(doubts)
        .chain(texts)
        .chain(off_path)
        .collect()
}

/// Describes a canary change that may have affected the figures.
pub fn canary_doubt(doubt: &CanaryDoubt) -> String {
    let [first, second] = doubt.cpus;
    let trials = match doubt.trials_differ_by {
        Some(by) => format!("the trials differ by {}", whole_percent(by)),
        None => {
            "there are no trials that would show whether the figures changed with it".to_owned()
        }
    };
    format!(
        "the way between CPUs {first} and {second} changed: a cache line took {} ns before this point and {} ns after, and \
         {trials}; distrust small differences",
        number(doubt.before_ns),
        number(doubt.after_ns)
    )
}

/// Remark that the footprint fits in a cache, so that the bandwidth is not that of memory. Ping-pongs get no remark,
/// because data in caches is usual for latency.
fn in_cache(record: TransferRecord<'_>) -> Option<Remark> {
    let point = &record.body.point;
    let is_bandwidth = matches!(point.pacing, Pacing::Stream { .. } | Pacing::Batch { .. });
    let summary = record.body.summary.as_ref()?;
    // Only host memory has pages, and only host memory is cached by CPUs.
    let mut memories = record.effective.iter().flat_map(|it| it.memory.all());
    let is_cached = memories.all(|memory| memory.pages.is_some());
    let moves = summary.bandwidth_bytes_per_s.mean > 0.0 && !point.op.is_atomic();
    if !(is_bandwidth && is_cached && moves) {
        return None;
    }
    let hosts: usize = record
        .environment
        .iter()
        .map(|group| group.hosts.len())
        .sum();
    // On one host, the CPU that copies touches both source and target.
    let sides = if hosts == 1 { 2 } else { 1 };
    let footprint_bytes = point.slots.footprint_bytes;
    let of_thread = footprint_bytes.saturating_mul(sides);
    let of_all = of_thread
        .saturating_mul(point.roles.flow_count())
        .saturating_mul(point.threads.into());
    let cpus = record.environment.iter().map(|group| &group.machine.cpu);
    let least = |bytes: fn(&Processors) -> Option<u64>| cpus.clone().filter_map(bytes).min();
    let caches = [
        least(|cpu| cpu.l1d_bytes),
        least(|cpu| cpu.l2_bytes),
        least(|cpu| cpu.l3_bytes),
    ];
    let (name, bytes) = smallest_cache(caches, of_thread, of_all)?;
    let short = format!(
        "the footprint fits in the {name} cache ({}): not the speed of memory",
        size(bytes)
    );
    let full = format!(
        "the footprint of {} fits in the {name} cache ({}), so that this is not the speed of memory; use a --footprint larger \
         than all caches to measure that",
        size(footprint_bytes),
        size(bytes)
    );
    Some(Remark::with_details(short, full))
}

/// Name and size of the smallest cache that holds the data. L1d and L2 must hold the bytes of one thread, and L3, which
/// threads share, the bytes of all threads. `caches` are L1d, L2 and L3.
fn smallest_cache(
    caches: [Option<u64>; 3],
    of_thread: u64,
    of_all: u64,
) -> Option<(&'static str, u64)> {
    let used = [("L1d", of_thread), ("L2", of_thread), ("L3", of_all)];
    let known = used.into_iter().zip(caches);
    let mut known = known.filter_map(|((name, used), bytes)| Some((name, used, bytes?)));
    known
        .find(|(_, used, bytes)| used <= bytes)
        .map(|(name, _, bytes)| (name, bytes))
}

/// Describes lost CPU time in steps of 10 %, so that similar rows share a remark.
fn lost_cpu_time(record: TransferRecord<'_>) -> Option<Remark> {
    let tens = |share: f64| ((share * 10.0).floor() * 10.0).clamp(0.0, 90.0);
    let short = "CPU contention: the figures may be too low";
    if let Some((cause, bound, lost)) = cpu_loss::cause(record.record) {
        let percent = tens(lost) + if bound == "up to" { 10.0 } else { 0.0 };
        return Some(Remark::with_details(
            short,
            format!(
                "{cause} took CPU time from a rank, {bound} {percent:.0} % of it: the figures may be too low"
            ),
        ));
    }
    let share = record
        .cpu_share()
        .filter(|share| *share < CPU_SHARE_LEAST)?;
    Some(Remark::with_details(
        short,
        format!(
            "the threads had less than {:.0} % of their CPUs' time, and the record does not show who had the rest: the \
             figures may be too low",
            tens(share) + 10.0
        ),
    ))
}

/// Note that the time limit was reached before the trials converged.
fn not_narrow_enough(record: TransferRecord<'_>) -> Option<String> {
    let is_wide = record.body.summary.as_ref()?.converged == Some(false);
    is_wide.then(|| "the time was up before CI95 became as narrow as asked for".to_owned())
}

/// Late starts are reported above this fraction of the measured interval.
const START_SKEW_MOST: f64 = 0.01;

/// Note that ranks started late; `trials` are the start skew and measured interval of each trial. The interval begins
/// at the common start, so a late start makes the figures too low.
pub fn late_start(trials: impl Iterator<Item = (u64, u64)>) -> Option<String> {
    let parts = trials.map(|(skew_ns, window_ns)| skew_ns as f64 / window_ns.max(1) as f64);
    let most = parts.max_by(f64::total_cmp)?;
    (most > START_SKEW_MOST).then(|| {
        format!(
            "the last rank began late, by {} of a trial's measured interval, which counts from the common start: the \
             figures are too low. Leave each thread a CPU of its own, or take longer trials",
            whole_percent(most)
        )
    })
}

/// Assumed relative spread of a single trial, which has no interval.
const SINGLE_TRIAL_SPREAD: f64 = 0.05;

/// Minimum fraction by which a trial must exceed the requested time for a remark.
const EXCESS_MIN: f64 = 0.5;

/// Minimum fraction of the excess that in-flight operations must explain.
const DRAIN_MIN: f64 = 0.5;

/// Explains trials that took much longer than requested. Operations in flight at the end of a trial are completed and
/// counted, which takes additional time.
fn long_drain(record: TransferRecord<'_>) -> Option<String> {
    let point = &record.body.point;
    let TrialLength::DurationNs(asked_ns) = point.length.trial else {
        return None;
    };
    let bounded = match point.pacing {
        Pacing::Stream { .. } => "--depth",
        Pacing::Batch { .. } => "--batch",
        Pacing::PingPong | Pacing::Paced { .. } => return None,
    };
    let (roles, trials) = (point.roles, &record.body.trials);
    if trials.is_empty() || roles.round_count() > 1 || point.background.is_some() {
        return None;
    }
    let took_ns: u64 = trials.iter().map(|trial| trial.window_ns).sum();
    let took_ns = took_ns as f64 / trials.len() as f64;
    let excess_ns = took_ns - asked_ns as f64;
    let lanes = roles.flow_count().saturating_mul(point.threads.into());
    let of_lane = u64::from(point.depth()).saturating_mul(point.slots.size_bytes.into());
    let in_flight = lanes.saturating_mul(of_lane);
    let bandwidth = record.body.summary.as_ref()?.bandwidth_bytes_per_s.mean;
    let drain_ns = in_flight as f64 * 1e9 / bandwidth;
    let explains = excess_ns > EXCESS_MIN * asked_ns as f64 && drain_ns > DRAIN_MIN * excess_ns;
    explains.then(|| {
        format!(
            "trials took {} instead of {}: up to {} were in flight when the time was up, and finishing them takes {}; \
             use a smaller {bounded}, or a longer --trial-time",
            duration(took_ns),
            duration(asked_ns as f64),
            size(in_flight),
            duration(drain_ns)
        )
    })
}

/// Explains the mark for lower bounds.
fn lower_bounds(record: TransferRecord<'_>) -> Option<String> {
    let latency = record.body.summary.as_ref()?.latency.as_ref()?;
    let bounds = latency.lower_bounds?;
    Some(match bounds.unfinished {
        0 => "≥ marks lower bounds: percentiles above 60 s are not distinguished".to_owned(),
        unfinished => format!(
            "≥ marks lower bounds: {} of the operations that were due were never issued; each counts with the time that it \
             had waited by the end of its trial",
            whole_percent(unfinished as f64 / latency.samples.max(1) as f64)
        ),
    })
}

/// Names the rail that slows down the others.
fn slow_rail(record: TransferRecord<'_>) -> Option<String> {
    let slow = record.body.summary.as_ref()?.slow_rail.as_ref()?;
    let device = slow.device.as_ref().map(|name| format!(" ({name})"));
    Some(format!(
        "rail {}{} of rank {} on {} carries {} of its share while it is busy: look at its link, and at the same rail of \
         its peers",
        slow.rail,
        device.unwrap_or_default(),
        slow.rank,
        slow.host,
        whole_percent(slow.share)
    ))
}

/// Note that a point exceeds its bound by more than both intervals, with the reason.
fn above_bound(record: TransferRecord<'_>) -> Option<Remark> {
    let bandwidth = record.body.summary.as_ref()?.bandwidth_bytes_per_s;
    let bound = record.bound.as_ref()?;
    let spread = bandwidth.ci95;
    let spread = spread.unwrap_or(bandwidth.mean * SINGLE_TRIAL_SPREAD)
        + bound.ci95_bytes_per_s.unwrap_or(0.0);
    if bandwidth.mean - bound.bytes_per_s <= spread {
        return None;
    }
    let why = match record.body.point.bound {
        BoundChoice::Auto if bound.what.starts_with("link speed") => {
            "the device is faster than it reports, or not all bytes crossed it; --require-path checks it"
        }
        // The second condition matches records written before this version.
        BoundChoice::Auto
            if bound.what.contains("bytes leave") || bound.what.contains("network card") =>
        {
            "the link of the memory's device is faster than it reports, or the bytes took another path"
        }
        BoundChoice::Auto if bound.links.is_some() => "the link is faster than was stated",
        BoundChoice::Auto => {
            "the bound was measured too low, by more than the 95 % intervals of both explain"
        }
        _ => "it was stated, not measured; --bound auto measures one",
    };
    let above = whole_percent(bandwidth.mean / bound.bytes_per_s - 1.0);
    let short = format!("above its bound: {why}");
    Some(Remark::with_details(
        short.clone(),
        format!("{above} {short}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use tonnage_record::{Canary, Record};
    use tonnage_units::histogram::LowerBounds;

    fn texts(record: &Record) -> String {
        let remarks = of_record(record.of_kind().unwrap()).into_iter();
        let texts: Vec<String> = remarks.map(|remark| remark.full).collect();
        texts.join("\n")
    }

    #[test]
    fn a_start_late_by_more_than_1_percent_of_a_trial_is_reported() {
        let mut record = samples::paced()[0].clone();
        let mut note = |skew: f64| {
            let body = samples::transfer(&mut record);
            let trial = body.trials.last_mut().unwrap();
            trial.start_skew_ns = (trial.window_ns as f64 * skew) as u64;
            texts(&record)
        };
        assert!(!note(0.009).contains("began late"));
        assert!(note(0.12).contains("began late, by 12 % of a trial"));
        // If one rank's clock is an hour off, the skew is almost the whole interval.
        assert!(late_start([(3_600_000_000_000, 3_600_050_000_000)].into_iter()).is_some());
        assert_eq!(late_start([].into_iter()), None);
    }

    /// L1d and L2 belong to one thread, and all threads share L3.
    #[test]
    fn the_smallest_cache_that_holds_a_footprint_is_named() {
        let caches = [Some(32 << 10), Some(1 << 20), Some(32 << 20)];
        let holding = |of_thread, of_all| smallest_cache(caches, of_thread, of_all);
        assert_eq!(holding(32 << 10, 64 << 10), Some(("L1d", 32 << 10)));
        assert_eq!(holding(64 << 10, 64 << 10), Some(("L2", 1 << 20)));
        assert_eq!(holding(2 << 20, 32 << 20), Some(("L3", 32 << 20)));
        assert_eq!(holding(2 << 20, 33 << 20), None);
        assert_eq!(smallest_cache([None; 3], 1, 1), None);
    }

    #[test]
    fn lower_bounds_are_explained() {
        let note = |unfinished| {
            let mut record = samples::paced()[0].clone();
            let body = samples::transfer(&mut record);
            let latency = body.summary.as_mut().unwrap().latency.as_mut().unwrap();
            latency.samples = 100;
            latency.lower_bounds = Some(LowerBounds {
                unfinished,
                from_ns: 7,
            });
            lower_bounds(record.of_kind().unwrap()).unwrap()
        };
        assert!(note(15).contains("15 % of the operations that were due were never issued"));
        assert!(note(0).contains("above 60 s"));
        assert_eq!(lower_bounds(samples::paced()[0].of_kind().unwrap()), None);
    }

    /// 64 x 4 MiB in flight take 2.2 s on a 1 Gb/s link, regardless of the trial time.
    #[test]
    fn operations_in_flight_longer_than_a_trial_are_reported() {
        let note = |depth: u32, took_ns: u64, trial: TrialLength| {
            let mut record = samples::streams()[0].clone();
            let body = samples::transfer(&mut record);
            body.point.pacing = Pacing::Stream { depth };
            (body.point.slots.size_bytes, body.point.threads) = (4 << 20, 1);
            body.point.length.trial = trial;
            for trial in &mut body.trials {
                trial.window_ns = took_ns;
            }
            let summary = body.summary.as_mut().unwrap();
            summary.bandwidth_bytes_per_s.mean = 119.6e6;
            long_drain(record.of_kind().unwrap())
        };
        let asked = TrialLength::DurationNs(300_000_000);
        let said = note(64, 2_500_000_000, asked).unwrap();
        for part in ["2.50 s instead of 300 ms", "256 MiB", "2.24 s", "--depth"] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        assert_eq!(note(64, 400_000_000, asked), None, "near enough");
        assert_eq!(note(1, 2_500_000_000, asked), None, "that is a stall");
        let operations = TrialLength::Iterations(64);
        assert_eq!(note(64, 2_500_000_000, operations), None);
    }

    #[test]
    fn an_unmeasured_link_is_not_called_measured() {
        let mut record = samples::fabric()[1].clone();
        let summary = record.transfer().unwrap().summary.as_ref().unwrap();
        let bytes_per_s = summary.bandwidth_bytes_per_s.mean / 2.0;
        let mut note = |what: &str| {
            let bound = record.bound.as_mut().unwrap();
            (bound.what, bound.bytes_per_s) = (what.to_owned(), bytes_per_s);
            bound.ci95_bytes_per_s = None;
            above_bound(record.of_kind().unwrap()).unwrap().full
        };
        for what in [
            "PCIe of cuda:0 (0000:1b:00.0), by which bytes leave and reach its memory",
            "PCIe of 2 devices whose memory bytes leave or reach, together, both directions added up",
        ] {
            let said = note(what);
            assert!(said.contains("the memory's device"), "{said}");
        }
        assert!(!note("socket stream").contains("the memory's device"));
    }

    /// Virtual CPUs may move nearer to each other or further apart, which does not affect most points. A changed canary
    /// therefore needs trials that differ.
    #[test]
    fn a_canary_that_changed_needs_trials_that_differ() {
        let note = |rates: &[f64]| {
            let mut record = samples::streams()[0].clone();
            record.canary = Some(Canary::Measured {
                cpus: [0, 1],
                before_ns: 18.0,
                after_ns: 67.0,
                changed: true,
            });
            let body = samples::transfer(&mut record);
            body.trials.truncate(rates.len());
            for (trial, rate) in body.trials.iter_mut().zip(rates) {
                (trial.message_rate_per_s, trial.latency_ns_mean) = (*rate, None);
            }
            record.canary_doubt().map(|doubt| canary_doubt(&doubt))
        };
        assert_eq!(note(&[100.0, 104.0, 102.0]), None);
        let differ = note(&[100.0, 60.0, 100.0]).unwrap();
        assert!(differ.contains("the trials differ by 67 %"), "{differ}");
        let single = note(&[100.0]).unwrap();
        assert!(single.contains("no trials that would show"), "{single}");
    }

    #[test]
    fn a_bound_was_too_low_where_the_intervals_do_not_meet() {
        let mut record = samples::fabric()[1].clone();
        let note = |record: &Record| Some(above_bound(record.of_kind().unwrap())?.full);
        let bandwidth = record.transfer().unwrap().summary.as_ref().unwrap();
        let bandwidth = bandwidth.bandwidth_bytes_per_s;
        let ci95 = bandwidth.ci95.unwrap();
        let mut note_beside = |bytes_per_s, ci95_bytes_per_s| {
            let bound = record.bound.as_mut().unwrap();
            (bound.bytes_per_s, bound.ci95_bytes_per_s) = (bytes_per_s, ci95_bytes_per_s);
            note(&record)
        };
        let above = note_beside(bandwidth.mean / 1.5, None).unwrap();
        assert!(
            above.starts_with("50 % above its bound: the bound was measured too low"),
            "{above}"
        );
        // The bandwidth exceeds the bound by slightly more than its own interval. If the bound has an interval of that
        // width too, the excess must get no note.
        let near = bandwidth.mean - 1.01 * ci95;
        assert!(note_beside(near, None).is_some());
        assert_eq!(note_beside(near, Some(ci95)), None);
        assert_eq!(note_beside(bandwidth.mean - 0.99 * ci95, None), None);
    }
}
