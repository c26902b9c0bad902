//! Running cases and looking at what they leave.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Seek;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::{tempdir_in, tempfile_in};
use tonnage_ranks::STEP_MARK;
use tonnage_record::Outcome;
use tonnage_record::read::read_records;

use super::cases::{Case, Fault, Moment, SEED, Whom, Work};
use super::promises::{LATE, SOON, Seen, broken};
use super::support::processes::Process;
use super::support::{Started, records, shared_memory, tonnage};

/// Cases that run where nothing else is asked for.
const CASES: u64 = 40;

/// Cases at a time. Their ranks are more than most machines have CPUs, which is part of the test.
const AT_A_TIME: usize = 2;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}

#[test]
fn promises_hold_whatever_signal_comes_when() {
    let seed = variable("FAULT_SEED").unwrap_or(SEED);
    let numbers = match variable("FAULT_CASE") {
        Some(number) => number..number + 1,
        None => 0..variable("FAULTS").unwrap_or(CASES),
    };
    let has_uring = has_uring();
    let next = AtomicU64::new(numbers.start);
    let (failures, late) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let fail = |number: u64, found: &[String]| {
        let failure = format!("FAULT_SEED={seed} FAULT_CASE={number}");
        println!("{failure}: {found:#?}");
        failures.lock().unwrap().push(failure);
    };
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end {
                return;
            }
            let case = Case::draw(seed, number);
            if !has_uring && matches!(case.work, Work::File("uring", ..)) {
                continue;
            }
            match tried(number, &case, SOON).as_slice() {
                [] => {}
                [one] if one.starts_with(LATE) => late.lock().unwrap().push((number, case)),
                found => fail(number, found),
            }
        }
    };
    std::thread::scope(|scope| {
        (0..AT_A_TIME).for_each(|_| drop(scope.spawn(worker)));
    });
    // On a busy or a slow machine everything takes longer, so what was only late is tried alone, and may be as late
    // again.
    for (number, case) in late.into_inner().unwrap() {
        println!("again, alone:");
        let found = tried(number, &case, 2 * SOON);
        if !found.is_empty() {
            fail(number, &found);
        }
    }
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "promises were broken in {failures:#?}");
}

fn has_uring() -> bool {
    let dir = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let arguments = "file --engine uring --path t --block 4k --transfer 4k --limit none";
    let tried = tonnage(dir.path(), arguments).run();
    if tried.code != Some(0) {
        println!(
            "skip: cases with io_uring, which is not here: {}",
            tried.stdout
        );
    }
    tried.code == Some(0)
}

/// Runs a case, says how it ended, and returns the promises that were broken. The watchdog of [`Started`] and its look
/// for processes left behind panic.
fn tried(number: u64, case: &Case, soon: Duration) -> Vec<String> {
    let seen = match catch_unwind(AssertUnwindSafe(|| run(case))) {
        Ok(seen) => seen,
        Err(panic) => {
            println!("case {number}, a panic: {case}");
            let text = panic.downcast_ref::<String>().cloned();
            return vec![text.unwrap_or_else(|| "a panic of this test".to_owned())];
        }
    };
    let since = if seen.is_struck { "it" } else { "no signal" };
    let (code, took) = (seen.code, seen.took);
    println!("case {number}, code {code} {took:.1?} after {since}: {case}");
    broken(case, &tonnage_sys::host::name(), &seen, soon)
}

/// Runs a case. Files are on a disk, and what is left is looked for where they are.
fn run(case: &Case) -> Seen {
    let dir = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let memory = shared_memory();
    // Steps are told to who debugs.
    let arguments = format!("{} --log-level debug", case.arguments());
    let mut told = tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = tonnage(dir.path(), &arguments).stderr(told.try_clone().unwrap().into());
    let mut run = program.start();
    let (is_struck, pids) = strike(case, &mut run, (dir.path(), &told));
    let struck = Instant::now();
    let ended = run.end();
    let took = struck.elapsed();
    let by_signal = || 128 + ended.signal.unwrap();
    Seen {
        is_struck,
        code: ended.code.unwrap_or_else(by_signal),
        took,
        records: outcomes(&dir.path().join("r.jsonl")),
        left_in_dir: names(dir.path()),
        left_in_memory: new_names(&memory, &pids),
        stderr: said(&mut told),
    }
}

/// Lines that are not only for who debugs.
fn said(told: &mut File) -> String {
    told.rewind().unwrap();
    let text = std::io::read_to_string(told).unwrap();
    let is_said = |line: &&str| {
        !["debug: ", "info: "]
            .iter()
            .any(|level| line.starts_with(level))
    };
    text.split_inclusive('\n').filter(is_said).collect()
}

