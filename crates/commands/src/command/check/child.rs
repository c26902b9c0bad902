//! Starts ranks once, for points of the baseline: `tonnage run` in a separate process that can be killed. The process
//! writes records to standard output, and steps and errors to standard error.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::Signal;
use tonnage_judge::baseline::order::CheckStep;
use tonnage_plan::Plan;
use tonnage_ranks::spawn::local::TURN_PARENT;
use tonnage_ranks::{STEP_MARK, is_launcher_variable};
use tonnage_record::Record;
use tonnage_record::read::read_records_of;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

use super::clock::BudgetClock;
use super::task::CheckTask;
use crate::command::env;

/// Longest silence after which a rank counts as lost. With a short budget, the limit is lower, so that there is time to
/// report the loss.
const HEARTBEAT_MAX: Duration = Duration::from_secs(3);

/// Minimum of the limit on silence, because healthy ranks on a busy machine may be silent this long.
const HEARTBEAT_MIN: Duration = Duration::from_millis(1500);

/// Time between two polls for the end of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Records from one start of the ranks.
pub struct StepRecords {
    /// The records, in order of arrival.
    pub records: Vec<Record>,
    /// Why some records are missing; `None` if none are.
    pub failed: Option<String>,
    /// True if the time ran out before all records had arrived.
    pub is_late: bool,
}

