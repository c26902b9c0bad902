//! Starts ranks on this host. Each is this program again with the same arguments; environment variables give each its
//! rank.
//!
//! [`super::supervisor`] supervises them.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process, set_parent_process_death_signal,
    waitid,
};

use super::supervisor::Supervisor;
use super::{RankExit, RankProcesses};
use crate::bootstrap::Env;
use crate::bootstrap::options::heartbeat_timeout;
use crate::bootstrap::secret;
use crate::join::address::loopback_listener;
use crate::shared_cpu_time::extra_time_here;
use tonnage_units::{Error, Result};

/// Variable with the PID of the process that runs this program several times, once for each run. Each run ends when
/// that process ends.
pub const TURN_PARENT: &str = "TONNAGE_TURN_PARENT";

/// Processes on this host, as children of this one.
#[derive(Debug, Default)]
pub struct LocalRanks {
    children: Vec<Child>,
}

impl LocalRanks {
    fn child(&mut self, rank: u32) -> Result<&mut Child> {
        let child = self.children.get_mut(rank as usize);
        child.ok_or_else(|| Error::Failed(format!("rank {rank} was not started")))
    }

    /// Starts the next rank.
    fn start(&mut self, rank: u32, command: &mut Command) -> Result<()> {
        let child = command.spawn().map_err(|error| {
            let what = format!("its process ({})", command.get_program().display());
            Error::Rank {
                rank,
                host: tonnage_sys::host::name(),
                message: Error::start_error(what, &error).to_string(),
            }
        })?;
        self.children.push(child);
        Ok(())
    }
}

impl RankProcesses for LocalRanks {
    fn ended(&mut self, rank: u32) -> Result<Option<RankExit>> {
        let status = self
            .child(rank)?
            .try_wait()
            .map_err(|error| Error::io(format!("cannot wait for rank {rank}"), error))?;
        Ok(status.map(|status| match status.code() {
            Some(code) => RankExit::Code(code),
            // A process without an exit code was killed by a signal.
            None => RankExit::Signal(status.signal().unwrap_or_default()),
        }))
    }

    fn stopped_by(&mut self, rank: u32) -> Option<i32> {
        let pid = child_pid(self.child(rank).ok()?)?;
        // NOWAIT keeps the status. So the next check finds it again, as long as the process is stopped.
        let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), look).ok()??.stopping_signal()
    }

    fn signal(&mut self, rank: u32, signal: i32) {
        // The PID is still valid, because the child has not been reaped.
        if let Ok(child) = self.child(rank)
            && let Some(pid) = child_pid(child)
            && let Some(signal) = Signal::from_named_raw(signal)
            && let Err(error) = kill_process(pid, signal)
        {
            log::debug!("cannot send {signal:?} to process {}: {error}", child.id());
        }
    }

    fn end(&mut self, rank: u32) {
        if let Ok(child) = self.child(rank) {
            // Both calls fail only if the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn host(&self, _rank: u32) -> String {
        tonnage_sys::host::name()
    }

    fn process(&self, rank: u32) -> Option<u32> {
        self.children.get(rank as usize).map(Child::id)
    }
}

