//! Records of a file, checked one by one: against the schema, and against themselves.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::tempdir;
use tonnage_plan::point::{LimitChoice, Traffic};
use tonnage_plan::transfer::{BatchOf, Pacing, TransferPoint, TrialLength};
use tonnage_record::histogram::LatencyHistogram;
use tonnage_record::read::read_records;
use tonnage_record::transfer::{Summary, TransferBody, Trial, TrialDirection};
use tonnage_record::{Outcome, Record};
use tonnage_report::{Format, render};

use super::{Ended, tonnage, words};

/// The records of a file, each checked.
pub fn read(path: &Path) -> Vec<Record> {
    parse(&std::fs::read_to_string(path).unwrap())
}

/// The records of these lines, each checked.
pub fn parse(text: &str) -> Vec<Record> {
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "a broken last line"
    );
    text.lines().map(check).collect()
}

/// The records of a file that a run filled alone; drawing them again must give what the run printed.
pub fn shown(dir: &Path, file: &str, run: &Ended, format: Format) -> Vec<Record> {
    let path = dir.join(file);
    let again = render(format, &read_records(&path).unwrap().records).unwrap();
    assert_eq!(again, run.stdout);
    read(&path)
}

/// The same of records of any kind in r.jsonl.
pub fn shown_of_any_kind(dir: &Path, run: &Ended) -> Vec<Record> {
    let path = dir.join("r.jsonl");
    let again = render(Format::Table, &read_records(&path).unwrap().records).unwrap();
    assert_eq!(again, run.stdout);
    of_any_kind(&path)
}

/// Runs a transfer, which has to succeed; gives what it printed, and its records.
pub fn transfer(arguments: &str) -> (Ended, Vec<Record>) {
    let dir = tempdir().unwrap();
    let line = format!("transfer {arguments} -o r.jsonl");
    let run = tonnage(dir.path(), &line).succeed();
    let records = shown(dir.path(), "r.jsonl", &run, Format::Table);
    (run, records)
}

/// The records of two trials of 40 operations, or batches, and the table with single blanks.
pub fn measured(arguments: &str) -> (Vec<Record>, String) {
    let limit = match arguments.contains("--link-speed") {
        true => "",
        false => "--limit none",
    };
    let line = format!("{arguments} --trials 2 --iters 40 --warmup 1ms {limit}");
    let (run, records) = transfer(&line);
    (records, words(&run.stdout))
}

pub fn body(record: &Record) -> &TransferBody {
    record.transfer().unwrap()
}

pub fn summary(record: &Record) -> &Summary {
    body(record).summary.as_ref().unwrap()
}

/// The reason why a point was not measured.
pub fn why(record: &Record) -> &str {
    match &record.outcome {
        Outcome::Skipped { why } | Outcome::Failed { why } => why,
        Outcome::Measured => panic!("it was measured: {record:#?}"),
    }
}

/// The reason why a point was skipped.
pub fn why_skipped(record: &Record) -> &str {
    assert!(
        matches!(record.outcome, Outcome::Skipped { .. }),
        "{record:#?}"
    );
    why(record)
}

/// The reason why a point failed.
pub fn why_failed(record: &Record) -> &str {
    assert!(
        matches!(record.outcome, Outcome::Failed { .. }),
        "{record:#?}"
    );
    why(record)
}

/// CSV as columns by their names, of the first row.
pub fn first_row(csv: &str) -> BTreeMap<&str, &str> {
    let mut lines = csv.lines().map(|line| line.split(','));
    lines.next().unwrap().zip(lines.next().unwrap()).collect()
}

/// A line as JSON that the schema allows.
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

/// Records of any kind, which the schema allows.
pub fn of_any_kind(path: &Path) -> Vec<Record> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(record_of).collect()
}

fn record_of(line: &str) -> Record {
    serde_json::from_value(allowed(line)).unwrap()
}

fn check(line: &str) -> Record {
    let record = record_of(line);
    if record.outcome == Outcome::Measured {
        check_measured(&record);
    } else {
        let body = body(&record);
        assert!(body.summary.is_none() && body.histogram.is_none(), "{line}");
    }
    record
}

/// Equal but for the last bits, which depend on the order of additions.
pub fn about(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * left.abs().max(right.abs())
}

fn check_measured(record: &Record) {
    let (body, summary) = (body(record), summary(record));
    let (point, trials) = (&body.point, body.trials.len());
    body.trials
        .iter()
        .for_each(|trial| check_trial(point, trial));
    match point.length.until_ci {
        None => assert_eq!(trials, point.length.trials as usize),
        Some(_) => assert!(trials >= point.length.trials as usize),
    }
    assert_eq!(summary.converged.is_some(), point.length.until_ci.is_some());
    check_sums(record, summary);
    check_latency(body, summary);
    check_phases(point, summary);
    assert!(record.canary.is_some());
    let effective = record.effective.iter();
    assert_eq!(
        ranks_of(effective.map(|part| &part.ranks)),
        all(point.ranks)
    );
    let environment = record.environment.iter();
    assert_eq!(
        ranks_of(environment.map(|part| &part.ranks)),
        all(point.ranks)
    );
    let workers = point.workers as usize;
    assert!(
        record
            .effective
            .iter()
            .all(|part| part.cpus.len() == workers)
    );
}

