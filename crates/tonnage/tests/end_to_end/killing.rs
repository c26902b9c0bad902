//! Killed ranks. The other ranks must end soon, name the killed rank, keep the measured points and leave nothing
//! behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::{Outcome, Record};

use super::support::{
    LONG, Started, at_once, free_port, records, rows, shared_memory, tonnage, wait_for_records,
    wait_until,
};

/// Checks that /dev/shm has no new files of these processes. Files are ignored if their name starts with another PID.
pub fn nothing_new(before: &BTreeSet<String>, pids: &[i32]) {
    let of_others = |name: &str| {
        let pid = name.split_once(':').and_then(|(pid, _)| pid.parse().ok());
        pid.is_some_and(|pid: i32| !pids.contains(&pid))
    };
    let after = shared_memory();
    let new = after.difference(before).filter(|name| !of_others(name));
    let new: Vec<_> = new.collect();
    assert!(new.is_empty(), "left in /dev/shm: {new:?}");
}

/// Returns the PIDs of all processes of a run.
pub fn pids(run: &Started) -> Vec<i32> {
    run.processes().iter().map(|process| process.pid).collect()
}

/// Checks that at least this many points were measured. The interrupted point may have a record as a failure.
fn kept(path: &Path, at_least: usize) {
    let records = if path.exists() {
        records::read(path)
    } else {
        Vec::new()
    };
    let measured = records.iter().filter(|it| it.outcome == Outcome::Measured);
    assert!(measured.count() >= at_least, "{records:#?}");
    let is_skip = |record: &Record| matches!(record.outcome, Outcome::Skipped { .. });
    assert!(!records.iter().any(is_skip), "{records:#?}");
}

/// Kills a rank of a transfer after `ready` returns, and checks how the run ends. At least `measured` points must be in
/// the file.
fn kill_one(arguments: &str, rank: u32, measured: usize, ready: impl Fn(&Path, &Started)) {
    let dir = tempdir().unwrap();
    let before = shared_memory();
    let run = tonnage(dir.path(), &format!("transfer {arguments} -o r.jsonl")).start();
    run.rank(rank);
    ready(dir.path(), &run);
    let pids = pids(&run);
    let ended = run.kill_rank(rank);
    kept(&dir.path().join("r.jsonl"), measured);
    nothing_new(&before, &pids);
    // The surviving process must print the measured points.
    if measured > 0 {
        let shown = tonnage(dir.path(), "show r.jsonl").run().with_code(0);
        assert_eq!(ended.stdout, shown.stdout, "{ended:#?}");
    }
}

const SHM: &str = "--engine shm --sizes 8..64 --ranks 2 --op write";

/// Waits until a rank is in its trial. Only then does it use much CPU time.
fn working(run: &Started, rank: u32) {
    wait_until("the rank uses its CPU", || {
        cpu_ticks(run.rank(rank).pid) > 10
    });
}

/// Returns the CPU time of a process in ticks. On every Linux, a tick is a hundredth of a second.
fn cpu_ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let times = fields.skip(11).take(2);
    times.filter_map(|text| text.parse::<u64>().ok()).sum()
}

/// Returns the option for the embedded library, if the installed one cannot be used. The tcp provider of libfabric 1.17
/// may crash when a peer dies, and a crashed process reports nothing.
fn library_for(engine: &str) -> &'static str {
    if engine.ends_with("tcp") {
        "--libfabric embedded"
    } else {
        ""
    }
}

/// A peer's connection breaks when the peer dies, but its shared memory stays. Its death must be reported in both
/// cases.
#[test]
fn in_the_middle_of_a_trial() {
    let ranks = "
        0 => shm        => --op write --sizes 8..64
        1 => shm        => --op send --sizes 8..64
        1 => shm        => --op write-imm --sizes 8..64 --ping-pong
        2 => shm        => --op read --sizes 8..64 --traffic all-to-all --ranks 4
        1 => fabric:tcp => --op write --sizes 1M
        0 => fabric:tcp => --op read --sizes 1M
        1 => fabric:tcp => --op write-imm --sizes 8
        0 => fabric:tcp => --op send --sizes 8
        1 => fabric:tcp => --op write --sizes 64k --traffic all-to-all --ranks 3
        1 => fabric:shm => --op write --sizes 1M --libfabric embedded
        0 => fabric:shm => --op read --sizes 1M
        1 => fabric:shm => --op write-imm --sizes 8
        0 => fabric:shm => --op send --sizes 8 --libfabric embedded
        1 => fabric:shm => --op write --sizes 64k --traffic all-to-all --ranks 3
    ";
    for [rank, engine, what] in rows(ranks) {
        let rank = rank.parse().unwrap();
        let ranks = if what.contains("--ranks") {
            ""
        } else {
            "--ranks 2"
        };
        let library = library_for(engine);
        let line = format!("--engine {engine} {ranks} {what} {library} {LONG}");
        kill_one(&line, rank, 0, |_, run| working(run, rank));
    }
}

