//! The body of a stress run: random transfers from a seed, and their outcomes.
//!
//! A record has one row per engine and operation, regardless of the number of transfers. It also has the first failed
//! transfer, with the command line that repeats this transfer.

pub(crate) mod figures;

use serde::{Deserialize, Serialize};

use tonnage_engine::Verb;
use tonnage_plan::stress::StressPoint;

use crate::body::{CommonOptions, KindBody, Moved, MovedInTrial, Part};
use crate::histogram::Latency;
use crate::spread::spread;

/// A stress run: the point and its results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StressBody {
    /// The requested point.
    pub point: StressPoint,
    /// Time from the first random transfer to the end of the run.
    pub elapsed_ns: u64,
    /// Results by engine, then by operation; empty if no transfer was chosen.
    pub rows: Vec<StressRow>,
    /// The first transfer that failed, or the one in progress when the run was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<StressFailure>,
}

impl StressBody {
    /// Creates the body of a point before any transfer is chosen.
    pub fn new(point: StressPoint) -> Self {
        Self {
            point,
            elapsed_ns: 0,
            rows: Vec::new(),
            first_failure: None,
        }
    }

    /// Returns the row of a part.
    pub fn row(&self, part: Part) -> Option<&StressRow> {
        match part {
            Part::Nth(at) => self.rows.get(at),
            Part::Whole | Part::Inside(..) => None,
        }
    }

    /// Returns the sum of a count over all rows.
    pub fn sum(&self, of: fn(&StressRow) -> u64) -> u64 {
        self.rows.iter().map(of).sum()
    }
}

/// Summary of the transfers of one engine with one operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StressRow {
    /// Full name of the engine, such as `fabric:tcp`.
    pub engine: String,
    /// The operation.
    pub op: Verb,
    /// Number of transfers tried.
    pub draws: u64,
    /// Number of tried transfers that failed.
    pub failures: u64,
    /// Number of transfers that were chosen but not tried, because the engine or the machine lacks a requirement.
    pub skipped: u64,
    /// Reason for the first skipped transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_why: Option<String>,
    /// Completed operations of the transfers that succeeded.
    pub operations: u64,
    /// Payload of these operations.
    pub payload_bytes: u64,
    /// Bytes that were verified.
    pub verified_bytes: u64,
    /// Sum of the measured intervals of the successful transfers, without filling and verification.
    pub window_ns: u64,
    /// CPU time of initiating threads inside the measured intervals.
    pub initiator_cpu_ns: u64,
    /// Latencies of individual operations. They come from transfers with a depth, and from reads in ping-pongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

impl StressRow {
    /// Creates an empty row.
    pub fn new(engine: &str, op: Verb) -> Self {
        Self {
            engine: engine.to_owned(),
            op,
            draws: 0,
            failures: 0,
            skipped: 0,
            skipped_why: None,
            operations: 0,
            payload_bytes: 0,
            verified_bytes: 0,
            window_ns: 0,
            initiator_cpu_ns: 0,
            latency: None,
        }
    }

    fn per_s(&self, count: u64) -> f64 {
        count as f64 * 1e9 / self.window_ns.max(1) as f64
    }
}

/// A transfer that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StressFailure {
    /// Number of the transfer among all that were tried, starting at 1.
    pub draw: u64,
    /// Engine of the transfer.
    pub engine: String,
    /// Operation of the transfer.
    pub op: Verb,
    /// The failed rank, its host, and the error.
    pub why: String,
    /// The command line that repeats the transfer.
    pub command: String,
}

/// The parts of a record are its rows.
impl KindBody for StressBody {
    fn options(&self) -> CommonOptions<'_> {
        let point = &self.point;
        CommonOptions {
            memory: Some(&point.memory),
            ..CommonOptions::new(
                &point.label,
                &point.engine,
                &point.engine_options,
                point.ranks,
            )
        }
    }

    fn engine(&self, part: Part) -> &str {
        self.row(part).map_or(&self.point.engine, |row| &row.engine)
    }

    fn verb(&self, part: Part) -> Option<Verb> {
        self.row(part).map(|row| row.op)
    }

    fn parts(&self) -> Vec<Part> {
        match self.rows.len() {
            0 => vec![Part::Whole],
            rows => (0..rows).map(Part::Nth).collect(),
        }
    }

    fn measured_ns(&self, _: Part) -> u64 {
        self.elapsed_ns
    }

    fn trials(&self, _: Part) -> Option<u32> {
        None
    }

    fn latency(&self, part: Part) -> Option<&Latency> {
        self.row(part)?.latency.as_ref()
    }

    fn moved(&self, part: Part) -> Option<Moved<'_>> {
        let row = self.row(part).filter(|row| row.operations > 0)?;
        let bandwidth_bytes_per_s = row.per_s(row.payload_bytes);
        let message_rate_per_s = Some(row.per_s(row.operations));
        let cpu_ns_per_operation = row.initiator_cpu_ns as f64 / row.operations as f64;
        Some(Moved {
            bandwidth_bytes_per_s: spread(&[bandwidth_bytes_per_s]),
            message_rate_per_s,
            operations: row.operations,
            payload_bytes: row.payload_bytes,
            cpu_ns_per_operation,
            bound: None,
            utilization: None,
            trials: vec![MovedInTrial {
                bandwidth_bytes_per_s,
                message_rate_per_s,
                cpu_ns_per_operation: Some(cpu_ns_per_operation),
                in_flight_max: None,
            }],
        })
    }

    fn verified_bytes(&self, part: Part) -> Option<u64> {
        self.row(part).map(|row| row.verified_bytes)
    }
}
