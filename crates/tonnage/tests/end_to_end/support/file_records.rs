//! Records of file experiments, checked against the schema and against themselves; and running an experiment.

use std::fs;
use std::path::Path;

use tonnage_plan::files::{FilePoint, Fsync, Phase};
use tonnage_record::files::{FileBody, PhaseRecord, PhaseTrial};
use tonnage_record::histogram::LatencyHistogram;
use tonnage_record::read::read_records;
use tonnage_record::{Outcome, Record};
use tonnage_report::{Format, render};

use super::records::{self, about, all, allowed, ranks_of};
use super::{Ended, tonnage, words};

/// Runs an experiment, which must succeed, and returns what it printed and its one record. Nothing is left of the
/// record in the directory.
pub fn measured(dir: &Path, arguments: &str) -> (Ended, Record) {
    let ended = tonnage(dir, &experiment(arguments)).succeed();
    let record = drawn_again(dir, &ended);
    assert_eq!(record.outcome, Outcome::Measured, "{ended:#?}");
    (ended, record)
}

/// The one record of a run; drawing it again must give what the run printed.
fn drawn_again(dir: &Path, ended: &Ended) -> Record {
    let path = dir.join("r.jsonl");
    let again = render(Format::Table, &read_records(&path).unwrap().records).unwrap();
    assert_eq!(again, ended.stdout);
    only(&path)
}

/// Measures with a stonewall: the shortest by which a busy disk had opened the files.
pub fn walled(dir: &Path, arguments: &str) -> (Ended, Record) {
    for wall_ms in [60, 240, 960] {
        let arguments = experiment(&format!("{arguments} --stonewall {wall_ms}ms"));
        let ended = tonnage(dir, &arguments).run();
        let record = drawn_again(dir, &ended);
        if record.outcome == Outcome::Measured {
            return (ended.with_code(0), record);
        }
        let why = why(&record, &ended);
        assert!(why.contains("its stonewall came"), "{why}");
    }
    panic!("no file could be opened within a second");
}

/// Runs an experiment that must end with code 1, and returns why, as its one record says it, and the record.
pub fn failed(dir: &Path, arguments: &str) -> (String, Record) {
    let ended = tonnage(dir, &experiment(arguments)).run().with_code(1);
    let record = only(&dir.join("r.jsonl"));
    (why(&record, &ended), record)
}

/// Reason why an experiment failed or was skipped, which is printed too.
pub fn why(record: &Record, ended: &Ended) -> String {
    let why = records::why(record).to_owned();
    let printed = words(&format!("{} {}", ended.stdout, ended.stderr));
    assert!(printed.contains(&words(&why)), "{why} in {ended:#?}");
    why
}

/// The command line of an experiment whose records are in r.jsonl.
pub fn experiment(arguments: &str) -> String {
    match arguments.contains("--limit") {
        true => format!("file -o r.jsonl {arguments}"),
        false => format!("file --limit none -o r.jsonl {arguments}"),
    }
}

/// The one record of a file, which is removed then. It is checked.
pub fn only(path: &Path) -> Record {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n') && text.lines().count() == 1, "{text}");
    fs::remove_file(path).unwrap();
    check(&text)
}

/// The one body of a record.
pub fn body(record: &Record) -> &FileBody {
    record.file().unwrap()
}

/// The first trial of a phase of the record.
pub fn trial(record: &Record, phase: usize) -> &PhaseTrial {
    &body(record).phases[phase].trials[0]
}

fn check(line: &str) -> Record {
    let record: Record = serde_json::from_value(allowed(line)).unwrap();
    let (body, is_measured) = (body(&record), record.outcome == Outcome::Measured);
    let point = &body.point;
    for phase in &body.phases {
        check_phase(point, phase);
        for trial in &phase.trials {
            // The last is there without when the check found something.
            let verified = trial.verified_bytes.is_some();
            let asked = point.verify_after.contains(&phase.phase);
            assert!(verified == asked || (asked && !is_measured));
        }
    }
    if is_measured {
        let phases = body.phases.iter().map(|phase| phase.phase);
        assert!(phases.eq(point.phases.iter().copied()), "{line}");
        let most = point.trials as usize;
        let fewest = point.max_duration_ns.map_or(most, |_| 1);
        let mut trials = body.phases.iter().map(|phase| phase.trials.len());
        assert!(
            trials.all(|count| (fewest..=most).contains(&count)),
            "{line}"
        );
        let effective = record.effective.iter().map(|part| &part.ranks);
        let storage = body.storage.iter().map(|part| &part.ranks);
        let environment = record.environment.iter().map(|part| &part.ranks);
        let everyone = all(point.ranks);
        assert_eq!(ranks_of(effective), everyone);
        assert_eq!(ranks_of(storage), everyone);
        assert_eq!(ranks_of(environment), everyone);
    }
    record
}

