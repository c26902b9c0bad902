//! One start of the program under a watchdog.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tonnage_testbed::Hosts;

use super::processes::{self, MARK, Process};
use super::{SECRET, SOON, wait_until, words};

/// No run of these tests takes longer, even on a busy machine.
const WATCHDOG: Duration = Duration::from_secs(180);

/// Time after which no process of a run may be left.
const GONE: Duration = Duration::from_secs(5);

/// The variable that chooses libfabric. Tests use the embedded library, because Debian 12's is slow: it reads the
/// kernel's whole symbol table in each process, and its sockets take three times the CPU time. The module
/// [`fabric`](super::super::fabric) uses the installed library.
const LIBFABRIC: (&str, &str) = ("TONNAGE_LIBFABRIC", "embedded");

/// Titles of tables that list the points of the previous table again.
const AGAIN: [&str; 1] = ["phases of a batch:"];

/// The program with its arguments, not started yet.
pub struct Program {
    command: Command,
    mark: String,
}

/// Returns the program with these arguments, separated by spaces, in a directory that is also its home. The program
/// inherits nothing from this process's environment.
pub fn tonnage(dir: &Path, arguments: &str) -> Program {
    under(dir, "", arguments)
}

/// Returns the program under a launcher. The launcher's command line is split at spaces.
pub fn under(dir: &Path, launcher: &str, arguments: &str) -> Program {
    let mut words = launcher
        .split_whitespace()
        .chain([env!("CARGO_BIN_EXE_tonnage")])
        .chain(arguments.split_whitespace());
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    prepare(command, dir)
}

/// Returns the program on one of several hosts.
pub fn tonnage_in(hosts: &Hosts, host: usize, dir: &Path, arguments: &str) -> Program {
    let mut command = hosts.command(host, env!("CARGO_BIN_EXE_tonnage"));
    command.args(arguments.split_whitespace());
    prepare(command, dir)
}

/// Returns the program at the end of another command line, such as `srun`. Inherited variables are removed.
pub fn tonnage_by(mut launcher: Command, dir: &Path, arguments: &str) -> Program {
    launcher
        .arg(env!("CARGO_BIN_EXE_tonnage"))
        .args(arguments.split_whitespace());
    prepare(launcher, dir)
}

fn prepare(mut command: Command, dir: &Path) -> Program {
    static STARTS: AtomicU32 = AtomicU32::new(0);
    let start = STARTS.fetch_add(1, Ordering::Relaxed);
    let mark = format!("{}-{start}", std::process::id());
    command
        .current_dir(dir)
        .env_clear()
        .env("HOME", dir)
        .env("PATH", "/usr/bin:/bin")
        .env(MARK, &mark)
        .env(LIBFABRIC.0, LIBFABRIC.1)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Program { command, mark }
}

impl Program {
    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Leaves the choice of libfabric to the program.
    pub fn with_installed_libfabric(mut self) -> Self {
        self.command.env_remove(LIBFABRIC.0);
        self
    }

    /// Adds arguments, which may contain spaces.
    pub fn arguments(mut self, arguments: &[String]) -> Self {
        self.command.args(arguments);
        self
    }

    /// Redirects standard output, which is then not collected.
    pub fn stdout(mut self, to: impl Into<Stdio>) -> Self {
        self.command.stdout(to);
        self
    }

    /// Redirects standard error, which is then not collected.
    pub fn stderr(mut self, to: OwnedFd) -> Self {
        self.command.stderr(to);
        self
    }

    /// Makes the program one of `size` ranks of a launcher. The ranks meet on this port of 127.0.0.1.
    pub fn launched(self, rank: u32, size: u32, port: u16) -> Self {
        self.env("RANK", rank.to_string())
            .env("WORLD_SIZE", size.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string())
    }

    /// Makes the program one of `size` ranks that a launcher starts on hosts. All ranks get the same secret, as they
    /// would from a common home directory.
    pub fn on_hosts(self, hosts: &Hosts, rank: usize, size: usize) -> Self {
        self.env("RANK", rank.to_string())
            .env("WORLD_SIZE", size.to_string())
            .env("MASTER_ADDR", hosts.address(0).to_string())
            // Each host has its own ports, so any port is free.
            .env("MASTER_PORT", "29500")
            .env("TONNAGE_SECRET", SECRET)
    }

    /// Starts the program.
    pub fn start(mut self) -> Started {
        let begun = Instant::now();
        let mut child = self.command.spawn().unwrap();
        let stdout = Reader::of(child.stdout.take());
        let stderr = Reader::of(child.stderr.take());
        // The command must be dropped. Otherwise this process would keep the other end of a redirected output open.
        drop(self.command);
        Started {
            child,
            mark: self.mark,
            stdout,
            stderr,
            begun,
        }
    }

    /// Starts the program and waits until it has ended.
    pub fn run(self) -> Ended {
        self.start().end()
    }

    /// Runs the program, which must succeed and print nothing on standard error.
    pub fn succeed(self) -> Ended {
        let ended = self.run();
        assert!(
            ended.code == Some(0) && ended.stderr.is_empty(),
            "{ended:#?}"
        );
        ended
    }
}

/// Reads a pipe until all of its write ends are closed.
struct Reader {
    so_far: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Self {
        let so_far = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&so_far);
        let read = |mut pipe: Box<dyn Read + Send>| {
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let count @ 1.. = pipe.read(&mut bytes).unwrap() {
                    all.lock().unwrap().extend(&bytes[..count]);
                }
            })
        };
        let thread = pipe.map(|pipe| read(Box::new(pipe)));
        Self { so_far, thread }
    }

    fn whole(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        String::from_utf8(std::mem::take(&mut self.so_far.lock().unwrap())).unwrap()
    }
}

