//! Trials cut into intervals: nothing is lost from the sums, gaps are seen, and what moved until a failure is kept.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::transfer::{Trial, TrialSeries};
use tonnage_record::{Outcome, Record};

use super::support::{Ended, Started, records, tonnage, wait_until};

fn trials(record: &Record) -> &[Trial] {
    &record.transfer().unwrap().trials
}

fn series(record: &Record) -> &TrialSeries {
    trials(record)[0].series.as_ref().unwrap()
}

/// Lines that were printed while the ranks were at work.
fn live(run: &Ended) -> Vec<&str> {
    lines(&run.stderr)
}

fn lines(stderr: &str) -> Vec<&str> {
    let lines = stderr.lines();
    lines.filter(|line| line.starts_with('[')).collect()
}

/// Starts a run whose messages go to a file, and waits until it has told of so many intervals.
fn started(dir: &Path, arguments: &str, intervals: usize) -> Started {
    let messages = File::create(dir.join("messages")).unwrap();
    let run = tonnage(dir, arguments).stderr(messages.into()).start();
    wait_until("intervals are told of", || {
        lines(&told(dir)).len() >= intervals
    });
    run
}

fn told(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("messages")).unwrap()
}

/// The sums are checked with every record that is read.
#[test]
fn every_pacing_and_engine_has_its_series() {
    for arguments in [
        "--engine shm --op write --traffic fan-in --ranks 3 --sizes 64 --window 12",
        "--engine null --op write --ranks 2 --sizes 8 --window 64 --latency off --workers 2",
        "--engine null --op read --ranks 2 --sizes 8 --batch 16 --batch-of rank --workers 2 --batches-in-flight 2",
        "--engine shm --op write-imm --ranks 2 --sizes 8 --ping-pong",
        "--engine shm --op read --ranks 2 --sizes 8 --ping-pong",
        "--engine fabric:shm --op send --ranks 4 --sizes 64 --traffic all-to-all --window 4",
        "--engine shm --op read --ranks 2 --sizes 1k --rate 5000",
        "--engine null --op write --ranks 20 --traffic fan-in --sizes 8 --window 4",
        "--engine shm --op write --ranks 2 --bidirectional --sizes 4k --api async --verify",
    ] {
        let dir = tempdir().unwrap();
        let line = format!(
            "transfer {arguments} --duration 400ms --interval 50ms --warmup 10ms --limit none -o r.jsonl"
        );
        let run = tonnage(dir.path(), &line).run().with_code(0);
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        let (series, point) = (series(record), &record.transfer().unwrap().point);
        assert_eq!(trials(record).len(), 1);
        assert!(series.operations.len() >= 8, "{arguments}: {series:?}");
        let clients = point.roles().initiating().0 as usize;
        let (kept, extremes) = match clients {
            0..=16 => (clients, 0),
            _ => (0, series.operations.len()),
        };
        assert_eq!(
            (series.clients.len(), series.extremes.len()),
            (kept, extremes),
            "{arguments}"
        );
        let expected = match point.latency {
            true => series.operations.len(),
            false => 0,
        };
        assert_eq!(series.latencies.len(), expected, "{arguments}");
        // A line each, and none about the time in which bytes are verified but for a moment.
        let (lines, intervals) = (live(&run).len(), series.operations.len());
        assert!((intervals..intervals + 3).contains(&lines), "{run:#?}");
        assert!(
            live(&run).iter().all(|line| line.contains("op/s, ")),
            "{run:#?}"
        );
        assert!(run.stdout.contains("series at "), "{run:#?}");
    }
}

#[test]
fn trials_have_a_series_each_and_warm_up_has_none() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine null --op write --ranks 2 --sizes 8,64 --trials 2 --trial-time 120ms --interval 40ms \
                --limit none -o r.jsonl";
    let run = tonnage(dir.path(), line).run().with_code(0);
    for record in records::read(&dir.path().join("r.jsonl")) {
        for trial in trials(&record) {
            let series = trial.series.as_ref().unwrap();
            assert!((3..6).contains(&series.operations.len()), "{series:?}");
        }
    }
    let second = live(&run)
        .into_iter()
        .filter(|line| line.ends_with("; trial 2"));
    assert!(second.count() >= 6, "{run:#?}");
    assert!(
        run.stdout.contains("series at 64 B, trial 2, 40ms each: "),
        "{run:#?}"
    );
}

