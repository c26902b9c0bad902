//! Everything that is said between a rank and its worker, apart from bytes in memory files.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::call::CallWords;

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
pub(super) struct LogEntries<'a> {
    pub(super) log: &'a [String],
}

/// A line of the worker: an entry for the store's log, or the answer to an order.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    /// An entry, which only workers understand.
    Write(String),
    /// An answer.
    Answer(Value),
}

/// An answer that an exception is.
#[derive(Debug, Deserialize)]
pub(super) struct Raised {
    /// Its type and text.
    pub(super) raised: String,
    /// Place that it came from.
    pub(super) traceback: String,
    /// True where it says that there is no such thing.
    pub(super) lacking: bool,
}
