//! Runs cases on one host and examines their leftovers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Seek;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::{tempdir_in, tempfile_in};
use tonnage_ranks::STEP_MARK;
use tonnage_record::Outcome;
use tonnage_record::read::read_records;

use super::cases::{Case, Fault, Moment, Whom, Work};
use super::family::{all_hold, numbers, seed, variable};
use super::promises::{JOIN_SECONDS, SOON, Seen, broken};
use super::support::launchers::{is_there, under_mpirun};
use super::support::processes::Process;
use super::support::{Program, Started, records, shared_memory, tonnage};

/// Number of cases by default.
const CASES: u64 = 40;

/// Longest wait for the moment of a fault. After that, the watchdog handles the run.
pub(super) const MOMENT_MAX: Duration = Duration::from_secs(30);

/// Time between two polls for the moment of a fault. Each poll reads all of /proc, which takes CPU time from the run.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// Smallest share of a family's cases, in percent, in which the fault must occur before the run is over. A smaller
/// share means that a step was renamed or that runs are too short.
const STRUCK_MIN_PERCENT: usize = 80;

/// Smallest number of cases in a family for which that share is checked. In a smaller family of several cases, at least
/// one fault must have occurred.
const SHARE_OF_MIN: usize = 5;

#[test]
fn promises_hold_whatever_signal_comes_when() {
    let count = variable("FAULTS").unwrap_or(CASES);
    let Some(numbers) = numbers("FAULT_CASE", "FAULT_HOSTS_CASE", count) else {
        return;
    };
    let has_uring = has_uring();
    let struck = Mutex::new(BTreeMap::new());
    all_hold("FAULT_CASE", numbers, |number, soon| {
        let case = Case::draw(seed(), number);
        if !has_uring && matches!(case.work, Work::File("uring", ..)) || !has_launcher(&case) {
            return Vec::new();
        }
        let (is_struck, found) = tried(number, &case, soon);
        if soon == SOON {
            let mut struck = struck.lock().unwrap();
            let of_family: &mut Vec<bool> = struck.entry(case.work.family()).or_default();
            of_family.push(is_struck);
        }
        found
    });
    let struck = struck.into_inner().unwrap();
    println!("struck: {}", shares(&struck).join(", "));
    let few = shares(&too_few(struck));
    assert!(few.is_empty(), "no fault came to many: {few:?}");
}

/// For each family, whether the fault of each case was applied.
type Struck = BTreeMap<&'static str, Vec<bool>>;

fn shares(struck: &Struck) -> Vec<String> {
    let came = |all: &[bool]| all.iter().filter(|is_struck| **is_struck).count();
    let each = struck.iter();
    each.map(|(family, all)| format!("{} of {} {family} cases", came(all), all.len()))
        .collect()
}

/// Returns the families in which too few cases had their fault applied, so that they tested almost nothing.
fn too_few(mut struck: Struck) -> Struck {
    struck.retain(|_, all| {
        let came = all.iter().filter(|is_struck| **is_struck).count();
        let is_none = all.len() > 1 && came == 0;
        is_none || all.len() >= SHARE_OF_MIN && came * 100 < all.len() * STRUCK_MIN_PERCENT
    });
    struck
}

#[test]
fn families_whose_faults_missed_are_detected() {
    let of = |came, all| (0..all).map(|case| case < came).collect::<Vec<_>>();
    let struck = Struck::from([
        ("few", of(1, SHARE_OF_MIN - 1)),
        ("hit", of(4, 5)),
        ("missed", of(3, 5)),
        ("never", of(0, 2)),
        ("one", of(0, 1)),
    ]);
    let found = shares(&too_few(struck));
    assert_eq!(found, ["3 of 5 missed cases", "0 of 2 never cases"]);
}

/// Each rank must log every step at which a fault can occur. This fails if a step is renamed.
#[test]
fn each_step_is_logged() {
    for (work, steps) in Work::one_of_each() {
        let dir = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let own = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let case = Case {
            work,
            ranks: 2,
            moment: Moment::After(0),
            fault: Fault::Kill,
            whom: Whom::Rank(0),
        };
        if !has_launcher(&case) {
            continue;
        }
        // Under MPI, shorter phases might end before even one collective call.
        let brief = match case.launcher() {
            None => case.arguments().replace("00ms", "0ms"),
            Some(_) => case.arguments(),
        };
        let mut told = tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let program = started(&case, dir.path(), own.path(), &brief);
        let ended = program.stderr(told.try_clone().unwrap().into()).run();
        let told = all_lines(&mut told);
        assert_eq!(ended.code, Some(0), "{told}{}", ended.stdout);
        for (step, rank) in steps.iter().flat_map(|step| [(step, 0), (step, 1)]) {
            let mark = format!("{STEP_MARK}{rank}: {step}");
            assert!(told.contains(&mark), "no {mark:?} of {brief}: {told}");
        }
    }
}

