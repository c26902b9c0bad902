//! The protocol between a rank and its worker: orders, answers, and failures in place of answers. Data is not sent by
//! this protocol: it is in memory files.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonnage_ranks::Rank;
use tonnage_units::{Error, Result};

use super::call::CallMessage;
use super::channel::{WorkerEvent, WorkerSocket};
use super::failure::{CauseDistance, WorkerFailure};
use super::process::WorkerProcess;

/// The worker's source files, with the names by which they import each other.
const SOURCES: [(&str, &str); 4] = [
    ("orders", include_str!("worker/orders.py")),
    ("failures", include_str!("worker/failures.py")),
    ("store", include_str!("worker/store.py")),
    ("calls", include_str!("worker/calls.py")),
];

/// Maximum number of traceback lines in a message.
const TRACEBACK_LINES: usize = 14;

/// A command to the worker, which answers with one line.
#[derive(Debug, Serialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(super) enum WorkerOrder<'a> {
    /// Requests the worker's versions and hardware.
    Hello { cpus: &'a [u32] },
    /// Connects the worker to the other workers.
    Init {
        backend: &'static str,
        rank: u32,
        size: u32,
        device: Option<u32>,
        timeout_s: f64,
    },
    /// Makes a call once with a few bytes.
    Probe {
        #[serde(flatten)]
        call: CallMessage<'a>,
    },
    /// Creates the tensors of a call. The file with inputs and output is sent along.
    Prepare {
        #[serde(flatten)]
        call: CallMessage<'a>,
        slot_bytes: u64,
        slots: u32,
        output_offset: u64,
    },
    /// Makes calls and times them. If `new_stamps`, a file for the time stamps is sent along.
    Run {
        iterations: u64,
        refill_each: bool,
        align: &'static str,
        slot: u32,
        poison: bool,
        new_stamps: bool,
    },
    /// Copies the result into the output file.
    Fetch,
    /// Ends the worker.
    Close,
}

impl WorkerOrder<'_> {
    /// Returns a clause that describes the command. In messages it follows "while".
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "it loaded torch",
            Self::Init { .. } => "it met the other workers (init_process_group)",
            Self::Probe { .. } => "it tried the call with a few bytes",
            Self::Prepare { .. } => "it made its tensors",
            Self::Run { .. } => "it made the calls that are measured",
            Self::Fetch => "it copied the result",
            Self::Close => "it ended",
        }
    }
}

/// A line from the rank that is not an order: entries of the store's log, which the worker applies.
#[derive(Debug, Serialize)]
struct LogEntries<'a> {
    log: &'a [String],
}

/// A line from the worker: a new entry for the store's log, or the answer to an order.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkerLine {
    /// An entry for the log. Only workers know its meaning.
    Write(String),
    Answer(Value),
}

/// The answer to an order that raised an exception.
#[derive(Debug, Deserialize)]
struct RaisedException {
    /// Type and text of the exception.
    raised: String,
    traceback: String,
    /// Whether the exception means that torch does not have this call.
    lacking: bool,
}

/// A worker, and the socket between it and this rank.
#[derive(Debug)]
pub(super) struct WorkerConnection {
    channel: WorkerSocket,
    pub(super) process: WorkerProcess,
    /// Description of the order in progress, for messages.
    during: &'static str,
    /// Entries of the store's log that have to be sent to the other workers, one per line.
    writes: Vec<u8>,
}

impl WorkerConnection {
    /// Starts this rank's worker.
    pub(super) fn start(
        rank: &Rank,
        python: &str,
        environment: &[(String, String)],
    ) -> Result<Self, WorkerFailure> {
        let sources = serde_json::to_vec(&SOURCES)
            .map_err(|error| Error::Failed(format!("the worker's sources: {error}")))?;
        let (channel, theirs) = WorkerSocket::new(rank)?;
        let process = WorkerProcess::start(python, sources.len(), theirs, environment)?;
        let mut both = Self {
            channel,
            process,
            during: "it started",
            writes: Vec::new(),
        };
        both.send(&sources, &[])?;
        Ok(both)
    }

    /// Sends an order together with files.
    pub(super) fn order(
        &mut self,
        order: &WorkerOrder<'_>,
        files: &[BorrowedFd<'_>],
    ) -> Result<(), WorkerFailure> {
        self.during = order.what();
        let line = json_line(order)?;
        self.send(&line, files)
    }

    /// Sends log entries of all workers to this worker.
    pub(super) fn send_log_entries(&mut self, entries: &[String]) -> Result<(), WorkerFailure> {
        let line = json_line(&LogEntries { log: entries })?;
        self.send(&line, &[])
    }

    fn send(&mut self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), WorkerFailure> {
        // If sending fails, the worker has ended or hangs. The state of its process gives the reason.
        self.channel.send(bytes, files).map_err(|error| {
            log::debug!("{error}");
            self.process.ended(self.during)
        })
    }

    /// Waits for the answer to an order. Returns `None` if the time is over, or if a log entry arrives first.
    pub(super) fn await_answer(&mut self, until: Instant) -> Result<Option<Value>, WorkerFailure> {
        match self.channel.next(until)? {
            WorkerEvent::Line(WorkerLine::Answer(answer)) => {
                self.process.trim();
                self.read(answer).map(Some)
            }
            WorkerEvent::Line(WorkerLine::Write(entry)) => {
                self.writes.extend_from_slice(entry.as_bytes());
                self.writes.push(b'\n');
                Ok(None)
            }
            WorkerEvent::TimedOut => Ok(None),
            WorkerEvent::Closed => Err(self.process.ended(self.during)),
            WorkerEvent::Stopped => Err(WorkerFailure::new(
                CauseDistance::Run,
                Error::Failed("the run was ended while torch's worker was busy".into()),
            )),
        }
    }

    /// Returns the answer, or a failure if the order raised an exception.
    fn read(&self, answer: Value) -> Result<Value, WorkerFailure> {
        if answer.get("raised").is_none() {
            return Ok(answer);
        }
        let raised: RaisedException = serde_json::from_value(answer)
            .map_err(|error| Error::Failed(format!("an answer of torch's worker: {error}")))?;
        if raised.lacking {
            return Err(WorkerFailure::from(Error::Unavailable {
                what: "this call of torch.distributed".into(),
                why: raised.raised,
                how: "Choose another operation, dtype or reduction, another backend, or a newer PyTorch by --python"
                    .into(),
            }));
        }
        let lines: Vec<&str> = raised.traceback.trim_end().lines().collect();
        let last = lines.get(lines.len().saturating_sub(TRACEBACK_LINES)..);
        let how = format!("raised {} while {}", raised.raised, self.during);
        let traceback = format!("\n{}", last.unwrap_or_default().join("\n"));
        Err(self
            .process
            .failure(CauseDistance::Raised, &how, &traceback))
    }

    /// Kills the worker because it did not complete its order within `limit`, and returns the failure.
    pub(super) fn overdue(&mut self, limit: Duration, progress: &str) -> WorkerFailure {
        let during = format!("{}{progress}", self.during);
        self.process.overdue(&during, limit)
    }

    /// Removes and returns up to `most` bytes of the worker's log entries.
    pub(super) fn take_log_entries(&mut self, most: usize) -> Vec<u8> {
        let rest = self.writes.split_off(self.writes.len().min(most));
        std::mem::replace(&mut self.writes, rest)
    }
}

fn json_line(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)
        .map_err(|error| Error::Failed(format!("an order for torch's worker: {error}")))?;
    line.push(b'\n');
    Ok(line)
}
