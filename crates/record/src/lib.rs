//! One line of results: everything that a reader needs to understand a figure a year later.
//!
//! The types here are the file format; docs/record.schema.json describes the same and a test holds the two together.
//! Writing files of records is in [`mod@file`], reading them in [`read`]; [`wire_proof`] is what devices counted,
//! [`files`] the record of a file experiment. Reports read these types and nothing else.

#![forbid(unsafe_code)]

pub mod file;
pub mod files;
pub mod host_limits;
pub mod read;
pub mod stats;
#[cfg(test)]
mod tests;
pub mod wire_proof;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use tonnage_plan::transfer::TransferPoint;

/// Version of the format. A reader refuses a newer one.
pub const SCHEMA_VERSION: u32 = 1;

/// One point of a plan and what became of it: one JSON line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The same for all records that one start of tonnage wrote.
    pub run_id: String,
    /// The plan's name.
    pub plan: String,
    /// When the point ended, nanoseconds since 1970 by rank 0's clock.
    pub time_unix_ns: u64,
    /// Version and git revision of the program.
    pub tonnage: Program,
    /// What was asked for.
    pub point: TransferPoint,
    /// What was really done, ranks with the same answer together.
    pub effective: Vec<Effective>,
    /// What the hosts are, hosts with the same answer together.
    pub environment: Vec<Environment>,
    /// Measured, skipped or failed.
    pub outcome: Outcome,
    /// One entry for each timed repetition.
    pub trials: Vec<Trial>,
    /// The trials taken together; absent unless measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// Latencies of all operations of all trials and workers; absent where none were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<HistogramData>,
    /// A cache-line ping-pong beside the point, which tells whether the machine itself changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// What the devices counted that the payload had to cross; absent where the engine names none, and unless measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<wire_proof::Path>,
}

/// The program that wrote a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Cargo's version.
    pub version: String,
    /// Commit that it was built from, with "-dirty" when the tree had changes; "unknown" outside a checkout.
    pub git_revision: String,
}

/// The effective configuration of some ranks that share it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// Which ranks, such as "0-3,8".
    pub ranks: String,
    /// Engine name and the engine's own choices.
    pub engine: Value,
    /// Kind, page size and NUMA node of the memory that was had, and why if it is less than what was asked for.
    pub memory: Value,
    /// CPU of each worker, `null` where not pinned.
    pub cpus: Vec<Option<u32>>,
    /// True when there are more workers than CPUs on the host, so that they yield instead of spinning.
    pub yielding: bool,
}

/// The environment of some hosts that share it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Host names.
    pub hosts: Vec<String>,
    /// Which ranks run there, such as "0-3,8".
    pub ranks: String,
    /// How the ranks were started and found each other: "tonnage --ranks", "OMPI_COMM_WORLD_*, PMIx", …
    pub launcher: String,
    /// CPU model, governor, kernel, NUMA nodes, huge pages, library versions, … (see `machine::Environment`).
    pub machine: tonnage_machine::Environment,
    /// This host's clock against rank 0's: subtract it from a local time. 0 on rank 0's own host.
    pub clock_offset_ns: i64,
    /// Half the round trip of the best sample: the estimate cannot be off by more.
    pub clock_uncertainty_ns: u64,
}

/// What became of a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// The trials are complete.
    Measured,
    /// It could not be tried here.
    Skipped {
        /// What is missing and how to get it.
        why: String,
    },
    /// It was tried and failed.
    Failed {
        /// Which rank, where, and what to try next.
        why: String,
    },
}

/// One timed repetition over all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// From the aligned start to the last completion or arrival on any rank, closing flush included.
    pub window_ns: u64,
    /// Operations completed (a round trip of a ping-pong is two).
    pub operations: u64,
    /// Payload bytes of those operations.
    pub payload_bytes: u64,
    /// `payload_bytes` / window.
    pub bandwidth_bytes_per_s: f64,
    /// `operations` / window.
    pub message_rate_per_s: f64,
    /// Mean of the latencies recorded in this trial; absent where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_mean: Option<f64>,
    /// Smallest latency of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_min: Option<u64>,
    /// Largest latency of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns_max: Option<u64>,
    /// CPU time of all initiating workers inside the window.
    pub initiator_cpu_ns: u64,
    /// CPU time of all workers that only serve.
    pub target_cpu_ns: u64,
    /// How long after the aligned start the last rank really began.
    pub start_skew_ns: u64,
    /// Bytes that were checked after the trial and found right; absent without `--verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_bytes: Option<u64>,
}

