//! Runs the program and reads its records. Reading checks each record against the schema and for consistency.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::tempdir;
use tonnage_plan::files::{FilePoint, Fsync, Phase};
use tonnage_plan::point::{BoundChoice, Traffic};
use tonnage_plan::transfer::{BatchOf, Pacing, TransferPoint, TrialLength};
use tonnage_record::files::{FileBody, PhaseRecord, PhaseTrial};
use tonnage_record::histogram::Latency;
use tonnage_record::read::read_records;
use tonnage_record::transfer::{Summary, TransferBody, Trial, TrialDirection};
use tonnage_record::{Outcome, Record, Spread};
use tonnage_report::{Format, render};
use tonnage_units::histogram::LatencyHistogram;

use super::{Ended, has, tonnage, words};

/// Returns the records of a file.
pub fn read(path: &Path) -> Vec<Record> {
    parse(&fs::read_to_string(path).unwrap())
}

/// Parses these lines and returns their records.
pub fn parse(text: &str) -> Vec<Record> {
    let is_whole = text.is_empty() || text.ends_with('\n');
    assert!(is_whole, "a broken last line");
    text.lines().map(check).collect()
}

/// Returns the records that a run wrote to r.jsonl. Checks that printing them gives the run's output again.
pub fn shown(dir: &Path, run: &Ended) -> Vec<Record> {
    shown_as(&dir.join("r.jsonl"), run, Format::Table)
}

/// Like [`shown`], for another file and format. A run that could measure nothing here prints its reason, and no table.
pub fn shown_as(path: &Path, run: &Ended, format: Format) -> Vec<Record> {
    let again = render(format, &read_records(path).unwrap().records).unwrap();
    match (run.code, format) {
        (Some(2), Format::Table) => assert_eq!(run.stdout, ""),
        _ => assert_eq!(again, run.stdout),
    }
    read(path)
}

/// Runs a command in a new directory. Returns the ended run and its records.
pub fn recorded(arguments: &str) -> (Ended, Vec<Record>) {
    let dir = tempdir().unwrap();
    let run = tonnage(dir.path(), &format!("{arguments} -o r.jsonl")).run();
    let records = shown(dir.path(), &run);
    (run, records)
}

/// Runs a command that must succeed silently and measure all of its points.
pub fn succeeded(arguments: &str) -> (Ended, Vec<Record>) {
    let (run, records) = recorded(arguments);
    let is_measured = |it: &Record| it.outcome == Outcome::Measured;
    assert!(
        run.code == Some(0)
            && run.stderr.is_empty()
            && !records.is_empty()
            && records.iter().all(is_measured),
        "{run:#?}"
    );
    (run, records)
}

/// Runs a transfer that must succeed silently. Its points may be skipped.
pub fn transfer(arguments: &str) -> (Ended, Vec<Record>) {
    let (run, records) = recorded(&format!("transfer {arguments}"));
    assert!(run.code == Some(0) && run.stderr.is_empty(), "{run:#?}");
    (run, records)
}

/// Runs two trials of 40 operations or batches. Returns the records, and the table with single spaces between words.
pub fn measured(arguments: &str) -> (Vec<Record>, String) {
    let bound = match arguments.contains("--link-speed") {
        true => "",
        false => "--bound none",
    };
    let line = format!("transfer {arguments} --trials 2 --iters 40 --warmup 1ms {bound}");
    let (run, records) = succeeded(&line);
    (records, words(&run.stdout))
}

pub fn body(record: &Record) -> &TransferBody {
    record.transfer().unwrap()
}

pub fn summary(record: &Record) -> &Summary {
    body(record).summary.as_ref().unwrap()
}

/// Returns why a point was not measured.
pub fn why(record: &Record) -> &str {
    match &record.outcome {
        Outcome::Skipped { why } | Outcome::Failed { why } => why,
        Outcome::Measured => panic!("it was measured: {record:#?}"),
    }
}

/// Checks that all points were skipped, each for a reason that contains these parts.
pub fn are_skipped(records: &[Record], reason: &str) {
    assert!(!records.is_empty(), "nothing is recorded");
    for record in records {
        let is_skipped = matches!(record.outcome, Outcome::Skipped { .. });
        assert!(is_skipped, "{record:#?}");
        has(why(record), reason);
    }
}

