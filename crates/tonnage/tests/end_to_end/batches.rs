//! Batches: several in flight, one call or many, and neighbours that become one operation.

use tempfile::tempdir;
use tonnage_plan::transfer::Pacing;
use tonnage_record::Record;

use super::support::records::measured;
use super::support::tonnage;

/// Batches in flight, operations, the most in flight, and operations after merging.
fn figures(records: &[Record]) -> Vec<(u32, u64, u64, Option<u64>)> {
    let of = |record: &Record| {
        let body = record.transfer().unwrap();
        let summary = body.summary.as_ref().unwrap();
        let most = body.trials.iter().filter_map(|trial| trial.in_flight_max);
        (
            body.point.batching.in_flight,
            summary.operations,
            most.max().unwrap(),
            summary.merged_operations,
        )
    };
    records.iter().map(of).collect()
}

/// Two trials of 40 batches, by every engine and way of calling, and every byte of each is right.
#[test]
fn every_byte_of_every_kind_of_batch_arrives() {
    let operations = 80 * 33;
    for engine in ["shm", "fabric:shm", "fabric:tcp"] {
        for call in ["one", "many"] {
            let line = format!(
                "--engine {engine} --ranks 2 --sizes 100 --batch 33 --batches-in-flight 1,3 --batch-call {call} --verify"
            );
            let all = format!("{line} --op write,write-imm,read,send");
            let (records, _) = measured(&all);
            let found = figures(&records);
            assert_eq!(found.len(), 4 * 2, "{all}");
            for (at, row) in found.iter().enumerate() {
                let in_flight = [1, 3][at % 2];
                assert_eq!(
                    (row.0, row.1, row.3),
                    (in_flight, operations, None),
                    "{all}"
                );
                assert!(row.2 <= 33 * u64::from(in_flight), "{all}: {found:?}");
            }
            for (way, ways) in [("--session on,off,fresh", 3), ("--api async", 1)] {
                let line = format!("{line} --op write,write-imm,read {way}");
                let (records, _) = measured(&line);
                assert_eq!(records.len(), 3 * 2 * ways, "{line}");
                for row in figures(&records) {
                    assert_eq!(row.1, operations, "{line}");
                }
            }
        }
    }
}

/// A batch of 64 neighbours is one operation, and cut into eight where a message may be an eighth of it; each byte is
/// where it would be without.
#[test]
fn neighbours_become_one_operation_with_the_same_bytes() {
    for engine in ["shm", "fabric:shm", "fabric:tcp"] {
        for op in ["write", "read"] {
            let line = format!(
                "--engine {engine} --op {op} --ranks 2 --sizes 100 --gap 0 --batch 64 --merge on --verify"
            );
            let (records, table) = measured(&line);
            // The footprint is a whole number of batches, so that none goes over its end.
            assert_eq!(figures(&records)[0].3, Some(80), "{line}: {table}");
            assert_eq!(figures(&records)[0].1, 80 * 64);
            assert!(table.contains("neighbours of a batch merged"), "{table}");
        }
    }
    let line = "--engine shm --op write --ranks 3 --traffic fan-out --sizes 64 --batch 64 --merge on --verify";
    let (records, _) = measured(&format!("{line} --batches-in-flight 4 --chunk 32 --qps 2"));
    assert_eq!(figures(&records)[0].3, Some(80 * 2));
}