/// Returns whether the launcher of a case is installed.
fn has_launcher(case: &Case) -> bool {
    case.launcher().is_none_or(is_there)
}

/// Returns the program of a case with these arguments. A killed launcher leaves files of its own in the directory
/// `own`, which is not examined. MPI's shared memory is put there too.
fn started(case: &Case, dir: &Path, own: &Path, arguments: &str) -> Program {
    // Steps are logged only at debug level.
    let arguments = format!("{arguments} --log-level debug");
    let Some(launcher) = case.launcher() else {
        return tonnage(dir, &arguments);
    };
    under_mpirun(dir, launcher, &arguments)
        .env("TMPDIR", own.as_os_str())
        .env("OMPI_MCA_btl_vader_backing_directory", own.as_os_str())
        .env("TONNAGE_JOIN_TIMEOUT", JOIN_SECONDS.to_string())
}

fn has_uring() -> bool {
    let dir = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let arguments = "file --engine uring --path t --block 4k --transfer 4k --bound none";
    let tried = tonnage(dir.path(), arguments).run();
    if tried.code != Some(0) {
        println!(
            "skip: cases with io_uring, which is not here: {}",
            tried.stdout
        );
    }
    tried.code == Some(0)
}

/// Runs a case and prints how it ended. Returns whether its fault was applied, and the broken promises. Catches panics
/// of [`Started`], because its watchdog and its search for remaining processes report this way.
fn tried(number: u64, case: &Case, soon: Duration) -> (bool, Vec<String>) {
    let seen = match catch_unwind(AssertUnwindSafe(|| run(case))) {
        Ok(seen) => seen,
        Err(panic) => {
            println!("case {number}, a panic: {case}");
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.unwrap_or_else(|| "a panic of this test".to_owned());
            return (true, vec![text]);
        }
    };
    let is_struck = seen.struck_pid.is_some();
    let since = if is_struck { "it" } else { "no signal" };
    let (code, took) = (seen.code, seen.took);
    println!("case {number}, code {code} {took:.1?} after {since}: {case}");
    let found = broken(case, &tonnage_sys::host::name(), &seen, soon);
    (is_struck, found)
}

/// Runs a case in a directory on a disk, and searches that directory for leftovers.
fn run(case: &Case) -> Seen {
    let dir = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let memory = shared_memory();
    let own = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut told = tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = started(case, dir.path(), own.path(), &case.arguments());
    let mut run = program.stderr(told.try_clone().unwrap().into()).start();
    let (struck_pid, pids) = strike(case, &mut run, (dir.path(), &told));
    let struck = Instant::now();
    let ended = run.end();
    let took = struck.elapsed();
    let by_signal = || 128 + ended.signal.unwrap();
    let all = all_lines(&mut told);
    Seen {
        struck_pid,
        code: ended.code.unwrap_or_else(by_signal),
        took,
        records: outcomes(&dir.path().join("r.jsonl")),
        left_in_dir: names(dir.path()),
        left_in_memory: new_names(&memory, &pids),
        stderr: said(&all),
        stdout: ended.stdout,
        has_joined: all.contains(" has joined as process "),
    }
}

pub(super) fn all_lines(told: &mut File) -> String {
    told.rewind().unwrap();
    std::io::read_to_string(told).unwrap()
}

/// Returns the lines that are not debug output.
pub(super) fn said(text: &str) -> String {
    let is_said = |line: &&str| {
        !["debug: ", "info: "]
            .iter()
            .any(|level| line.starts_with(level))
    };
    text.split_inclusive('\n').filter(is_said).collect()
}

/// Watches the log of a running program for a step. Each poll reads only new output, because the run needs the CPUs.
pub(super) struct Steps<'a> {
    told: &'a File,
    /// Beginning of the awaited line.
    awaited: String,
    read: u64,
    /// The last line so far, which may be incomplete.
    line: Vec<u8>,
    has_begun: bool,
}

impl<'a> Steps<'a> {
    pub(super) fn new(told: &'a File, rank: u32, step: &str) -> Self {
        Self {
            told,
            awaited: format!("{STEP_MARK}{rank}: {step}"),
            read: 0,
            line: Vec::new(),
            has_begun: false,
        }
    }