/// The phases of a batch make up its latency, so their means do.
fn check_phases(point: &TransferPoint, summary: &Summary) {
    let is_timed = point.latency && matches!(point.pacing, Pacing::Batch { .. });
    assert_eq!(summary.batch_phases.is_some(), is_timed);
    let (Some(phases), Some(latency)) = (&summary.batch_phases, &summary.latency) else {
        return;
    };
    let each = [&phases.prepare, &phases.post, &phases.complete];
    let sum: f64 = each.iter().map(|phase| phase.time_ns_mean).sum();
    assert!(
        about(sum, latency.latency_ns_mean),
        "{phases:?} {latency:?}"
    );
    for phase in each {
        assert!(phase.time_ns_p50 <= phase.time_ns_p99, "{phases:?}");
        assert!(phase.time_ns_p50 <= latency.latency_ns_max, "{phases:?}");
    }
}

/// These ranks, from 0.
pub fn all(ranks: u32) -> Vec<u32> {
    (0..ranks).collect()
}

/// The ranks that lists such as "0-3,8" name.
pub fn ranks_of<'a>(lists: impl Iterator<Item = &'a String>) -> Vec<u32> {
    let mut ranks = Vec::new();
    for part in lists.flat_map(|list| list.split(',')) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        ranks.extend(first.parse::<u32>().unwrap()..=last.parse().unwrap());
    }
    ranks.sort_unstable();
    ranks
}

/// Every operation of a trial is in one interval.
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
    assert!(
        whole_ns < trial.window_ns || series.operations.len() == 1,
        "{trial:?}"
    );
}

fn check_trial(point: &TransferPoint, trial: &Trial) {
    check_series(point, trial);
    let size = u64::from(point.size_bytes);
    let moved = if point.engine == "null" {
        0
    } else {
        trial.operations * size
    };
    assert_eq!(trial.payload_bytes, moved, "{trial:?}");
    assert!(trial.operations > 0, "{trial:?}");
    let seconds = trial.window_ns as f64 / 1e9;
    assert!(about(
        trial.bandwidth_bytes_per_s,
        trial.payload_bytes as f64 / seconds
    ));
    assert!(about(
        trial.message_rate_per_s,
        trial.operations as f64 / seconds
    ));
    match point.length.trial {
        TrialLength::Iterations(_) if point.loads.is_some() => {
            let bytes = point.loads.as_ref().unwrap().total();
            assert_eq!(trial.operations, bytes / size, "{trial:?}");
        }
        TrialLength::DurationNs(_) if point.iterations_max().is_some() => {
            let most = point.iterations_max().unwrap() * operations_per_iteration(point);
            let most = most * initiators(point) * u64::from(point.workers) * rounds(point);
            assert!((1..=most).contains(&trial.operations), "{trial:?}");
        }
        TrialLength::DurationNs(ns) => {
            assert!(trial.window_ns >= ns * rounds(point), "{trial:?}");
        }
        TrialLength::Iterations(count) => {
            let expected = count * initiators(point) * loops(point) * rounds(point);
            let expected = expected * operations_per_iteration(point);
            // Whoever is far behind a timetable gives the rest of it up.
            let is_paced = matches!(point.pacing, Pacing::Paced { .. });
            assert!(
                trial.operations == expected || (is_paced && trial.operations < expected),
                "{trial:?}"
            );
        }
    }
    assert_eq!(trial.verified_bytes.is_some(), point.verify.is_on());
    assert_eq!(trial.directions.is_some(), point.bidirectional);
    if let Some(both) = &trial.directions {
        let sum = |of: fn(&TrialDirection) -> u64| of(&both.forward) + of(&both.back);
        assert_eq!(sum(|direction| direction.operations), trial.operations);
        assert_eq!(
            sum(|direction| direction.payload_bytes),
            trial.payload_bytes
        );
        let rates = both.forward.bandwidth_bytes_per_s + both.back.bandwidth_bytes_per_s;
        assert!(about(rates, trial.bandwidth_bytes_per_s), "{trial:?}");
    }
    assert!(trial.verified_bytes != Some(0), "{trial:?}");
    assert_eq!(trial.latency_ns_mean.is_some(), point.latency);
}