fn child_pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Starts `ranks` processes of `program` with these arguments on this host. They inherit the environment, plus
/// `variables`. From `env`, only the heartbeat timeout is read. Call this from the main thread, because the ranks end
/// when the thread that started them ends.
///
/// # Errors
/// [`Error::Usage`] if `ranks` is 0 or a variable is wrong. [`Error::Io`] when a process cannot be started; the ranks
/// that were already started are then ended.
pub fn start_local(
    env: Env<'_>,
    ranks: u32,
    program: &Path,
    args: &[OsString],
    variables: &[(&'static str, String)],
) -> Result<Supervisor<LocalRanks>> {
    let heartbeat_timeout = heartbeat_timeout(env, ranks)?;
    let (listener, control) = loopback_listener()?;
    let secret = secret::generate_text()?;
    // Standard input of rank 0 is the listening socket.
    let mut input = Some(OwnedFd::from(listener));
    let start = |local: &mut LocalRanks, rank: u32| {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("TONNAGE_RANK", rank.to_string())
            .env("TONNAGE_SIZE", ranks.to_string())
            .env("TONNAGE_CONTROL", control.to_string())
            .env("TONNAGE_SECRET", &secret)
            .env("TONNAGE_PARENT", std::process::id().to_string())
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(input.take().map_or_else(Stdio::null, Stdio::from));
        local.start(rank, &mut command)
    };
    let supervisor = Supervisor::start(LocalRanks::default(), ranks, heartbeat_timeout, start)?;
    Ok(supervisor.with_extra_time(extra_time_here(ranks)))
}

/// Makes this process end when its supervisor ends, even if the supervisor is killed. Call it first in a process that
/// [`start_local`] started, or that is one of several runs ([`TURN_PARENT`]). It does nothing in any other process.
pub fn end_with_supervisor(env: Env<'_>) -> Result<()> {
    let parent = if env("TONNAGE_RANK").is_some() {
        env("TONNAGE_PARENT")
    } else {
        // There may be a script between this process and the process that the variable names. This process must not
        // end with the script. It notices at its next record that the named process has ended.
        env(TURN_PARENT).filter(|parent| parent_identity().as_ref() == Some(parent))
    };
    parent.map_or(Ok(()), |parent| end_with_parent(&parent))
}

fn parent_identity() -> Option<String> {
    getppid().map(|pid| pid.as_raw_nonzero().to_string())
}

/// Makes this process end when its parent ends. Fails if the parent does not have this PID.
pub fn end_with_parent(parent: &str) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| Error::io("cannot ask to end with the supervisor", error))?;
    // If the parent has ended before the request, no signal will come.
    if parent_identity().as_deref() != Some(parent) {
        return Err(Error::Failed(format!(
            "the supervisor of this rank (process {parent}) has ended"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn run(ranks: u32, script: &str) -> u8 {
        let args = ["-c".into(), script.into()];
        start_local(&|_| None, ranks, Path::new("/bin/sh"), &args, &[])
            .unwrap()
            .wait()
            .unwrap()
    }

    #[test]
    fn the_codes_of_processes_are_those_of_their_ranks() {
        assert_eq!(run(3, "exit $TONNAGE_RANK"), 2);
        assert_eq!(run(2, "exit 130"), 130);
    }

    #[test]
    fn ranks_get_their_identity_by_variables() {
        let script = r#"
            test "$TONNAGE_SIZE" = 2 && test ${#TONNAGE_SECRET} = 64 && test "$TONNAGE_PARENT" = $PPID || exit 1
            case "$TONNAGE_CONTROL" in 127.0.0.1:*) ;; *) exit 1 ;; esac
            case "$TONNAGE_RANK,$(readlink /proc/self/fd/0)" in 0,socket:*|1,/dev/null) ;; *) exit 1 ;; esac
        "#;
        assert_eq!(run(2, script), 0);
    }

    #[test]
    fn when_one_rank_fails_the_others_are_ended() {
        // In the second case, the other rank is stopped and must be killed at once.
        for (one, others, limit_s) in [
            ("kill -9 $$", "exec sleep 60", 20),
            ("sleep 1; exit 1", "kill -STOP $$; exit 0", 4),
        ] {
            let script = format!("if [ $TONNAGE_RANK = 1 ]; then {one}; fi; {others}");
            let begun = Instant::now();
            assert_eq!(run(2, &script), 1);
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(limit_s), "{took:?}");
        }
    }

    #[test]
    fn a_stopped_rank_is_reported_until_it_resumes() {
        let mut local = LocalRanks::default();
        local
            .start(0, Command::new("/bin/sleep").arg("60"))
            .unwrap();
        let mut wait_for = |signal: Option<i32>| {
            let since = Instant::now();
            while local.stopped_by(0) != signal {
                assert!(since.elapsed() < Duration::from_secs(20), "{signal:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
            // The first check must not consume the status.
            assert_eq!(local.stopped_by(0), signal);
            let next = match signal {
                None => Signal::STOP,
                Some(_) => Signal::CONT,
            };
            local.signal(0, next.as_raw());
        };
        wait_for(None);
        wait_for(Some(Signal::STOP.as_raw()));
        wait_for(None);
        local.end(0);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error =
            start_local(&|_| None, 1, Path::new("/nonexistent/tonnage"), &[], &[]).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/tonnage"));
    }

    #[test]
    fn other_processes_have_no_supervisor() {
        end_with_supervisor(&|_: &str| None).unwrap();
    }
}
