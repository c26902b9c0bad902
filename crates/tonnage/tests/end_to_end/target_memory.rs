//! Memory of another kind at the targets.

use tempfile::tempdir;
use tonnage_record::{Outcome, Record};

use super::support::{BRIEF, records, tonnage};

/// Kind of memory that each rank really had, from rank 0 on.
fn kinds(record: &Record) -> Vec<String> {
    let ranks = record.transfer().unwrap().point.ranks;
    let of = |rank: u32| {
        let parts = record.effective.iter();
        let mut of_rank = parts.filter(|part| {
            let named = std::iter::once(&part.ranks);
            records::ranks_of(named).contains(&rank)
        });
        let memory = serde_json::to_value(&of_rank.next().unwrap().memory).unwrap();
        let first = memory.as_array().map_or(&memory, |all| &all[0]);
        first["kind"].as_str().unwrap().to_owned()
    };
    (0..ranks).map(of).collect()
}

#[test]
fn each_end_has_its_kind_and_every_byte_is_right() {
    for (engine, more, expected) in [
        ("shm", "--ranks 2", vec!["host", "small"]),
        ("shm", "--ranks 2 --bidirectional", vec!["host", "small"]),
        (
            "fabric:tcp",
            "--ranks 3 --traffic fan-out",
            vec!["host", "small", "small"],
        ),
        (
            "fabric:tcp",
            "--ranks 3 --traffic fan-in",
            vec!["small", "host", "host"],
        ),
    ] {
        let dir = tempdir().unwrap();
        let arguments = format!(
            "transfer --engine {engine} --op write,read,send --sizes 5000 --window 4 --memory host,small \
             --target-memory small {more} --verify {BRIEF} -o r.jsonl"
        );
        let run = tonnage(dir.path(), &arguments).succeed();
        let records = records::shown(dir.path(), "r.jsonl", &run, "table");
        assert_eq!(records.len(), 6, "{engine} {more}");
        for record in &records {
            let point = &record.transfer().unwrap().point;
            match point.target_memory.as_deref() {
                Some("small") => assert_eq!(kinds(record), expected, "{engine} {more}"),
                // The initiator's own kind is no other one.
                _ => {
                    assert_eq!(point.memory, "small");
                    assert!(kinds(record).iter().all(|kind| kind == "small"));
                }
            }
        }
        let said = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("host memory, small memory at the targets"),
            "{run:#?}"
        );
        let csv = tonnage(dir.path(), "show r.jsonl --format csv").succeed();
        let head = csv.stdout.lines().next().unwrap();
        assert!(
            head.split(',').any(|name| name == "target_memory"),
            "{head}"
        );
    }
}

/// A copy within one kind of memory bounds nothing between two.
#[test]
fn two_kinds_have_no_copy_limit() {
    let dir = tempdir().unwrap();
    let brief = BRIEF.replace("--limit none", "");
    let arguments = format!(
        "transfer --engine shm --op write --ranks 2 --sizes 64k --memory host --target-memory small,host {brief} -o r.jsonl"
    );
    let run = tonnage(dir.path(), &arguments).succeed();
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(records[0].limit, None);
    let why = "no limit: copies between memory host and memory small are not measured";
    assert_eq!(records[0].remarks, [why]);
    assert!(run.stdout.contains(why), "{}", run.stdout);
    assert!(records[1].remarks.is_empty());
    let yields = records[1].effective.iter().any(|part| part.yielding);
    assert!(yields || records[1].limit.is_some(), "{:#?}", records[1]);
}

#[test]
fn a_kind_that_only_the_targets_lack_is_skipped_and_nonsense_refused() {
    let dir = tempdir().unwrap();
    let transfer = "transfer --engine shm --op write --ranks 2 --sizes 64";
    let arguments = format!("{transfer} --target-memory gpu,host --optional {BRIEF} -o r.jsonl");
    tonnage(dir.path(), &arguments).succeed();
    let records = records::read(&dir.path().join("r.jsonl"));
    let outcomes: Vec<_> = records.iter().map(|record| &record.outcome).collect();
    let [Outcome::Skipped { why, .. }, Outcome::Measured] = &outcomes[..] else {
        panic!("{outcomes:#?}");
    };
    assert!(why.contains("has no memory of that name"), "{why}");
    for (more, said) in [
        ("--target-memory smal", "did you mean"),
        ("--target-memory gpu", "gpu"),
        (
            "--target-memory small --traffic all-to-all",
            "every rank is both: leave target-memory out, or use traffic pair",
        ),
    ] {
        let run = tonnage(dir.path(), &format!("{transfer} {more}"))
            .run()
            .with_code(2);
        assert!(run.stderr.contains(said), "{more}: {run:#?}");
    }
}
