//! Trials that are cut into intervals. Sums must be complete, gaps must be visible, and data before a failure must be
//! kept.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::transfer::TrialSeries;
use tonnage_record::{Outcome, Record};

use super::support::records::{body, summary};
use super::support::{Started, records, tonnage, wait_for_records, wait_until};

fn series(record: &Record) -> &TrialSeries {
    body(record).trials[0].series.as_ref().unwrap()
}

/// Returns the lines that the run printed while the ranks were working.
fn live(stderr: &str) -> Vec<&str> {
    stderr
        .lines()
        .filter(|line| line.starts_with('['))
        .collect()
}

/// Starts a run, and waits until it has reported this many intervals.
fn started(dir: &Path, arguments: &str, intervals: usize) -> Started {
    let run = tonnage(dir, arguments).start();
    wait_until("intervals are reported", || {
        live(&run.said()).len() >= intervals
    });
    run
}

/// Reading the records checks the sums of each series.
#[test]
fn every_pacing_and_engine_has_its_series() {
    for arguments in [
        "shm --op write --traffic fan-in --ranks 3 --sizes 64 --depth 12",
        "null --op write --ranks 2 --sizes 8 --depth 64 --latency off --threads 2",
        "null --op read --ranks 2 --sizes 8 --batch 16 --batch-of rank --threads 2 --batches-in-flight 2",
        "shm --op write-imm --ranks 2 --sizes 8 --ping-pong",
        "shm --op read --ranks 2 --sizes 8 --ping-pong",
        "fabric:shm --op send --ranks 4 --sizes 64 --traffic all-to-all --depth 4",
        "shm --op read --ranks 2 --sizes 1k --rate 5000",
        "null --op write --ranks 20 --traffic fan-in --sizes 8 --depth 4",
        "shm --op write --ranks 2 --bidirectional --sizes 4k --api async --verify",
    ] {
        let dir = tempdir().unwrap();
        let line = format!(
            "transfer --engine {arguments} --duration 200ms --interval 25ms --warmup 10ms --bound none -o r.jsonl"
        );
        let run = tonnage(dir.path(), &line).run().with_code(0);
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        let (series, point) = (series(record), &body(record).point);
        assert_eq!(body(record).trials.len(), 1);
        assert!(series.operations.len() >= 8, "{arguments}: {series:?}");
        let clients = point.roles.initiating_ranks().0 as usize;
        let all = series.operations.len();
        let kept = if clients <= 16 {
            (clients, 0)
        } else {
            (0, all)
        };
        let found = (series.clients.len(), series.extremes.len());
        assert_eq!(found, kept, "{arguments}");
        let timed = if point.latency { all } else { 0 };
        assert_eq!(series.latencies.len(), timed, "{arguments}");
        // Each interval has one line. While bytes are verified, a few lines may be added.
        let (lines, intervals) = (live(&run.stderr), series.operations.len());
        assert!(
            (intervals..intervals + 3).contains(&lines.len()),
            "{run:#?}"
        );
        assert!(lines.iter().all(|line| line.contains("op/s, ")), "{run:#?}");
        run.printing(&["series at "]);
    }
}

#[test]
fn trials_have_a_series_each_and_warm_up_has_none() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine null --op write --ranks 2 --sizes 8,64 --trials 2 --trial-time 120ms --interval 40ms \
                --bound none -o r.jsonl";
    let run = tonnage(dir.path(), line).run().with_code(0);
    for record in records::read(&dir.path().join("r.jsonl")) {
        for trial in &body(&record).trials {
            let series = trial.series.as_ref().unwrap();
            assert!((3..6).contains(&series.operations.len()), "{series:?}");
        }
    }
    let second = live(&run.stderr)
        .into_iter()
        .filter(|line| line.ends_with("; trial 2"));
    assert!(second.count() >= 6, "{run:#?}");
    run.printing(&["series at 64 B, trial 2, 40ms each: "]);
}