/// Returns whether a rank has begun a step.
fn has_begun(told: &File, rank: u32, step: &str) -> bool {
    let mut bytes = vec![0; told.metadata().unwrap().len() as usize];
    let count = told.read_at(&mut bytes, 0).unwrap();
    let text = String::from_utf8_lossy(&bytes[..count]);
    text.contains(&format!("{STEP_MARK}{rank}: {step}"))
}

/// Does it to the receiver of a signal, or to what else it befalls. Returns whether it came in time.
fn befall(case: &Case, run: &Started, receiver: &Process, dir: &Path) -> bool {
    match case.fault {
        Fault::Remove => fs::remove_file(dir.join("r.jsonl")).is_ok(),
        Fault::KillAll => {
            let processes = run.processes();
            let ranks = || processes.iter().filter(|process| process.rank.is_some());
            let stopped = ranks().filter(|rank| run.signal_process(rank, Signal::STOP));
            let all = stopped.count() == case.ranks as usize;
            for rank in ranks() {
                run.signal_process(rank, Signal::KILL);
            }
            all
        }
        fault => run.signal_process(receiver, fault.signal()),
    }
}

/// Waits for the moment and lets the fault happen, unless the run has ended by then. Returns whether it did, and all
/// processes that there were.
fn strike(case: &Case, run: &mut Started, (dir, told): (&Path, &File)) -> (bool, BTreeSet<i32>) {
    let begun = Instant::now();
    let mut pids = BTreeSet::new();
    let mut is_struck = false;
    while !is_struck && run.is_running() {
        let processes = run.processes();
        pids.extend(processes.iter().map(|process| process.pid));
        let receiver = processes.iter().find(|process| match case.whom {
            Whom::Rank(rank) => process.rank == Some(rank),
            Whom::Supervisor => process.pid == run.pid(),
        });
        // All ranks are there to be killed.
        let ranks = processes.iter().filter(|process| process.rank.is_some());
        let are_there = case.fault != Fault::KillAll || ranks.count() == case.ranks as usize;
        let is_time = match case.moment {
            Moment::After(ms) => begun.elapsed() >= Duration::from_millis(ms),
            Moment::Step(step) => has_begun(told, receiving_rank(case), step),
        };
        is_struck = is_time
            && are_there
            && receiver.is_some_and(|receiver| befall(case, run, receiver, dir));
        if !is_struck {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    pids.extend(run.processes().iter().map(|process| process.pid));
    (is_struck, pids)
}

fn receiving_rank(case: &Case) -> u32 {
    match case.whom {
        Whom::Rank(rank) => rank,
        Whom::Supervisor => 0,
    }
}

/// Outcomes of the records of a file, each allowed by the schema and with its line's end.
fn outcomes(path: &Path) -> Result<Vec<Outcome>, String> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let read = read_records(path).map_err(|error| error.to_string())?;
    if read.truncated_tail {
        return Err("its last line is torn".to_owned());
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    text.lines().for_each(|line| drop(records::allowed(line)));
    Ok(read
        .records
        .into_iter()
        .map(|record| record.outcome)
        .collect())
}

/// Names in a directory but for the results.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "r.jsonl").collect()
}

/// Names in /dev/shm that are new and have the number of one of these processes in them.
fn new_names(before: &BTreeSet<String>, pids: &BTreeSet<i32>) -> Vec<String> {
    let after = shared_memory();
    let is_ours = |name: &&String| {
        let mut numbers = name.split(|character: char| !character.is_ascii_digit());
        numbers.any(|number| number.parse().is_ok_and(|pid| pids.contains(&pid)))
    };
    after.difference(before).filter(is_ours).cloned().collect()
}

/// A file in /dev/shm, one beside the results and a torn line are found.
#[test]
fn traces_of_a_run_are_found() {
    let before = shared_memory();
    let pid = std::process::id() as i32;
    // Random letters after the number could be a number themselves.
    let file = tempfile::Builder::new()
        .prefix(&format!("{pid}:traces"))
        .rand_bytes(0)
        .tempfile_in("/dev/shm");
    if let Ok(_file) = file {
        assert_eq!(new_names(&before, &BTreeSet::from([pid])).len(), 1);
        assert_eq!(new_names(&before, &BTreeSet::from([i32::MAX])).len(), 0);
    } else {
        println!("skip: no /dev/shm to write to");
    }
    let dir = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(dir.path().join("t.0"), "").unwrap();
    let path = dir.path().join("r.jsonl");
    assert_eq!(outcomes(&path), Ok(Vec::new()));
    fs::write(&path, "{\"schema_version\":").unwrap();
    assert_eq!(names(dir.path()), ["t.0"]);
    assert_eq!(outcomes(&path), Err("its last line is torn".to_owned()));
}
