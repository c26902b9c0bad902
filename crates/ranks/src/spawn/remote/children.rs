//! The ranks of one host as children of the agent: their start, their output, and how they end.

use std::fs::File;
use std::io::{PipeReader, Read, Seek, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::super::RankExit;
use super::agent::AgentProgram;
use super::messages::{AgentReport, CHECKPOINT, StartLetter, StartOrder};
use super::pipes::{lines, thread};
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// Time for the last lines of a rank that has ended. It is limited, because another process may hold the rank's output
/// open.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Longest wait for the last lines of a rank if they are queued for ssh.
const LAST_LINES_MAX: Duration = Duration::from_secs(30);

/// Function that gets the reports. Many threads call it.
pub(super) type ReportFn = Arc<dyn Fn(AgentReport) + Send + Sync>;

/// One rank.
struct RankChild {
    pid: Pid,
    /// How the child ended. Once this is set, the child's PID may belong to another process.
    ended: Arc<Mutex<Option<RankExit>>>,
}

/// Each reader of a rank's output holds a copy. All readers have finished when all copies are dropped.
#[derive(Clone)]
struct OutputReader {
    _open: mpsc::Sender<()>,
    /// Number of readers that are blocked on sending a line.
    waiting: Arc<AtomicUsize>,
}

/// The ranks of this host.
pub(super) struct RankChildren {
    first: u32,
    all: Vec<RankChild>,
    tell: ReportFn,
}

impl RankChildren {
    /// Creates the list, without ranks.
    pub(super) fn new(tell: ReportFn) -> Self {
        Self {
            first: 0,
            all: Vec::new(),
            tell,
        }
    }

    /// Starts all ranks of an order. The ranks end when the calling thread ends.
    pub(super) fn start(
        &mut self,
        order: &StartOrder,
        program: &AgentProgram,
        mut listener: Option<TcpListener>,
    ) -> Result<()> {
        self.first = order.first;
        (0..order.count)
            .try_for_each(|local_rank| self.start_one(order, local_rank, program, listener.take()))
    }

    fn start_one(
        &mut self,
        order: &StartOrder,
        local_rank: u32,
        asked: &AgentProgram,
        listener: Option<TcpListener>,
    ) -> Result<()> {
        let rank = order.first + local_rank;
        let failed = |what: &str, error: std::io::Error| {
            Error::io(format!("rank {rank}: cannot {what}"), error)
        };
        let pipe = match rank {
            0 => Some(std::io::pipe().map_err(|error| failed("make a pipe", error))?),
            _ => None,
        };
        let (records, to_records) = pipe.map_or((None, None), |(reader, writer)| {
            (Some(reader), Some(OwnedFd::from(writer)))
        });
        let listener = listener.map(OwnedFd::from);
        for passed_on in listener.iter().chain(&to_records) {
            fcntl_setfd(passed_on, FdFlags::empty())
                .map_err(|error| failed("pass a file on", error.into()))?;
        }
        let number = |fd: &Option<OwnedFd>| fd.as_ref().map(AsRawFd::as_raw_fd);
        let letter = StartLetter {
            rank,
            size: order.size,
            local_rank,
            local_size: order.count,
            parent: std::process::id(),
            secret: order.secret.clone(),
            meeting: order.meeting,
            listener: number(&listener),
            records: number(&to_records),
            job: match (rank, &order.root_job) {
                (0, Some(job)) => job.clone(),
                _ => order.job.clone(),
            },
        };
        let mut command = Command::new(&asked.path);
        command
            .arg(asked.rank_command)
            .envs(order.variables.iter().map(|(name, value)| (name, value)))
            .envs(asked.variables.iter().cloned())
            .stdin(Stdio::from(seal_letter(&letter)?))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if Path::new(&order.directory).is_dir() {
            command.current_dir(&order.directory);
        }
        let mut process = command.spawn().map_err(|error| {
            Error::start_error(format!("rank {rank} ({})", asked.path.display()), &error)
        })?;
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::Failed(format!("rank {rank} has no process number")))?;
        let child = RankChild {
            pid,
            ended: Arc::new(Mutex::new(None)),
        };
        (self.tell)(AgentReport::Started {
            rank,
            pid: process.id(),
        });
        self.follow(rank, &child, &mut process, records)?;
        self.all.push(child);
        Ok(())
    }

    /// Reports a rank's output and changes of its state, from threads of its own.
    fn follow(
        &self,
        rank: u32,
        child: &RankChild,
        process: &mut std::process::Child,
        records: Option<PipeReader>,
    ) -> Result<()> {
        let (open, closed) = mpsc::channel::<()>();
        let reading = OutputReader {
            _open: open,
            waiting: Arc::default(),
        };
        let waiting = Arc::clone(&reading.waiting);
        if let Some(records) = records {
            self.read(records, reading.clone(), |text| {
                let (mark, text) = text.split_first()?;
                Some(AgentReport::Record {
                    is_checkpoint: *mark == CHECKPOINT,
                    text: String::from_utf8_lossy(text).into_owned(),
                })
            })?;
        }
        if let Some(out) = process.stdout.take() {
            self.read(out, reading.clone(), move |text| {
                output_report(rank, false, text)
            })?;
        }
        if let Some(err) = process.stderr.take() {
            self.read(err, reading, move |text| output_report(rank, true, text))?;
        }
        let (pid, ended, tell) = (child.pid, Arc::clone(&child.ended), Arc::clone(&self.tell));
        thread(move || {
            let exit = watch(rank, pid, &ended, &*tell);
            await_lines(&closed, &waiting);
            tell(AgentReport::Ended { rank, exit });
        })
    }

    /// Reads lines on a thread. The thread drops `reading` at the end.
    fn read(
        &self,
        from: impl Read + Send + 'static,
        reading: OutputReader,
        report: impl Fn(&[u8]) -> Option<AgentReport> + Send + 'static,
    ) -> Result<()> {
        let tell = Arc::clone(&self.tell);
        thread(move || {
            lines(from, |line| {
                if let Some(report) = report(line) {
                    reading.waiting.fetch_add(1, Ordering::AcqRel);
                    tell(report);
                    reading.waiting.fetch_sub(1, Ordering::AcqRel);
                }
            });
        })
    }

    /// Sends a signal to a rank that has not ended.
    pub(super) fn signal(&self, rank: u32, signal: i32) {
        let place = rank.checked_sub(self.first).map(|place| place as usize);
        let child = place.and_then(|place| self.all.get(place));
        if let (Some(child), Some(signal)) = (child, Signal::from_named_raw(signal)) {
            child.send(signal);
        }
    }

    /// Sends a signal to all ranks that have not ended.
    pub(super) fn signal_all(&self, signal: Signal) {
        self.all.iter().for_each(|child| child.send(signal));
    }

    /// Returns the number of started ranks.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.all.len()).unwrap_or(u32::MAX)
    }

    /// Returns whether all ranks have ended.
    pub(super) fn have_ended(&self) -> bool {
        self.all.iter().all(|child| lock(&child.ended).is_some())
    }

    /// Returns the PIDs of the ranks that did not end with code 0.
    pub(super) fn lost_pids(&self) -> impl Iterator<Item = u32> {
        let lost = |child: &&RankChild| *lock(&child.ended) != Some(RankExit::Code(0));
        let all = self.all.iter().filter(lost);
        all.map(|child| child.pid.as_raw_nonzero().get().unsigned_abs())
    }
}

