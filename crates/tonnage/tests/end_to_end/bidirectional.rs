//! Pairs that move bytes in both directions at once.

use tempfile::tempdir;
use tonnage_record::Record;
use tonnage_record::transfer::Directions;

use super::support::records::{body, first_row, measured, summary};
use super::support::{BRIEF, tonnage};

fn directions(record: &Record) -> &Directions {
    summary(record).directions.as_ref().unwrap()
}

/// Each thread of each side makes two trials of 40 operations or batches. Every byte is checked.
#[test]
fn both_ranks_of_a_pair_move_as_much() {
    for (engine, ops) in [
        ("shm", "write,write-imm,read,send"),
        ("fabric:tcp", "write,write-imm,read,send"),
        ("fabric:shm", "write,send"),
    ] {
        for (more, of_trial) in [
            ("--depth 8", 40),
            ("--batch 5 --threads 2", 400),
            ("--depth 4 --rate 100k", 40),
        ] {
            let (records, _) = measured(&format!(
                "--engine {engine} --op {ops} --ranks 4 --sizes 3000 {more} --verify --bidirectional"
            ));
            for record in &records {
                let both = directions(record);
                let counts = [both.forward.operations, both.back.operations];
                // A thread that is far behind its schedule drops the remaining operations.
                let most = 2 * 2 * of_trial;
                let fits = match more.contains("--rate") {
                    true => counts.iter().all(|&count| (1..=most).contains(&count)),
                    false => counts == [most; 2],
                };
                assert!(fits, "{engine} {more}: {:#?}", summary(record));
                if more == "--depth 8" {
                    // Two pairs with two directions each, and eight slots.
                    let checked = body(record).trials.iter().map(|trial| trial.verified_bytes);
                    assert!(
                        checked.eq([Some(2 * 2 * 8 * 3000); 2]),
                        "{engine}: {record:#?}"
                    );
                }
            }
        }
    }
}

/// Two of three initiators have the same target. The target must send back to both, and to no other rank.
#[test]
fn a_reply_goes_to_the_initiator_that_it_belongs_to() {
    for more in ["", "--target-shift 1"] {
        let (records, _) = measured(&format!(
            "--engine shm --op write,write-imm,read,send --ranks 5 --initiators 3 --sizes 64 --depth 4 --verify \
             --bidirectional {more}"
        ));
        for record in &records {
            let both = directions(record);
            let moved = (both.forward.operations, both.back.operations);
            assert_eq!(moved, (3 * 80, 2 * 80), "{more}: {record:#?}");
        }
    }
}

#[test]
fn tables_and_csv_give_each_direction_and_the_sum() {
    let dir = tempdir().unwrap();
    let line = format!("transfer --engine shm --op write --ranks 2 --sizes 64k {BRIEF}");
    let both = format!("{line} --bidirectional -o r.jsonl");
    let run = tonnage(dir.path(), &both).succeed();
    run.printing(&["one pair of ranks, both ways", "BW forward BW back"]);
    let csv = tonnage(dir.path(), "show r.jsonl --format csv")
        .succeed()
        .stdout;
    let of = |name: &str| first_row(&csv)[name].parse::<f64>().unwrap();
    let sum = of("forward_bandwidth_bytes_per_s_mean") + of("back_bandwidth_bytes_per_s_mean");
    assert!(
        (sum / of("bandwidth_bytes_per_s_mean") - 1.0).abs() < 1e-6,
        "{csv}"
    );
    assert_eq!(of("directions"), 2.0);
    // A one-way run shows neither direction.
    let run = tonnage(dir.path(), &line).succeed();
    assert!(!run.stdout.contains("forward"), "{run:#?}");
}
