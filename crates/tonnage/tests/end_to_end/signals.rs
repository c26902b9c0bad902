//! Ranks that are interrupted, stopped, or never arrive.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;

use super::support::{LONG, Program, SOON, at_once, free_port, tonnage, wait_until};

fn long_run(dir: &std::path::Path, ranks: &str) -> Program {
    let line = format!("transfer --engine shm --op write {ranks} --sizes 8 {LONG} -o r.jsonl");
    tonnage(dir, &line)
}

#[test]
fn a_signal_to_the_supervisor_or_a_rank_ends_the_run_with_its_code() {
    for (to_rank, signal, code) in [
        (None, Signal::INT, 130),
        (None, Signal::TERM, 143),
        (Some(0), Signal::INT, 130),
        (Some(1), Signal::INT, 130),
        (Some(1), Signal::TERM, 143),
    ] {
        let dir = tempdir().unwrap();
        let run = long_run(dir.path(), "--ranks 2 --log-level debug").start();
        run.wait_until_said("step of rank 1: trial 1 of");
        match to_rank {
            None => run.signal(signal),
            Some(rank) => run.signal_rank(rank, signal),
        }
        let ended = run.end_soon().with_code(code);
        let errors = ended
            .stderr
            .lines()
            .filter(|line| line.starts_with("error: "));
        let told = errors.filter(|line| line.contains("interrupted by signal"));
        assert_eq!(told.count(), 1, "{ended:#?}");
        if let Some(rank) = to_rank {
            let name = format!("rank {rank} on {}: interrupted", tonnage_sys::host::name());
            ended.saying(&[&name, &format!("signal {} (SIG", signal.as_raw())]);
        }
    }
}

/// Sends the signal before the rank handles signals, while it waits for the other ranks, and while all ranks exchange
/// their identities.
#[test]
fn a_signal_to_a_rank_that_joins_has_one_cause() {
    let delays = [0, 2, 5, 10, 15, 20, 25, 30, 40, 60];
    at_once((0..).zip(delays), |(step, delay_ms)| {
        let dir = tempdir().unwrap();
        let run = long_run(dir.path(), "--ranks 4 --traffic fan-in").start();
        let rank = step % 2 * 3;
        run.rank(rank);
        std::thread::sleep(Duration::from_millis(delay_ms));
        run.signal_rank(rank, Signal::TERM);
        let ended = run.end_soon().with_code(143);
        // At the very end of joining, both the rank itself and rank 0, which has joined, may report the signal.
        let lines = ended.stderr.lines();
        // If ranks start slowly, rank 0 prints which ranks it waits for.
        let told: BTreeSet<_> = lines
            .filter(|line| !line.starts_with("waiting for "))
            .collect();
        let cause = format!("error: rank {rank} on {}", tonnage_sys::host::name());
        let is_one = told.len() == 1 && told.iter().all(|line| line.starts_with(&cause));
        assert!(is_one, "{ended:#?}");
    });
}

#[test]
fn a_signal_to_a_launched_rank_ends_the_others() {
    let dir = tempdir().unwrap();
    let port = free_port();
    let runs = [0, 1].map(|rank| {
        let run = long_run(dir.path(), "--log-level debug");
        run.launched(rank, 2, port).start()
    });
    // Until rank 1 has joined, rank 0 does not know it and would keep waiting.
    runs[1].wait_until_said("rank 1 of 2 has joined");
    runs[0].wait_until_said("step of rank 0: trial 1 of");
    runs[1].signal_rank(1, Signal::INT);
    let [zero, _] = runs.map(|run| run.end_soon().with_code(130));
    let name = format!(
        "rank 1 on {}: interrupted by signal 2",
        tonnage_sys::host::name()
    );
    zero.saying(&[&name]);
}

#[test]
fn a_stopped_rank_ends_the_run_soon_and_is_named() {
    // A rank is stopped before it can have joined, or while it measures. All cases run at once, because each takes a
    // while.
    let stopped = [(0, 0), (1, 0), (0, 1000), (1, 1000)].map(|(rank, delay_ms)| {
        let dir = tempdir().unwrap();
        let run = long_run(dir.path(), "--ranks 2").start();
        run.rank(rank);
        std::thread::sleep(Duration::from_millis(delay_ms));
        run.signal_rank(rank, Signal::STOP);
        (rank, dir, run, Instant::now())
    });
    for (rank, _dir, run, since) in stopped {
        // The supervisor ends the stopped rank.
        let ended = run.end().with_code(1);
        assert!(since.elapsed() < SOON, "{:?}: {ended:#?}", since.elapsed());
        let name = format!("rank {rank} on {}", tonnage_sys::host::name());
        let naming = ended.stderr.lines().filter(|line| line.contains(&name));
        assert_eq!(naming.count(), 1, "{ended:#?}");
    }
}

#[test]
fn a_launched_rank_that_is_stopped_is_named_too() {
    // Both cases run at once, because each takes a while.
    let stopped = [0, 1].map(|victim| {
        let dir = tempdir().unwrap();
        let port = free_port();
        let runs = [0, 1].map(|rank| {
            long_run(dir.path(), "")
                .launched(rank, 2, port)
                .env("TONNAGE_HEARTBEAT_TIMEOUT", "1")
                .start()
        });
        wait_until("the ranks have joined", || {
            dir.path().join("r.jsonl").exists()
        });
        runs[victim].signal_rank(victim as u32, Signal::STOP);
        (victim, dir, runs, Instant::now())
    });
    for (victim, _dir, runs, since) in stopped {
        // The other rank has resumed the stopped rank, which then learned who ended the run and reports nothing.
        let ended = runs.map(|run| run.end().with_code(1));
        assert!(since.elapsed() < SOON, "{:?}: {ended:#?}", since.elapsed());
        let name = format!("error: rank {victim} on {}", tonnage_sys::host::name());
        let told = ended
            .each_ref()
            .map(|run| run.stderr.matches(&name).count());
        assert_eq!(told.iter().sum::<usize>(), 1, "{ended:#?}");
        assert_eq!(told[victim], 0, "{ended:#?}");
    }
}

#[test]
fn ranks_that_never_come_are_named() {
    let dir = tempdir().unwrap();
    let program = |ranks| {
        let line = format!("transfer --engine shm --op write --traffic fan-out --sizes 8 {LONG}");
        tonnage(dir.path(), &line)
            .launched(0, ranks, free_port())
            .env("TONNAGE_JOIN_TIMEOUT", "0.5")
    };
    let ended = program(2).run().with_code(1);
    let ended = ended.with_one_error(&["rank 1", "did not come within", "TONNAGE_JOIN_TIMEOUT"]);
    assert!(ended.took < SOON, "{ended:#?}");
    program(5)
        .run()
        .with_code(1)
        .with_one_error(&["ranks 1-4 of 5 did not come"]);
}

#[test]
fn a_rank_that_finds_no_rank_0_reports_where_it_looked() {
    let dir = tempdir().unwrap();
    let port = free_port();
    let ended = long_run(dir.path(), "")
        .launched(1, 2, port)
        .env("TONNAGE_JOIN_TIMEOUT", "0.5")
        .run()
        .with_code(1);
    let ended = ended.with_one_error(&["rank 0", &format!("127.0.0.1:{port}")]);
    assert!(ended.took < SOON, "{ended:#?}");
}