/// A rank is stopped for 300 ms. The gap must show in the rank's series and in its latencies, which count from the due
/// times. The other rank's series must not show a gap.
#[test]
fn a_rank_that_is_stopped_is_a_gap() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm --op write --traffic fan-in --ranks 3 --sizes 64 --rate 2000 --duration 1500ms \
                --interval 50ms --bound none --per-rank -o r.jsonl";
    let run = started(dir.path(), line, 5);
    run.signal_rank(2, Signal::STOP);
    std::thread::sleep(Duration::from_millis(300));
    run.signal_rank(2, Signal::CONT);
    let ended = run.end().with_code(0);
    let record = &records::read(&dir.path().join("r.jsonl"))[0];
    let series = series(record);
    let of_rank = |rank: u32| {
        let stood = series.standstills.iter().filter(|known| known.rank == rank);
        let lengths = stood.map(|known| known.end_ns - known.begin_ns);
        lengths.max().unwrap_or(0)
    };
    // The gap of 300 ms contains at least four whole intervals of 50 ms.
    assert!(
        (200_000_000..=350_000_000).contains(&of_rank(2)),
        "{series:?}"
    );
    assert!(of_rank(1) < 200_000_000, "{series:?}");
    ended
        .saying(&["nothing moved: rank 2"])
        .printing(&["rank 2 moved nothing from "]);
    // In 1.5 s, one of two ranks was late for 300 ms. This is more than one in a hundred operations.
    let latency = summary(record).latency.as_ref().unwrap();
    assert!(latency.latency_ns_p99 > 100_000_000, "{latency:?}");
    assert!(latency.latency_ns_p50 < 50_000_000, "{latency:?}");
}

/// Both ranks are stopped for more than two trials. Operations due in that time are never issued, but must count in the
/// percentiles. The remark must be about a stall, not an overload.
#[test]
fn a_stall_that_outlasts_a_trial_is_in_its_percentiles() {
    // On a busy machine, a trial may be over before the ranks are stopped. A longer trial is then tried.
    for trial in [
        Duration::from_secs(1),
        Duration::from_secs(2),
        Duration::from_secs(4),
    ] {
        let dir = tempdir().unwrap();
        let line = format!(
            "transfer --engine shm --op write --sizes 64 --ranks 2 --rate 10k --depth 16 --bound none --warmup 0 --duration \
             {}ms --interval 50ms -o r.jsonl",
            trial.as_millis()
        );
        let run = started(dir.path(), &line, 2);
        let stop = trial * 9 / 4;
        for rank in [0, 1] {
            run.signal_rank(rank, Signal::STOP);
        }
        std::thread::sleep(stop);
        for rank in [0, 1] {
            run.signal_rank(rank, Signal::CONT);
        }
        let ended = run.end().with_code(0);
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        let (Some(stall), summary) = (body(record).trials[0].stall, summary(record)) else {
            continue;
        };
        let latency = summary.latency.as_ref().unwrap();
        let unfinished = latency.lower_bounds.map_or(0, |bounds| bounds.unfinished);
        if unfinished * 20 < latency.samples {
            continue;
        }
        let least_ns = (stop - trial).as_nanos() as u64;
        assert!(latency.latency_ns_p99 > least_ns, "{latency:?}");
        assert!(latency.latency_ns_max > least_ns, "{latency:?}");
        assert_eq!(latency.samples, summary.operations + unfinished);
        let due = 10_000 * trial.as_secs();
        assert_eq!(latency.samples, due, "{latency:?}");
        assert!(stall.length_ns.min(stall.loop_ns) > least_ns, "{stall:?}");
        assert_eq!((stall.rank, stall.peer), (0, 1));
        // The intervals of that trial count the unfinished operations too.
        let intervals = series(record).latencies.iter();
        let bounds = intervals.filter_map(|interval| interval.lower_bounds);
        assert_eq!(
            bounds.map(|bounds| bounds.unfinished).sum::<u64>(),
            unfinished
        );
        let csv = tonnage(dir.path(), "show r.jsonl --format csv").succeed();
        csv.printing(&["latency_ns_p99 latency_ns_p999 latency_ns_max"]);
        assert!(!ended.stdout.contains("overload"), "{ended:#?}");
        ended.printing(&[
            "≥",
            "a stall of ",
            "in trial 1, ",
            "from rank 0 to rank 1",
            "stood still as well",
        ]);
        return;
    }
    println!("skip: the machine is too busy to stop ranks within a trial of 4 s");
}

