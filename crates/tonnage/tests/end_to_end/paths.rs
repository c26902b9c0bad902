//! Several queue pairs between two threads, and operations that are cut into parts.

use tonnage_record::Record;

use super::support::BRIEF;
use super::support::records::{body, measured, summary, transfer};

/// Returns, for each record: queue pairs, bytes of a part, and operations.
fn figures(records: &[Record]) -> Vec<(u32, Option<u32>, u64)> {
    let of = |record: &Record| {
        let point = &body(record).point;
        let chunk = point.division.cut.map(|cut| cut.chunk_bytes);
        (
            point.division.queue_pairs,
            chunk,
            summary(record).operations,
        )
    };
    records.iter().map(of).collect()
}

/// Two trials must have 40 operations each, for any number of parts. Every byte is checked.
#[test]
fn every_byte_arrives_by_several_queue_pairs_and_in_parts() {
    for engine in ["shm", "fabric:shm", "fabric:tcp"] {
        for op in ["write", "write-imm", "read"] {
            let (records, _) = measured(&format!(
                "--engine {engine} --op {op} --ranks 2 --sizes 5000 --depth 8 --queue-pairs 1,3 --chunk 1000,5000 --verify"
            ));
            let expected = [(1, 1000), (1, 5000), (3, 1000), (3, 5000)];
            let expected = expected.map(|(queue_pairs, chunk)| (queue_pairs, Some(chunk), 80));
            assert_eq!(figures(&records), expected, "{engine} {op}");
            let said = serde_json::to_value(&records[2].effective[0].engine).unwrap();
            assert_eq!(
                (&said["queue_pairs"], &said["chunk_bytes"]),
                (&3.into(), &1000.into())
            );
        }
        let (sends, _) = measured(&format!(
            "--engine {engine} --op send --ranks 3 --traffic all-to-all --sizes 64 --batch 5 --queue-pairs 1,4 --verify"
        ));
        assert_eq!(
            figures(&sends),
            [1, 4].map(|queue_pairs| (queue_pairs, None, 80 * 5 * 6)),
            "{engine}"
        );
    }
}

/// The target must answer only after the last part. Each operation must count once, and not once for each part.
#[test]
fn an_answer_waits_for_the_last_part() {
    let (records, _) = measured(
        "--engine fabric:tcp --op write-imm --ranks 3 --traffic fan-in --ping-pong --sizes 3000 --queue-pairs 2 --chunk 1000 --verify",
    );
    assert_eq!(figures(&records), [(2, Some(1000), 80 * 2 * 2)]);
    let (records, _) =
        measured("--engine null --op write-imm --ranks 2 --ping-pong --sizes 3000 --chunk 1000");
    assert_eq!(figures(&records), [(1, Some(1000), 160)]);
}

#[test]
fn paths_are_columns_where_rows_differ_in_them_and_in_the_title_else() {
    let line = format!("--engine shm --op write --ranks 2 --sizes 4k {BRIEF}");
    let (run, _) = transfer(&format!("{line} --queue-pairs 1,2 --chunk 1k,2k"));
    assert_eq!(run.rows().len(), 4, "{run:#?}");
    run.printing(&["  Queue pairs  Chunk  "]);
    let (run, _) = transfer(&format!("{line} --queue-pairs 2 --chunk 1k --max-chunks 3"));
    assert!(!run.stdout.contains("  Queue pairs  "), "{run:#?}");
    run.printing(&[
        "2 queue pairs for each thread and peer; operations cut into parts of 1 KiB, at most 3; ",
    ]);
}
