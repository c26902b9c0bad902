//! Resumes ranks of this container that are stopped (SIGSTOP) when the run ends early. A stopped rank cannot learn of
//! the end, and its launcher, such as srun or MPICH's mpirun, may wait for it forever.
//!
//! The ranks form a ring by PID. Each running rank resumes the stopped ranks that follow it, so that they can end
//! themselves. If this program started all ranks on this host, [`crate::spawn::supervisor`] does this instead. On hosts
//! of `--hosts`, the agent does it in addition.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use tonnage_sys::process::stat;

/// State of the process with a PID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PidState {
    Runs,
    Stopped,
    /// The process has ended, a debugger holds it, or the PID now belongs to another process.
    Other,
}

/// Resumes the stopped processes that follow this one in the ring, up to the next running process. Returns their PIDs.
/// `others` has the PIDs of ranks that were started by `joined_ticks`. A process that started later has reused the PID
/// of a rank, and is not touched.
pub(crate) fn resume_and_find_next(own: u32, others: Vec<u32>, joined_ticks: u64) -> Vec<u32> {
    let mut stopped = next_to_resume(own, others, |pid| pid_state(pid, joined_ticks));
    stopped.retain(|pid| resume(*pid, joined_ticks));
    stopped
}

/// Resumes a process if it is still the stopped rank. The pidfd refers to the process that had the PID when the pidfd
/// was opened. If that process started before the ranks had joined, it is the rank.
fn resume(number: u32, joined_ticks: u64) -> bool {
    let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else {
        return false;
    };
    let held = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(held) => Some(held),
        Err(Errno::SRCH) => return false,
        // Kernels before 5.3 lack pidfds, and some containers forbid them. The PID might then be reused in the short
        // time before the signal is sent.
        Err(_) => None,
    };
    if pid_state(number, joined_ticks) != PidState::Stopped {
        return false;
    }
    match held {
        Some(held) => pidfd_send_signal(held, Signal::CONT).is_ok(),
        None => kill_process(pid, Signal::CONT).is_ok(),
    }
}

/// Returns the stopped processes that follow this one in a ring of ascending PIDs, up to the next running process. Each
/// running rank checks only these, so that together the ranks find every stopped process without checking all of them
/// several times.
fn next_to_resume(own: u32, mut others: Vec<u32>, state: impl Fn(u32) -> PidState) -> Vec<u32> {
    others.sort_unstable_by_key(|pid| pid.wrapping_sub(own));
    let states = others.into_iter().map(|pid| (pid, state(pid)));
    let gap = states.take_while(|(_, state)| *state != PidState::Runs);
    gap.filter(|(_, state)| *state == PidState::Stopped)
        .map(|(pid, _)| pid)
        .collect()
}

fn pid_state(pid: u32, joined_ticks: u64) -> PidState {
    match stat(pid).filter(|stat| stat.start_ticks <= joined_ticks) {
        Some(stat) if stat.state == 'T' => PidState::Stopped,
        Some(stat) if !['t', 'Z', 'X'].contains(&stat.state) => PidState::Runs,
        _ => PidState::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use tonnage_sys::process::now_ticks;

    use super::*;

    /// A stopped process. It is killed when dropped, even if its test fails.
    struct Stopped(Child);

    impl Drop for Stopped {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn stopped() -> Stopped {
        let mut command = Command::new("sleep");
        let child = command.arg("60").stdout(Stdio::null()).spawn().unwrap();
        let child = Stopped(child);
        kill_process(Pid::from_child(&child.0), Signal::STOP).unwrap();
        let since = Instant::now();
        while pid_state(child.0.id(), u64::MAX) != PidState::Stopped {
            assert!(since.elapsed() < Duration::from_secs(10), "not stopped");
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn only_stopped_ranks_are_resumed() {
        let rank = stopped();
        let joined = now_ticks();
        let began = stat(rank.0.id()).unwrap().start_ticks;
        assert!(began <= joined && joined - began < 1000, "{began} {joined}");
        let pids = vec![0, rank.0.id(), i32::MAX as u32];
        let own = std::process::id();
        assert_eq!(pid_state(own, joined), PidState::Runs);
        // A process that has reused a rank's PID is not touched.
        assert_eq!(
            resume_and_find_next(own, pids.clone(), began - 1),
            [0u32; 0]
        );
        assert!(!resume(rank.0.id(), began - 1));
        assert_eq!(pid_state(rank.0.id(), joined), PidState::Stopped);
        assert_eq!(
            resume_and_find_next(own, pids.clone(), joined),
            [rank.0.id()]
        );
        assert_eq!(resume_and_find_next(own, pids, joined), [0u32; 0]);
    }

    /// Each running rank checks the processes that follow it, so that exactly one rank finds each stopped process.
    #[test]
    fn each_stopped_process_in_the_ring_is_found_once() {
        use PidState::{Other, Runs, Stopped};
        let states = [Stopped, Runs, Stopped, Other, Stopped, Runs, Runs, Stopped];
        let pids: Vec<u32> = (10..18).collect();
        let looks = std::cell::Cell::new(0);
        let state = |pid: u32| {
            looks.set(looks.get() + 1);
            states[pid as usize - 10]
        };
        let found = |own: u32| {
            let others = pids.iter().copied().filter(|pid| *pid != own).collect();
            next_to_resume(own, others, state)
        };
        assert_eq!(found(11), [12, 14]);
        assert_eq!(found(15), [0u32; 0]);
        // The ring wraps around after the largest PID.
        assert_eq!(found(16), [17, 10]);
        assert_eq!(looks.get(), 4 + 1 + 3);
        let alone = |_: u32| Stopped;
        assert_eq!(next_to_resume(13, vec![12, 14], alone), [14, 12]);
    }
}