fn check_phase(point: &FilePoint, record: &PhaseRecord) {
    let trials = &record.trials;
    for (index, trial) in (0u32..).zip(trials) {
        assert_eq!(trial.trial, index);
        check_trial(point, record.phase, trial);
    }
    let summary = &record.summary;
    let sum = |of: fn(&PhaseTrial) -> u64| trials.iter().map(of).sum::<u64>();
    let operations = sum(|trial| trial.operations);
    assert_eq!(summary.trials as usize, trials.len());
    assert_eq!(summary.operations, operations);
    assert_eq!(summary.payload_bytes, sum(|trial| trial.payload_bytes));
    let cpu_ns = sum(|trial| trial.transfer_cpu_ns) as f64;
    assert!(about(
        summary.cpu_ns_per_operation * operations as f64,
        cpu_ns
    ));
    type Rate = fn(&PhaseTrial) -> f64;
    let rates: [(_, Rate); 2] = [
        (summary.bandwidth_bytes_per_s, |trial| {
            trial.bandwidth_bytes_per_s
        }),
        (summary.operations_per_s, |trial| trial.operations_per_s),
    ];
    for (spread, of) in rates {
        let mean = trials.iter().map(of).sum::<f64>() / trials.len() as f64;
        assert!(about(spread.mean, mean), "{spread:?}");
        assert_eq!(spread.min, trials.iter().map(of).fold(f64::MAX, f64::min));
        assert_eq!(spread.max, trials.iter().map(of).fold(0.0, f64::max));
    }
    let part = summary
        .limit
        .as_ref()
        .map(|limit| summary.bandwidth_bytes_per_s.mean / limit.bytes_per_s);
    match (summary.utilization, part) {
        (Some(said), Some(part)) => assert!(about(said, part)),
        // What came from the page cache, or stayed there, is not set beside the storage's limit.
        (None, Some(_)) => {
            let stays = record.phase.writes() && !point.direct && point.fsync == Fsync::None;
            assert!(stays || trials.iter().any(is_warm), "{summary:?}");
        }
        (said, None) => assert_eq!(said, None),
    }
    check_latencies(record);
}

fn is_warm(trial: &PhaseTrial) -> bool {
    let cache = trial.cache.as_ref();
    cache.is_some_and(|cache| !cache.direct && cache.resident_bytes > 0)
}

/// Each transfer is in one histogram, once.
fn check_latencies(record: &PhaseRecord) {
    let reads = record.trials.iter().map(|trial| trial.reads).sum();
    let mut left = [reads, record.summary.operations - reads];
    for latency in &record.latencies {
        let histogram = LatencyHistogram::from_data(&latency.histogram).unwrap();
        let figures = &latency.latency;
        assert_eq!(histogram.count(), figures.samples);
        assert_eq!(left[usize::from(latency.write)], figures.samples);
        left[usize::from(latency.write)] = 0;
        let rising = [
            figures.latency_ns_min,
            figures.latency_ns_p50,
            figures.latency_ns_p90,
            figures.latency_ns_p99,
            figures.latency_ns_p999,
            figures.latency_ns_max,
        ];
        assert!(rising.is_sorted(), "{figures:?}");
    }
    assert_eq!(left, [0, 0], "transfers without a latency");
}

fn check_trial(point: &FilePoint, phase: Phase, trial: &PhaseTrial) {
    assert_eq!(
        trial.payload_bytes,
        trial.operations * point.transfer_bytes,
        "{trial:?}"
    );
    let (seconds, within) = (trial.total_ns as f64 / 1e9, trial.transfer_ns as f64 / 1e9);
    assert!(about(
        trial.bandwidth_bytes_per_s,
        trial.payload_bytes as f64 / seconds
    ));
    assert!(about(
        trial.operations_per_s,
        trial.operations as f64 / within
    ));
    assert!(trial.total_ns >= trial.transfer_ns, "{trial:?}");
    assert!(trial.total_ns >= trial.open_ns.max(trial.close_ns));
    assert!(trial.transfer_ns >= trial.transfer_of_rank.ns_max);
    assert!(trial.cpu_ns >= trial.transfer_cpu_ns, "{trial:?}");
    match phase {
        Phase::Write => assert_eq!(trial.reads, 0),
        Phase::Read => assert_eq!(trial.reads, trial.operations),
        Phase::Mixed => assert!(trial.reads <= trial.operations),
    }
    assert_eq!(
        trial.series.bytes.iter().sum::<u64>(),
        trial.payload_bytes,
        "{trial:?}"
    );
    assert_ne!(trial.series.bytes.last(), Some(&0));
    assert!(trial.first_done_ns <= trial.last_done_ns, "{trial:?}");
    assert!(trial.first_done_bytes <= trial.payload_bytes, "{trial:?}");
    let times = [
        trial.open_of_rank,
        trial.transfer_of_rank,
        trial.close_of_rank,
    ];
    for times in times {
        let range = times.ns_min as f64..=times.ns_max as f64;
        assert!(range.contains(&times.ns_mean), "{times:?}");
        assert!(times.slowest < point.ranks);
    }
    assert_eq!(
        trial.sync_of_rank.is_some(),
        point.fsync != Fsync::None && phase.writes(),
        "{trial:?}"
    );
    assert_eq!(trial.cache.is_some(), phase.reads());
    if let Some(cache) = &trial.cache {
        assert!(cache.resident_bytes <= cache.bytes, "{cache:?}");
        assert_eq!(
            (cache.dropped, cache.direct),
            (point.drop_caches, point.direct)
        );
    }
    assert_eq!(trial.stonewall.is_some(), point.stonewall.is_some());
    check_wall(point, trial);
}

fn check_wall(point: &FilePoint, trial: &PhaseTrial) {
    let ranks = u64::from(point.ranks);
    let Some(wall) = &trial.stonewall else {
        // Who reads may have been told how little there is.
        if point.status_file.is_none() {
            assert_eq!(trial.payload_bytes, ranks * point.bytes_of_rank());
        }
        return;
    };
    assert!(wall.operations <= trial.operations, "{trial:?}");
    assert_eq!(wall.payload_bytes, wall.operations * point.transfer_bytes);
    assert!(wall.rank_bytes_min * ranks <= wall.payload_bytes);
    assert!(wall.rank_bytes_max * ranks >= wall.payload_bytes);
    assert_eq!(
        wall.worn_out_transfers.is_some(),
        point.stonewall.is_some_and(|wall| wall.wear_out)
    );
}
