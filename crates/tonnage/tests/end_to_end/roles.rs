//! Ranks that initiate, and the ones that they initiate to: how many, towards whom, and who takes no part.

use tempfile::tempdir;
use tonnage_record::Record;

use super::support::{BRIEF, records, tonnage};

fn measured(arguments: &str) -> Vec<Record> {
    let dir = tempdir().unwrap();
    let brief = BRIEF.replace("--trial-time 5ms", "--iters 40");
    let run = tonnage(
        dir.path(),
        &format!("transfer {arguments} {brief} -o r.jsonl"),
    )
    .succeed();
    records::shown(dir.path(), "r.jsonl", &run, "table")
}

/// The initiators and all operations of each record.
fn figures(records: &[Record]) -> Vec<(Option<u32>, u64)> {
    let bodies = records.iter().map(|record| record.transfer().unwrap());
    let of = |body: &tonnage_record::transfer::TransferBody| {
        let summary = body.summary.as_ref().unwrap();
        (body.point.initiators, summary.operations)
    };
    bodies.map(of).collect()
}

/// Two trials of 40 operations of each client; every byte of each is checked, and ranks beyond them do nothing.
#[test]
fn clients_of_one_rank_are_as_many_as_were_asked_for() {
    for engine in ["shm", "fabric:tcp"] {
        for op in ["read", "write", "send"] {
            let records = measured(&format!(
                "--engine {engine} --op {op} --traffic fan-in --ranks 5 --initiators 1,3,4 --sizes 64 --window 4 --verify"
            ));
            let expected = [1, 3, 4].map(|clients| (Some(clients), 80 * u64::from(clients)));
            assert_eq!(figures(&records), expected, "{engine} {op}");
        }
    }
}

/// Two trials of 40 operations (or batches, or round trips) of each worker of each initiator.
#[test]
fn pairs_may_have_more_of_one_side() {
    for (arguments, of_iteration) in [
        ("--engine shm --op write --batch 4 --verify", 4),
        ("--engine shm --op read --workers 2 --verify", 2),
        ("--engine shm --op write-imm --ping-pong --verify", 2),
        ("--engine fabric:tcp --op send --window 8 --verify", 1),
        ("--engine null --op write", 1),
    ] {
        for shift in ["", "--target-shift 1"] {
            let records = measured(&format!(
                "{arguments} {shift} --ranks 5 --initiators 1,2,3 --sizes 8,4k"
            ));
            let of =
                |initiators: u32| (Some(initiators), 80 * of_iteration * u64::from(initiators));
            let expected = [1, 1, 2, 2, 3, 3].map(of);
            assert_eq!(figures(&records), expected, "{arguments} {shift}");
        }
    }
}

#[test]
fn several_numbers_of_workers_are_rows_of_one_table() {
    let records = measured("--engine null --op write --ranks 2 --workers 1,2,4 --sizes 64");
    let found = records.iter().map(|record| {
        let body = record.transfer().unwrap();
        (
            body.point.workers,
            body.summary.as_ref().unwrap().operations,
        )
    });
    assert_eq!(found.collect::<Vec<_>>(), [(1, 80), (2, 160), (4, 320)]);
    let dir = tempdir().unwrap();
    let arguments =
        format!("transfer --engine shm --op read --ranks 2 --workers 1,3 --sizes 64 {BRIEF}");
    let run = tonnage(dir.path(), &arguments).succeed();
    assert_eq!(run.rows().len(), 2, "{run:#?}");
    assert!(run.stdout.contains("  Workers  "), "{run:#?}");
    let title = run.stdout.split("MsgSize").next().unwrap();
    assert!(!title.contains("each"), "{run:#?}");
}

/// A rank that takes no part rests, and is in no figure: the target of one client costs what one target costs.
#[test]
fn ranks_that_take_no_part_use_no_cpu() {
    let dir = tempdir().unwrap();
    let run = tonnage(
        dir.path(),
        "transfer --engine shm --op write --traffic fan-in --ranks 9 --initiators 1,8 --sizes 64 --limit none --trials 2 \
         --trial-time 100ms --warmup 1ms -o r.jsonl",
    );
    run.succeed();
    for record in records::read(&dir.path().join("r.jsonl")) {
        for trial in &record.transfer().unwrap().trials {
            // One target polls for the window and a little longer; eight that polled would take most of two CPUs.
            let most_ns = trial.window_ns * 6 / 5 + 10_000_000;
            assert!(trial.target_cpu_ns < most_ns, "{trial:?}");
        }
    }
}

/// Data of the wrong initiator would be found, since what a target checks is keyed by who should have written it.
#[test]
fn turned_targets_get_the_bytes_of_their_own_initiator() {
    let records =
        measured("--engine shm --op write --ranks 4 --target-shift 1 --sizes 1k --verify");
    let body = records[0].transfer().unwrap();
    assert_eq!((body.point.initiators, body.point.target_shift), (None, 1));
    let checked = body
        .trials
        .iter()
        .map(|trial| trial.verified_bytes.unwrap());
    assert_eq!(checked.collect::<Vec<_>>(), [80 << 10, 80 << 10]);
}

#[test]
fn roles_that_cannot_be_are_refused_before_a_rank_starts() {
    let dir = tempdir().unwrap();
    for (arguments, part) in [
        ("--ranks 4 --initiators 4", "write initiators 3 or less"),
        (
            "--ranks 4 --traffic fan-out --initiators 2",
            "rank 0 alone initiates",
        ),
        (
            "--ranks 4 --traffic fan-in --target-shift 1",
            "leave target-shift out",
        ),
        ("--ranks 5", "use --ranks 6, initiators 2"),
    ] {
        let command = format!("transfer --engine shm --op write --sizes 64 {arguments}");
        tonnage(dir.path(), &command)
            .run()
            .with_code(2)
            .saying(&[part]);
    }
}
