//! A record: one line of results, with everything that a reader needs to understand a figure a year later.
//!
//! A [`Record`] is an envelope (run, program, outcome, hosts, canary, limit, proof of the path) around the [`Body`] of one
//! kind of experiment. In JSON it is one flat object: `kind` tells the body, `point` is what was asked for. The types are
//! the file format.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`transfer`], [`files`], [`connect`] | the bodies: what each kind of experiment measures |
//! | [`environment`] | what was really done, and on which hosts |
//! | [`histogram`], [`spread`] | samples and trials taken together |
//! | [`wire_proof`] | what devices counted while the payload should have crossed them |
//! | [`writer`], [`read`] | files of records: written, interrupted, read, taken up again |
//! | [`schema`] | docs/record.schema.json, from the types |
//! | [`host_limits`] | what a host can do at most, which is in no record |
//!
//! Nothing here measures, and nothing draws: records come from the crate `bench` and go to the crate `report`.

#![forbid(unsafe_code)]

pub mod connect;
pub mod environment;
pub mod figures;
pub mod files;
pub mod histogram;
pub mod host_limits;
pub mod read;
pub mod schema;
pub mod spread;
#[cfg(test)]
mod tests;
pub mod transfer;
pub mod wire_proof;
pub mod writer;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tonnage_plan::Point;

pub use connect::ConnectBody;
pub use environment::{Effective, Environment};
pub use files::FileBody;
pub use histogram::{HistogramData, Latency, LatencyKind};
pub use spread::Spread;
pub use transfer::TransferBody;
pub use wire_proof::WireProof;

/// Version of the format. A reader takes this one and no other.
pub const SCHEMA_VERSION: u32 = 2;

/// One point of a plan and what became of it: one JSON line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Version of the format.
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// The same for all records that one start of tonnage wrote.
    pub run_id: String,
    /// The plan's name.
    pub plan: String,
    /// Time at which the point ended, nanoseconds since 1970 by rank 0's clock.
    pub time_unix_ns: u64,
    /// Version and git revision of the program.
    pub tonnage: Program,
    /// Measured, skipped or failed.
    pub outcome: Outcome,
    /// The point that was asked for, and its results.
    #[serde(flatten)]
    pub body: Body,
    /// Real choices of the ranks, ranks with the same answer together.
    pub effective: Vec<Effective>,
    /// Environment of the hosts, hosts with the same answer together.
    pub environment: Vec<Environment>,
    /// A cache-line ping-pong beside the point, which tells whether the machine itself changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// Upper bound that utilization is a fraction of; parts that have limits of their own, such as phases, hold them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Counts of the devices that the payload had to cross; absent where the engine names none, and unless measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_proof: Option<WireProof>,
    /// Remarks that a reader has to know: what a read proves, what a file system cannot do, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// Point and results of one kind of experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Body {
    /// Bytes between the memories of ranks.
    Transfer(Box<TransferBody>),
    /// Bytes between memory and files.
    File(Box<FileBody>),
    /// Setting up connections.
    Connect(Box<ConnectBody>),
}

impl Body {
    /// Returns whether it was asked for by this very point.
    pub fn is_of(&self, point: &Point) -> bool {
        match (self, point) {
            (Self::Transfer(body), Point::Transfer(point)) => body.point == *point,
            (Self::File(body), Point::File(point)) => body.point == *point,
            (Self::Connect(body), Point::Connect(point)) => body.point == *point,
            _ => false,
        }
    }

    /// Name of the kind, as `kind` has it in records.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Transfer(_) => "transfer",
            Self::File(_) => "file",
            Self::Connect(_) => "connect",
        }
    }
}

/// A record whose kind is known: the envelope, with a body that needs no looking at again.
#[derive(Debug)]
pub struct Of<'a, B> {
    /// The whole record.
    pub record: &'a Record,
    /// Its body.
    pub body: &'a B,
}

/// A record of a transfer.
pub type TransferRecord<'a> = Of<'a, TransferBody>;

/// A record of a file experiment.
pub type FileRecord<'a> = Of<'a, FileBody>;

/// A record of an experiment with connections.
pub type ConnectRecord<'a> = Of<'a, ConnectBody>;

impl<B> Copy for Of<'_, B> {}

impl<B> Clone for Of<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

/// The envelope's fields stand beside the typed `body`.
impl<B> std::ops::Deref for Of<'_, B> {
    type Target = Record;

    fn deref(&self) -> &Record {
        self.record
    }
}

impl Record {
    /// The record as one of a transfer, if it is one.
    pub fn as_transfer(&self) -> Option<TransferRecord<'_>> {
        let body = self.transfer()?;
        Some(Of { record: self, body })
    }

    /// The record as one of a file experiment, if it is one.
    pub fn as_file(&self) -> Option<FileRecord<'_>> {
        let body = self.file()?;
        Some(Of { record: self, body })
    }

    /// The record as one of an experiment with connections, if it is one.
    pub fn as_connect(&self) -> Option<ConnectRecord<'_>> {
        let body = self.connect()?;
        Some(Of { record: self, body })
    }

    /// The body of a transfer, if it is one.
    pub fn transfer(&self) -> Option<&TransferBody> {
        match &self.body {
            Body::Transfer(body) => Some(body),
            _ => None,
        }
    }

    /// The body of a file experiment, if it is one.
    pub fn file(&self) -> Option<&FileBody> {
        match &self.body {
            Body::File(body) => Some(body),
            _ => None,
        }
    }

    /// The body of an experiment with connections, if it is one.
    pub fn connect(&self) -> Option<&ConnectBody> {
        match &self.body {
            Body::Connect(body) => Some(body),
            _ => None,
        }
    }
}

impl From<TransferBody> for Body {
    fn from(body: TransferBody) -> Self {
        Self::Transfer(Box::new(body))
    }
}

impl From<ConnectBody> for Body {
    fn from(body: ConnectBody) -> Self {
        Self::Connect(Box::new(body))
    }
}

impl From<FileBody> for Body {
    fn from(body: FileBody) -> Self {
        Self::File(Box::new(body))
    }
}

/// The program that wrote a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Program {
    /// Cargo's version.
    pub version: String,
    /// Commit that it was built from, with "-dirty" when the tree had changes; "unknown" outside a checkout.
    pub git_revision: String,
}

/// Outcome of a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// The trials are complete.
    Measured,
    /// It could not be tried here.
    Skipped {
        /// The thing that is missing, and the way to get it.
        why: String,
    },
    /// It was tried and failed.
    Failed {
        /// The failed rank, its host, and the next thing to try.
        why: String,
    },
}

/// Upper bound that utilization is a fraction of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// Description in words: "memory copy by rep movsb, 2 copiers at once".
    pub what: String,
    /// The limit.
    pub bytes_per_s: f64,
}

/// The cache-line ping-pong between the CPUs of the first pair, before and after the point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Canary {
    /// It ran.
    Measured {
        /// CPUs that it ran on.
        cpus: [u32; 2],
        /// One way, median, before the point.
        before_ns: f64,
        /// One way, median, after the point.
        after_ns: f64,
        /// True when the two differ by more than a fifth: the machine changed, so distrust small differences.
        changed: bool,
    },
    /// It could not run.
    Skipped {
        /// Reason, and what to do.
        why: String,
    },
}