impl RankChild {
    fn send(&self, signal: Signal) {
        let ended = lock(&self.ended);
        if ended.is_none()
            && let Err(error) = kill_process(self.pid, signal)
        {
            log::debug!("cannot send {signal:?} to process {:?}: {error}", self.pid);
        }
    }
}

/// Writes a start message to a sealed memory file, which has no name and cannot be changed.
fn seal_letter(letter: &StartLetter) -> Result<File> {
    let failed = |error: std::io::Error| Error::io("cannot write the letter to a rank", error);
    let name = "tonnage letter";
    let made = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL);
    // Kernels before 6.3 lack NOEXEC_SEAL, but some hosts require it, so it is tried first.
    let made =
        made.or_else(|_| memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING));
    let mut file = File::from(made.map_err(|error| failed(error.into()))?);
    let text = super::messages::encode_line(letter)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.rewind())
        .map_err(failed)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(|error| failed(error.into()))?;
    Ok(file)
}

fn output_report(rank: u32, is_error: bool, text: &[u8]) -> Option<AgentReport> {
    Some(AgentReport::Line {
        rank,
        is_error,
        text: String::from_utf8_lossy(text).into_owned(),
    })
}

/// Waits for the last lines of a rank that has ended. It ends when the rank's readers are gone, or when no line came
/// for a while and no reader is blocked on sending.
fn await_lines(closed: &mpsc::Receiver<()>, waiting: &AtomicUsize) {
    let since = Instant::now();
    while closed.recv_timeout(LAST_LINES) == Err(mpsc::RecvTimeoutError::Timeout)
        && waiting.load(Ordering::Acquire) > 0
        && since.elapsed() < LAST_LINES_MAX
    {}
}

/// Reports each change of a rank's state until the rank has ended. Returns how it ended.
fn watch(
    rank: u32,
    pid: Pid,
    ended: &Mutex<Option<RankExit>>,
    tell: &dyn Fn(AgentReport),
) -> RankExit {
    loop {
        let all = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED;
        let Ok(Some(seen)) = waitid(WaitId::Pid(pid), all | WaitIdOptions::NOWAIT) else {
            // This is impossible, because only this thread waits for the child.
            break RankExit::Code(1);
        };
        let code = seen.exit_status().map(RankExit::Code);
        if let Some(exit) = code.or_else(|| seen.terminating_signal().map(RankExit::Signal)) {
            // The PID may be reused as soon as the child is reaped, so `ended` is set first.
            let mut ended = lock(ended);
            *ended = Some(exit);
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
            break exit;
        }
        let by = seen.stopping_signal();
        // If the state has changed again in the meantime, the next iteration sees that.
        let _ = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG,
        );
        tell(AgentReport::Stopped { rank, by });
    }
}