/// Returns why a point failed.
pub fn why_failed(record: &Record) -> &str {
    let is_failed = matches!(record.outcome, Outcome::Failed { .. });
    assert!(is_failed, "{record:#?}");
    why(record)
}

/// Checks that every record is measured, and that bytes of each trial were verified.
pub fn all_verified(records: &[Record]) {
    for record in records {
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
        let mut verified = body(record).trials.iter().map(|trial| trial.verified_bytes);
        let is_verified = verified.len() > 0 && verified.all(|bytes| bytes > Some(0));
        assert!(is_verified, "{record:#?}");
    }
}

/// Returns the first row of a CSV as a map from column names to values.
pub fn first_row(csv: &str) -> BTreeMap<&str, &str> {
    let mut lines = csv.lines().map(|line| line.split(','));
    lines.next().unwrap().zip(lines.next().unwrap()).collect()
}

/// Parses a line as JSON and checks it against the schema.
pub fn allowed(line: &str) -> Value {
    static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| {
        let text = include_str!("../../../../../docs/record.schema.json");
        jsonschema::draft202012::new(&serde_json::from_str(text).unwrap()).unwrap()
    });
    let value: Value = serde_json::from_str(line).unwrap();
    let errors: Vec<_> = schema
        .iter_errors(&value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?} in {line}");
    value
}

/// Returns whether the time limit of the run left no time for some of the trials.
pub fn is_cut_short(record: &Record) -> bool {
    let is_remark = |remark: &String| remark.contains("cut short by the time limit of ");
    record.remarks.iter().any(is_remark)
}

fn check(line: &str) -> Record {
    let record: Record = serde_json::from_value(allowed(line)).unwrap();
    let is_measured = record.outcome == Outcome::Measured;
    if let Some(file) = record.file() {
        check_file(file, is_measured, is_cut_short(&record));
    }
    match record.transfer() {
        Some(body) if is_measured => check_transfer(&record, body),
        // The time limit may have stopped a point after its last trial.
        Some(_) if record.out_of_time => {}
        Some(body) => assert!(body.summary.is_none() && body.histogram.is_none(), "{line}"),
        None => {}
    }
    if is_measured && let Some(ranks) = ranks_of_point(&record) {
        let everyone: Vec<_> = (0..ranks).collect();
        let effective = record.effective.iter().map(|part| &part.ranks);
        assert_eq!(ranks_of(effective), everyone);
        let environment = record.environment.iter().map(|part| &part.ranks);
        assert_eq!(ranks_of(environment), everyone);
    }
    record
}

fn ranks_of_point(record: &Record) -> Option<u32> {
    let of_transfer = record.transfer().map(|body| body.point.roles.ranks);
    of_transfer.or(record.file().map(|body| body.point.ranks))
}

/// Returns whether two numbers are equal except for the last bits, which depend on the order of additions.
fn about(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * left.abs().max(right.abs())
}

/// Returns the ranks in lists such as "0-3,8".
pub fn ranks_of<'a>(lists: impl Iterator<Item = &'a String>) -> Vec<u32> {
    let mut ranks = Vec::new();
    for part in lists.flat_map(|list| list.split(',')) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        ranks.extend(first.parse::<u32>().unwrap()..=last.parse().unwrap());
    }
    ranks.sort_unstable();
    ranks
}

/// Checks that the spread follows from these rates, one for each trial.
fn check_spread(spread: &Spread, rates: impl Iterator<Item = f64>) {
    let rates: Vec<f64> = rates.collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    assert!(about(spread.mean, mean), "{spread:?}");
    assert_eq!(spread.min, rates.iter().copied().fold(f64::MAX, f64::min));
    assert_eq!(spread.max, rates.iter().copied().fold(0.0, f64::max));
    assert_eq!(spread.ci95.is_some(), rates.len() > 1);
}

/// Checks that the histogram has the same number of samples as the figures, and that percentiles do not decrease.
fn check_percentiles(latency: &Latency, histogram: &LatencyHistogram) {
    assert_eq!(histogram.count(), latency.samples);
    let rising = [
        latency.latency_ns_min,
        latency.latency_ns_p50,
        latency.latency_ns_p90,
        latency.latency_ns_p99,
        latency.latency_ns_p999,
        latency.latency_ns_max,
    ];
    assert!(rising.is_sorted(), "{latency:?}");
    let range = latency.latency_ns_min as f64..=latency.latency_ns_max as f64;
    assert!(range.contains(&latency.latency_ns_mean), "{latency:?}");
}

