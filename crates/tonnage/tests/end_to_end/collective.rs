//! Collectives from outside: records and tables of native backends in turn, bad requests, and a rank that is killed.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_collective::Collective;
use tonnage_record::Outcome;

use super::support::{records, tonnage, wait_until};

/// Results in place are the inputs of the calls that follow: one more call is checked, whose input is its own.
#[test]
fn calls_in_place_that_follow_each_other_are_checked() {
    for (options, checked) in [("--align none", 3), ("--refill trial", 3), ("", 3)] {
        let dir = tempdir().unwrap();
        let line = format!(
            "collective --backend native:shm --in-place --op all-reduce,reduce-scatter,all-gather --sizes 4000 --ranks 2 \
             --trials 2 --iters 5 --verify {options} -o c.jsonl"
        );
        tonnage(dir.path(), &line).succeed();
        for record in records::of_any_kind(&dir.path().join("c.jsonl")) {
            let body = record.collective().unwrap();
            let summary = body.backends[0].summary.as_ref().unwrap();
            let shape = body.point.shape();
            let bytes: u64 = (0..2).map(|rank| shape.output_bytes(rank)).sum();
            assert_eq!(summary.verified_bytes, bytes * checked, "{options}");
            assert_eq!(summary.iterations, 10, "{options}");
        }
    }
}

#[test]
fn backends_take_turns_and_every_result_is_checked() {
    let dir = tempdir().unwrap();
    let line = "collective --backend native:shm,native:fabric:tcp --op all-reduce,barrier --sizes 8,64k --ranks 3 \
                --trials 3 --iters 4 --verify --per-rank -o c.jsonl";
    let run = tonnage(dir.path(), line).succeed();
    let records = records::of_any_kind(&dir.path().join("c.jsonl"));
    assert_eq!(records.len(), 3);
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured);
        let body = record.collective().unwrap();
        let names: Vec<_> = body.backends.iter().map(|it| &*it.backend).collect();
        assert_eq!(names, ["native:shm", "native:fabric:tcp"]);
        for backend in &body.backends {
            let summary = backend.summary.as_ref().unwrap();
            assert_eq!((summary.trials, summary.iterations), (3, 12));
            // The slowest rank of each iteration is no faster than the mean, and that no faster than the fastest.
            assert!(summary.call_ns_rank_max >= summary.call_ns_rank_mean);
            assert!(summary.call_ns_rank_mean >= summary.call_ns_rank_min);
            let began: u64 = summary.rank_times.iter().map(|it| it.began_last).sum();
            assert_eq!(began, 12, "in each iteration one rank begins last");
            // The first call, and the last one of each trial, on three ranks.
            let bytes = body.point.shape().output_bytes(0);
            assert_eq!(summary.verified_bytes, bytes * 3 * 4);
            let rates = summary.algbw_bytes_per_s.zip(summary.busbw_bytes_per_s);
            if let Some((algbw, busbw)) = rates {
                assert!((busbw.mean / algbw.mean - 4.0 / 3.0).abs() < 1e-9);
            }
        }
    }
    assert!(
        run.stdout.contains("all-reduce; 3 ranks; sum of float32"),
        "{}",
        run.stdout
    );
    let shown = tonnage(dir.path(), "show c.jsonl").succeed();
    assert_eq!(shown.stdout, run.stdout);
}

/// Groups call at once: every result is that of its group, and the slowest group is no slower than the whole.
#[test]
fn groups_call_at_once_and_each_has_its_own_result() {
    for groups in ["div:2", "mod:2"] {
        let dir = tempdir().unwrap();
        let ops = "all-reduce,reduce-scatter,all-gather,all-to-all,broadcast,reduce,gather,scatter,barrier,send-recv-pairs,send-recv-ring";
        let line = format!(
            "collective --backend native:shm --op {ops} --sizes 4000 --root 1 --groups {groups} --ranks 4 --trials 2 \
             --iters 3 --verify --per-rank -o c.jsonl"
        );
        let run = tonnage(dir.path(), &line).succeed();
        for record in records::of_any_kind(&dir.path().join("c.jsonl")) {
            let body = record.collective().unwrap();
            let summary = body.backends[0].summary.as_ref().unwrap();
            let shape = body.point.shape();
            assert_eq!((shape.ranks, body.point.ranks), (2, 4));
            // The first call, and the last of each trial, in two groups of two ranks.
            let bytes: u64 = (0..2).map(|place| shape.output_bytes(place)).sum();
            assert_eq!(summary.verified_bytes, 2 * bytes * 3, "{}", body.point.op);
            let times: Vec<f64> = summary
                .group_times
                .iter()
                .map(|it| it.group_call_ns_rank_max)
                .collect();
            assert_eq!(times.len(), 2);
            assert!(
                times
                    .iter()
                    .all(|&ns| ns > 0.0 && ns <= summary.call_ns_rank_max * 1.000_001)
            );
            let mean: f64 = summary
                .group_times
                .iter()
                .map(|it| it.group_call_ns_rank_mean)
                .sum();
            assert!((mean / 2.0 / summary.call_ns_rank_mean - 1.0).abs() < 1e-6);
        }
        assert!(
            run.stdout
                .contains(&format!("4 ranks in 2 groups of 2 ({groups}) at once")),
            "{}",
            run.stdout
        );
        assert!(
            run.stdout.contains("groups of all-reduce"),
            "{}",
            run.stdout
        );
    }
}

