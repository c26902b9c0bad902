//! The commands that the documentation promises, with less time for each point.

use tempfile::tempdir;
use tonnage_plan::transfer::Pacing;
use tonnage_record::transfer::Trial;
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
    records.iter().for_each(check_figures);
}

/// Figures that follow from others of the record, whatever the machine does meanwhile.
fn check_figures(record: &Record) {
    let body = record.transfer().unwrap();
    let (point, summary) = (&body.point, body.summary.as_ref().unwrap());
    let near = |value: f64, expected: f64| (value - expected).abs() <= expected * 1e-6;
    for trial in &body.trials {
        assert!(trial.operations > 0, "{trial:#?}");
        let bytes = match point.engine.as_str() {
            "null" => 0,
            _ => trial.operations * u64::from(point.size_bytes),
        };
        assert_eq!(trial.payload_bytes, bytes, "{trial:#?}");
        let per_second = |count: u64| count as f64 * 1e9 / trial.window_ns as f64;
        assert!(near(trial.bandwidth_bytes_per_s, per_second(bytes)));
        assert!(near(trial.message_rate_per_s, per_second(trial.operations)));
        // One initiator: its samples lie side by side in the window, as many at a time as were in flight.
        let (samples, at_a_time) = match point.pacing {
            Pacing::Batch { batch } => (trial.operations / u64::from(batch), 1),
            Pacing::Stream { window } => (trial.operations, window),
            Pacing::PingPong => (trial.operations, 1),
            Pacing::Paced { rate_per_s, .. } => {
                assert!(trial.message_rate_per_s <= rate_per_s * 1.01, "{trial:#?}");
                continue;
            }
        };
        let mean_ns = trial.latency_ns_mean.unwrap();
        let busy_ns = mean_ns * samples as f64;
        let room_ns = trial.window_ns as f64 * f64::from(at_a_time);
        assert!(
            busy_ns <= room_ns * 1.001,
            "{busy_ns} of {room_ns}: {trial:#?}"
        );
        let (least, most) = (trial.latency_ns_min.unwrap(), trial.latency_ns_max.unwrap());
        assert!(
            least as f64 <= mean_ns && mean_ns <= most as f64,
            "{trial:#?}"
        );
        assert!(most <= trial.window_ns, "{trial:#?}");
        if point.verify.is_on() {
            // No less than one slot was compared, and no more than was moved.
            let verified = trial.verified_bytes.unwrap();
            assert!(
                (u64::from(point.size_bytes)..=bytes).contains(&verified),
                "{trial:#?}"
            );
        }
    }
    let sum = |of: fn(&Trial) -> u64| body.trials.iter().map(of).sum::<u64>();
    assert_eq!(summary.operations, sum(|trial| trial.operations));
    assert_eq!(summary.payload_bytes, sum(|trial| trial.payload_bytes));
    let rates = body.trials.iter().map(|trial| trial.bandwidth_bytes_per_s);
    let mean = rates.sum::<f64>() / body.trials.len() as f64;
    assert!(
        near(summary.bandwidth_bytes_per_s.mean, mean),
        "{summary:#?}"
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