fn check_transfer(record: &Record, body: &TransferBody) {
    let (summary, point) = (summary(record), &body.point);
    for trial in &body.trials {
        check_series(point, trial);
        check_trial(point, trial);
    }
    let trials = body.trials.len();
    match point.length.until_ci {
        _ if is_cut_short(record) => assert!(trials > 0),
        None => assert_eq!(trials, point.length.trials as usize),
        Some(_) => assert!(trials >= point.length.trials as usize),
    }
    assert_eq!(summary.converged.is_some(), point.length.until_ci.is_some());
    check_sums(record, body, summary);
    check_latency(body, summary);
    check_phases(point, summary);
    assert!(record.canary.is_some());
    let mut cpus = record.effective.iter().map(|part| part.cpus.len());
    assert!(cpus.all(|count| count == point.threads as usize));
}

/// Checks that the mean times of a batch's phases add up to its mean latency.
fn check_phases(point: &TransferPoint, summary: &Summary) {
    let is_timed = point.latency && matches!(point.pacing, Pacing::Batch { .. });
    assert_eq!(summary.batch_phases.is_some(), is_timed);
    let (Some(phases), Some(latency)) = (&summary.batch_phases, &summary.latency) else {
        return;
    };
    let each = [&phases.prepare, &phases.post, &phases.complete];
    let sum: f64 = each.iter().map(|phase| phase.time_ns_mean).sum();
    let is_whole = about(sum, latency.latency_ns_mean);
    assert!(is_whole, "{phases:?} {latency:?}");
    for phase in each {
        assert!(phase.time_ns_p50 <= phase.time_ns_p99, "{phases:?}");
        assert!(phase.time_ns_p50 <= latency.latency_ns_max, "{phases:?}");
    }
}

/// Checks that the intervals of a trial contain every operation exactly once.
fn check_series(point: &TransferPoint, trial: &Trial) {
    assert_eq!(trial.series.is_some(), point.length.interval_ns.is_some());
    let Some(series) = &trial.series else { return };
    let sum = |operations: &[u64]| operations.iter().sum::<u64>();
    assert_eq!(sum(&series.operations), trial.operations, "{trial:?}");
    if !series.clients.is_empty() {
        let clients = series.clients.iter();
        let all: u64 = clients.map(|client| sum(&client.operations)).sum();
        assert_eq!(all, trial.operations, "{trial:?}");
    }
    let whole_ns = series.interval_ns * (series.operations.len() as u64 - 1);
    let is_short = whole_ns < trial.window_ns || series.operations.len() == 1;
    assert!(is_short, "{trial:?}");
}

fn check_trial(point: &TransferPoint, trial: &Trial) {
    let size = u64::from(point.slots.size_bytes);
    let moved = if point.engine == "null" {
        0
    } else {
        trial.operations * size
    };
    assert_eq!(trial.payload_bytes, moved, "{trial:?}");
    assert!(trial.operations > 0, "{trial:?}");
    let per_s = |count: u64| count as f64 / (trial.window_ns as f64 / 1e9);
    let bandwidth = per_s(trial.payload_bytes);
    assert!(about(trial.bandwidth_bytes_per_s, bandwidth));
    assert!(about(trial.message_rate_per_s, per_s(trial.operations)));
    match point.length.trial {
        TrialLength::Iterations(_) if point.loads.is_some() => {
            let bytes = point.loads.as_ref().unwrap().total();
            assert_eq!(trial.operations, bytes / size, "{trial:?}");
        }
        TrialLength::DurationNs(_) if point.iterations_max().is_some() => {
            let most = point.iterations_max().unwrap() * operations_per_iteration(point);
            let most = most * initiators(point) * u64::from(point.threads) * rounds(point);
            assert!((1..=most).contains(&trial.operations), "{trial:?}");
        }
        TrialLength::DurationNs(ns) => {
            assert!(trial.window_ns >= ns * rounds(point), "{trial:?}");
        }
        TrialLength::Iterations(count) => {
            let expected = count * initiators(point) * loops(point) * rounds(point);
            let expected = expected * operations_per_iteration(point);
            // A thread that is far behind its schedule drops the remaining operations.
            let is_paced = matches!(point.pacing, Pacing::Paced { .. });
            assert!(
                trial.operations == expected || (is_paced && trial.operations < expected),
                "{trial:?}"
            );
        }
    }
    assert_eq!(trial.verified_bytes.is_some(), point.verify.is_on());
    assert_eq!(trial.directions.is_some(), point.roles.bidirectional);
    if let Some(both) = &trial.directions {
        let sum = |of: fn(&TrialDirection) -> u64| of(&both.forward) + of(&both.back);
        assert_eq!(sum(|direction| direction.operations), trial.operations);
        let bytes = sum(|direction| direction.payload_bytes);
        assert_eq!(bytes, trial.payload_bytes);
        let rates = both.forward.bandwidth_bytes_per_s + both.back.bandwidth_bytes_per_s;
        assert!(about(rates, trial.bandwidth_bytes_per_s), "{trial:?}");
    }
    assert!(trial.verified_bytes != Some(0), "{trial:?}");
    assert_eq!(trial.latency_ns_mean.is_some(), point.latency);
}

