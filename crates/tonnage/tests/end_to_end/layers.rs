//! `tonnage layers` and `tonnage verify --collectives` as a user runs them.

use tempfile::tempdir;
use tonnage_record::{Outcome, Record};

use super::support::{records, tonnage};

#[test]
fn each_layer_is_compared_with_the_one_below_it() {
    let dir = tempdir().unwrap();
    let line = "layers --sizes 64k --ranks 2 --rounds 2 --trial-time 10ms --engine shm,fabric:tcp --python no-such-python \
                -o r.jsonl";
    let run = tonnage(dir.path(), line).succeed();
    let cells = |begin: &[&str]| {
        let mut lines = run
            .stdout
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found = lines.find(|words| words.starts_with(begin));
        found.unwrap_or_else(|| panic!("no line {begin:?} in {}", run.stdout))
    };
    for (layer, below) in [
        (&["shm", "write"][..], &["bound", "of", "shm"][..]),
        (&["native:shm", "send-recv-pairs"], &["shm", "write"]),
        (
            &["native:shm", "all-reduce"],
            &["native:shm", "send-recv-pairs"],
        ),
        (&["fabric:tcp", "write"], &["bound", "of", "fabric:tcp"]),
        (
            &["native:fabric:tcp", "send-recv-pairs"],
            &["fabric:tcp", "write"],
        ),
    ] {
        let words = cells(layer);
        // Without a CPU for each rank, a bound cannot be measured.
        if words.len() == 3 && below[0] == "bound" {
            println!("skip: the ranks share a CPU, so that {layer:?} has no bound");
            continue;
        }
        assert!(words.ends_with(below), "{words:?}");
    }
    // Each round has two transfers and two collectives. In each collective, native backends over both engines are
    // measured.
    let records = records::shown(dir.path(), &run);
    assert_eq!(records.len(), 2 * 4);
    let ways = |round: usize| {
        let body = records[round * 4 + 3].collective().unwrap();
        let native = body.backends.iter().filter(|it| it.summary.is_some());
        let ways = native.map(|it| (it.chosen_algorithm, it.chosen_chunk_bytes));
        ways.collect::<Vec<_>>()
    };
    assert_eq!((ways(0).len(), ways(1).len()), (2, 2));
    assert!(
        ways(1)
            .iter()
            .all(|(way, chunk)| way.is_some() && chunk.is_some())
    );
    run.printing(&["torch:gloo send-recv-pairs: skipped: torch.distributed cannot be used here"]);
}

#[test]
fn collectives_are_verified_and_counted() {
    let dir = tempdir().unwrap();
    let line = "verify --collectives=all-reduce,gather --ranks 5 --sizes 20,4100 --python no-such-python -o v.jsonl";
    let run = tonnage(dir.path(), line).succeed();
    let records = records::read(&dir.path().join("v.jsonl"));
    let native = |record: &&Record| record.collective().unwrap().point.backends == ["native:shm"];
    let measured: Vec<_> = records.iter().filter(native).collect();
    assert!(measured.iter().all(|it| it.outcome == Outcome::Measured));
    for body in measured.iter().map(|it| it.collective().unwrap()) {
        // Checked are the first call of each point and the last call of its trial, on all ranks together.
        let shape = body.point.shape();
        let bytes: u64 = (0..5).map(|rank| shape.output_bytes(rank)).sum();
        let checked = body.backends[0].summary.as_ref().unwrap().verified_bytes;
        assert_eq!(checked, 2 * bytes, "{body:#?}");
    }
    let skipped = run
        .stdout
        .lines()
        .filter(|line| line.trim_start().starts_with("torch:gloo skipped"));
    assert_eq!(skipped.count(), 1, "{}", run.stdout);
    run.printing(&["PASS  all checked "]);
    // A backend that the user named must be reported if it is missing.
    let named = "verify --collectives=gather --backend torch:gloo --ranks 2 --sizes 8 --python no-such-python";
    let run = tonnage(dir.path(), named).run().with_code(1);
    run.printing(&["FAIL  nothing was checked"]);
}
