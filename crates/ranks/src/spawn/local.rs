//! Ranks that tonnage starts itself on this host, and the supervisor that looks after them.
//!
//! The supervisor starts its own program again, once for each rank, with the same arguments; the environment says which
//! rank each is. It measures nothing and is no rank: it passes signals on, sees to it that nobody stays behind, and
//! returns the exit code of the run. What goes wrong between ranks is reported by the ranks themselves.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};

use crate::bootstrap::Env;
use crate::bootstrap::secret;
use crate::channel::wait_for;
use crate::signals::Signals;
use tonnage_units::{Error, Result};

/// Once a rank was killed or has failed, or the run was interrupted, the others have this long to end by themselves. They
/// need their grace of two seconds at most; with a little for the end of a killed process it is less than five.
const END_TIMEOUT: Duration = Duration::from_secs(4);

/// Ranks of this host that were started here.
#[derive(Debug)]
pub struct Supervisor {
    ranks: Vec<LocalRank>,
    signals: Signals,
    interrupted: Option<i32>,
    ending_since: Option<Instant>,
    killed_rest: bool,
}

#[derive(Debug)]
struct LocalRank {
    child: Child,
    ended: Option<ExitStatus>,
    /// The supervisor itself ended it, so its end says nothing.
    put_down: bool,
}

impl LocalRank {
    /// The signal that ended it, unless the supervisor sent it.
    fn killed_by(&self) -> Option<i32> {
        let status = self.ended.filter(|_| !self.put_down);
        status.and_then(|status| status.signal())
    }
}

/// Starts `ranks` processes of `program` with these arguments on this host. Call it from the main thread: the ranks end
/// when the thread that started them does.
///
/// # Errors
/// [`Error::Usage`] for no ranks, [`Error::Io`] when a process cannot be started; those that were started are ended.
pub fn start_local(ranks: u32, program: &Path, args: &[OsString]) -> Result<Supervisor> {
    if ranks == 0 {
        return Err(Error::Usage("a run needs at least one rank".into()));
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .map_err(|error| Error::io("cannot listen on 127.0.0.1", error))?;
    let control = listener
        .local_addr()
        .map_err(|error| Error::io("address of the listening socket", error))?;
    let secret = secret::generate_text()?;
    let mut supervisor = Supervisor {
        ranks: Vec::new(),
        // Before any child exists, so that no end of one is missed.
        signals: Signals::of(&[SIGINT, SIGTERM, SIGCHLD])?,
        interrupted: None,
        ending_since: None,
        killed_rest: false,
    };
    let mut stdin = Some(Stdio::from(OwnedFd::from(listener)));
    for rank in 0..ranks {
        let child = Command::new(program)
            .args(args)
            .env("TONNAGE_RANK", rank.to_string())
            .env("TONNAGE_SIZE", ranks.to_string())
            .env("TONNAGE_CONTROL", control.to_string())
            .env("TONNAGE_SECRET", &secret)
            .env("TONNAGE_PARENT", std::process::id().to_string())
            .stdin(stdin.take().unwrap_or_else(Stdio::null))
            .spawn()
            .map_err(|error| {
                Error::io(
                    format!("cannot start rank {rank} ({})", program.display()),
                    error,
                )
            })?;
        supervisor.ranks.push(LocalRank {
            child,
            ended: None,
            put_down: false,
        });
    }
    Ok(supervisor)
}

/// To be called first in a process that [`start_local`] started: it ends with its supervisor, even if that is killed.
/// Does nothing in any other process.
///
/// # Errors
/// When the system refuses, or the supervisor has ended already.
pub fn end_with_supervisor(env: Env<'_>) -> Result<()> {
    let Some(parent) = env("TONNAGE_PARENT").filter(|_| env("TONNAGE_RANK").is_some()) else {
        return Ok(());
    };
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| Error::io("cannot ask to end with the supervisor", error))?;
    // It may have ended before the request; then nobody would tell us.
    let seen = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if seen.as_deref() != Some(parent.as_str()) {
        return Err(Error::Failed(format!(
            "the supervisor of this rank (process {parent}) has ended"
        )));
    }
    Ok(())
}