/// What one latency sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatencyKind {
    /// Post to completion of one operation, at the initiator.
    Operation,
    /// First post to last completion of one batch.
    Batch,
    /// Half the round trip of a ping-pong in which each side waits for data to arrive.
    OneWay,
    /// The time an operation was due to its completion.
    Response,
}

/// The trials of a point taken together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of trials.
    pub trials: u32,
    /// Operations of all trials.
    pub operations: u64,
    /// Payload bytes of all trials.
    pub payload_bytes: u64,
    /// Bandwidth over the trials.
    pub bandwidth_bytes_per_s: Spread,
    /// Message rate over the trials.
    pub message_rate_per_s: Spread,
    /// Latency; absent where none was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Initiators' CPU time per operation.
    pub initiator_cpu_ns_per_operation: f64,
    /// Serving ranks' CPU time per operation.
    pub target_cpu_ns_per_operation: f64,
    /// The limit that the bandwidth is set beside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Mean bandwidth / limit, 1.0 is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Paced runs: what was asked for and what was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// With `--until-ci`: whether the interval became that narrow before the time was up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converged: Option<bool>,
}

/// Mean and spread of one figure across trials.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest trial.
    pub min: f64,
    /// Largest trial.
    pub max: f64,
    /// Sample standard deviation; absent for one trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stddev: Option<f64>,
    /// Half width of the 95 % confidence interval of the mean (Student's t); absent for one trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<f64>,
}

/// Latency over all operations of all trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// What one sample is.
    pub kind: LatencyKind,
    /// Whether what was written is in the peer's memory when a sample ends. Absent for reads and ping-pongs, of which
    /// the kind says it, for sends whose engine does not say it, and where nothing moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<bool>,
    /// Number of samples.
    pub samples: u64,
    /// Smallest.
    pub latency_ns_min: u64,
    /// Mean over all samples.
    pub latency_ns_mean: f64,
    /// Median.
    pub latency_ns_p50: u64,
    /// 90th percentile.
    pub latency_ns_p90: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// 99.9th percentile.
    pub latency_ns_p999: u64,
    /// Largest; exact, also beyond the histogram's range.
    pub latency_ns_max: u64,
}

/// What a bandwidth is set beside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// What it is, in words: "memory copy by rep movsb, 2 copiers at once".
    pub what: String,
    /// The limit.
    pub bytes_per_s: f64,
}

/// Offered and reached rate of a paced run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Asked for, all initiating ranks together.
    pub offered_per_s: f64,
    /// Completed, all initiating ranks together.
    pub reached_per_s: f64,
    /// Part of the operations that were issued late because the window was full or the loop was behind.
    pub late_fraction: f64,
}

/// A histogram in the standard HdrHistogram V2 encoding, base64: any HDR library can merge it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramData {
    /// "hdr-v2-base64".
    pub encoding: String,
    /// "ns".
    pub unit: String,
    /// The encoded histogram.
    pub data: String,
}

/// The cache-line ping-pong between the CPUs of the first pair, before and after the point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
        /// Why.
        why: String,
    },
}

/// A line of a results file. Written, it is its record and nothing more; reading tells the two by their keys `point`
/// and `file`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Line {
    /// Bytes between the memories of ranks.
    Transfer(Box<Record>),
    /// Bytes between memory and files.
    File(Box<files::FileRecord>),
}

impl Line {
    /// What became of it.
    pub fn outcome(&self) -> &Outcome {
        match self {
            Self::Transfer(record) => &record.outcome,
            Self::File(record) => &record.outcome,
        }
    }

    /// The record of a transfer, if it is one.
    pub fn as_transfer(&self) -> Option<&Record> {
        match self {
            Self::Transfer(record) => Some(record),
            Self::File(_) => None,
        }
    }

    /// The record of a file experiment, if it is one.
    pub fn as_file(&self) -> Option<&files::FileRecord> {
        match self {
            Self::Transfer(_) => None,
            Self::File(record) => Some(record),
        }
    }
}

impl From<Record> for Line {
    fn from(record: Record) -> Self {
        Self::Transfer(Box::new(record))
    }
}

impl From<files::FileRecord> for Line {
    fn from(record: files::FileRecord) -> Self {
        Self::File(Box::new(record))
    }
}