#[test]
fn what_moved_before_a_rank_was_killed_is_kept() {
    for victim in [1, 2] {
        let dir = tempdir().unwrap();
        let line = "transfer --engine shm --op write --traffic fan-in --ranks 3 --sizes 64 --duration 20s --interval 50ms \
                    --bound none -o r.jsonl";
        let ended = started(dir.path(), line, 6).kill_rank(victim);
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        let broken_off = body(record).broken_off.as_ref().unwrap();
        assert_eq!(broken_off.trial, 1);
        let moved = broken_off
            .series
            .operations
            .iter()
            .filter(|&&count| count > 0);
        assert!(moved.count() >= 4, "{broken_off:?}");
        ended.printing(&["trial 1, which was broken off"]);
    }
}

/// A copy of the file during the run equals the file that a crash would leave at that moment.
#[test]
fn checkpoints_keep_what_moved_until_then() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm --op write --ranks 2 --sizes 64 --duration 2s --interval 50ms --checkpoint 400ms \
                --bound none -o r.jsonl";
    let run = tonnage(dir.path(), line).start();
    wait_for_records(dir.path(), 2);
    let copy = std::fs::read_to_string(dir.path().join("r.jsonl")).unwrap();
    std::fs::write(dir.path().join("copy.jsonl"), &copy).unwrap();
    let ended = run.end().with_code(0);
    let [first, second, ..] = &records::parse(&copy)[..] else {
        panic!("{copy}");
    };
    for (record, intervals) in [(first, 8), (second, 16)] {
        assert!(
            matches!(record.outcome, Outcome::Failed { .. }),
            "{record:?}"
        );
        let series = &body(record).broken_off.as_ref().unwrap().series;
        assert_eq!(series.operations.len(), intervals, "{series:?}");
    }
    let lost = tonnage(dir.path(), "show copy.jsonl").run().with_code(0);
    lost.printing(&[
        "which was broken off",
        "it had not ended when this checkpoint was written",
    ]);
    // At the end, the point has its record, and the checkpoints count as failed attempts.
    let all = records::shown(dir.path(), &ended);
    let (last, before) = all.split_last().unwrap();
    assert_eq!(last.outcome, Outcome::Measured);
    assert!((4..=5).contains(&before.len()), "{}", before.len());
    assert!(!ended.stdout.contains("FAILED"), "{ended:#?}");
}

/// This test must detect leaks. A leak per operation would be megabytes within a second. A leak per interval is
/// measured over 600 intervals, with a limit of 200 bytes each, or 500 on rank 0, which keeps the series. Smaller
/// growth can be memory that histograms and the allocator touch for the first time when a busy machine changes the
/// operations' times. One-time allocations happen before the measurement.
#[test]
fn the_memory_of_ranks_does_not_grow() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm --op write-imm --ranks 2 --bidirectional --sizes 64 --depth 64 --duration 60s \
                --interval 10ms --bound none -o r.jsonl";
    let run = started(dir.path(), line, 300);
    let pids: Vec<i32> = [0, 1].map(|rank| run.rank(rank).pid).into();
    let private = || pids.iter().map(|&pid| private_kib(pid)).collect::<Vec<_>>();
    let before = private();
    let told_before = live(&run.said()).len();
    wait_until("600 more intervals are reported", || {
        live(&run.said()).len() >= told_before + 600
    });
    let after = private();
    run.signal(Signal::INT);
    run.end().with_code(130);
    for (at, most) in [(0, 300), (1, 120)] {
        let (before, after) = (before[at], after[at]);
        let growth = after.saturating_sub(before);
        assert!(
            after > 0 && growth <= most,
            "rank {at}: {before} KiB and {after}"
        );
    }
}

/// Returns the private memory of a process in KiB, as the kernel counts it.
fn private_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let kib = lines
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    kib.trim().trim_end_matches(" kB").parse().unwrap()
}
