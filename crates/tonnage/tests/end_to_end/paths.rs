//! Several queue pairs between two workers, and operations that are cut into parts.

use tempfile::tempdir;
use tonnage_record::Record;

use super::support::{BRIEF, records, tonnage};

fn measured(arguments: &str) -> Vec<Record> {
    let dir = tempdir().unwrap();
    let brief = BRIEF.replace("--trial-time 5ms", "--iters 40");
    let arguments = format!("transfer {arguments} {brief} -o r.jsonl");
    let run = tonnage(dir.path(), &arguments).succeed();
    records::shown(dir.path(), "r.jsonl", &run, "table")
}

/// Queue pairs, bytes of a part, and operations of each record.
fn figures(records: &[Record]) -> Vec<(u32, Option<u32>, u64)> {
    let bodies = records.iter().map(|record| record.transfer().unwrap());
    let of = |body: &tonnage_record::transfer::TransferBody| {
        let summary = body.summary.as_ref().unwrap();
        let chunk = body.point.cut.map(|cut| cut.chunk_bytes);
        (body.point.queue_pairs, chunk, summary.operations)
    };
    bodies.map(of).collect()
}

/// Two trials of 40 operations, whatever the number of their parts; every byte of each is checked.
#[test]
fn every_byte_arrives_by_several_queue_pairs_and_in_parts() {
    for engine in ["shm", "fabric:shm", "fabric:tcp"] {
        for op in ["write", "write-imm", "read"] {
            let records = measured(&format!(
                "--engine {engine} --op {op} --ranks 2 --sizes 5000 --window 8 --qps 1,3 --chunk 1000,5000 --verify"
            ));
            let expected = [(1, 1000), (1, 5000), (3, 1000), (3, 5000)];
            let expected = expected.map(|(qps, chunk)| (qps, Some(chunk), 80));
            assert_eq!(figures(&records), expected, "{engine} {op}");
            let effective = &records[2].effective[0].engine;
            let said = serde_json::to_value(effective).unwrap();
            assert_eq!(
                (&said["queue_pairs"], &said["chunk_bytes"]),
                (&3.into(), &1000.into())
            );
        }
        let sends = measured(&format!(
            "--engine {engine} --op send --ranks 3 --traffic all-to-all --sizes 64 --batch 5 --qps 1,4 --verify"
        ));
        let expected = [1, 4].map(|qps| (qps, None, 80 * 5 * 6));
        assert_eq!(figures(&sends), expected, "{engine}");
    }
}

/// A sender of parts and its answering target, whose operations each count once.
#[test]
fn an_answer_waits_for_the_last_part() {
    let records = measured(
        "--engine fabric:tcp --op write-imm --ranks 3 --traffic fan-in --ping-pong --sizes 3000 --qps 2 --chunk 1000 --verify",
    );
    assert_eq!(figures(&records), [(2, Some(1000), 80 * 2 * 2)]);
    let records =
        measured("--engine null --op write-imm --ranks 2 --ping-pong --sizes 3000 --chunk 1000");
    assert_eq!(figures(&records), [(1, Some(1000), 160)]);
}

#[test]
fn paths_are_columns_where_rows_differ_in_them_and_in_the_title_else() {
    let dir = tempdir().unwrap();
    let transfer = format!("transfer --engine shm --op write --ranks 2 --sizes 4k {BRIEF}");
    let run = tonnage(dir.path(), &format!("{transfer} --qps 1,2 --chunk 1k,2k")).succeed();
    assert_eq!(run.rows().len(), 4, "{run:#?}");
    assert!(run.stdout.contains("  QPs  Chunk  "), "{run:#?}");
    let run = tonnage(
        dir.path(),
        &format!("{transfer} --qps 2 --chunk 1k --max-chunks 3"),
    )
    .succeed();
    let title = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let said =
        "2 queue pairs for each worker and peer; operations cut into parts of 1 KiB, at most 3; ";
    assert!(title.contains(said), "{run:#?}");
    assert!(!run.stdout.contains("  QPs  "), "{run:#?}");
}

#[test]
fn what_paths_cannot_carry_is_refused_before_a_rank_starts() {
    let dir = tempdir().unwrap();
    for (arguments, refusal) in [
        (
            "--op send --chunk 1k",
            "a send needs a receive for each: leave chunk out, or use op write-imm",
        ),
        (
            "--op write --ping-pong --qps 2",
            "leave qps out, or use op write-imm",
        ),
        (
            "--op write --ping-pong --chunk 8",
            "leave chunk out, or use op write-imm",
        ),
        (
            "--op write --chunk 4k",
            "write a smaller chunk, or leave chunk out",
        ),
        (
            "--op write --max-chunks 4",
            "leave max-chunks out, or write chunk 64k",
        ),
        ("--op write --qps 0", "the fewest is qps 1"),
    ] {
        let line = format!("transfer --engine shm --ranks 2 --sizes 4k {arguments}");
        let run = tonnage(dir.path(), &line).run().with_code(2);
        assert!(run.stderr.contains(refusal), "{arguments}: {run:#?}");
    }
}
