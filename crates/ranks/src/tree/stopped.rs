//! Ranks of this container that are stopped when the run ends early. Such a rank hears nothing, and whatever started it
//! may wait for it for ever, as srun and mpirun of MPICH do. The one before it in a ring of them lets it go on, so that
//! it hears of the end and ends itself. Where this program has started all ranks, [`crate::spawn::supervisor`] does so;
//! ranks of `--hosts` have both this and their agent.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// State of a process by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PidState {
    Runs,
    Stopped,
    /// It has ended, or a debugger holds it.
    Other,
}

/// Lets those of these processes go on that are stopped and between this one and the next that runs, and says which.
/// Their numbers are of the time when the ranks joined, so that only one that runs this program counts.
pub(crate) fn resume_next(own: u32, others: Vec<u32>) -> Vec<u32> {
    let program = fs::read_link("/proc/self/exe").ok();
    let is_rank =
        |pid: &u32| program.is_some() && fs::read_link(format!("/proc/{pid}/exe")).ok() == program;
    let goes_on = |pid: &u32| {
        let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| kill_process(pid, Signal::CONT).is_ok())
    };
    let mut stopped = stopped_next(own, others, state);
    stopped.retain(|pid| is_rank(pid) && goes_on(pid));
    stopped
}

/// The stopped ones between this process and the next that runs, in a ring of rising numbers. Each that runs looks
/// after those behind it: every one is found, and a host of many ranks is not searched by each of them.
fn stopped_next(own: u32, mut others: Vec<u32>, state: impl Fn(u32) -> PidState) -> Vec<u32> {
    others.sort_unstable_by_key(|pid| pid.wrapping_sub(own));
    let states = others.into_iter().map(|pid| (pid, state(pid)));
    let gap = states.take_while(|(_, state)| *state != PidState::Runs);
    gap.filter(|(_, state)| *state == PidState::Stopped)
        .map(|(pid, _)| pid)
        .collect()
}

fn state(pid: u32) -> PidState {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may contain brackets and blanks.
    let rest = stat.rsplit_once(") ").map(|(_, rest)| rest);
    match rest.and_then(|rest| rest.chars().next()) {
        Some('T') => PidState::Stopped,
        None | Some('t' | 'Z' | 'X') => PidState::Other,
        Some(_) => PidState::Runs,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    const RANK: &str = "TONNAGE_TEST_STOPPED";

    #[test]
    #[ignore = "it is the rank of the other test"]
    fn as_rank() {
        match std::env::var(RANK) {
            Ok(_) => std::thread::sleep(Duration::from_secs(60)),
            Err(_) => println!("skip: only another test starts this one"),
        }
    }

    /// A process that is ended however its test ends.
    struct Stopped(Child);

    impl Drop for Stopped {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn stopped(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Stopped {
        let child = Command::new(program)
            .args(arguments)
            .env(RANK, "")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let child = Stopped(child);
        kill_process(Pid::from_child(&child.0), Signal::STOP).unwrap();
        let since = Instant::now();
        while state(child.0.id()) != PidState::Stopped {
            assert!(
                since.elapsed() < Duration::from_secs(10),
                "it is not stopped"
            );
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn only_ranks_that_are_stopped_go_on() {
        let name = "tree::stopped::tests::as_rank";
        let this = std::env::current_exe().unwrap();
        let rank = stopped(this, &["--exact", "--ignored", name]);
        let other = stopped("sleep", &["60"]);
        let pids = vec![0, other.0.id(), rank.0.id(), i32::MAX as u32];
        let own = std::process::id();
        assert_eq!(state(own), PidState::Runs);
        assert_eq!(resume_next(own, pids.clone()), [rank.0.id()]);
        assert_eq!(state(other.0.id()), PidState::Stopped);
        assert_eq!(resume_next(own, pids), [0u32; 0]);
    }

    /// Whoever runs looks after the gap behind it, so that each stopped one is found by exactly one.
    #[test]
    fn each_stopped_one_of_a_ring_is_found_once() {
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
            stopped_next(own, others, state)
        };
        assert_eq!(found(11), [12, 14]);
        assert_eq!(found(15), [0u32; 0]);
        // The ring closes behind the greatest number.
        assert_eq!(found(16), [17, 10]);
        assert_eq!(looks.get(), 4 + 1 + 3);
        let alone = |_: u32| Stopped;
        assert_eq!(stopped_next(13, vec![12, 14], alone), [14, 12]);
    }
}
