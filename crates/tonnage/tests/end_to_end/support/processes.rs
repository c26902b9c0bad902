//! Finds the processes of one start of the program, even orphans, by a mark in their environment. Signals therefore
//! never go to a process that something else started.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The environment variable that holds the mark.
pub const MARK: &str = "TONNAGE_TEST_MARK";

/// One process of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// PID of the process.
    pub pid: i32,
    /// Rank of the process; `None` for the supervisor or a launcher.
    pub rank: Option<u32>,
    /// Command line of the process, its arguments joined by spaces.
    pub command_line: String,
}

/// Returns the processes with this mark. Leaves out an ended process that has not been waited for, because it has no
/// environment.
pub fn marked(mark: &str) -> Vec<Process> {
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| look(pid, mark)).collect()
}

fn look(pid: i32, mark: &str) -> Option<Process> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = |name: &str| {
        let variables = environment.split(|&byte| byte == 0);
        let mut found = variables.filter_map(|variable| {
            std::str::from_utf8(variable)
                .ok()?
                .strip_prefix(name)?
                .strip_prefix('=')
        });
        found.next()
    };
    if value(MARK)? != mark {
        return None;
    }
    let names = ["TONNAGE_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];
    let rank = names.into_iter().find_map(value);
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(Process {
        pid,
        rank: rank.and_then(|text| text.parse().ok()),
        command_line: String::from_utf8_lossy(&command_line).replace('\0', " "),
    })
}

/// Sends a signal to a process, unless the process has ended or its PID was reused. Returns whether the signal was
/// sent.
pub fn send(process: &Process, mark: &str, signal: Signal) -> bool {
    let is_still_the_same = look(process.pid, mark).is_some_and(|now| now.rank == process.rank);
    let pid = Pid::from_raw(process.pid).filter(|_| is_still_the_same);
    // The process may end between the check and the signal. This is harmless.
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}