/// The running program. Dropping it ends all its processes.
pub struct Started {
    child: Child,
    mark: String,
    stdout: Reader,
    stderr: Reader,
    begun: Instant,
}

/// A run that has ended, with all its processes.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Signal that ended the program, if any.
    pub signal: Option<i32>,
    /// The program's standard output.
    pub stdout: String,
    /// The program's standard error.
    pub stderr: String,
    /// Time from the start to the end of the program.
    pub took: Duration,
}

impl Started {
    /// Returns all processes of the run, including the started one.
    pub fn processes(&self) -> Vec<Process> {
        processes::marked(&self.mark)
    }

    /// Returns the process of this rank. Waits until the process exists.
    pub fn rank(&self, rank: u32) -> Process {
        let mut found = None;
        wait_until("the rank is there", || {
            let processes = self.processes();
            found = processes
                .into_iter()
                .find(|process| process.rank == Some(rank));
            found.is_some()
        });
        found.unwrap()
    }

    /// Sends a signal to the process of a rank.
    pub fn signal_rank(&self, rank: u32, signal: Signal) {
        self.signal_process(&self.rank(rank), signal);
    }

    /// Sends a signal to one of the run's processes, unless the process has ended. Returns whether the signal was sent.
    pub fn signal_process(&self, process: &Process, signal: Signal) -> bool {
        processes::send(process, &self.mark, signal)
    }

    /// Whether the started process is still running.
    #[allow(dead_code, reason = "the fault tests use it")]
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Returns the PID of the started process.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends a signal to the started process.
    pub fn signal(&self, signal: Signal) {
        let processes = self.processes();
        if let Some(process) = processes.iter().find(|process| process.pid == self.pid()) {
            self.signal_process(process, signal);
        }
    }

    /// Returns standard error so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.stderr.so_far.lock().unwrap()).into_owned()
    }

    /// Waits until standard error contains this text.
    pub fn wait_until_said(&self, words: &str) {
        wait_until(words, || self.said().contains(words));
    }

    /// Waits for the end of the run, which must come soon.
    pub fn end_soon(self) -> Ended {
        let since = Instant::now();
        let ended = self.end();
        assert!(since.elapsed() < SOON, "{:?}: {ended:#?}", since.elapsed());
        ended
    }

    /// Kills a rank. The run must end soon, with an error that names the rank.
    pub fn kill_rank(self, rank: u32) -> Ended {
        self.signal_rank(rank, Signal::KILL);
        self.end_soon().with_code(1).blaming(rank)
    }

    /// Waits until the run and all its processes have ended. No process may outlive the program by more than a few
    /// seconds.
    pub fn end(mut self) -> Ended {
        let status = self.wait();
        let took = self.begun.elapsed();
        let since = Instant::now();
        let mut left = self.processes();
        while !left.is_empty() && since.elapsed() < GONE {
            std::thread::sleep(Duration::from_millis(5));
            left = self.processes();
        }
        self.kill();
        let ended = Ended {
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            stdout: self.stdout.whole(),
            stderr: self.stderr.whole(),
            took,
        };
        assert!(status.is_some(), "the watchdog had to end it: {ended:#?}");
        assert!(left.is_empty(), "left behind: {left:#?} by {ended:#?}");
        ended
    }

    /// Waits for the end of the program. Returns `None` if it does not end in time.
    fn wait(&mut self) -> Option<ExitStatus> {
        while self.begun.elapsed() < WATCHDOG {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }

    fn kill(&mut self) {
        // Kills repeatedly, because a process that is just being started has no mark yet.
        for _ in 0..10 {
            let left = self.processes();
            for process in &left {
                processes::send(process, &self.mark, Signal::KILL);
            }
            if left.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Both calls fail only if the process has already been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Ended {
    /// Checks that the run ended with this exit code.
    pub fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Checks that standard error contains all these parts.
    pub fn saying(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "no {part:?} in {self:#?}");
        }
        self
    }

    /// Checks that standard output contains all these parts, either literally or with single spaces between words.
    pub fn printing(self, parts: &[&str]) -> Self {
        let words = words(&self.stdout);
        for part in parts {
            let is_there = self.stdout.contains(part) || words.contains(part);
            assert!(is_there, "no {part:?} in {self:#?}");
        }
        self
    }

    /// Checks that an error names this rank on this host.
    pub fn blaming(self, rank: u32) -> Self {
        let name = format!("rank {rank} on {}", tonnage_sys::host::name());
        let mut lines = self.stderr.lines();
        let is_error = lines.any(|line| line.starts_with("error: ") && line.contains(&name));
        assert!(is_error, "no error of {name:?} in {self:#?}");
        self
    }

    /// Checks that standard error is a single error that contains all these parts.
    pub fn with_one_error(self, parts: &[&str]) -> Self {
        let errors = self.stderr.matches("error: ").count();
        assert!(
            self.stderr.starts_with("error: ") && errors == 1,
            "not one error: {self:#?}"
        );
        self.saying(parts)
    }

    /// Returns the lines of the table's body. Leaves out tables that list the same points again.
    pub fn rows(&self) -> Vec<&str> {
        let is_rule = |line: &str| line.len() > 10 && line.bytes().all(|byte| byte == b'-');
        let mut rows = Vec::new();
        let (mut inside, mut again) = (false, false);
        for line in self.stdout.lines() {
            again = AGAIN.contains(&line) || again && !line.is_empty();
            let is_figure = line
                .trim_start()
                .starts_with(|first: char| first.is_ascii_digit());
            if inside && is_figure && !again {
                rows.push(line);
            } else {
                inside = is_rule(line);
            }
        }
        rows
    }
}