fn initiators(point: &TransferPoint) -> u64 {
    let ranks = u64::from(point.ranks);
    if point.bidirectional {
        let forward = point.initiators.map_or(ranks / 2, u64::from);
        return forward + forward.min(ranks - forward);
    }
    match (point.traffic, point.initiators) {
        (Traffic::Pair | Traffic::FanIn, Some(asked)) => asked.into(),
        (Traffic::Pair, None) => ranks / 2,
        (Traffic::FanOut | Traffic::InTurn, _) => 1,
        (Traffic::FanIn, None) => ranks - 1,
        (Traffic::AllToAll | Traffic::Shift | Traffic::File, _) => ranks,
        // Those of a round.
        (Traffic::Matrix, _) => point.roles().flows() / rounds(point),
    }
}

/// Loops of an initiating rank that count iterations.
fn loops(point: &TransferPoint) -> u64 {
    match point.batching.of {
        BatchOf::Worker => point.workers.into(),
        BatchOf::Rank => 1,
    }
}

/// Rounds of each trial, as long as a trial of one round.
fn rounds(point: &TransferPoint) -> u64 {
    match point.traffic {
        Traffic::InTurn | Traffic::Matrix => point.roles().rounds().into(),
        _ => 1,
    }
}

/// Lanes at a time of each worker of an initiating rank.
fn lanes(point: &TransferPoint) -> u64 {
    match point.traffic {
        Traffic::FanOut | Traffic::AllToAll | Traffic::File => u64::from(point.ranks) - 1,
        _ => 1,
    }
}

fn operations_per_iteration(point: &TransferPoint) -> u64 {
    match point.pacing {
        Pacing::PingPong if !point.op.fetches() => 2,
        Pacing::Batch { batch } => u64::from(batch) * lanes(point),
        _ => 1,
    }
}

fn check_sums(record: &Record, summary: &Summary) {
    let body = body(record);
    let trials = &body.trials;
    assert_eq!(summary.trials as usize, trials.len());
    let sum = |of: fn(&Trial) -> u64| trials.iter().map(of).sum::<u64>();
    assert_eq!(summary.operations, sum(|trial| trial.operations));
    assert_eq!(summary.payload_bytes, sum(|trial| trial.payload_bytes));
    type Rate = fn(&Trial) -> f64;
    let rates: [(_, Rate); 2] = [
        (summary.bandwidth_bytes_per_s, |trial| {
            trial.bandwidth_bytes_per_s
        }),
        (summary.message_rate_per_s, |trial| trial.message_rate_per_s),
    ];
    for (spread, of) in rates {
        let mean = trials.iter().map(of).sum::<f64>() / trials.len() as f64;
        assert!(about(spread.mean, mean), "{spread:?}");
        assert_eq!(spread.min, trials.iter().map(of).fold(f64::MAX, f64::min));
        assert_eq!(spread.max, trials.iter().map(of).fold(0.0, f64::max));
        assert_eq!(spread.ci95.is_some(), trials.len() > 1);
    }
    let mean = summary.bandwidth_bytes_per_s.mean;
    let limit = record.limit.as_ref();
    let part = limit.map(|limit| mean / limit.bytes_per_s);
    match (summary.utilization, part) {
        (Some(said), Some(part)) => assert!(about(said, part)),
        (said, part) => assert_eq!(said, part),
    }
    match body.point.limit {
        LimitChoice::None => assert_eq!(limit, None),
        LimitChoice::Stated { bytes_per_s } => assert_eq!(limit.unwrap().bytes_per_s, bytes_per_s),
        LimitChoice::Auto => {}
    }
    let is_paced = matches!(body.point.pacing, Pacing::Paced { .. });
    assert_eq!(summary.pace.is_some(), is_paced);
}

fn check_latency(body: &TransferBody, summary: &Summary) {
    let (Some(latency), Some(data)) = (&summary.latency, &body.histogram) else {
        assert!(summary.latency.is_none() && body.histogram.is_none() && !body.point.latency);
        return;
    };
    let histogram = LatencyHistogram::from_data(data).unwrap();
    assert_eq!(histogram.count(), latency.samples);
    let per_sample = match body.point.pacing {
        Pacing::Batch { .. } | Pacing::PingPong => operations_per_iteration(&body.point),
        Pacing::Stream { .. } | Pacing::Paced { .. } => 1,
    };
    // What was due and never issued has a sample too.
    let unfinished = latency.lower_bounds.map_or(0, |bounds| bounds.unfinished);
    let ended = latency.samples - unfinished;
    assert_eq!(ended * per_sample, summary.operations);
    let of_trials = body.trials.iter().map(|trial| trial.unfinished);
    assert_eq!(of_trials.sum::<u64>(), unfinished);
    let pace = summary.pace.as_ref();
    let never = pace.map_or(0.0, |pace| pace.never_issued_fraction);
    assert_eq!(never > 0.0, unfinished > 0, "{latency:?}");
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
    let least = body.trials.iter().filter_map(|trial| trial.latency_ns_min);
    assert_eq!(least.min(), Some(latency.latency_ns_min));
    let most = body.trials.iter().filter_map(|trial| trial.latency_ns_max);
    assert_eq!(most.max(), Some(latency.latency_ns_max));
}