/// A rank that is stopped for 300 ms: the gap is in its series and in the latencies from the time that operations were
/// due, and not in those of the other.
#[test]
fn a_rank_that_is_stopped_is_a_gap() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm --op write --traffic fan-in --ranks 3 --sizes 64 --rate 2000 --duration 2s \
                --interval 50ms --limit none --per-rank -o r.jsonl";
    let run = started(dir.path(), line, 5);
    run.signal_rank(2, Signal::STOP);
    std::thread::sleep(Duration::from_millis(300));
    run.signal_rank(2, Signal::CONT);
    let ended = run.end().with_code(0);
    let told = told(dir.path());
    let record = &records::read(&dir.path().join("r.jsonl"))[0];
    let series = series(record);
    let of_rank = |rank: u32| {
        let stood = series.standstills.iter().filter(|known| known.rank == rank);
        stood
            .map(|known| known.end_ns - known.begin_ns)
            .max()
            .unwrap_or(0)
    };
    // Whole intervals of 50 ms within 300.
    assert!(
        (200_000_000..=350_000_000).contains(&of_rank(2)),
        "{series:?}"
    );
    assert!(of_rank(1) < 200_000_000, "{series:?}");
    assert!(told.contains("nothing moved: rank 2"), "{told}");
    assert!(
        ended.stdout.contains("rank 2 moved nothing from "),
        "{ended:#?}"
    );
    // Of 2 s of two ranks' operations, those of 300 ms of one were late: more than one in a hundred.
    let latency = record
        .transfer()
        .unwrap()
        .summary
        .as_ref()
        .unwrap()
        .latency
        .clone()
        .unwrap();
    assert!(latency.latency_ns_p99 > 100_000_000, "{latency:?}");
    assert!(latency.latency_ns_p50 < 50_000_000, "{latency:?}");
}

/// Both ranks are stopped for more than two trials. What was due meanwhile is never issued, and is in the percentiles all
/// the same; the remark is about a stall and not about an overload.
#[test]
fn a_stall_that_outlasts_a_trial_is_in_its_percentiles() {
    // On a busy machine a trial may be over before the ranks are stopped: then a longer one is tried.
    for trial in [
        Duration::from_secs(1),
        Duration::from_secs(2),
        Duration::from_secs(4),
    ] {
        let dir = tempdir().unwrap();
        let line = format!(
            "transfer --engine shm --op write --sizes 64 --ranks 2 --rate 10k --window 16 --limit none --warmup 0 --duration \
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
        let body = record.transfer().unwrap();
        let (Some(stall), summary) = (trials(record)[0].stall, body.summary.as_ref().unwrap())
        else {
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
        assert!(
            stall.length_ns > least_ns && stall.loop_ns > least_ns,
            "{stall:?}"
        );
        assert_eq!((stall.rank, stall.peer), (0, 1));
        // Its intervals have them as well.
        let intervals = series(record).latencies.iter();
        let bounds = intervals.filter_map(|interval| interval.lower_bounds);
        assert_eq!(
            bounds.map(|bounds| bounds.unfinished).sum::<u64>(),
            unfinished
        );
        let csv = tonnage(dir.path(), "show r.jsonl --format csv")
            .succeed()
            .stdout;
        assert!(
            csv.contains("latency_ns_p99 latency_ns_p999 latency_ns_max"),
            "{csv}"
        );
        for part in [
            "≥",
            "a stall of ",
            "in trial 1, ",
            "from rank 0 to rank 1",
            "stood still as well",
        ] {
            let text = ended
                .stdout
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            assert!(text.contains(part), "{part:?}: {ended:#?}");
        }
        assert!(!ended.stdout.contains("overload"), "{ended:#?}");
        return;
    }
    println!("skip: the machine is too busy to stop ranks within a trial of 4 s");
}

#[test]
fn what_moved_before_a_rank_was_killed_is_kept() {
    for victim in [1, 2] {
        let dir = tempdir().unwrap();
        let line = "transfer --engine shm --op write --traffic fan-in --ranks 3 --sizes 64 --duration 20s --interval 50ms \
                    --limit none -o r.jsonl";
        let run = started(dir.path(), line, 6);
        run.signal_rank(victim, Signal::KILL);
        let killed = Instant::now();
        let ended = run.end().with_code(1);
        assert!(killed.elapsed() < Duration::from_secs(5), "{ended:#?}");
        let told = told(dir.path());
        let name = format!("error: rank {victim} on ");
        assert!(told.contains(&name), "{told}");
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        let broken_off = record.transfer().unwrap().broken_off.as_ref().unwrap();
        assert_eq!(broken_off.trial, 1);
        let moved = broken_off
            .series
            .operations
            .iter()
            .filter(|&&count| count > 0);
        assert!(moved.count() >= 4, "{broken_off:?}");
        assert!(
            ended.stdout.contains("trial 1, which was broken off"),
            "{ended:#?}"
        );
    }
}

/// A copy of the file in the middle of a run is what is left when all is lost at that moment.
#[test]
fn checkpoints_keep_what_moved_until_then() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm --op write --ranks 2 --sizes 64 --duration 2s --interval 50ms --checkpoint 400ms \
                --limit none -o r.jsonl";
    let run = tonnage(dir.path(), line).start();
    let file = dir.path().join("r.jsonl");
    let so_far = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("two checkpoints are written", || {
        so_far().matches('\n').count() >= 2
    });
    let copy = so_far();
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
        let broken_off = record.transfer().unwrap().broken_off.as_ref().unwrap();
        assert_eq!(
            broken_off.series.operations.len(),
            intervals,
            "{broken_off:?}"
        );
    }
    let lost = tonnage(dir.path(), "show copy.jsonl")
        .run()
        .with_code(0)
        .stdout;
    assert!(lost.contains("which was broken off"), "{lost}");
    let said = lost.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("it had not ended when this checkpoint was written"),
        "{said}"
    );
    // In the end the point has its record, and the checkpoints are those of attempts that came to nothing.
    let all = records::shown(dir.path(), "r.jsonl", &ended, "table");
    let (last, before) = all.split_last().unwrap();
    assert_eq!(last.outcome, Outcome::Measured);
    assert!((4..=5).contains(&before.len()), "{}", before.len());
    assert!(!ended.stdout.contains("FAILED"), "{ended:#?}");
}