fn initiators(point: &TransferPoint) -> u64 {
    let ranks = u64::from(point.roles.ranks);
    if point.roles.bidirectional {
        let forward = point.roles.initiators.map_or(ranks / 2, u64::from);
        return forward + forward.min(ranks - forward);
    }
    match (point.roles.traffic, point.roles.initiators) {
        (Traffic::Pair | Traffic::FanIn, Some(asked)) => asked.into(),
        (Traffic::Pair, None) => ranks / 2,
        (Traffic::FanOut | Traffic::InTurn, _) => 1,
        (Traffic::FanIn, None) => ranks - 1,
        (Traffic::AllToAll | Traffic::Shift | Traffic::File, _) => ranks,
        // The number of ranks that initiate in one round.
        (Traffic::Matrix, _) => point.roles.flow_count() / rounds(point),
    }
}

/// Returns the number of loops of an initiating rank that count iterations.
fn loops(point: &TransferPoint) -> u64 {
    match point.batching.of {
        BatchOf::Thread => point.threads.into(),
        BatchOf::Rank => 1,
    }
}

/// Returns the number of rounds of each trial. Each round takes as long as a trial without rounds.
fn rounds(point: &TransferPoint) -> u64 {
    match point.roles.traffic {
        Traffic::InTurn | Traffic::Matrix => point.roles.round_count().into(),
        _ => 1,
    }
}

fn operations_per_iteration(point: &TransferPoint) -> u64 {
    // Number of lanes that each thread of an initiating rank uses at a time.
    let lanes = match point.roles.traffic {
        Traffic::FanOut | Traffic::AllToAll | Traffic::File => u64::from(point.roles.ranks) - 1,
        _ => 1,
    };
    match point.pacing {
        Pacing::PingPong if !point.op.returns_bytes() => 2,
        Pacing::Batch { batch } => u64::from(batch) * lanes,
        _ => 1,
    }
}

fn check_sums(record: &Record, body: &TransferBody, summary: &Summary) {
    let trials = &body.trials;
    assert_eq!(summary.trials as usize, trials.len());
    let sum = |of: fn(&Trial) -> u64| trials.iter().map(of).sum::<u64>();
    assert_eq!(summary.operations, sum(|trial| trial.operations));
    assert_eq!(summary.payload_bytes, sum(|trial| trial.payload_bytes));
    let bandwidths = trials.iter().map(|trial| trial.bandwidth_bytes_per_s);
    check_spread(&summary.bandwidth_bytes_per_s, bandwidths);
    let rates = trials.iter().map(|trial| trial.message_rate_per_s);
    check_spread(&summary.message_rate_per_s, rates);
    let bound = record.bound.as_ref().map(|bound| bound.bytes_per_s);
    let part = bound.map(|bound| summary.bandwidth_bytes_per_s.mean / bound);
    match (summary.utilization, part) {
        (Some(said), Some(part)) => assert!(about(said, part)),
        (said, part) => assert_eq!(said, part),
    }
    match body.point.bound {
        BoundChoice::None => assert_eq!(bound, None),
        BoundChoice::Stated { bytes_per_s } => assert_eq!(bound, Some(bytes_per_s)),
        BoundChoice::Auto => {}
    }
    let is_paced = matches!(body.point.pacing, Pacing::Paced { .. });
    assert_eq!(summary.pace.is_some(), is_paced);
}