/// Alone the size is refused; among others it is a row with its reason, and the others are measured.
#[test]
fn an_impossible_size_of_a_sweep_is_skipped() {
    let dir = tempdir().unwrap();
    let line = |sizes: &str| {
        format!(
            "collective --backend native:shm --op all-gather --sizes {sizes} --ranks 3 --trials 1 --iters 2 -o {}.jsonl",
            sizes.len()
        )
    };
    let run = tonnage(dir.path(), &line("8,96")).run().with_code(1);
    let records = records::of_any_kind(&dir.path().join("4.jsonl"));
    let Outcome::Skipped { why } = &records[0].outcome else {
        panic!("{:#?}", records[0]);
    };
    assert!(why.contains("the smallest is 12"), "{why}");
    assert_eq!(records[1].outcome, Outcome::Measured);
    assert!(run.stdout.contains("the smallest is 12"), "{}", run.stdout);
    let alone = tonnage(dir.path(), &line("8")).run().with_code(2);
    alone.with_one_error(&["the smallest is 12"]);
    assert!(!dir.path().join("1.jsonl").exists());
}

#[test]
fn what_cannot_be_is_refused_before_a_rank_starts() {
    let dir = tempdir().unwrap();
    for (options, reason) in [
        (
            "--backend native:shm --op all-gather --sizes 8 --ranks 4",
            "the smallest is 16",
        ),
        ("--backend native:null --op barrier --ranks 2", "write-imm"),
        ("--backend natve:shm --op barrier --ranks 2", "did you mean"),
        (
            "--backend native:shm --op all-reduse --sizes 8 --ranks 2",
            "all-reduce",
        ),
        (
            "--backend native:shm --op broadcast --root 2 --sizes 8 --ranks 2",
            "root 1",
        ),
        (
            "--backend native:shm --op barrier --algorithm ring --ranks 2",
            "bruck",
        ),
        (
            "--backend native:shm --op all-reduce --sizes 8 --root 1 --ranks 2",
            "root has no effect on all-reduce",
        ),
        (
            "--backend native:shm --op barrier --in-place --ranks 2",
            "in-place has no effect on barrier",
        ),
        (
            "--backend native:shm --op barrier --sizes 64 --ranks 2",
            "sizes has no effect on barrier",
        ),
    ] {
        let line = format!("collective {options}");
        tonnage(dir.path(), &line)
            .run()
            .with_code(2)
            .saying(&[reason]);
    }
}

#[test]
fn a_rank_that_is_killed_in_a_call_is_named() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("messages");
    let messages = fs::File::create(&path).unwrap();
    let line = "collective --backend native:shm --op all-reduce --sizes 1M --ranks 3 --trial-time 20s --log-level debug";
    let run = tonnage(dir.path(), line).stderr(messages.into()).start();
    wait_until("a trial runs", || {
        fs::read_to_string(&path).is_ok_and(|said| said.contains("trial"))
            || run.processes().len() >= 3
    });
    std::thread::sleep(Duration::from_secs(1));
    run.signal_rank(1, Signal::KILL);
    let killed = Instant::now();
    let ended = run.end();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(killed.elapsed() < Duration::from_secs(5));
    let said = fs::read_to_string(&path).unwrap();
    assert!(said.contains("rank 1"), "{said}");
}

/// Copies by all senders at once bound what goes by copies; a root's algorithm decides how many send.
#[test]
fn shared_memory_has_a_limit_that_nothing_passes() {
    let dir = tempdir().unwrap();
    let line = "collective --backend native:shm --op all-reduce,send-recv-pairs,gather --sizes 4k,1M --ranks 2 --trials 3 \
                --trial-time 20ms -o c.jsonl";
    let run = tonnage(dir.path(), line).succeed();
    let records = records::of_any_kind(&dir.path().join("c.jsonl"));
    if records
        .iter()
        .any(|record| record.effective.iter().any(|it| it.yielding))
    {
        println!("skip: ranks share a CPU, so that nothing is measured beside a limit");
        return;
    }
    for record in &records {
        let body = record.collective().unwrap();
        let (op, backend) = (body.point.op, &body.backends[0]);
        let is_limited = op != Collective::Gather && body.point.size_bytes > 4096;
        assert_eq!(backend.bus_limit.is_some(), is_limited, "{op}");
        let summary = backend.summary.as_ref().unwrap();
        let Some(limit) = &backend.bus_limit else {
            assert_eq!(summary.busbw_limit_fraction, None);
            continue;
        };
        let busbw = summary.busbw_bytes_per_s.unwrap().mean;
        let fraction = summary.busbw_limit_fraction.unwrap();
        assert!((fraction * limit.bytes_per_s / busbw - 1.0).abs() < 1e-9);
        // The machine may become faster in between, and other load may take nearly all of its time.
        assert!(fraction > 0.0 && fraction < 1.5, "{op}: {fraction}");
    }
    assert!(
        run.stdout.contains("from each rank that sends"),
        "{}",
        run.stdout
    );
    // Whoever wants none has none.
    let line = "collective --backend native:shm --op all-reduce --sizes 1M --ranks 2 --trials 2 --trial-time 5ms --limit none";
    let run = tonnage(dir.path(), line).succeed();
    assert!(!run.stdout.contains("limit of"), "{}", run.stdout);
}
