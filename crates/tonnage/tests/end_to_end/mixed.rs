//! Plans with experiments of several kinds: one run, one file of records, one way to take it up again.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::read::read_records;
use tonnage_record::{Outcome, Record};

use super::killing::blames;
use super::support::{records, tonnage, wait_until};

/// A transfer, files, connections, and a transfer, in this order.
const PLAN: &str = r#"
name = "mixed"

[[transfer]]
engine = "shm"
op = "write"
sizes = "64"
trials = 1
trial-time = "5ms"
warmup = "0"
limit = "none"

[[file]]
path = "t"
block = "64k"
transfer = "4k"
limit = "none"

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
limit = "none"
"#;

fn plan(dir: &Path, last: &str) {
    fs::write(dir.join("mixed.toml"), PLAN.replace("LAST", last)).unwrap();
}

/// The records of a file, each allowed by the schema.
fn read(path: &Path) -> Vec<Record> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().for_each(|line| drop(records::allowed(line)));
    read_records(path).unwrap().records
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
    let records = read(&dir.path().join("r.jsonl"));
    assert_eq!(kinds(&records), ["transfer", "file", "connect", "transfer"]);
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
        assert_eq!(record.run_id, records[0].run_id);
        assert_eq!(record.environment, records[0].environment);
    }
    // Two transfers, and the connections with their seven steps.
    assert_eq!(run.rows().len(), 2 + 8, "{run:#?}");
    for phase in ["\nwrite ", "\nread "] {
        let row = run.stdout.contains(phase);
        assert!(row, "a row of each phase: {run:#?}");
    }
    let shown = tonnage(dir.path(), "show r.jsonl").succeed();
    assert_eq!(shown.stdout, run.stdout);
}

#[test]
fn a_mixed_run_is_taken_up_where_it_was() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    plan(dir.path(), "5ms");
    tonnage(dir.path(), "run mixed.toml --ranks 2 -o r.jsonl").succeed();
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    // Each kind in turn is what is left to measure.
    for left in 0..lines.len() {
        let kept: String = (0..lines.len())
            .filter(|&index| index != left)
            .map(|index| lines[index])
            .collect();
        fs::write(&path, &kept).unwrap();
        tonnage(dir.path(), "run mixed.toml --ranks 2 --resume r.jsonl").succeed();
        let after = fs::read_to_string(&path).unwrap();
        assert!(after.starts_with(&kept), "whole lines are untouched");
        let records = read(&path);
        assert_eq!(records.len(), lines.len());
        let again = records.last().unwrap();
        assert_ne!(again.run_id, records[0].run_id);
        let before = read_line(dir.path(), lines[left]);
        assert_eq!(kinds(std::slice::from_ref(again)), kinds(&[before]));
    }
    tonnage(dir.path(), "run mixed.toml --ranks 2 --resume r.jsonl").succeed();
    assert_eq!(read(&path).len(), lines.len(), "nothing was left");
}

fn read_line(dir: &Path, line: &str) -> Record {
    let path = dir.join("line.jsonl");
    fs::write(&path, line).unwrap();
    read(&path).remove(0)
}

#[test]
fn a_rank_that_is_killed_in_a_mixed_run_is_named() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    plan(dir.path(), "1h");
    let run = tonnage(dir.path(), "run mixed.toml --ranks 2 -o r.jsonl").start();
    wait_until("three points are done", || {
        fs::read_to_string(&path).is_ok_and(|text| text.lines().count() >= 3)
    });
    run.signal_rank(1, Signal::KILL);
    let ended = run.end().with_code(1);
    blames(&ended, 1);
    let records = read(&path);
    assert_eq!(kinds(&records), ["transfer", "file", "connect", "transfer"]);
    let measured = |record: &Record| record.outcome == Outcome::Measured;
    assert!(records[..3].iter().all(measured), "{records:#?}");
    let Outcome::Failed { why } = &records[3].outcome else {
        panic!("{:#?}", records[3]);
    };
    assert!(why.contains("rank 1"), "{why}");
    assert!(!dir.path().join("t").exists(), "the files are gone");
}
