//! Target ranks with a different kind of memory.

use tempfile::tempdir;
use tonnage_record::{Outcome, Record};

use super::support::records::{body, first_row, transfer, why};
use super::support::{BRIEF, records, tonnage};

/// Returns the kind of memory that each rank really used, starting with rank 0.
fn kinds(record: &Record) -> Vec<String> {
    let of = |rank: u32| {
        let mut parts = record.effective.iter();
        let of_rank =
            parts.find(|part| records::ranks_of(std::iter::once(&part.ranks)).contains(&rank));
        let memory = serde_json::to_value(&of_rank.unwrap().memory).unwrap();
        let first = memory.as_array().map_or(&memory, |all| &all[0]);
        first["kind"].as_str().unwrap().to_owned()
    };
    (0..body(record).point.roles.ranks).map(of).collect()
}

#[test]
fn each_end_has_its_kind_and_every_byte_is_right() {
    for (engine, more, expected) in [
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
        let (run, records) = transfer(&format!(
            "--engine {engine} --op write,read,send --sizes 5000 --depth 4 --memory host,small --target-memory small {more} \
             --verify {BRIEF}"
        ));
        assert_eq!(records.len(), 6, "{engine} {more}");
        for record in &records {
            let point = &body(record).point;
            match point.memories.target_memory.as_deref() {
                Some("small") => assert_eq!(kinds(record), expected, "{engine} {more}"),
                // A target memory of the initiators' kind does not count as different.
                _ => {
                    assert_eq!(point.memories.memory, "small");
                    assert!(kinds(record).iter().all(|kind| kind == "small"));
                }
            }
        }
        run.printing(&["host memory, small memory at the targets"]);
    }
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm --op write --ranks 2 --sizes 8 --target-memory small";
    let csv = tonnage(dir.path(), &format!("{line} {BRIEF} --format csv")).succeed();
    assert_eq!(first_row(&csv.stdout)["target_memory"], "small");
}

/// Between two kinds of memory, a copy within one kind is not a bound.
#[test]
fn two_kinds_have_no_copy_bound() {
    let brief = BRIEF.replace("--bound none", "");
    let (run, records) = transfer(&format!(
        "--engine shm --op write --ranks 2 --sizes 64k --memory host --target-memory small,host {brief}"
    ));
    assert_eq!(records[0].bound, None);
    let why = "no bound: copies between memory host and memory small are not measured";
    assert_eq!(records[0].remarks, [why]);
    assert!(run.stdout.contains(why), "{}", run.stdout);
    assert!(records[1].remarks.is_empty());
    let yields = records[1].effective.iter().any(|part| part.yielding);
    assert!(yields || records[1].bound.is_some(), "{:#?}", records[1]);
}

#[test]
fn a_kind_that_only_the_targets_lack_is_skipped() {
    let line = "--engine shm --op write --ranks 2 --sizes 64 --target-memory gpu,host --optional";
    let (_, records) = transfer(&format!("{line} {BRIEF}"));
    let why = why(&records[0]);
    assert!(why.contains("has no memory of that name"), "{why}");
    assert_eq!(
        (records.len(), &records[1].outcome),
        (2, &Outcome::Measured)
    );
}
