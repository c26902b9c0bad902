//! The commands that the documentation promises, with less time for each point.

use tempfile::tempdir;
use tonnage_record::{Outcome, Record};

use super::support::{records, tonnage};

/// Runs a transfer into a file; gives the rows of its table, which are as many as the records.
fn transfer(arguments: &str, points: usize) {
    let dir = tempdir().unwrap();
    let run = tonnage(dir.path(), &format!("transfer {arguments} -o r.jsonl")).succeed();
    let records = records::shown(dir.path(), "r.jsonl", &run, "table");
    assert_eq!(records.len(), points, "{run:#?}");
    assert_eq!(run.rows().len(), points, "{run:#?}");
    assert!(
        records
            .iter()
            .all(|record| record.outcome == Outcome::Measured),
        "{run:#?}"
    );
}

#[test]
fn reads_of_all_sizes_in_batches() {
    transfer(
        "--engine shm --op read --ranks 2 --sizes 8..1M --batch 128 --trials 2 --trial-time 1ms --warmup 0",
        18,
    );
}

#[test]
fn writes_in_batches_of_all_sizes() {
    transfer(
        "--engine shm --op write --ranks 2 --sizes 1k --batch 1..32768 --trials 2 --trial-time 2ms --warmup 1ms",
        16,
    );
}

#[test]
fn ping_pong_with_immediate_data() {
    transfer(
        "--engine shm --op write-imm --ranks 2 --sizes 8,4k --ping-pong --duration 50ms",
        2,
    );
}

#[test]
fn an_open_loop() {
    transfer(
        "--engine shm --op write --ranks 2 --sizes 64 --window 64 --rate 200000 --duration 50ms",
        1,
    );
}

#[test]
fn the_floor_of_the_harness() {
    transfer(
        "--engine null --op write --ranks 2 --sizes 64 --window 64 --duration 20ms",
        1,
    );
}

#[test]
fn streams_until_the_interval_is_narrow() {
    transfer(
        "--engine shm --op write --ranks 2 --sizes 64,4k --window 1..64 --until-ci 2% --max-duration 15ms --verify \
         --trials 2 --trial-time 2ms --warmup 1ms",
        14,
    );
}

#[test]
fn verify_checks_every_operation_at_every_size() {
    let dir = tempdir().unwrap();
    let run = tonnage(dir.path(), "verify --ranks 2 -o v.jsonl").succeed();
    assert!(run.stdout.contains("arrived as it was sent"), "{run:#?}");
    let records = records::shown(dir.path(), "v.jsonl", &run, "table");
    for op in ["write", "write-imm", "read", "send"] {
        let sizes = records
            .iter()
            .filter(|record| {
                record.transfer().unwrap().point.op.name() == op
                    && record.transfer().unwrap().point.engine == "shm"
            })
            .map(|record| record.transfer().unwrap().point.size_bytes);
        let sizes: Vec<u32> = sizes.collect();
        for size in [1, 7, 63, 65, 4095, 4097, (1 << 20) + 1] {
            assert!(sizes.contains(&size), "{op} of {size}: {sizes:?}");
        }
    }
}

/// The tour's limits are measured for as long as they need, so this is the longest of these tests.
#[test]
fn the_tour_is_one_page_and_a_file() {
    let dir = tempdir().unwrap();
    let run = tonnage(dir.path(), "--log-level error tour --scale 0.01")
        .run()
        .with_code(0);
    for part in [
        "memory copy in cache",
        "over loopback",
        "cache line",
        "shm write",
        "shm read",
        "fabric:shm read",
        "fabric:tcp write",
        "provider tcp",
        "tonnage show",
    ] {
        assert!(run.stdout.contains(part), "no {part:?} in {run:#?}");
    }
    let saved: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(saved.len(), 1, "{saved:?}");
    assert!(
        run.stdout.contains(&saved[0]),
        "{saved:?} is not named in {run:#?}"
    );
    let records = records::read(&dir.path().join(&saved[0]));
    assert!(records.len() > 15, "{}", records.len());
    // A GPU is measured where there is one; where there is none the page says what to install.
    let (on_gpu, others): (Vec<_>, Vec<_>) = records
        .iter()
        .partition(|record| record.transfer().unwrap().point.engine == "cuda");
    assert!(
        others
            .iter()
            .all(|record| record.outcome == Outcome::Measured)
    );
    assert_eq!(on_gpu.len(), 4);
    let is_skip = |record: &&Record| matches!(record.outcome, Outcome::Skipped { .. });
    if on_gpu.iter().all(is_skip) {
        assert!(
            run.stdout
                .contains("Not measured: cuda write, cuda read (4 points): "),
            "{run:#?}"
        );
    }
}