/// Leaks would be seen: of an operation they would be megabytes within a second; of an interval they are counted over
/// 600 of them, 200 bytes each, and 500 on rank 0, which keeps the series. Below that are pages that histograms and the
/// allocator touch for the first time, as a busy machine makes operations take other times; what happens once, such as
/// the first operations, was before.
#[test]
fn the_memory_of_ranks_does_not_grow() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm --op write-imm --ranks 2 --bidirectional --sizes 64 --window 64 --duration 60s \
                --interval 10ms --limit none -o r.jsonl";
    let run = started(dir.path(), line, 300);
    let pids: Vec<i32> = [0, 1].map(|rank| run.rank(rank).pid).into();
    let private = || pids.iter().map(|&pid| private_kib(pid)).collect::<Vec<_>>();
    let before = private();
    let told_before = lines(&told(dir.path())).len();
    wait_until("600 more intervals are told of", || {
        lines(&told(dir.path())).len() >= told_before + 600
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

/// Memory of a process that is its own, as the kernel counts it.
fn private_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    line.unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn intervals_that_cannot_be_are_refused_before_a_rank_starts() {
    let dir = tempdir().unwrap();
    for (arguments, refusal) in [
        (
            "--interval 1s",
            "interval 1s is longer than a trial of 200ms: write duration 10s",
        ),
        (
            "--interval 1s --duration 900ms",
            "longer than a trial of 900ms",
        ),
        ("--interval 1ms", "the shortest is interval 10ms"),
        ("--interval 100ms --traffic matrix", "contradict each other"),
        ("--interval soon", "soon"),
        ("--checkpoint 1s", "there is none: add interval 1s"),
        (
            "--duration 2s --interval 100ms --checkpoint 10ms",
            "write checkpoint 100ms or more",
        ),
        (
            "--duration 2s --interval 100ms --checkpoint 1s",
            "add -o FILE",
        ),
    ] {
        let line = format!(
            "transfer --engine shm --op write --ranks 3 --traffic fan-in --sizes 8 {arguments}"
        );
        let line = match arguments.contains("matrix") {
            true => line.replace("--traffic fan-in", ""),
            false => line,
        };
        let run = tonnage(dir.path(), &line).run().with_code(2);
        assert!(run.stderr.contains(refusal), "{run:#?}");
    }
}
