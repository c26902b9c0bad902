//! The process of a worker: its start, last output lines, stack and end.
//!
//! A worker writes its output to a memory file instead of a pipe. No thread has to read this file while calls are
//! timed. Its last lines remain available after the process has ended, even if it was killed.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, OFlags, fcntl_setfl, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use tonnage_units::{Error, Result};

use super::failure::{CauseDistance, WorkerFailure};

const BOOT: &str = include_str!("worker/boot.py");

/// Maximum number of lines of the worker's output in a message.
const LINES: usize = 20;

/// Maximum number of characters of a line in a message.
const LINE_CHARACTERS_MAX: usize = 160;

/// Number of bytes at the end of the output in which the last lines are searched.
const TAIL_BYTES: u64 = 32 << 10;

/// Maximum size of the output. A library in debug mode may keep writing until the end.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// Longest time that Python may take to print its stacks. A signal handler prints them and takes no lock.
const STACK_TIMEOUT: Duration = Duration::from_secs(1);

/// If nothing was added for this long, the stacks are complete.
const STACK_QUIET: Duration = Duration::from_millis(60);

/// A worker's Python process.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    child: Child,
    output: File,
}

impl WorkerProcess {
    /// Starts Python, which then reads `source_bytes` bytes of source from its standard input.
    pub(super) fn start(
        python: &str,
        source_bytes: usize,
        input: OwnedFd,
        environment: &[(String, String)],
    ) -> Result<Self, WorkerFailure> {
        let output = output_file()?;
        let shared = || -> Result<Stdio> {
            let copy = output.try_clone();
            Ok(copy
                .map_err(|error| Error::io("cannot share the worker's output", error))?
                .into())
        };
        let mut command = Command::new(python);
        command
            .args(["-u", "-c", BOOT, &source_bytes.to_string()])
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(input))
            .stdout(shared()?)
            .stderr(shared()?);
        match command.spawn() {
            Ok(child) => Ok(Self { child, output }),
            Err(error) if is_absent(&error) => Err(WorkerFailure::from(Error::Unavailable {
                what: "torch.distributed".into(),
                why: format!("the Python {python} cannot be started: {error}"),
                how: "Install Python 3 and PyTorch, or name a Python that has it by --python"
                    .into(),
            })),
            Err(error) => Err(WorkerFailure::from(Error::start_error(
                format!("torch's worker ({python})"),
                &error,
            ))),
        }
    }

    /// Returns the process ID.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the failure of a worker that has closed its socket: it has ended or is about to end.
    pub(super) fn ended(&mut self, during: &str) -> WorkerFailure {
        let how = match self.wait(STACK_TIMEOUT) {
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("ended with code {code}"),
                (None, Some(signal)) => format!("was killed by {}", signal_name(signal)),
                (None, None) => "ended".into(),
            },
            None => "closed its socket".into(),
        };
        self.kill();
        self.failure(CauseDistance::Ended, &format!("{how} while {during}"), "")
    }

    /// Kills a worker that did not complete its order in time, and returns the failure.
    pub(super) fn overdue(&mut self, during: &str, limit: Duration) -> WorkerFailure {
        let late = format!("within {limit:.1?} (--timeout) while {during}");
        if matches!(self.state(), Some('T' | 't')) {
            self.kill();
            let how = format!("has been stopped by a signal, and did not go on {late}");
            return self.failure(CauseDistance::Ended, &how, "");
        }
        let (before, stack) = self.stack();
        self.kill();
        let how = format!("did not answer {late}");
        let stack = if stack.is_empty() {
            "\nno Python stack: the process does not handle signals".into()
        } else {
            format!("\nPython's stack:\n{stack}")
        };
        let lines = self.lines(before);
        self.failure_with(CauseDistance::Overdue, &how, &stack, &lines)
    }

    /// Builds a failure that includes the last lines of the worker's output.
    pub(super) fn failure(&self, nearness: CauseDistance, how: &str, more: &str) -> WorkerFailure {
        let lines = self.lines(self.output_bytes());
        self.failure_with(nearness, how, more, &lines)
    }

    fn failure_with(
        &self,
        nearness: CauseDistance,
        how: &str,
        more: &str,
        lines: &str,
    ) -> WorkerFailure {
        let lines = if lines.is_empty() {
            "\nIt wrote nothing".into()
        } else {
            format!("\nIts last lines:\n{lines}")
        };
        let text = format!(
            "the worker of torch.distributed (process {}) {how}{more}{lines}",
            self.id()
        );
        WorkerFailure::new(nearness, Error::Failed(text))
    }

    /// If the output has become large, shortens it to its last lines.
    pub(super) fn trim(&mut self) {
        let bytes = self.output_bytes();
        if bytes > OUTPUT_BYTES_MAX {
            let lines = self.lines(bytes);
            // Lines that the worker writes between the two calls are lost. Otherwise the file could grow without limit.
            let _ = self.output.set_len(0);
            let _ = writeln!(self.output, "{lines}");
        }
    }

    /// Makes all Python threads print their stacks. Returns the length of the output before the stacks, and the stacks.
    fn stack(&mut self) -> (u64, String) {
        let before = self.output_bytes();
        self.signal(Signal::USR1);
        let since = Instant::now();
        let (mut seen, mut changed) = (before, since);
        while since.elapsed() < STACK_TIMEOUT {
            std::thread::sleep(Duration::from_millis(5));
            let now = self.output_bytes();
            if now != seen {
                (seen, changed) = (now, Instant::now());
            } else if now > before && changed.elapsed() > STACK_QUIET {
                break;
            }
        }
        (before, self.text(before, seen).trim_end().to_owned())
    }

    fn signal(&self, signal: Signal) {
        // The process ID was not reused by another process, because nothing has waited for the child yet.
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid
            && let Err(error) = kill_process(pid, signal)
        {
            log::debug!("cannot send {signal:?} to process {}: {error}", self.id());
        }
    }

    /// Returns the process's state from /proc. `T` means that a signal has stopped it.
    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).ok()?;
        // The state follows the process name, which may contain any characters.
        stat.rsplit_once(") ")?.1.chars().next()
    }

    fn wait(&mut self, most: Duration) -> Option<std::process::ExitStatus> {
        let since = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if since.elapsed() > most {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits up to `most` for the process to end, and then kills it.
    pub(super) fn leave(&mut self, most: Duration) {
        if self.wait(most).is_none() {
            self.kill();
        }
    }

    fn kill(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn output_bytes(&self) -> u64 {
        self.output.metadata().map_or(0, |about| about.len())
    }

    /// Returns the last lines of the output before the offset `end`.
    fn lines(&self, end: u64) -> String {
        let text = self.text(end.saturating_sub(TAIL_BYTES), end);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let last = lines.get(lines.len().saturating_sub(LINES)..);
        let short = |line: &&str| line.chars().take(LINE_CHARACTERS_MAX).collect::<String>();
        let short: Vec<_> = last.unwrap_or_default().iter().map(short).collect();
        short.join("\n")
    }

    fn text(&self, from: u64, to: u64) -> String {
        let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or(0)];
        match self.output.read_exact_at(&mut bytes, from) {
            Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("(its output cannot be read: {error})"),
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Creates a memory file in append mode, so that every process adds to its end.
fn output_file() -> Result<File> {
    let made = memfd_create("tonnage-torch-output", MemfdFlags::CLOEXEC)
        .and_then(|file| fcntl_setfl(&file, OFlags::APPEND).map(|()| file));
    made.map(File::from)
        .map_err(|error| Error::io("cannot make a memory file for the worker's output", error))
}

fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

fn signal_name(signal: i32) -> String {
    let name = match Signal::from_named_raw(signal) {
        Some(Signal::KILL) => " (SIGKILL: sent by a user, or by the system because memory ran out)",
        Some(Signal::SEGV) => " (SIGSEGV)",
        Some(Signal::ABORT) => " (SIGABRT)",
        Some(Signal::BUS) => " (SIGBUS)",
        Some(Signal::TERM) => " (SIGTERM)",
        _ => "",
    };
    format!("signal {signal}{name}")
}