impl Supervisor {
    /// Process ids of the ranks, in the order of the ranks.
    pub fn pids(&self) -> Vec<u32> {
        self.ranks.iter().map(|rank| rank.child.id()).collect()
    }

    /// Waits until all ranks have ended, and returns the exit code of the run: 0 if all are 0, 128 + signal when the
    /// user ended it, 2 if a rank says that the request is wrong, 1 for everything else.
    ///
    /// # Errors
    /// When the system does not let this process wait for its children.
    pub fn wait(mut self) -> Result<u8> {
        loop {
            self.reap()?;
            if self.ranks.iter().all(|rank| rank.ended.is_some()) {
                break;
            }
            self.hurry();
            let interests: Vec<_> = self.signals.interests().collect();
            wait_for(&interests, self.next_look())?;
            drop(interests);
            if let Some(signal) = self.take_interruption() {
                self.ending_since.get_or_insert_with(Instant::now);
                self.tell_all(signal);
            }
        }
        // A signal to the whole process group may have ended the ranks before it was looked at here.
        self.take_interruption();
        self.report();
        Ok(self.exit_code())
    }

    /// The signal by which the user ends the run, if one came since the last call; the first is the one that counts.
    fn take_interruption(&mut self) -> Option<i32> {
        let signal = self
            .signals
            .take()
            .into_iter()
            .find(|&signal| signal != SIGCHLD)?;
        self.interrupted.get_or_insert(signal);
        Some(signal)
    }

    fn reap(&mut self) -> Result<()> {
        for (number, rank) in self.ranks.iter_mut().enumerate() {
            if rank.ended.is_some() {
                continue;
            }
            rank.ended = rank
                .child
                .try_wait()
                .map_err(|error| Error::io(format!("cannot wait for rank {number}"), error))?;
            // A rank that fails ends the run for all, so whoever stays, stopped or stuck, would stay for ever.
            if rank.ended.is_some_and(|status| !status.success()) {
                self.ending_since.get_or_insert_with(Instant::now);
            }
        }
        Ok(())
    }

    /// When to look again even if nothing is heard: a SIGCHLD that came for another reason must not be the last.
    fn next_look(&self) -> Duration {
        let usual = Duration::from_secs(1);
        match self.ending_since {
            Some(since) if !self.killed_rest => {
                usual.min((since + END_TIMEOUT).saturating_duration_since(Instant::now()))
            }
            _ => usual,
        }
    }

    /// Ends the ranks that had their time to end by themselves.
    fn hurry(&mut self) {
        if self.killed_rest
            || self
                .ending_since
                .is_none_or(|since| since.elapsed() < END_TIMEOUT)
        {
            return;
        }
        self.killed_rest = true;
        for rank in self.ranks.iter_mut().filter(|rank| rank.ended.is_none()) {
            rank.put_down = true;
            send(&rank.child, Signal::KILL);
        }
    }

    fn tell_all(&self, signal: i32) {
        let signal = if signal == SIGINT {
            Signal::INT
        } else {
            Signal::TERM
        };
        for rank in self.ranks.iter().filter(|rank| rank.ended.is_none()) {
            send(&rank.child, signal);
        }
    }

    /// Tells about killed ranks, and failing those about the ones that had to be ended here, but only when rank 0 could
    /// not: it was killed or stuck itself, or did not notice.
    fn report(&self) {
        let root_told = self.ranks.first().is_some_and(|root| {
            root.ended
                .is_some_and(|status| status.code().is_some_and(|code| code != 0))
        });
        if root_told || self.interrupted.is_some() {
            return;
        }
        let killed = self.ranks.iter().any(|rank| rank.killed_by().is_some());
        for (number, rank) in self.ranks.iter().enumerate() {
            let what = match rank.killed_by() {
                Some(signal) => format!("was killed by signal {signal}"),
                None if rank.put_down && !killed => {
                    "did not end with the others, as if it was stopped or stuck, and was killed"
                        .to_owned()
                }
                None => continue,
            };
            eprintln!(
                "tonnage: rank {number} on {}: its process {} {what}",
                tonnage_sys::host::name(),
                rank.child.id()
            );
        }
    }