    /// Returns whether the rank has begun the step.
    pub(super) fn have_begun(&mut self) -> bool {
        let bytes = self.told.metadata().unwrap().len();
        let mut new = vec![0; bytes.saturating_sub(self.read) as usize];
        let count = self.told.read_at(&mut new, self.read).unwrap();
        self.read += count as u64;
        self.line.extend_from_slice(&new[..count]);
        self.has_begun |= String::from_utf8_lossy(&self.line).contains(&self.awaited);
        let end = self.line.iter().rposition(|&byte| byte == b'\n');
        drop(self.line.drain(..end.map_or(0, |end| end + 1)));
        self.has_begun
    }
}

/// Applies the fault to its target. Returns whether the run had not ended before.
fn befall(case: &Case, run: &Started, receiver: &Process, dir: &Path) -> bool {
    match case.fault {
        Fault::Remove => fs::remove_file(dir.join("r.jsonl")).is_ok(),
        Fault::KillAll => {
            let processes = run.processes();
            let ranks = processes.iter().filter(|process| process.rank.is_some());
            let stopped = ranks.filter(|rank| run.signal_process(rank, Signal::STOP));
            let stopped: Vec<_> = stopped.collect();
            // If a rank has already ended by itself, the run is ending, and the remaining ranks may continue.
            let are_all = stopped.len() == case.ranks as usize;
            let next = if are_all { Signal::KILL } else { Signal::CONT };
            for rank in stopped {
                run.signal_process(rank, next);
            }
            are_all
        }
        fault => run.signal_process(receiver, fault.signal()),
    }
}

/// Waits for the moment of the fault and applies it, unless the run has ended by then. Returns the process that was
/// hit, and all processes that existed.
fn strike(
    case: &Case,
    run: &mut Started,
    (dir, told): (&Path, &File),
) -> (Option<i32>, BTreeSet<i32>) {
    let begun = Instant::now();
    let mut pids = BTreeSet::new();
    let mut struck = None;
    let mut steps = match case.moment {
        Moment::After(_) => None,
        Moment::Step(step) => Some(Steps::new(told, receiving_rank(case), step)),
    };
    while struck.is_none() && run.is_running() && begun.elapsed() < MOMENT_MAX {
        let processes = run.processes();
        pids.extend(processes.iter().map(|process| process.pid));
        let receiver = processes.iter().find(|process| match case.whom {
            Whom::Rank(rank) => process.rank == Some(rank),
            Whom::Supervisor => process.pid == run.pid(),
        });
        // To kill all ranks, all of them must exist.
        let ranks = processes.iter().filter(|process| process.rank.is_some());
        let are_there = case.fault != Fault::KillAll || ranks.count() == case.ranks as usize;
        let is_time = match (case.moment, &mut steps) {
            (Moment::After(ms), _) => begun.elapsed() >= Duration::from_millis(ms),
            (_, steps) => steps.as_mut().is_some_and(Steps::have_begun),
        };
        let receiver =
            receiver.filter(|receiver| is_time && are_there && befall(case, run, receiver, dir));
        struck = receiver.map(|receiver| receiver.pid);
        if struck.is_none() {
            std::thread::sleep(LOOK);
        }
    }
    pids.extend(run.processes().iter().map(|process| process.pid));
    (struck, pids)
}

fn receiving_rank(case: &Case) -> u32 {
    match case.whom {
        Whom::Rank(rank) => rank,
        Whom::Supervisor => 0,
    }
}

/// Returns the outcomes of the records in a file. Each line must be complete and match the schema.
pub(super) fn outcomes(path: &Path) -> Result<Vec<Outcome>, String> {
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

/// Returns the names in a directory, except the results file.
pub(super) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "r.jsonl").collect()
}

/// Returns new names in /dev/shm that contain the PID of one of these processes.
pub(super) fn new_names(before: &BTreeSet<String>, pids: &BTreeSet<i32>) -> Vec<String> {
    let after = shared_memory();
    let is_ours = |name: &&String| {
        let mut numbers = name.split(|character: char| !character.is_ascii_digit());
        numbers.any(|number| number.parse().is_ok_and(|pid| pids.contains(&pid)))
    };
    after.difference(before).filter(is_ours).cloned().collect()
}

/// A new file in /dev/shm, a new file next to the results, and a torn line are detected.
#[test]
fn traces_of_a_run_are_found() {
    let before = shared_memory();
    let pid = std::process::id() as i32;
    // Without random letters after the PID, which could look like another PID.
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