fn check_latency(body: &TransferBody, summary: &Summary) {
    let (Some(latency), Some(data)) = (&summary.latency, &body.histogram) else {
        assert!(summary.latency.is_none() && body.histogram.is_none() && !body.point.latency);
        return;
    };
    check_percentiles(latency, &data.to_histogram().unwrap());
    let per_sample = match body.point.pacing {
        Pacing::Batch { .. } | Pacing::PingPong => operations_per_iteration(&body.point),
        Pacing::Stream { .. } | Pacing::Paced { .. } => 1,
    };
    // Operations that were due but never issued have a sample too.
    let unfinished = latency.lower_bounds.map_or(0, |bounds| bounds.unfinished);
    let ended = latency.samples - unfinished;
    assert_eq!(ended * per_sample, summary.operations);
    let of_trials = body.trials.iter().map(|trial| trial.unfinished);
    assert_eq!(of_trials.sum::<u64>(), unfinished);
    let pace = summary.pace.as_ref();
    let never = pace.map_or(0.0, |pace| pace.never_issued_fraction);
    assert_eq!(never > 0.0, unfinished > 0, "{latency:?}");
    let least = body.trials.iter().filter_map(|trial| trial.latency_ns_min);
    assert_eq!(least.min(), Some(latency.latency_ns_min));
    let most = body.trials.iter().filter_map(|trial| trial.latency_ns_max);
    assert_eq!(most.max(), Some(latency.latency_ns_max));
}

fn check_file(body: &FileBody, is_measured: bool, is_cut: bool) {
    let point = &body.point;
    for phase in &body.phases {
        check_phase(point, phase);
        for trial in &phase.trials {
            // The field is missing if verification found an error.
            let verified = trial.verified_bytes.is_some();
            let asked = point.verify_after.contains(&phase.phase);
            assert!(verified == asked || (asked && !is_measured));
        }
    }
    if is_measured {
        let phases = body.phases.iter().map(|phase| phase.phase);
        assert!(phases.eq(point.phases.iter().copied()), "{body:?}");
        let most = point.trials as usize;
        let may_be_fewer = is_cut || point.max_duration_ns.is_some();
        let fewest = if may_be_fewer { 1 } else { most };
        let mut trials = body.phases.iter().map(|phase| phase.trials.len());
        let is_right = trials.all(|count| (fewest..=most).contains(&count));
        assert!(is_right, "{:#?}", body.point);
        let storage = ranks_of(body.storage.iter().map(|part| &part.ranks));
        assert!(storage.into_iter().eq(0..point.ranks));
    }
}

fn check_phase(point: &FilePoint, record: &PhaseRecord) {
    let trials = &record.trials;
    for (index, trial) in (0u32..).zip(trials) {
        assert_eq!(trial.trial, index);
        check_phase_trial(point, record.phase, trial);
    }
    let summary = &record.summary;
    let sum = |of: fn(&PhaseTrial) -> u64| trials.iter().map(of).sum::<u64>();
    let operations = sum(|trial| trial.operations);
    assert_eq!(summary.trials as usize, trials.len());
    assert_eq!(summary.operations, operations);
    assert_eq!(summary.payload_bytes, sum(|trial| trial.payload_bytes));
    let cpu_ns = summary.cpu_ns_per_operation * operations as f64;
    assert!(about(cpu_ns, sum(|trial| trial.transfer_cpu_ns) as f64));
    let bandwidths = trials.iter().map(|trial| trial.bandwidth_bytes_per_s);
    check_spread(&summary.bandwidth_bytes_per_s, bandwidths);
    let rates = trials.iter().map(|trial| trial.operations_per_s);
    check_spread(&summary.operations_per_s, rates);
    let bound = summary.bound.as_ref();
    let part = bound.map(|bound| summary.bandwidth_bytes_per_s.mean / bound.bytes_per_s);
    match (summary.utilization, part) {
        (Some(said), Some(part)) => assert!(about(said, part)),
        // Data that came from the page cache or stayed in it is not compared with the storage's bound.
        (None, Some(_)) => {
            let stays = record.phase.writes() && !point.direct && point.fsync == Fsync::None;
            assert!(stays || trials.iter().any(is_warm), "{summary:?}");
        }
        (said, None) => assert_eq!(said, None),
    }
    // Each transfer must be in exactly one histogram.
    let reads = trials.iter().map(|trial| trial.reads).sum();
    let mut left = [reads, operations - reads];
    for latency in &record.latencies {
        let histogram = latency.histogram.to_histogram().unwrap();
        check_percentiles(&latency.latency, &histogram);
        assert_eq!(left[usize::from(latency.write)], histogram.count());
        left[usize::from(latency.write)] = 0;
    }
    assert_eq!(left, [0, 0], "transfers without a latency");
}