    fn exit_code(&self) -> u8 {
        if let Some(signal) = self.interrupted {
            return Error::Interrupted { signal }.exit_code();
        }
        let codes: Vec<Option<i32>> = self
            .ranks
            .iter()
            .map(|rank| rank.ended.and_then(|status| status.code()))
            .collect();
        if codes.iter().all(|code| *code == Some(0)) {
            return 0;
        }
        // When a signal reached one rank alone, all ranks end with its code.
        let ended_by = |code| codes.iter().all(|other| *other == Some(code));
        match [130, 143].into_iter().find(|&code| ended_by(code)) {
            Some(code) => code as u8,
            None if codes.contains(&Some(2)) => 2,
            None => 1,
        }
    }
}

impl Drop for Supervisor {
    /// Ranks that are still there, because starting another one failed, must not stay behind.
    fn drop(&mut self) {
        for rank in self.ranks.iter_mut().filter(|rank| rank.ended.is_none()) {
            // Both fail only when the process is already gone, which is what is wanted.
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}

/// The child has not been waited for, so its number still means it.
fn send(child: &Child, signal: Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
        && let Err(error) = kill_process(pid, signal)
    {
        log::debug!("cannot send {signal:?} to process {}: {error}", child.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ranks: u32, script: &str) -> u8 {
        let args = ["-c".into(), script.into()];
        start_local(ranks, Path::new("/bin/sh"), &args)
            .unwrap()
            .wait()
            .unwrap()
    }

    #[test]
    fn the_worst_exit_code_wins() {
        assert_eq!(run(3, "exit 0"), 0);
        assert_eq!(run(3, "exit $TONNAGE_RANK"), 2);
        assert_eq!(run(2, "exit $((TONNAGE_RANK * 7))"), 1);
        assert_eq!(run(2, "exit 130"), 130);
    }

    #[test]
    fn ranks_are_told_who_they_are() {
        let script = r#"
            test "$TONNAGE_SIZE" = 2 && test ${#TONNAGE_SECRET} = 64 && test "$TONNAGE_PARENT" = $PPID || exit 1
            case "$TONNAGE_CONTROL" in 127.0.0.1:*) ;; *) exit 1 ;; esac
            case "$TONNAGE_RANK,$(readlink /proc/self/fd/0)" in 0,socket:*|1,/dev/null) ;; *) exit 1 ;; esac
        "#;
        assert_eq!(run(2, script), 0);
    }

    #[test]
    fn when_one_rank_is_killed_the_others_do_not_stay() {
        let begun = Instant::now();
        let code = run(
            2,
            "if [ $TONNAGE_RANK = 1 ]; then kill -9 $$; fi; exec sleep 60",
        );
        assert_eq!(code, 1);
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
    }

    #[test]
    fn when_one_rank_fails_a_stopped_one_does_not_stay() {
        let begun = Instant::now();
        let code = run(
            2,
            "if [ $TONNAGE_RANK = 1 ]; then exit 1; fi; kill -STOP $$; exit 0",
        );
        assert_eq!(code, 1);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "{took:?}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = start_local(1, Path::new("/nonexistent/tonnage"), &[]).unwrap_err();
        assert!(
            error.to_string().contains("/nonexistent/tonnage"),
            "{error}"
        );
        assert_eq!(
            start_local(0, Path::new("/bin/true"), &[])
                .unwrap_err()
                .exit_code(),
            2
        );
    }

    #[test]
    fn other_processes_have_no_supervisor() {
        end_with_supervisor(&|_: &str| None).unwrap();
    }
}
