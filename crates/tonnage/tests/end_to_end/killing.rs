//! Ranks that are killed: the others end soon, say who it was, keep what was measured and leave nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::Outcome;

use super::support::{
    Ended, LONG, Started, free_port, records, shared_memory, tonnage, wait_until,
};

/// The promise: after this, the others have ended.
const SOON: Duration = Duration::from_secs(5);

/// Checks that nothing is left in /dev/shm but files of other processes than `pids`, whose names begin with their
/// number.
pub fn nothing_new(before: &BTreeSet<String>, pids: &[i32]) {
    let of_others = |name: &str| {
        let pid = name.split_once(':').and_then(|(pid, _)| pid.parse().ok());
        pid.is_some_and(|pid: i32| !pids.contains(&pid))
    };
    let after = shared_memory();
    let new: Vec<_> = after
        .difference(before)
        .filter(|name| !of_others(name))
        .collect();
    assert!(new.is_empty(), "left in /dev/shm: {new:?}");
}

/// Its processes.
pub fn pids(run: &Started) -> Vec<i32> {
    run.processes().iter().map(|process| process.pid).collect()
}

/// Checks that what was measured is complete; the point that was interrupted may be there as a failure.
fn kept(path: &Path, at_least: usize) {
    let records = match path.exists() {
        true => records::read(path),
        false => Vec::new(),
    };
    let measured = records
        .iter()
        .filter(|record| record.outcome == Outcome::Measured);
    assert!(measured.count() >= at_least, "{records:#?}");
    for record in &records {
        assert!(
            !matches!(record.outcome, Outcome::Skipped { .. }),
            "{record:#?}"
        );
    }
}

/// Checks that an error says that this rank was lost.
pub fn blames(ended: &Ended, rank: u32) {
    let name = format!("rank {rank} on {}", tonnage_sys::host::name());
    let mut lines = ended.stderr.lines();
    let is_error = lines.any(|line| line.starts_with("error: ") && line.contains(&name));
    assert!(is_error, "no error of {name:?} in {ended:#?}");
}

/// Kills a rank of a supervised run over shm when `ready`, and looks at how it ends.
fn kill_one(
    ranks: u32,
    rank: u32,
    arguments: &str,
    measured: usize,
    ready: impl Fn(&Path, &Started),
) {
    let arguments = format!("--engine shm --sizes 8..64 {arguments}");
    kill_one_of(ranks, rank, &arguments, measured, ready);
}

/// Kills a rank of a run over any engine.
fn kill_one_of(
    ranks: u32,
    rank: u32,
    arguments: &str,
    measured: usize,
    ready: impl Fn(&Path, &Started),
) {
    let dir = tempdir().unwrap();
    let before = shared_memory();
    let arguments = format!("transfer --ranks {ranks} {arguments} -o r.jsonl");
    let run = tonnage(dir.path(), &arguments).start();
    run.rank(rank);
    ready(dir.path(), &run);
    let pids = pids(&run);
    run.signal_rank(rank, Signal::KILL);
    let killed = Instant::now();
    let ended = run.end();
    assert!(
        killed.elapsed() < SOON,
        "{:?}: {ended:#?}",
        killed.elapsed()
    );
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    blames(&ended, rank);
    kept(&dir.path().join("r.jsonl"), measured);
    nothing_new(&before, &pids);
    // Whoever is left shows what was measured.
    if measured > 0 {
        let shown = tonnage(dir.path(), "show r.jsonl").run().with_code(0);
        assert_eq!(ended.stdout, shown.stdout, "{ended:#?}");
    }
}

fn lines_of(dir: &Path) -> usize {
    fs::read_to_string(dir.join("r.jsonl")).map_or(0, |text| text.matches('\n').count())
}

#[test]
fn in_the_middle_of_a_trial() {
    for (ranks, rank, what) in [
        (2, 0, "--op write"),
        (2, 1, "--op send"),
        (2, 1, "--op write-imm --ping-pong"),
        (4, 2, "--op read --traffic all-to-all"),
    ] {
        kill_one(ranks, rank, &format!("{what} {LONG}"), 0, |_, run| {
            working(run, rank);
        });
    }
}

/// Waits until a rank is in its trial: working, not waiting, is what it does there.
fn working(run: &Started, rank: u32) {
    wait_until("the rank uses its CPU", || {
        cpu_ticks(run.rank(rank).pid) > 10
    });
}

/// CPU time of a process, in hundredths of a second on every Linux.
fn cpu_ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let field = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok());
    field(11).unwrap_or(0) + field(12).unwrap_or(0)
}

/// The tcp provider of libfabric 1.17 can crash by itself when a peer dies, and a process that is gone says nothing.
fn library_for(engine: &str) -> &'static str {
    if engine.ends_with("tcp") {
        "--libfabric embedded"
    } else {
        ""
    }
}

