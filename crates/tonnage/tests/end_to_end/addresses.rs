//! Places of slots: gaps between them, and their orders at the two ends, every byte checked.

use tempfile::tempdir;
use tonnage_record::transfer::TransferBody;
use tonnage_record::{Outcome, Record};

use super::support::{BRIEF, records, tonnage};

/// The records of a run of two trials, and its table.
fn measured(arguments: &str) -> (Vec<Record>, String) {
    let dir = tempdir().unwrap();
    let brief = BRIEF.replace("--trial-time 5ms", "--iters 40");
    let line = format!("transfer {arguments} {brief} --verify -o r.jsonl");
    let run = tonnage(dir.path(), &line).succeed();
    let records = records::shown(dir.path(), "r.jsonl", &run, "table");
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured, "{line}");
    }
    // Long lines of configuration are broken.
    let words: Vec<&str> = run.stdout.split_whitespace().collect();
    (records, words.join(" "))
}

fn bodies(records: &[Record]) -> impl Iterator<Item = &TransferBody> {
    records.iter().map(|record| record.transfer().unwrap())
}

/// Bytes of each point that were verified in its last trial.
fn verified(records: &[Record]) -> Vec<u64> {
    let last = |body: &TransferBody| body.trials.last().unwrap().verified_bytes.unwrap();
    bodies(records).map(last).collect()
}

const PACINGS: [&str; 4] = [
    "--window 8",
    "--batch 8",
    "--ping-pong",
    "--rate 20k --window 4",
];

/// A gap is exact: with sizes that are no multiples of words, slots begin at odd offsets and next to each other.
#[test]
fn gaps_are_what_was_asked_for() {
    for gap in [0, 1, 100] {
        for pacing in PACINGS {
            let (records, table) = measured(&format!(
                "--engine shm --op write,write-imm,read,send --ranks 2 --sizes 2,7,64,3001 {pacing} --gap {gap}"
            ));
            assert_eq!(records.len(), 16);
            for body in bodies(&records) {
                let point = &body.point;
                assert_eq!(point.stride_bytes, u64::from(point.size_bytes) + gap);
                assert_eq!(point.footprint_bytes % point.stride_bytes, 0);
            }
            let words = match gap {
                0 => "nothing between slots".to_owned(),
                _ => format!("{gap} B between slots"),
            };
            assert!(table.contains(&words), "{table}");
        }
    }
    measured(
        "--engine fabric:tcp --op write,read,send --ranks 2 --sizes 7,64,3001 --window 8 --gap 0",
    );
}

/// Every slot of the footprint is used, moved and right: 40 operations, or batches, are at least five rounds.
#[test]
fn permuted_slots_are_all_used_and_right() {
    for pacing in PACINGS {
        let (records, table) = measured(&format!(
            "--engine shm --op write,write-imm,read,send --ranks 2 --sizes 8,3001 --footprint 24k --stride 3k {pacing} \
             --addresses permuted --seed 7"
        ));
        let signalled = u64::from(pacing == "--ping-pong");
        let each = |size: u64, signal: u64| 8 * (size - signal);
        let expected = |signal| [each(8, signal), each(3001, signal)];
        // What a ping-pong writes is seen by its last byte, and there are two landing places for each pair.
        let ways = if signalled == 1 { 2 } else { 1 };
        let mut all = Vec::new();
        for op in ["write", "write-imm", "read", "send"] {
            let signal = if op == "write" { signalled } else { 0 };
            let ways = if op == "read" { 1 } else { ways };
            all.extend(expected(signal).map(|bytes| bytes * ways));
        }
        // Where CPUs are busy, later operations of a timetable are given up.
        if !pacing.contains("--rate") {
            assert_eq!(verified(&records), all, "{pacing}");
        }
        assert!(table.contains("permuted addresses"), "{table}");
    }
    for (engine, traffic) in [
        ("fabric:tcp", "fan-in"),
        ("fabric:shm", "fan-out"),
        ("shm", "all-to-all"),
    ] {
        measured(&format!(
            "--engine {engine} --op write,read,send --ranks 3 --traffic {traffic} --workers 2 --sizes 64 --window 16 \
             --footprint 1111 --gap 3 --addresses permuted"
        ));
    }
}

/// Clients of one rank, of one and of several workers, all read what is there once.
#[test]
fn a_targets_footprint_may_be_shared() {
    for (engine, traffic) in [
        ("shm", "fan-in"),
        ("fabric:tcp", "fan-in"),
        ("shm", "all-to-all"),
    ] {
        let line = format!(
            "--engine {engine} --op read --ranks 4 --traffic {traffic} --workers 1,2 --sizes 64 --window 12 \
             --footprint 4k --addresses random"
        );
        let (own, _) = measured(&line);
        let (shared, table) = measured(&format!("{line} --target-footprint shared"));
        assert!(table.contains("shared by all its initiators"), "{table}");
        for (own, shared) in own.iter().zip(&shared) {
            // 40 reads of each of so many lanes.
            let operations = |record: &Record| {
                let body = record.transfer().unwrap();
                body.summary.as_ref().unwrap().operations
            };
            assert_eq!(operations(own), operations(shared));
        }
    }
}

/// Each order at either end, with any number in flight where that can be verified, and with one where it cannot.
#[test]
fn the_two_ends_may_have_orders_of_their_own() {
    let (records, table) = measured(
        "--engine shm --op read --ranks 2 --sizes 64 --window 1 --footprint 4k --addresses random --local-addresses fixed",
    );
    assert_eq!(verified(&records), [64], "all lands in one slot");
    assert!(
        table.contains("random addresses, fixed at the initiator"),
        "{table}"
    );
    let (records, _) = measured(
        "--engine shm --op write --ranks 2 --sizes 64 --window 16 --footprint 4k --local-addresses fixed",
    );
    assert_eq!(
        verified(&records),
        [40 * 64],
        "one slot is written to 40 others"
    );
    for engine in ["shm", "fabric:tcp"] {
        for (op, arguments) in [
            (
                "write,read,send",
                "--ping-pong --addresses random --local-addresses sequential",
            ),
            (
                "write-imm",
                "--ping-pong --addresses fixed --local-addresses random",
            ),
            (
                "read",
                "--batch 8 --addresses permuted --local-addresses sequential",
            ),
            (
                "read",
                "--batch 4 --addresses random --local-addresses permuted",
            ),
            (
                "read,send",
                "--window 1 --addresses permuted --local-addresses random",
            ),
        ] {
            // Over fabric a plain write is not seen by its last byte.
            let op = if engine == "shm" {
                op.to_owned()
            } else {
                op.replace("write,", "")
            };
            measured(&format!(
                "--engine {engine} --op {op} --ranks 2 --sizes 8,63 --footprint 512 --stride 64 {arguments}"
            ));
        }
    }
}
