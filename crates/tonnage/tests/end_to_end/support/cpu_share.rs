//! Measures the CPU time that other programs use during some runs, to tell a slow program from a busy machine.

use std::collections::BTreeMap;
use std::fs;

use super::program::Started;

/// CPU times since the machine started, in ticks.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    /// CPU time of programs, of the kernel on their behalf, and of other guests of the hypervisor. Packet processing in
    /// interrupts is left out, because it belongs to no program.
    busy: u64,
    /// All CPU time, including idle time.
    all: u64,
}

impl Ticks {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap();
        let words = text.lines().next().unwrap().split_whitespace().skip(1);
        let ticks: Vec<u64> = words.take(8).map(|word| word.parse().unwrap()).collect();
        let [user, nice, system, .., steal] = ticks[..] else {
            panic!("{text}")
        };
        Self {
            busy: user + nice + system + steal,
            all: ticks.iter().sum(),
        }
    }
}

/// Returns the CPU time of a process so far, in ticks. `None` if it has ended.
fn of_process(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program name is in parentheses and may contain any character.
    let (_, after) = text.rsplit_once(')')?;
    let mut words = after.split_whitespace().skip(11);
    let mut next = || words.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Waits until all of these runs have ended. Returns the fraction of total CPU time that other programs used meanwhile.
pub fn taken_by_others(runs: &mut [Started]) -> f64 {
    let begin = Ticks::now();
    let mut own: BTreeMap<i32, u64> = BTreeMap::new();
    loop {
        let processes = runs.iter().flat_map(|run| run.processes());
        own.extend(processes.filter_map(|it| Some((it.pid, of_process(it.pid)?))));
        if !runs.iter_mut().any(|run| run.is_running()) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let end = Ticks::now();
    let busy = (end.busy - begin.busy).saturating_sub(own.values().sum());
    busy as f64 / (end.all - begin.all).max(1) as f64
}
