//! One ssh: its process, its three pipes, and the threads that read two of the pipes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use super::agent::PULSE;
use super::messages::{AgentOrder, AgentReport, decode_line, write_line};
use super::pipes::{lines, thread};
use tonnage_sys::process::end_with_this_process;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// Time for the last lines of ssh's standard error. It is limited, because the master of a shared connection may hold
/// it open.
const LAST_LINES: Duration = Duration::from_millis(300);
/// Number of bytes of the program that are sent at once.
const CHUNK_BYTES: u64 = 1 << 16;

/// An event that the ssh of a host causes.
pub(super) enum HostEvent {
    Report(AgentReport),
    /// A line from the script or a login shell, not from the agent.
    Noise(String),
    /// A line of standard error.
    Complaint(String),
    /// The program was sent. The pipe can be used for orders again.
    Pushed(ChildStdin),
    /// The connection has ended.
    Closed,
}

/// Sends the events of all hosts to one receiver.
#[derive(Clone)]
pub(super) struct EventSender {
    pub(super) sender: SyncSender<(usize, HostEvent)>,
    /// Gets a byte with each event, so that the receiver can wait by `poll`.
    pub(super) wake: Arc<UnixStream>,
}

impl EventSender {
    fn send(&self, host: usize, heard: HostEvent) {
        // Sending fails only when the run is over and the receiver is gone.
        let _ = self.sender.send((host, heard));
        // If the socket is full, the write fails, but the socket is readable anyway.
        let _ = (&*self.wake).write(&[0]);
    }
}

/// The ssh of a host.
pub(super) struct Connection {
    child: Child,
    /// The pipe for orders to the agent. Another thread also sends heartbeats through it.
    input: Arc<Mutex<Option<ChildStdin>>>,
    /// Number of bytes of the program sent so far.
    pushed: Arc<AtomicU64>,
}

impl Connection {
    /// Starts ssh.
    pub(super) fn open(line: &[String], host: usize, events: &EventSender) -> Result<Self> {
        let (program, arguments) = line
            .split_first()
            .ok_or_else(|| Error::Usage("--ssh is empty".into()))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            // Ctrl-C must reach only this process, which forwards it to the ranks. ssh would exit at once, and the
            // reports of how ranks ended would be lost.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // While a login hangs, ssh does not read its input, so it would not notice that this process has ended.
        end_with_this_process(&mut command);
        let mut child = command
            .spawn()
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Error::Usage(format!(
                    "{program} is not installed, which --hosts needs (Debian, Ubuntu: apt-get install openssh-client); \
                     another one is named with --ssh"
                )),
                _ => Error::start_error(program, &error),
            })?;
        let input = child.stdin.take();
        let (open, closed) = mpsc::channel::<()>();
        if let Some(complaints) = child.stderr.take() {
            let events = events.clone();
            thread(move || {
                lines(complaints, |line| {
                    events.send(host, HostEvent::Complaint(lossy_line(line)))
                });
                drop(open);
            })?;
        }
        if let Some(reports) = child.stdout.take() {
            let events = events.clone();
            thread(move || {
                lines(reports, |line| {
                    events.send(host, parse_line(lossy_line(line)))
                });
                let _ = closed.recv_timeout(LAST_LINES);
                events.send(host, HostEvent::Closed);
            })?;
        }
        Ok(Self {
            child,
            input: Arc::new(Mutex::new(input)),
            pushed: Arc::default(),
        })
    }

    /// Sends an order. If that fails, the order is dropped, and the end of ssh's output will show that the agent is
    /// gone.
    pub(super) fn send(&mut self, order: &AgentOrder) {
        if let Some(input) = &mut *lock(&self.input)
            && let Err(error) = write_line(input, order)
        {
            log::debug!("{error}");
        }
    }

    /// Starts a thread that sends heartbeats. They continue while this process waits, for example for a stopped
    /// terminal or a slow disk.
    pub(super) fn start_heartbeats(&self) -> Result<()> {
        let input = Arc::clone(&self.input);
        thread(move || {
            loop {
                std::thread::sleep(PULSE);
                let mut input = lock(&input);
                let sent = input
                    .as_mut()
                    .map(|input| write_line(input, &AgentOrder::Alive));
                if !matches!(sent, Some(Ok(()))) {
                    break;
                }
            }
        })
    }

    /// Returns whether orders can be sent.
    pub(super) fn has_input(&self) -> bool {
        lock(&self.input).is_some()
    }

    /// Gives this connection its pipe for orders back.
    pub(super) fn give_input(&mut self, input: ChildStdin) {
        *lock(&self.input) = Some(input);
    }

    /// Sends the program on a thread of its own, because it may take long.
    pub(super) fn push(&mut self, program: &Path, host: usize, events: &EventSender) -> Result<()> {
        let Some(mut input) = lock(&self.input).take() else {
            return Ok(());
        };
        let pushed = Arc::clone(&self.pushed);
        let mut file = File::open(program)
            .map_err(|error| Error::io(format!("cannot read {}", program.display()), error))?;
        let events = events.clone();
        thread(move || {
            let mut send_all = || {
                input.write_all(b"go\n")?;
                loop {
                    match std::io::copy(&mut (&mut file).take(CHUNK_BYTES), &mut input)? {
                        0 => return input.flush(),
                        bytes => pushed.fetch_add(bytes, Ordering::Relaxed),
                    };
                }
            };
            match send_all() {
                Ok(()) => events.send(host, HostEvent::Pushed(input)),
                // If sending fails, the script prints the reason.
                Err(error) => log::debug!("cannot send the program: {error}"),
            }
        })
    }

    /// Returns the number of bytes of the program sent so far.
    pub(super) fn pushed_bytes(&self) -> u64 {
        self.pushed.load(Ordering::Relaxed)
    }

    /// Ends the agent by closing the pipe for orders. If an order is stuck in the pipe, the pipe stays open; the
    /// caller then kills ssh, which has the same effect.
    pub(super) fn close(&mut self) {
        match self.input.try_lock() {
            Ok(mut input) => *input = None,
            Err(TryLockError::Poisoned(input)) => *input.into_inner() = None,
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Waits until ssh exits, and kills it after this time. Returns a description of how it ended.
    pub(super) fn end(&mut self, time: Duration) -> String {
        self.close();
        let since = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    return match (status.code(), status.signal()) {
                        (Some(code), _) => format!("ended with code {code}"),
                        (None, Some(signal)) => format!("was killed by signal {signal}"),
                        (None, None) => "ended".to_owned(),
                    };
                }
                Ok(None) if since.elapsed() < time => std::thread::sleep(Duration::from_millis(2)),
                _ => break,
            }
        }
        // `kill` fails only if ssh has just ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        "did not end and was killed".to_owned()
    }
}

fn lossy_line(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end().to_owned()
}

fn parse_line(line: String) -> HostEvent {
    match decode_line(&line) {
        Ok(Some(report)) => HostEvent::Report(report),
        Ok(None) => HostEvent::Noise(line),
        Err(error) => HostEvent::Complaint(error.to_string()),
    }
}