/// Measures points that have the same number of ranks. If `runs` is given, measures them this many times in one start.
pub fn measure(
    task: &CheckTask,
    steps: &[&CheckStep<'_>],
    runs: Option<u32>,
    clock: &BudgetClock,
) -> Result<StepRecords> {
    clock.step("starting ranks");
    let plan = plan_file(steps)?;
    let mut command = command(task, &plan, steps, runs, clock)?;
    let mut child = command
        .spawn()
        .map_err(|error| Error::start_error("the run", &error))?;
    clock.child(Some(child.id()));
    let last_error = Arc::new(Mutex::new(None));
    let lines = read_output(&mut child, clock, &last_error)?;
    let mut records = Vec::new();
    let mut is_late = false;
    loop {
        match lines.recv_timeout(clock.left()) {
            Ok(line) => match read_records_of(line.as_bytes(), Path::new("the run")) {
                Ok(read) => records.extend(read.records),
                Err(error) => log::warn!("{error}"),
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                is_late = true;
                break;
            }
        }
    }
    // Read before the ranks end, because their steps are cleared at the end.
    let waited = clock.waited_for();
    let ended = end(&mut child, clock, is_late);
    clock.child(None);
    let wanted = steps.len() * runs.unwrap_or(1) as usize;
    let failed = if is_late || !ended {
        Some(waited)
    } else if records.len() < wanted {
        let told = lock(&last_error).take();
        Some(told.unwrap_or_else(|| "the run ended early".to_owned()))
    } else {
        None
    };
    Ok(StepRecords {
        records,
        failed,
        is_late,
    })
}

/// Writes the points as a plan to a file in memory. The ranks open it through this process's entry in /proc.
fn plan_file(steps: &[&CheckStep<'_>]) -> Result<File> {
    let entries = steps.iter().filter_map(|step| step.entries.first());
    let plan = Plan {
        name: "check".to_owned(),
        ranks: steps.first().map(|step| step.shape().0),
        given: entries.map(|entry| entry.given_point()).collect(),
        ..Plan::default()
    };
    let failed = |error| Error::io("cannot keep the plan in memory", error);
    let made = memfd_create(
        "tonnage check",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    );
    let mut file = File::from(made.map_err(|error| failed(error.into()))?);
    file.write_all(plan.to_toml()?.as_bytes()).map_err(failed)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(|error| failed(error.into()))?;
    Ok(file)
}

fn command(
    task: &CheckTask,
    plan: &File,
    steps: &[&CheckStep<'_>],
    runs: Option<u32>,
    clock: &BudgetClock,
) -> Result<Command> {
    let program = std::env::current_exe()
        .map_err(|error| Error::io("cannot find this program's own file", error))?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), plan.as_raw_fd());
    let mut words = task.words.clone();
    if task.args.ranks.asked()?.is_none() && runs.is_none() {
        let ranks = steps.first().map_or(1, |step| step.shape().0);
        words.push(format!("--ranks={ranks}"));
    }
    if let Some(runs) = runs {
        words.push(format!("--runs={runs}"));
    }
    let left = clock.left();
    let seconds = |time: Duration| format!("{:.3}", time.as_secs_f64());
    let mut command = Command::new(program);
    if task.is_alone {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        names
            .filter(|name| is_launcher_variable(name))
            .for_each(|name| {
                command.env_remove(name);
            });
    }
    command
        .args(["run", &path, "--format=jsonl", "--log-level=debug"])
        .args(words)
        .env(TURN_PARENT, std::process::id().to_string())
        .env("TONNAGE_STEP_TIMEOUT", seconds(left))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if env("TONNAGE_JOIN_TIMEOUT").is_none() {
        command.env("TONNAGE_JOIN_TIMEOUT", seconds(left / 2));
    }
    // Only a short budget lowers the timeout: on several hosts, a silent rank may return after a network outage.
    if env("TONNAGE_HEARTBEAT_TIMEOUT").is_none() && left / 3 < HEARTBEAT_MAX {
        let silence = (left / 3).max(HEARTBEAT_MIN);
        command.env("TONNAGE_HEARTBEAT_TIMEOUT", seconds(silence));
    }
    Ok(command)
}

/// Reads the run's output: the lines of standard output, and the steps and the first error from standard error.
fn read_output(
    child: &mut Child,
    clock: &BudgetClock,
    last_error: &Arc<Mutex<Option<String>>>,
) -> Result<Receiver<String>> {
    let (told, lines) = channel();
    let (Some(out), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Error::Failed("the run has no standard output".to_owned()));
    };
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let not_started = |error| Error::start_error("a reader of the run", &error);
    thread("records")
        .spawn(move || {
            let mut lines = BufReader::new(out)
                .lines()
                .map_while(std::result::Result::ok);
            // An error means that the receiver is gone.
            while lines.next().is_some_and(|line| told.send(line).is_ok()) {}
        })
        .map_err(not_started)?;
    let (clock, last_error) = (clock.clone(), Arc::clone(last_error));
    thread("steps")
        .spawn(move || {
            for line in BufReader::new(errors)
                .split(b'\n')
                .map_while(std::result::Result::ok)
            {
                let line = String::from_utf8_lossy(&line);
                handle_stderr_line(&line, &clock, &last_error);
            }
        })
        .map_err(not_started)?;
    Ok(lines)
}

fn handle_stderr_line(line: &str, clock: &BudgetClock, last_error: &Mutex<Option<String>>) {
    if let Some(message) = line.strip_prefix("debug: ") {
        let step = message
            .strip_prefix(STEP_MARK)
            .and_then(|rest| rest.split_once(": "));
        if let Some((rank, text)) = step
            && let Ok(rank) = rank.parse()
        {
            clock.step_of(rank, text);
        }
        return;
    }
    if let Some(message) = line.strip_prefix("error: ") {
        // The first error is the cause of all others.
        lock(last_error).get_or_insert_with(|| message.to_owned());
    }
    log::info!("{line}");
}

/// Waits for the end of the run. A late run is asked to end first. Returns false if the run had to be killed.
fn end(child: &mut Child, clock: &BudgetClock, is_late: bool) -> bool {
    if is_late {
        clock.kill(Signal::TERM);
    }
    let until = Instant::now() + clock.left_to_end();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return true,
            Ok(None) if Instant::now() < until => std::thread::sleep(POLL_INTERVAL),
            _ => break,
        }
    }
    // When the supervisor is killed, its ranks end too. Both calls fail only if the supervisor has already ended.
    let _ = child.kill();
    let _ = child.wait();
    false
}