fn is_warm(trial: &PhaseTrial) -> bool {
    let cache = trial.cache.as_ref();
    cache.is_some_and(|cache| !cache.direct && cache.resident_bytes > 0)
}

fn check_phase_trial(point: &FilePoint, phase: Phase, trial: &PhaseTrial) {
    let payload = trial.operations * point.transfer_bytes;
    assert_eq!(trial.payload_bytes, payload, "{trial:?}");
    let (seconds, within) = (trial.total_ns as f64 / 1e9, trial.transfer_ns as f64 / 1e9);
    let bandwidth = payload as f64 / seconds;
    assert!(about(trial.bandwidth_bytes_per_s, bandwidth));
    let rate = trial.operations as f64 / within;
    assert!(about(trial.operations_per_s, rate));
    assert!(trial.total_ns >= trial.transfer_ns, "{trial:?}");
    assert!(trial.total_ns >= trial.open_ns.max(trial.close_ns));
    assert!(trial.transfer_ns >= trial.transfer_of_rank.ns_max);
    assert!(trial.cpu_ns >= trial.transfer_cpu_ns, "{trial:?}");
    match phase {
        Phase::Write => assert_eq!(trial.reads, 0),
        Phase::Read => assert_eq!(trial.reads, trial.operations),
        Phase::Mixed => assert!(trial.reads <= trial.operations),
    }
    let series = &trial.series.bytes;
    assert_eq!(series.iter().sum::<u64>(), payload, "{trial:?}");
    assert_ne!(series.last(), Some(&0));
    assert!(trial.first_done_ns <= trial.last_done_ns, "{trial:?}");
    assert!(trial.first_done_bytes <= payload, "{trial:?}");
    for times in [
        trial.open_of_rank,
        trial.transfer_of_rank,
        trial.close_of_rank,
    ] {
        let range = times.ns_min as f64..=times.ns_max as f64;
        assert!(range.contains(&times.ns_mean), "{times:?}");
        assert!(times.slowest < point.ranks);
    }
    let syncs = point.fsync != Fsync::None && phase.writes();
    assert_eq!(trial.sync_of_rank.is_some(), syncs, "{trial:?}");
    assert_eq!(trial.cache.is_some(), phase.reads());
    if let Some(cache) = &trial.cache {
        assert!(cache.resident_bytes <= cache.bytes, "{cache:?}");
        let asked = (point.drop_caches, point.direct);
        assert_eq!((cache.dropped, cache.direct), asked);
    }
    assert_eq!(trial.stonewall.is_some(), point.stonewall.is_some());
    let ranks = u64::from(point.ranks);
    let Some(wall) = &trial.stonewall else {
        // With a status file, a reader may read less.
        if point.status_file.is_none() {
            assert_eq!(payload, ranks * point.bytes_of_rank());
        }
        return;
    };
    assert!(wall.operations <= trial.operations, "{trial:?}");
    assert_eq!(wall.payload_bytes, wall.operations * point.transfer_bytes);
    assert!(wall.rank_bytes_min * ranks <= wall.payload_bytes);
    assert!(wall.rank_bytes_max * ranks >= wall.payload_bytes);
    let wears_out = point.stonewall.is_some_and(|wall| wall.wear_out);
    assert_eq!(wall.worn_out_transfers.is_some(), wears_out);
}