/// Two trials of 40 batches of the rank, not of each worker, each timed once.
#[test]
fn workers_of_a_rank_share_batches_out() {
    for engine in ["shm", "fabric:shm", "fabric:tcp"] {
        let line = format!(
            "--engine {engine} --op write,write-imm,read,send --ranks 2 --sizes 100 --workers 3 --batch 3,32 --batch-of \
             rank --batches-in-flight 1,3 --verify"
        );
        let (records, table) = measured(&line);
        assert_eq!(records.len(), 4 * 4, "{line}");
        for record in &records {
            let body = record.transfer().unwrap();
            let summary = body.summary.as_ref().unwrap();
            let Pacing::Batch { batch } = body.point.pacing else {
                panic!("{body:?}");
            };
            assert_eq!(summary.operations, 80 * u64::from(batch), "{line}");
            let samples = summary.latency.as_ref().unwrap().samples;
            assert_eq!(samples, 80, "{line}");
        }
        assert!(
            table.contains("each batch shared by the workers of a rank"),
            "{table}"
        );
    }
    let tcp =
        "--engine fabric:tcp --op write --ranks 4 --traffic all-to-all --sizes 4k --workers 2";
    for (more, rows) in [
        ("--cq event", 1),
        ("--api poll,async", 2),
        ("--merge on --gap 0", 1),
    ] {
        let (records, _) = measured(&format!("{tcp} --batch 5 --batch-of rank --verify {more}"));
        assert_eq!(records.len(), rows, "{more}");
        for row in figures(&records) {
            assert_eq!(row.1, 80 * 5 * 3 * 4, "{more}");
        }
    }
    let (_, both) = measured(
        "--engine null --op write --ranks 2 --sizes 64 --batch 16 --workers 2 --batch-of rank --latency off",
    );
    assert!(!both.contains("phases of a batch"), "{both}");
}

#[test]
fn what_cannot_be_is_refused_before_a_rank_starts() {
    let dir = tempdir().unwrap();
    for (arguments, refusal) in [
        (
            "--op write --window 4 --batches-in-flight 2",
            "batches-in-flight is of batches, and there are none: leave it out, or write batch 64",
        ),
        ("--op write --ping-pong --merge on", "merge is of batches"),
        (
            "--op write --batch-call many",
            "batch-call is of batches, and there are none",
        ),
        (
            "--op write --batch 1M --batches-in-flight 4",
            "write batches-in-flight 1 or less, or a smaller batch",
        ),
        (
            "--op write-imm --batch 8 --merge on",
            "merge on and op write-imm contradict each other",
        ),
        (
            "--op send --batch 8 --merge on",
            "merge on and op send contradict each other",
        ),
        (
            "--op write --batch 8 --merge on --gap 8",
            "write gap 0, or leave merge out",
        ),
        (
            "--op write --batch 8 --merge on --stride 8k",
            "lie between slots of 4096",
        ),
        (
            "--op read --batch 8 --merge on --addresses random",
            "use sequential for both",
        ),
        (
            "--op write --batch 8 --merge on --local-addresses fixed",
            "use sequential for both",
        ),
        (
            "--op write --batch 1 --merge on",
            "a worker's part of a batch or its footprint has one operation",
        ),
        (
            "--op write --batch 8 --merge on --footprint 4k",
            "a worker's part of a batch or its footprint has one operation",
        ),
        (
            "--op write --batch 4 --batches-in-flight 2 --local-addresses permuted --verify",
            "write batches-in-flight 1",
        ),
        ("--op write --batch 8 --merge o", "did you mean"),
        (
            "--op write --window 8 --batch-of rank",
            "batch-of is of batches, and there are none",
        ),
        (
            "--op write --batch 4 --workers 4 --batch-of rank --merge on",
            "a worker's part of a batch or its footprint has one operation",
        ),
    ] {
        let line = format!("transfer --engine shm --ranks 2 --sizes 4k {arguments}");
        let run = tonnage(dir.path(), &line).run().with_code(2);
        assert!(run.stderr.contains(refusal), "{arguments}: {run:#?}");
    }
}

#[test]
fn the_numbers_are_columns_where_rows_differ_in_them_and_in_the_title_else() {
    let line = "--engine null --op write --ranks 2 --sizes 64 --batch 16";
    let (_, one) = measured(&format!("{line} --batches-in-flight 4 --batch-call many"));
    assert!(one.contains("4 batches in flight"), "{one}");
    assert!(
        one.contains("a call for each operation of a batch"),
        "{one}"
    );
    let (_, two) = measured(&format!("{line} --batches-in-flight 1,4"));
    assert!(two.contains(" Batches "), "{two}");
    assert!(!two.contains("batches in flight"), "{two}");
    let (_, plain) = measured(line);
    assert!(
        !plain.contains("batches") && !plain.contains(" Batches "),
        "{plain}"
    );
}
