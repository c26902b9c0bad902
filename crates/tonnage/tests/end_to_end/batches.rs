//! Batches: several in flight, posting by one call or many, and merging of adjacent operations.

use tonnage_plan::transfer::Pacing;
use tonnage_record::Record;

use super::support::records::{body, measured, summary};

/// Returns, for each record: batches in flight, operations, the largest number in flight, and operations after merging.
fn figures(records: &[Record]) -> Vec<(u32, u64, u64, Option<u64>)> {
    let of = |record: &Record| {
        let (body, summary) = (body(record), summary(record));
        let most = body.trials.iter().filter_map(|trial| trial.in_flight_max);
        let in_flight = body.point.batching.in_flight;
        (
            in_flight,
            summary.operations,
            most.max().unwrap(),
            summary.merged_operations,
        )
    };
    records.iter().map(of).collect()
}

/// Runs two trials of 40 batches with every engine and way of posting. Every byte of each batch must be right.
#[test]
fn every_byte_of_every_kind_of_batch_arrives() {
    let operations = 80 * 33;
    for engine in ["shm", "fabric:shm", "fabric:tcp"] {
        for call in ["one", "many"] {
            let line = format!(
                "--engine {engine} --ranks 2 --sizes 100 --batch 33 --batches-in-flight 1,3 --batch-call {call} --verify"
            );
            let (records, _) = measured(&format!("{line} --op write,write-imm,read,send"));
            let found = figures(&records);
            assert_eq!(found.len(), 4 * 2, "{line}");
            for (at, (in_flight, moved, most, merged)) in found.into_iter().enumerate() {
                assert_eq!(
                    (in_flight, moved, merged),
                    ([1, 3][at % 2], operations, None),
                    "{line}"
                );
                assert!(most <= 33 * u64::from(in_flight), "{line}: {most}");
            }
        }
        // The same through tonnage's transfer library.
        let line = format!(
            "--engine {engine} --op write,read --ranks 2 --sizes 100 --batch 33 --batches-in-flight 3 --verify"
        );
        for (way, ways) in [
            ("--session on,off,fresh --batch-call many", 3),
            ("--api async", 1),
        ] {
            let (records, _) = measured(&format!("{line} {way}"));
            assert_eq!(records.len(), 2 * ways, "{line} {way}");
            let mut moved = records.iter().map(|it| summary(it).operations);
            assert!(moved.all(|it| it == operations), "{line} {way}");
        }
    }
}

/// A batch of 64 adjacent operations must become one operation. If the largest message is an eighth of the batch, the
/// batch must become eight operations. Each byte must be where it would be without merging.
#[test]
fn neighbours_become_one_operation_with_the_same_bytes() {
    for engine in ["shm", "fabric:shm", "fabric:tcp"] {
        let line = format!(
            "--engine {engine} --op write,read --ranks 2 --sizes 100 --gap 0 --batch 64 --merge on --verify"
        );
        let (records, table) = measured(&line);
        assert_eq!(records.len(), 2);
        for (_, operations, _, merged) in figures(&records) {
            // The footprint is a whole number of batches, so that no batch wraps around its end.
            assert_eq!((operations, merged), (80 * 64, Some(80)), "{line}: {table}");
        }
        assert!(table.contains("neighbours of a batch merged"), "{table}");
    }
    let line = "--engine shm --op write --ranks 3 --traffic fan-out --sizes 64 --batch 64 --merge on --verify";
    let (records, _) = measured(&format!(
        "{line} --batches-in-flight 4 --chunk 32 --queue-pairs 2"
    ));
    assert_eq!(figures(&records)[0].3, Some(80 * 2));
}

/// The two trials of 40 batches are those of the rank, not of each thread. Each batch must be timed once.
#[test]
fn workers_of_a_rank_share_batches_out() {
    for engine in ["shm", "fabric:shm", "fabric:tcp"] {
        let line = format!(
            "--engine {engine} --op write,write-imm,read,send --ranks 2 --sizes 100 --threads 3 --batch 3,32 --batch-of \
             rank --batches-in-flight 1,3 --verify"
        );
        let (records, table) = measured(&line);
        assert_eq!(records.len(), 4 * 4, "{line}");
        for record in &records {
            let Pacing::Batch { batch } = body(record).point.pacing else {
                panic!("{record:?}");
            };
            assert_eq!(summary(record).operations, 80 * u64::from(batch), "{line}");
            assert_eq!(
                summary(record).latency.as_ref().unwrap().samples,
                80,
                "{line}"
            );
        }
        assert!(
            table.contains("each batch shared by the threads of a rank"),
            "{table}"
        );
    }
    let tcp =
        "--engine fabric:tcp --op write --ranks 4 --traffic all-to-all --sizes 4k --threads 2";
    for (more, rows) in [
        ("--cq event", 1),
        ("--api poll,async", 2),
        ("--merge on --gap 0", 1),
    ] {
        let (records, _) = measured(&format!("{tcp} --batch 5 --batch-of rank --verify {more}"));
        assert_eq!(records.len(), rows, "{more}");
        assert!(
            records
                .iter()
                .all(|it| summary(it).operations == 80 * 5 * 3 * 4),
            "{more}"
        );
    }
    let (_, both) = measured(
        "--engine null --op write --ranks 2 --sizes 64 --batch 16 --threads 2 --batch-of rank --latency off",
    );
    assert!(!both.contains("phases of a batch"), "{both}");
}

#[test]
fn the_numbers_are_columns_where_rows_differ_in_them_and_in_the_title_else() {
    let line = "--engine null --op write --ranks 2 --sizes 64 --batch 16";
    let (_, one) = measured(&format!("{line} --batches-in-flight 4 --batch-call many"));
    for words in [
        "4 batches in flight",
        "a call for each operation of a batch",
    ] {
        assert!(one.contains(words), "{one}");
    }
    let (_, two) = measured(&format!("{line} --batches-in-flight 1,4"));
    assert!(
        two.contains(" Batches ") && !two.contains("batches in flight"),
        "{two}"
    );
    let (_, plain) = measured(line);
    assert!(
        !plain.contains("batches") && !plain.contains(" Batches "),
        "{plain}"
    );
}