/// Kills a rank in its own round, in another rank's round, asleep, under load, in a call, and in a search.
#[test]
fn in_every_pattern_and_kind() {
    let endless = "0 1T 0\n0 0 1T\n0 0 0\n";
    let ranks = "
        2 => rank 2: trial 1 of     => transfer --engine shm --op write --ranks 4 --traffic matrix --matrix alone --sizes 4k
        2 => rank 2: trial 1 of     => transfer --engine shm --op write --ranks 4 --traffic matrix --matrix disjoint --sizes 4k
        1 => rank 1: trial 1 of     => transfer --engine shm --op write --ranks 4 --traffic in-turn --sizes 4k
        3 => rank 3: trial 1 of     => transfer --engine shm --op write --ranks 4 --traffic in-turn --sizes 4k
        2 => rank 2: trial 1 of     => transfer --engine shm --op write --ranks 3 --traffic-file endless --sizes 4k
        3 => rank 3: trial 1 beside => transfer --engine shm --op write --ranks 4 --ping-pong --sizes 8 --background op=write
        2 => rank 2: trial 1 of     => transfer --engine fabric:tcp --op write --ranks 3 --traffic fan-in --sizes 64k --cq event
        2 => rank 2: trial 1 of     => transfer --engine fabric:tcp --op send --ranks 3 --traffic fan-in --sizes 64k --cq event
        1 => rank 1: a trial of     => collective --backend native:shm --op all-reduce --sizes 1M --ranks 3
        1 => race of pacing         => tune --engine shm --op write --sizes 64k --ranks 2
    ";
    for [rank, step, line] in rows(ranks) {
        let dir = tempdir().unwrap();
        fs::write(dir.path().join("endless"), endless).unwrap();
        let length = match step.contains("trial 1 of") && !line.contains("endless") {
            true => "--trials 1 --trial-time 20s --warmup 0 --bound none",
            false if line.contains("endless") => "--trials 1 --warmup 0 --bound none",
            false => "--trial-time 500ms",
        };
        let line = format!("{line} {length} --log-level debug");
        let run = tonnage(dir.path(), &line).start();
        run.wait_until_said(step);
        run.kill_rank(rank.parse().unwrap());
    }
}

/// Kills a rank while it allocates and registers a large memory, which takes long. Also kills a rank while all ranks
/// connect for the first time.
#[test]
fn while_fabric_opens_and_connects() {
    for provider in ["tcp", "shm"] {
        let library = library_for(provider);
        for (step, delay_ms) in [10, 40, 70, 100, 150, 250].into_iter().enumerate() {
            let much = ["--footprint 256M", ""][step % 2];
            let line = format!(
                "--engine fabric:{provider} --ranks 2 --op write --sizes 64k {much} {library} {LONG}"
            );
            kill_one(&line, step as u32 / 2 % 2, 0, |_, _| {
                std::thread::sleep(Duration::from_millis(delay_ms));
            });
        }
    }
}

#[test]
fn after_points_were_measured() {
    for rank in [0, 1] {
        let length = "--trials 1 --trial-time 300ms --warmup 0 --bound none";
        kill_one(&format!("{SHM} {length}"), rank, 1, |dir, _| {
            wait_for_records(dir, 1);
        });
    }
}

/// Kills a rank while it joins, opens the engine, exchanges addresses, runs the canary, or measures the first point.
/// Only a few runs exist at a time: ranks need a while to end if another rank was lost before joining.
#[test]
fn soon_after_the_start() {
    let delays = [0, 3, 6, 10, 15, 25, 40, 80];
    at_once((0..).zip(delays), |(step, delay_ms)| {
        kill_one(&format!("{SHM} {LONG}"), step % 2, 0, |_, _| {
            std::thread::sleep(Duration::from_millis(delay_ms));
        });
    });
}

/// Rank 0 dies while the other ranks are joining, or before they have connected to it. The run must end at once, with
/// one error.
#[test]
fn killing_rank_0_before_all_have_joined() {
    let dir = tempdir().unwrap();
    for delay_ms in [0, 100] {
        let line = format!("transfer --engine null --op write --sizes 8 --ranks 4 {LONG}");
        let run = tonnage(dir.path(), &line).start();
        run.signal_rank(3, Signal::STOP);
        std::thread::sleep(Duration::from_millis(delay_ms));
        run.signal_rank(0, Signal::KILL);
        let killed = Instant::now();
        run.signal_rank(3, Signal::CONT);
        let ended = run.end().with_code(1);
        // The supervisor would wait four seconds for ranks that do not end by themselves.
        assert!(killed.elapsed() < Duration::from_secs(2), "{ended:#?}");
        ended.blaming(0).with_one_error(&[]);
    }
}

#[test]
fn ranks_of_a_launcher_end_too() {
    for (engine, victim) in [("shm", 0), ("shm", 1), ("fabric:shm", 0), ("fabric:tcp", 1)] {
        let dir = tempdir().unwrap();
        let before = shared_memory();
        let port = free_port();
        let library = library_for(engine);
        let arguments = format!(
            "transfer --engine {engine} {library} --op write --sizes 8..64 --trials 1 --trial-time 300ms --warmup 0 --bound none \
             -o r.jsonl"
        );
        let start = |rank| {
            tonnage(dir.path(), &arguments)
                .launched(rank, 2, port)
                .start()
        };
        let mut runs: Vec<_> = (0..2).map(start).collect();
        wait_for_records(dir.path(), 1);
        let pids: Vec<_> = runs.iter().flat_map(pids).collect();
        let lost = runs.remove(victim as usize);
        lost.signal_rank(victim, Signal::KILL);
        let other = runs.remove(0).end_soon().with_code(1);
        other.blaming(victim);
        let lost = lost.end();
        assert_eq!(lost.code, None, "{lost:#?}");
        kept(&dir.path().join("r.jsonl"), 1);
        nothing_new(&before, &pids);
    }
}

#[test]
fn the_supervisor() {
    for delay_ms in [0, 10, 300] {
        let dir = tempdir().unwrap();
        let before = shared_memory();
        let line = format!("transfer {SHM} {LONG}");
        let run = tonnage(dir.path(), &line).start();
        run.rank(1);
        std::thread::sleep(Duration::from_millis(delay_ms));
        let pids = pids(&run);
        run.signal(Signal::KILL);
        // `end` checks that the ranks end within 5 s.
        let ended = run.end();
        assert_eq!(ended.signal, Some(9), "{ended:#?}");
        nothing_new(&before, &pids);
    }
}