/// A peer's connection breaks, or its memory stays: that it is dead is what must be said.
#[test]
fn in_the_middle_of_a_trial_over_fabric() {
    for (provider, rank, what) in [
        ("tcp", 1, "--op write --sizes 1M"),
        ("tcp", 0, "--op read --sizes 1M"),
        ("tcp", 1, "--op write-imm --sizes 8"),
        ("tcp", 0, "--op send --sizes 8"),
        ("shm", 1, "--op write --sizes 1M --libfabric embedded"),
        ("shm", 0, "--op read --sizes 1M"),
        ("shm", 1, "--op write-imm --sizes 8"),
        ("shm", 0, "--op send --sizes 8 --libfabric embedded"),
    ] {
        let library = library_for(provider);
        let arguments = format!("--engine fabric:{provider} {what} {library} {LONG}");
        kill_one_of(2, rank, &arguments, 0, |_, run| working(run, rank));
    }
}

#[test]
fn of_several_peers_over_fabric() {
    for provider in ["tcp", "shm"] {
        let what = "--op write --traffic all-to-all --sizes 64k";
        let library = library_for(provider);
        let arguments = format!("--engine fabric:{provider} {what} {library} {LONG}");
        kill_one_of(3, 1, &arguments, 0, |_, run| working(run, 1));
    }
}

/// Kills while memory is allocated and registered, which takes long when it is much, and while all connect for the
/// first time.
#[test]
fn while_fabric_opens_and_connects() {
    for provider in ["tcp", "shm"] {
        let library = library_for(provider);
        for (step, delay_ms) in [10, 40, 70, 100, 150, 250].into_iter().enumerate() {
            let much = if step % 2 == 0 {
                "--footprint 256M"
            } else {
                ""
            };
            let arguments = format!(
                "--engine fabric:{provider} --op write --sizes 64k {much} {library} {LONG}"
            );
            kill_one_of(2, step as u32 / 2 % 2, &arguments, 0, |_, _| {
                std::thread::sleep(Duration::from_millis(delay_ms));
            });
        }
    }
}

#[test]
fn after_points_were_measured() {
    for rank in [0, 1] {
        let length = "--op write --trials 1 --trial-time 300ms --warmup 0 --limit none";
        kill_one(2, rank, length, 1, |dir, _| {
            wait_until("a point is done", || lines_of(dir) >= 1);
        });
    }
}

/// Joining, opening the engine, exchanging cards, the canary, the first point: whatever comes then.
#[test]
fn soon_after_the_start() {
    for (step, delay_ms) in [0, 3, 6, 10, 15, 25, 40, 80].into_iter().enumerate() {
        kill_one(
            2,
            step as u32 % 2,
            &format!("--op write {LONG}"),
            0,
            |_, _| {
                std::thread::sleep(Duration::from_millis(delay_ms));
            },
        );
    }
}

/// Ranks that have not come yet find nobody where they should meet, and the others are left in the middle of joining:
/// it is over at once, and said once.
#[test]
fn rank_0_before_all_have_come() {
    let dir = tempdir().unwrap();
    for delay_ms in [0, 100] {
        let run = tonnage(
            dir.path(),
            &format!("transfer --engine null --op write --sizes 8 --ranks 4 {LONG}"),
        )
        .start();
        run.signal_rank(3, Signal::STOP);
        std::thread::sleep(Duration::from_millis(delay_ms));
        run.signal_rank(0, Signal::KILL);
        let killed = Instant::now();
        run.signal_rank(3, Signal::CONT);
        let ended = run.end().with_code(1);
        // Ranks that do not end by themselves have four seconds.
        assert!(killed.elapsed() < Duration::from_secs(2), "{ended:#?}");
        let errors = ended.stderr.matches("error: ").count();
        assert_eq!(errors, 1, "{ended:#?}");
        blames(&ended, 0);
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
            "transfer --engine {engine} {library} --op write --sizes 8..64 --trials 1 --trial-time 300ms --warmup 0 --limit none \
             -o r.jsonl"
        );
        let mut runs: Vec<_> = (0..2)
            .map(|rank| {
                tonnage(dir.path(), &arguments)
                    .launched(rank, 2, port)
                    .start()
            })
            .collect();
        wait_until("a point is done", || lines_of(dir.path()) >= 1);
        let pids: Vec<_> = runs.iter().flat_map(pids).collect();
        runs[victim as usize].signal_rank(victim, Signal::KILL);
        let killed = Instant::now();
        let lost = runs.remove(victim as usize).end();
        assert_eq!(lost.code, None, "{lost:#?}");
        let other = runs.remove(0).end();
        assert!(
            killed.elapsed() < SOON,
            "{:?}: {other:#?}",
            killed.elapsed()
        );
        assert_eq!(other.code, Some(1), "{other:#?}");
        blames(&other, victim);
        kept(&dir.path().join("r.jsonl"), 1);
        nothing_new(&before, &pids);
    }
}

#[test]
fn the_supervisor() {
    for delay_ms in [0, 10, 300] {
        let dir = tempdir().unwrap();
        let before = shared_memory();
        let run = tonnage(
            dir.path(),
            &format!("transfer --engine shm --op write --ranks 2 --sizes 8 {LONG}"),
        )
        .start();
        run.rank(1);
        std::thread::sleep(Duration::from_millis(delay_ms));
        let pids = pids(&run);
        run.signal(Signal::KILL);
        // That its ranks end within 5 s is looked at for every run.
        let ended = run.end();
        assert_eq!(ended.signal, Some(9), "{ended:#?}");
        nothing_new(&before, &pids);
    }
}
