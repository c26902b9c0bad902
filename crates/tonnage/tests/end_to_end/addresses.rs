//! Slot offsets: gaps between slots, and different slot orders at the two ends. Every byte is verified.

use tonnage_record::Record;

use super::support::records::{body, measured, summary};

/// Bytes verified in the last trial of each point.
fn verified(records: &[Record]) -> Vec<u64> {
    let last = |record: &Record| body(record).trials.last().unwrap().verified_bytes.unwrap();
    records.iter().map(last).collect()
}

const PACINGS: [&str; 4] = [
    "--depth 8",
    "--batch 8",
    "--ping-pong",
    "--rate 20k --depth 4",
];

/// A gap is exact: if the size is not a multiple of a word, slots start at odd offsets, directly next to each other.
#[test]
fn gaps_are_what_was_asked_for() {
    for (gap, pacing, words) in [
        (0, "--depth 8", "nothing between slots"),
        (0, "--ping-pong", "nothing between slots"),
        (1, "--batch 8", "1 B between slots"),
        (100, "--rate 20k --depth 4", "100 B between slots"),
    ] {
        let (records, table) = measured(&format!(
            "--engine shm --op write,write-imm,read,send --ranks 2 --sizes 2,7,64,3001 {pacing} --gap {gap} --verify"
        ));
        assert_eq!(records.len(), 16);
        for record in &records {
            let point = &body(record).point;
            assert_eq!(
                point.slots.stride_bytes,
                u64::from(point.slots.size_bytes) + gap
            );
            assert_eq!(point.slots.footprint_bytes % point.slots.stride_bytes, 0);
        }
        assert!(table.contains(words), "{table}");
    }
    let tcp = "--engine fabric:tcp --op write,read,send --ranks 2 --sizes 7,64,3001";
    measured(&format!("{tcp} --depth 8 --gap 0 --verify"));
}

/// Every slot of the footprint must be used and have the right data. 40 operations or batches are at least five passes.
#[test]
fn permuted_slots_are_all_used_and_right() {
    for pacing in PACINGS {
        let (records, table) = measured(&format!(
            "--engine shm --op write,write-imm,read,send --ranks 2 --sizes 8,3001 --footprint 24k --stride 3k {pacing} \
             --access permuted --seed 7 --verify"
        ));
        // In a ping-pong of writes, the target waits for the last byte, which is not verified. Data lands at both ends.
        let (signal, ways) = match pacing {
            "--ping-pong" => (1, 2),
            _ => (0, 1),
        };
        let expected = [(signal, ways), (0, ways), (0, 1), (0, ways)];
        let expected =
            expected.map(|(signal, ways)| [8, 3001].map(|size| 8 * (size - signal) * ways));
        // On busy CPUs, the last operations at a rate are dropped.
        if !pacing.contains("--rate") {
            assert_eq!(verified(&records), expected.concat(), "{pacing}");
        }
        assert!(table.contains("permuted access"), "{table}");
    }
    for (engine, traffic) in [
        ("fabric:tcp", "fan-in"),
        ("fabric:shm", "fan-out"),
        ("shm", "all-to-all"),
    ] {
        measured(&format!(
            "--engine {engine} --op write,read,send --ranks 3 --traffic {traffic} --threads 2 --sizes 64 --depth 16 \
             --footprint 1111 --gap 3 --access permuted --verify"
        ));
    }
}

/// All clients of one rank, with one or several threads, read the same shared bytes.
#[test]
fn a_targets_footprint_may_be_shared() {
    for (engine, traffic) in [
        ("shm", "fan-in"),
        ("fabric:tcp", "fan-in"),
        ("shm", "all-to-all"),
    ] {
        let line = format!(
            "--engine {engine} --op read --ranks 4 --traffic {traffic} --threads 1,2 --sizes 64 --depth 12 \
             --footprint 4k --access random --verify"
        );
        let (own, _) = measured(&line);
        let (shared, table) = measured(&format!("{line} --target-footprint shared"));
        assert!(table.contains("shared by all its initiators"), "{table}");
        // The reads are 40 on each lane, with a shared footprint as without.
        let operations = |all: &[Record]| {
            all.iter()
                .map(|it| summary(it).operations)
                .collect::<Vec<_>>()
        };
        assert_eq!(operations(&own), operations(&shared));
    }
}

/// Runs each slot order at either end. An order that cannot be verified at other depths runs with depth 1.
#[test]
fn the_two_ends_may_have_orders_of_their_own() {
    let (records, table) = measured(
        "--engine shm --op read --ranks 2 --sizes 64 --depth 1 --footprint 4k --access random --local-access fixed \
         --verify",
    );
    assert_eq!(verified(&records), [64], "all lands in one slot");
    assert!(
        table.contains("random access, fixed at the initiator"),
        "{table}"
    );
    let (records, _) = measured(
        "--engine shm --op write --ranks 2 --sizes 64 --depth 16 --footprint 4k --local-access fixed --verify",
    );
    assert_eq!(
        verified(&records),
        [40 * 64],
        "one slot is written to 40 others"
    );
    for engine in ["shm", "fabric:tcp"] {
        // Over fabric, the target cannot detect a plain write by its last byte.
        let seen = if engine == "shm" {
            "write,read,send"
        } else {
            "read,send"
        };
        for (op, arguments) in [
            (
                seen,
                "--ping-pong --access random --local-access sequential",
            ),
            (
                "write-imm",
                "--ping-pong --access fixed --local-access random",
            ),
            (
                "read",
                "--batch 8 --access permuted --local-access sequential",
            ),
            ("read", "--batch 4 --access random --local-access permuted"),
            (
                "read,send",
                "--depth 1 --access permuted --local-access random",
            ),
        ] {
            measured(&format!(
                "--engine {engine} --op {op} --ranks 2 --sizes 8,63 --footprint 512 --stride 64 {arguments} --verify"
            ));
        }
    }
}
