//! Plans with experiments of several kinds make one run and one file of records, which can be resumed.

use std::fs;
use std::path::Path;

use tempfile::tempdir;
use tonnage_record::{Outcome, Record};

use super::support::{records, tonnage, wait_for_records};

/// A plan with a transfer, files, connections, and another transfer, in this order.
const PLAN: &str = r#"
name = "mixed"

[[transfer]]
engine = "shm"
op = "write"
sizes = "64"
trials = 1
trial-time = "5ms"
warmup = "0"
bound = "none"

[[file]]
path = "t"
block = "64k"
transfer = "4k"
bound = "none"

[[connect]]
engine = "shm"
trials = 1
duration = "10ms"

[[transfer]]
engine = "shm"
op = "write"
sizes = "128"
trials = 1
trial-time = "LAST"
warmup = "0"
bound = "none"
"#;

fn plan(dir: &Path, last: &str) {
    fs::write(dir.join("mixed.toml"), PLAN.replace("LAST", last)).unwrap();
}

fn kinds(records: &[Record]) -> Vec<&'static str> {
    let kind = |record: &Record| match record.transfer() {
        Some(_) => "transfer",
        None if record.file().is_some() => "file",
        None if record.connect().is_some() => "connect",
        None => "none of them",
    };
    records.iter().map(kind).collect()
}

#[test]
fn a_plan_of_all_kinds_is_one_run() {
    let dir = tempdir().unwrap();
    plan(dir.path(), "5ms");
    let arguments = "--log-level info run mixed.toml --ranks 2 -o r.jsonl";
    let run = tonnage(dir.path(), arguments).run().with_code(0);
    let asked = run.stderr.matches("of plan mixed").count();
    assert_eq!(asked, 1, "hosts are described once: {run:#?}");
    let records = records::shown(dir.path(), &run);
    assert_eq!(kinds(&records), ["transfer", "file", "connect", "transfer"]);
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
        assert_eq!(record.run_id, records[0].run_id);
        assert_eq!(record.environment, records[0].environment);
    }
    // The table has two transfers, seven steps of the connections, and a row for each phase of the files.
    assert_eq!(run.rows().len(), 2 + 8, "{run:#?}");
    run.printing(&["\nwrite ", "\nread "]);
}

#[test]
fn a_mixed_run_resumes_where_it_stopped() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    plan(dir.path(), "5ms");
    tonnage(dir.path(), "run mixed.toml --ranks 2 -o r.jsonl").succeed();
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let resume = || tonnage(dir.path(), "run mixed.toml --ranks 2 --resume r.jsonl").succeed();
    let all = records::read(&path);
    // In each iteration, a different kind is left to measure.
    for left in 0..lines.len() {
        let kept = [&lines[..left], &lines[left + 1..]].concat().concat();
        fs::write(&path, &kept).unwrap();
        resume();
        let after = fs::read_to_string(&path).unwrap();
        assert!(after.starts_with(&kept), "whole lines are untouched");
        let records = records::read(&path);
        assert_eq!(records.len(), lines.len());
        let again = &records[records.len() - 1..];
        assert_ne!(again[0].run_id, records[0].run_id);
        assert_eq!(kinds(again), kinds(&all[left..=left]));
    }
    resume();
    let after = records::read(&path);
    assert_eq!(after.len(), lines.len(), "nothing was left");
}

#[test]
fn a_rank_that_is_killed_in_a_mixed_run_is_named() {
    let dir = tempdir().unwrap();
    plan(dir.path(), "1h");
    let run = tonnage(dir.path(), "run mixed.toml --ranks 2 -o r.jsonl").start();
    wait_for_records(dir.path(), 3);
    run.kill_rank(1);
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(kinds(&records), ["transfer", "file", "connect", "transfer"]);
    let is_measured = records[..3]
        .iter()
        .all(|it| it.outcome == Outcome::Measured);
    assert!(
        is_measured && records::why_failed(&records[3]).contains("rank 1"),
        "{records:#?}"
    );
    assert!(!dir.path().join("t").exists(), "the files are gone");
}
