//! Ranks on one machine with different clocks, each in its own time namespace.

use std::process::Command;

use tempfile::tempdir;
use tonnage_record::{Body, Outcome, Record};

use super::support::{SECRET, free_port, records, under};

/// Clocks of rank 0 and rank 1 relative to the machine's clock, in seconds. Some are behind, and one is far ahead.
const CLOCKS: [(i64, i64); 3] = [(0, 86_400), (0, -20), (7200, 3600)];

/// Returns whether this machine can shift a clock this far, and prints the reason if not.
fn can_shift(seconds: i64) -> bool {
    let tried = Command::new("unshare")
        .args(["--time", "--monotonic", &seconds.to_string(), "true"])
        .output();
    match tried {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            println!("skip: no time namespace {seconds} s from this one: {why}");
            false
        }
        Err(error) => {
            println!("skip: no unshare: {error}");
            false
        }
    }
}

/// Runs two ranks with each pair of clocks that this machine supports, and returns their records.
fn each(arguments: &str) -> Vec<Record> {
    let mut all = Vec::new();
    for clocks in CLOCKS {
        if !(can_shift(clocks.0) && can_shift(clocks.1)) {
            continue;
        }
        let (dir, port) = (tempdir().unwrap(), free_port());
        let start = |(rank, seconds): (u32, i64)| {
            let launcher = match seconds {
                0 => String::new(),
                seconds => format!("unshare --time --monotonic {seconds} --fork --kill-child"),
            };
            under(dir.path(), &launcher, &format!("{arguments} -o r.jsonl"))
                .launched(rank, 2, port)
                .env("TONNAGE_SECRET", SECRET)
                .start()
        };
        let started = [(0, clocks.0), (1, clocks.1)].map(start);
        let ended = started.map(|rank| rank.end().with_code(0));
        let found = records::read(&dir.path().join("r.jsonl"));
        assert!(!found.is_empty());
        for record in found {
            assert_eq!(record.outcome, Outcome::Measured, "{ended:#?}");
            let ahead = if clocks.1 > clocks.0 {
                "ahead"
            } else {
                "behind"
            };
            let is_named = |remark: &String| {
                remark.starts_with("ranks 1 do not read rank 0's clock") && remark.contains(ahead)
            };
            assert!(record.remarks.iter().any(is_named), "{:?}", record.remarks);
            let told = ended[0].stdout.contains("do not read rank 0's clock");
            assert!(told, "{ended:#?}");
            all.push(record);
        }
    }
    all
}

/// Far more than a busy machine adds to a time, and less than every difference between the clocks.
const MOST_NS: u64 = 15_000_000_000;

#[test]
fn transfers_are_timed_right_across_time_namespaces() {
    let arguments = "transfer --engine shm --op write-imm --sizes 4k --trials 2 --trial-time 100ms --bound none";
    for record in each(arguments) {
        for trial in &records::body(&record).trials {
            assert!(
                (50_000_000..MOST_NS).contains(&trial.window_ns),
                "{trial:?}"
            );
            assert!(trial.start_skew_ns < MOST_NS, "{trial:?}");
        }
    }
}

#[test]
fn connections_are_timed_right_across_time_namespaces() {
    for record in each("connect --engine shm --trials 1 --duration 50ms") {
        let Body::Connect(body) = &record.body else {
            panic!("{record:?}");
        };
        assert!(body.trials[0].window_ns < MOST_NS, "{body:?}");
    }
}

#[test]
fn collectives_run_across_time_namespaces() {
    let arguments = "collective --backend native:shm --op all-reduce --sizes 1k --per-rank --trials 2 --iters 200";
    for record in each(arguments) {
        assert!(matches!(record.body, Body::Collective(_)), "{record:?}");
    }
}

#[test]
fn files_are_timed_right_across_time_namespaces() {
    let arguments =
        "file --engine posix --path t --block 64k --transfer 64k --segments 4 --bound none";
    for record in each(arguments) {
        let mut trials = record
            .file()
            .unwrap()
            .phases
            .iter()
            .flat_map(|phase| &phase.trials);
        assert!(trials.all(|trial| trial.total_ns < MOST_NS), "{record:#?}");
    }
}
