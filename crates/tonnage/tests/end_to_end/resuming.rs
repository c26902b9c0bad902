//! An interrupted run resumes where it stopped.

use std::fs;

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::Outcome;

use super::support::{BRIEF, records, tonnage, wait_for_records};

#[test]
fn a_line_that_was_cut_short_is_measured_again() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let arguments = format!("transfer --engine shm --op write --ranks 2 --sizes 8..64 {BRIEF}");
    tonnage(dir.path(), &format!("{arguments} -o r.jsonl")).succeed();
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 4);
    // Keeps two whole lines and half of a third.
    let kept = lines[0].len() + lines[1].len();
    fs::write(&path, &whole[..kept + lines[2].len() / 2]).unwrap();

    let shown = tonnage(dir.path(), "show r.jsonl").run().with_code(0);
    assert_eq!(shown.rows().len(), 2, "{shown:#?}");
    let shown = shown.saying(&["not whole"]);
    assert_eq!(shown.stderr.lines().count(), 1, "{shown:#?}");
    tonnage(dir.path(), &format!("{arguments} -o r.jsonl"))
        .run()
        .with_code(2)
        .with_one_error(&["in the middle of a line", "--resume"]);

    let run = tonnage(dir.path(), &format!("{arguments} --resume r.jsonl")).succeed();
    assert_eq!(run.rows().len(), 4, "the table is whole: {run:#?}");
    let after = fs::read_to_string(&path).unwrap();
    assert!(
        after.starts_with(&whole[..kept]),
        "whole lines are untouched"
    );
    let ids = records::read(&path).into_iter().map(|record| record.run_id);
    let [one, two, three, four] = &ids.collect::<Vec<_>>()[..] else {
        panic!("{after}")
    };
    assert!(one == two && two != three && three == four, "{after}");

    tonnage(dir.path(), &format!("{arguments} --resume r.jsonl")).succeed();
    let again = fs::read_to_string(&path).unwrap();
    assert_eq!(again, after, "nothing was left to measure");
}

#[test]
fn a_killed_run_goes_on() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let arguments = "transfer --engine shm --op write --ranks 2 --sizes 8..1k --trials 2 --trial-time 50ms \
                     --warmup 0 --bound none --resume r.jsonl";
    let run = tonnage(dir.path(), arguments).start();
    wait_for_records(dir.path(), 2);
    run.signal(Signal::KILL);
    let killed = run.end();
    assert_eq!(killed.code, None, "{killed:#?}");
    let run = tonnage(dir.path(), arguments).succeed();
    assert_eq!(run.rows().len(), 8, "{run:#?}");
    // The interrupted attempt may have a record as a failure, but no point may be measured twice.
    let mut records = records::read(&path);
    records.retain(|record| record.outcome == Outcome::Measured);
    let of_first = records
        .iter()
        .filter(|record| record.run_id == records[0].run_id);
    assert!((2..8).contains(&of_first.count()));
    let sizes = records
        .iter()
        .map(|record| records::body(record).point.slots.size_bytes);
    assert!(sizes.eq([8, 16, 32, 64, 128, 256, 512, 1024]));
    let shown = tonnage(dir.path(), "show r.jsonl").succeed();
    assert_eq!(shown.stdout, run.stdout);
}
