//! The commands shown in the documentation, with shorter measurements.

use std::path::Path;

use tempfile::tempdir;
use tonnage_plan::transfer::Pacing;
use tonnage_record::{Outcome, Record};

use super::support::records::{body, succeeded};
use super::support::{records, tonnage};

/// Checks latencies that must agree with other figures of the record, however busy the machine is. Sums and rates are
/// not checked here, because the tests check them whenever they read a record.
fn check_latencies(record: &Record) {
    let body = body(record);
    let point = &body.point;
    for trial in &body.trials {
        // There is one initiator, so its samples fill the measured interval. The operations in flight run in parallel.
        let (samples, at_a_time) = match point.pacing {
            Pacing::Batch { batch } => (trial.operations / u64::from(batch), 1),
            Pacing::Stream { depth } => (trial.operations, depth),
            Pacing::PingPong => (trial.operations, 1),
            Pacing::Paced { rate, .. } => {
                assert!(
                    trial.message_rate_per_s <= rate.rate_per_s * 1.01,
                    "{trial:#?}"
                );
                continue;
            }
        };
        let mean_ns = trial.latency_ns_mean.unwrap();
        let room_ns = trial.window_ns as f64 * f64::from(at_a_time);
        assert!(mean_ns * samples as f64 <= room_ns * 1.001, "{trial:#?}");
        let (least, most) = (trial.latency_ns_min.unwrap(), trial.latency_ns_max.unwrap());
        assert!(
            (least as f64..=most as f64).contains(&mean_ns),
            "{trial:#?}"
        );
        assert!(most <= trial.window_ns, "{trial:#?}");
        if point.verify.is_on() {
            // At least one slot was compared, and at most the bytes that were moved.
            let verified = trial.verified_bytes.unwrap();
            let compared = u64::from(point.slots.size_bytes)..=trial.payload_bytes;
            assert!(compared.contains(&verified), "{trial:#?}");
        }
    }
}

#[test]
fn commands_have_as_many_rows_as_points() {
    let brief = "--trials 2 --trial-time 2ms --warmup 1ms";
    for (points, arguments) in [
        (18, "shm --op read --sizes 8..1M --batch 128"),
        (16, "shm --op write --sizes 1k --batch 1..32768"),
        (2, "shm --op write-imm --sizes 8,4k --ping-pong"),
        (
            1,
            "shm --op write --sizes 64 --depth 64 --rate 200000 --trial-time 25ms",
        ),
        (1, "null --op write --sizes 64 --depth 64"),
        (
            14,
            "shm --op write --sizes 64,4k --depth 1..64 --until-ci 2% --max-duration 15ms --verify",
        ),
    ] {
        let brief = match arguments.contains("--trial-time") {
            true => "--trials 2",
            false => brief,
        };
        let (run, records) = succeeded(&format!("transfer --ranks 2 --engine {arguments} {brief}"));
        let counts = (records.len(), run.rows().len());
        assert_eq!(counts, (points, points), "{run:#?}");
        records.iter().for_each(check_latencies);
    }
}

#[test]
fn verify_checks_every_operation_at_every_size() {
    let dir = tempdir().unwrap();
    let run = tonnage(dir.path(), "verify --engine shm --ranks 2 -o r.jsonl").succeed();
    let records = records::shown(dir.path(), &run);
    run.printing(&["arrived as sent"]);
    for op in ["write", "write-imm", "read", "send"] {
        let points = records.iter().map(|record| &body(record).point);
        let points = points.filter(|it| it.op.name() == op);
        let sizes: Vec<u32> = points.map(|point| point.slots.size_bytes).collect();
        for size in [1, 7, 63, 65, 4095, 4097, (1 << 20) + 1] {
            assert!(sizes.contains(&size), "{op} of {size}: {sizes:?}");
        }
    }
}

#[test]
fn the_program_alone_lists_its_commands_and_measures_nothing() {
    let dir = tempdir().unwrap();
    for arguments in ["", "-h", "help"] {
        let run = tonnage(dir.path(), arguments).run();
        run.with_code(0)
            .printing(&["Measure", "Check", "Read", "Set up", "tonnage tour"]);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn plans_run_by_name_from_any_folder() {
    let dir = tempdir().unwrap();
    let run = tonnage(dir.path(), "run gpu-node --print-plan").run();
    run.with_code(0).printing(&["name = \"gpu-node\""]);
    let listed = tonnage(dir.path(), "plans").run();
    listed.with_code(0).printing(&["mori-io-read", "tour"]);
    let refused = tonnage(dir.path(), "run gpu-nod").run();
    refused.with_code(2).saying(&["did you mean gpu-node?"]);
}

/// The tour needs a fixed time for its bounds, so this is the longest of these tests.
#[test]
fn the_tour_is_one_page_and_a_file() {
    let dir = tempdir().unwrap();
    let states = dir.path().join("states");
    let run = tonnage(dir.path(), "--log-level error tour --scale 0.01")
        .env("XDG_STATE_HOME", &states)
        .run();
    let run = run.with_code(0).printing(&[
        "memory copy in cache",
        "over loopback",
        "cache line",
        "shm write",
        "shm read",
        "fabric:shm read",
        "fabric:tcp write",
        "provider tcp",
        "tonnage show",
    ]);
    let files = |folder: &Path| {
        let files = std::fs::read_dir(folder).unwrap();
        let files = files.map(|it| it.unwrap().path());
        files.collect::<Vec<_>>()
    };
    // The tour must not change the current folder.
    assert_eq!(files(dir.path()), std::slice::from_ref(&states));
    let saved = files(&states.join("tonnage"));
    assert_eq!(saved.len(), 1, "{saved:?}");
    let run = run.printing(&[saved[0].to_str().unwrap()]);
    let records = records::read(&saved[0]);
    assert!(records.len() > 15, "{}", records.len());
    // A GPU is measured if there is one. Otherwise the page names the software to install.
    let (on_gpu, others): (Vec<_>, Vec<_>) = records
        .iter()
        .partition(|record| body(record).point.engine == "cuda");
    assert!(
        others
            .iter()
            .all(|record| record.outcome == Outcome::Measured)
    );
    assert_eq!(on_gpu.len(), 4);
    if on_gpu
        .iter()
        .all(|it| matches!(it.outcome, Outcome::Skipped { .. }))
    {
        run.printing(&["Not measured: cuda write, cuda read (4 points): "]);
    }
}
