//! Everything that is said between a rank and its worker, apart from bytes in memory files: orders, answers, and the
//! failures that come instead.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonnage_ranks::Rank;
use tonnage_units::{Error, Result};

use super::call::CallWords;
use super::channel::{Heard, WorkerSocket};
use super::failure::{Nearness, WorkerFailure};
use super::process::WorkerProcess;

/// The worker's sources, by the names under which they load each other.
const SOURCES: [(&str, &str); 4] = [
    ("orders", include_str!("worker/orders.py")),
    ("failures", include_str!("worker/failures.py")),
    ("store", include_str!("worker/store.py")),
    ("calls", include_str!("worker/calls.py")),
];

/// Lines of an exception's traceback that a message shows.
const TRACEBACK_LINES: usize = 14;

/// An order, which the worker answers with one line.
#[derive(Debug, Serialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(super) enum WorkerOrder<'a> {
    /// Says who it is and what it has.
    Hello { cpus: &'a [u32] },
    /// Meets the other workers.
    Init {
        backend: &'static str,
        rank: u32,
        size: u32,
        device: Option<u32>,
        timeout_s: f64,
    },
    /// Makes a call with a few bytes.
    Probe {
        #[serde(flatten)]
        call: CallWords<'a>,
    },
    /// Makes tensors of a call. The file of its inputs and its output comes with it.
    Prepare {
        #[serde(flatten)]
        call: CallWords<'a>,
        slot_bytes: u64,
        slots: u32,
        output_offset: u64,
    },
    /// Makes calls, and times them. A file for time stamps comes with it where they are `new_stamps`.
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
    /// Ends.
    Close,
}

impl WorkerOrder<'_> {
    /// The order's words for messages about it.
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

/// A line of the rank that is no order: entries of the store's log, for the worker to apply.
#[derive(Debug, Serialize)]
struct LogEntries<'a> {
    log: &'a [String],
}

/// A line of the worker: an entry for the store's log, or the answer to an order.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    /// An entry, which only workers understand.
    Write(String),
    Answer(Value),
}

/// An answer that an exception is.
#[derive(Debug, Deserialize)]
struct Raised {
    /// Its type and text.
    raised: String,
    /// Place that it came from.
    traceback: String,
    /// True where it says that there is no such thing.
    lacking: bool,
}

/// A worker, as someone to talk to.
#[derive(Debug)]
pub(super) struct Conversation {
    channel: WorkerSocket,
    pub(super) process: WorkerProcess,
    /// The order that is being carried out, for messages.
    during: &'static str,
    /// Entries of the store's log that other workers have to hear of, one a line.
    writes: Vec<u8>,
}

impl Conversation {
    /// Starts a worker of this rank.
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

    /// Gives an order, and files with it.
    pub(super) fn order(
        &mut self,
        order: &WorkerOrder<'_>,
        files: &[BorrowedFd<'_>],
    ) -> Result<(), WorkerFailure> {
        self.during = order.what();
        let line = json_line(order)?;
        self.send(&line, files)
    }

    /// Passes on what workers wrote into the store.
    pub(super) fn pass_on(&mut self, entries: &[String]) -> Result<(), WorkerFailure> {
        let line = json_line(&LogEntries { log: entries })?;
        self.send(&line, &[])
    }

    fn send(&mut self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), WorkerFailure> {
        // A worker that cannot be spoken to has ended, or hangs in a way that only its state tells.
        self.channel.send(bytes, files).map_err(|error| {
            log::debug!("{error}");
            self.process.ended(self.during)
        })
    }

    /// Waits for the answer to an order; `None` where it does not come so soon, or the worker wrote something before.
    pub(super) fn answer(&mut self, until: Instant) -> Result<Option<Value>, WorkerFailure> {
        match self.channel.next(until)? {
            Heard::Said(Said::Answer(answer)) => {
                self.process.trim();
                self.read(answer).map(Some)
            }
            Heard::Said(Said::Write(entry)) => {
                self.writes.extend_from_slice(entry.as_bytes());
                self.writes.push(b'\n');
                Ok(None)
            }
            Heard::Nothing => Ok(None),
            Heard::Closed => Err(self.process.ended(self.during)),
            Heard::Stopped => Err(WorkerFailure::new(
                Nearness::Run,
                Error::Failed("the run was ended while torch's worker was at work".into()),
            )),
        }
    }

    /// The answer, or the exception that came instead.
    fn read(&self, answer: Value) -> Result<Value, WorkerFailure> {
        if answer.get("raised").is_none() {
            return Ok(answer);
        }
        let raised: Raised = serde_json::from_value(answer)
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
        Err(self.process.failure(Nearness::Raised, &how, &traceback))
    }

    /// Kills the worker, whose order has not been done in `limit`.
    pub(super) fn overdue(&mut self, limit: Duration, progress: &str) -> WorkerFailure {
        let during = format!("{}{progress}", self.during);
        self.process.overdue(&during, limit)
    }

    /// Takes so many bytes at most of what the worker wrote into the store.
    pub(super) fn take_writes(&mut self, most: usize) -> Vec<u8> {
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
