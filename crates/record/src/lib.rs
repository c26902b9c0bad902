//! A record: one line of results, with everything that a reader needs to understand a figure a year later.
//!
//! A [`Record`] is an envelope (run, program, outcome, hosts, canary, limit, proof of the path) around the [`Body`] of one
//! kind of experiment. In JSON it is one flat object: `kind` tells the body, `point` is what was asked for. The types are
//! the file format.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`kinds`], [`body`] | the one list of kinds, with a folder for each: its body and its figures; what a body of any kind can be asked |
//! | [`figures`] | figures of all kinds, each declared once: columns, CSV and `tonnage explain` read them |
//! | [`environment`] | what was really done, and on which hosts |
//! | [`histogram`], [`spread`], [`limit`] | samples and trials taken together, upper bounds |
//! | [`wire_proof`] | what devices counted while the payload should have crossed them |
//! | [`writer`], [`read`] | files of records: written, interrupted, read, taken up again |
//! | [`schema`] | docs/record.schema.json, from the types |
//! | [`host_limits`] | what a host can do at most, which is in no record |
//!
//! Nothing here measures, and nothing draws: records come from the crate `bench` and go to the crate `report`.

#![forbid(unsafe_code)]

pub mod body;
pub mod environment;
pub mod figures;
pub mod histogram;
pub mod host_limits;
pub mod kinds;
pub mod limit;
pub mod read;
pub mod schema;
pub mod spread;
#[cfg(test)]
mod tests;
pub mod wire_proof;
pub mod writer;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use environment::{Effective, Environment};
pub use histogram::{HistogramData, Latency, LatencyKind};
pub use kinds::*;
pub use limit::Limit;
pub use spread::Spread;
pub use wire_proof::WireProof;

/// Version of the format. A reader takes this one and no other.
pub const SCHEMA_VERSION: u32 = 2;

/// One point of a plan and what became of it: one JSON line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Version of the format.
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// Alike in all records that one start of tonnage wrote.
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

/// A record whose kind is known: the envelope, with a body that needs no looking at again.
#[derive(Debug)]
pub struct Of<'a, B> {
    /// The whole record.
    pub record: &'a Record,
    /// Its body.
    pub body: &'a B,
}

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
