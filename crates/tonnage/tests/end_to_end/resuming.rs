//! A run that was interrupted goes on where it was.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::Outcome;

use super::support::{BRIEF, records, tonnage, wait_until};

fn run_ids(path: &Path) -> Vec<String> {
    records::read(path)
        .into_iter()
        .map(|record| record.run_id)
        .collect()
}

#[test]
fn a_line_that_was_cut_short_is_measured_again() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let arguments = format!("transfer --engine shm --op write --ranks 2 --sizes 8..64 {BRIEF}");
    tonnage(dir.path(), &format!("{arguments} -o r.jsonl")).succeed();
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 4);
    // Two whole lines and half of a third.
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
    let ids = run_ids(&path);
    assert_eq!(ids.len(), 4);
    assert!(
        ids[0] == ids[1] && ids[1] != ids[2] && ids[2] == ids[3],
        "{ids:?}"
    );

    tonnage(dir.path(), &format!("{arguments} --resume r.jsonl")).succeed();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        after,
        "nothing was left to measure"
    );
}

#[test]
fn a_killed_run_goes_on() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let arguments = "transfer --engine shm --op write --ranks 2 --sizes 8..1k --trials 2 --trial-time 50ms \
                     --warmup 0 --limit none --resume r.jsonl";
    let run = tonnage(dir.path(), arguments).start();
    wait_until("two points are done", || {
        fs::read_to_string(&path).is_ok_and(|text| text.lines().count() >= 2)
    });
    run.signal(Signal::KILL);
    let killed = run.end();
    assert_eq!(killed.code, None, "{killed:#?}");
    let run = tonnage(dir.path(), arguments).succeed();
    assert_eq!(run.rows().len(), 8, "{run:#?}");
    // The attempt that was interrupted may stand there as a failure; nothing was measured twice.
    let records: Vec<_> = records::read(&path)
        .into_iter()
        .filter(|record| record.outcome == Outcome::Measured)
        .collect();
    let first = &records[0].run_id;
    let of_first = records.iter().filter(|record| record.run_id == *first);
    assert!((2..8).contains(&of_first.count()));
    let sizes: Vec<_> = records
        .iter()
        .map(|record| record.transfer().unwrap().point.size_bytes)
        .collect();
    assert_eq!(sizes, [8, 16, 32, 64, 128, 256, 512, 1024]);
    let shown = tonnage(dir.path(), "show r.jsonl").succeed();
    assert_eq!(shown.stdout, run.stdout);
}
