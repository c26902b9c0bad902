//! The envelope of a record: all fields except those of the body, which differ between kinds.
//!
//! [`crate::kinds`] has the bodies, and [`crate::environment`] the descriptions of engines and hosts.

use serde::{Deserialize, Serialize};
use tonnage_plan::published::PublishedCell;

use crate::bound::Bound;
use crate::cpu_loss::CpuLoss;
use crate::environment::{Effective, HostGroup, Placed};
use crate::kinds::transfer::Trial;
use crate::kinds::{
    self, Body, CollectiveBody, ConnectBody, FileBody, Kind, StressBody, TransferBody, TuneBody,
    with_kinds,
};
use crate::network_path::NetworkPath;
use crate::outcome::Outcome;
use crate::side::Side;
use crate::wire_proof::WireProof;

/// Version of the format. Version 2 had different names for four keys: `window`, `limit`, `addresses` and `workers`.
pub const SCHEMA_VERSION: u32 = 3;

/// Oldest version that this program reads. Reading converts a record to the current version and keys.
pub const SCHEMA_VERSION_MIN: u32 = 2;

/// One point of a plan with its outcome: one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// Version of the format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA_VERSION)))]
    pub schema_version: u32,
    /// ID of the run: equal in all records written by one start of tonnage.
    pub run_id: String,
    /// The plan's name.
    pub plan: String,
    /// Time when the point ended, nanoseconds since 1970 on rank 0's clock.
    pub time_unix_ns: u64,
    /// Version and git revision of the program.
    pub tonnage: Program,
    /// Measured, skipped or failed.
    pub outcome: Outcome,
    /// True if the plan allows machines that lack the point's requirements. The run then does not fail if this point is
    /// skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// True if the point was skipped or cut short because the run's time limit had passed. The run does not count as
    /// failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_time: bool,
    /// The requested point, and its results.
    #[serde(flatten)]
    pub body: Body,
    /// Configuration actually used by the ranks. Ranks with the same configuration are listed together.
    pub effective: Vec<Effective>,
    /// Environment of the hosts. Hosts with the same environment are listed together.
    pub environment: Vec<HostGroup>,
    /// Sockets of the threads that exchange bytes with each other. Absent if some are on different hosts, are not
    /// pinned, or run on CPUs for which the kernel reports no socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed: Option<Placed>,
    /// Result of a cache-line ping-pong before and after the point. It shows whether the path between two CPUs changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// Upper bound that utilization refers to. Parts that have bounds of their own, such as phases, store these bounds
    /// themselves.
    #[serde(alias = "limit", default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Counters of the devices that the payload had to cross. Absent if the engine names none, or if the point was not
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_proof: Option<WireProof>,
    /// Interfaces, queueing disciplines, congestion control and buffers of the TCP sockets that the engine had open.
    /// Absent for engines without TCP sockets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_paths: Vec<NetworkPath>,
    /// CPU time that ranks did not get during their trials, because a quota was used up or their CPUs ran other
    /// threads. Lists at most 16 ranks: those that lost the most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_losses: Vec<CpuLoss>,
    /// Remarks that a reader must know, such as a file system's limitations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Published figures for this point, one entry from each published table of the plan that contains it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published_rows: Vec<PublishedRow>,
    /// Number of the repetition of the plan, counted from 0. Absent unless the plan was repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repetition: Option<u32>,
    /// The side of a comparison that this point was measured for. Absent unless the run measured two sides in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    /// CRC-32 of the line before this key, in eight hexadecimal digits; `None` in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

/// A record of a known kind: the envelope, and the body with its concrete type.
#[derive(Debug)]
pub struct TypedRecord<'a, B> {
    /// The whole record.
    pub record: &'a Record,
    /// The record's body.
    pub body: &'a B,
}

impl<B> Copy for TypedRecord<'_, B> {}

impl<B> Clone for TypedRecord<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

/// Lets callers use the envelope's fields directly on a typed record.
impl<B> std::ops::Deref for TypedRecord<'_, B> {
    type Target = Record;

    fn deref(&self) -> &Record {
        self.record
    }
}

/// Published figures for the point of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PublishedRow {
    /// The machine on which the figures were measured, and anything else that a reader must know.
    pub what: String,
    /// Headers, as tables print them, with the published units.
    pub columns: Vec<String>,
    /// One value per column.
    pub row: Vec<PublishedCell>,
}

/// The program that wrote a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Program {
    /// Cargo's version.
    pub version: String,
    /// Commit that the program was built from, with "-dirty" if the tree had changes; "unknown" outside a checkout.
    pub git_revision: String,
}

/// Result of the cache-line ping-pong between the CPUs of the first pair, before and after the point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Canary {
    /// The canary ran.
    Measured {
        /// CPUs that exchanged the cache line.
        cpus: [u32; 2],
        /// Median one-way time before the point.
        before_ns: f64,
        /// Median one-way time after the point.
        after_ns: f64,
        /// True if the two times differ by more than a fifth: the path between the two CPUs changed. On virtual
        /// machines, the time may switch between two values that differ this much. The trials show whether the results
        /// changed too.
        changed: bool,
    },
    /// The canary could not run.
    Skipped {
        /// Why it could not run, and what to do about it.
        why: String,
    },
}

/// If rates and latencies of the trials differ by at most this fraction, the machine is assumed not to have changed.
const TRIALS_AGREE: f64 = 0.1;

/// A doubt about a point: its canary changed, and its trials disagree or cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CanaryDoubt {
    /// CPUs that exchanged the cache line.
    pub cpus: [u32; 2],
    /// Median one-way time before the point.
    pub before_ns: f64,
    /// Median one-way time after the point.
    pub after_ns: f64,
    /// Difference between the fastest and the slowest trial, as a fraction of the slowest; `None` for a single trial.
    pub trials_differ_by: Option<f64>,
}

/// Returns the relative difference between the fastest and the slowest trial, by rate or by latency, whichever is
/// larger. `None` for fewer than two trials.
fn differ_by(trials: &[Trial]) -> Option<f64> {
    let range = |values: Vec<f64>| {
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        (values.len() > 1 && least > 0.0).then_some(most / least - 1.0)
    };
    let rates = range(trials.iter().map(|it| it.message_rate_per_s).collect())?;
    let latencies = range(trials.iter().filter_map(|it| it.latency_ns_mean).collect());
    Some(rates.max(latencies.unwrap_or(0.0)))
}

/// A record of kind transfer.
pub type TransferRecord<'a> = TypedRecord<'a, TransferBody>;

/// A record of kind file.
pub type FileRecord<'a> = TypedRecord<'a, FileBody>;

/// A record of kind connect.
pub type ConnectRecord<'a> = TypedRecord<'a, ConnectBody>;

/// A record of kind stress.
pub type StressRecord<'a> = TypedRecord<'a, StressBody>;
/// A record of kind tune.
pub type TuneRecord<'a> = TypedRecord<'a, TuneBody>;
/// A record of kind collective.
pub type CollectiveRecord<'a> = TypedRecord<'a, CollectiveBody>;

impl Record {
    /// Returns whether nothing went wrong: the point was measured with all its parts, or skipped because it is optional
    /// or the time limit of the run had passed.
    pub fn is_fine(&self) -> bool {
        match self.outcome {
            Outcome::Measured => self.optional || !self.body.any().lacks_a_part(),
            Outcome::Skipped { .. } => self.optional || self.out_of_time,
            Outcome::Failed { .. } => false,
        }
    }

    /// Returns a doubt if the canary changed around this point. `None` if the trials agree, because the results then
    /// did not change.
    pub fn canary_doubt(&self) -> Option<CanaryDoubt> {
        let Some(Canary::Measured {
            cpus,
            before_ns,
            after_ns,
            changed: true,
        }) = self.canary
        else {
            return None;
        };
        let trials_differ_by = self.transfer().and_then(|body| differ_by(&body.trials));
        let doubt = CanaryDoubt {
            cpus,
            before_ns,
            after_ns,
            trials_differ_by,
        };
        let agree = trials_differ_by.is_some_and(|by| by <= TRIALS_AGREE);
        (!agree).then_some(doubt)
    }

    /// Returns the words that reports print for a skipped record.
    pub fn skip_reason(&self) -> &'static str {
        if self.out_of_time {
            "out of time"
        } else if self.optional {
            "skipped (optional)"
        } else {
            "skipped"
        }
    }

    /// Returns the sockets of the threads that exchange bytes: the actual sockets, or the requested ones if the actual
    /// ones were not recorded.
    pub fn placement(&self) -> Option<Placed> {
        let asked = self.body.any().options().place.map(Placed::from);
        self.placed.or(asked)
    }

    /// Returns the record with its typed body, if the record is of this kind.
    pub fn of_kind<B: Kind>(&self) -> Option<TypedRecord<'_, B>> {
        let body = B::of(&self.body)?;
        Some(TypedRecord { record: self, body })
    }
}

macro_rules! accessors {
    ($($(#[doc = $about:literal])+ $Kind:ident = $name:literal: $module:ident::$Body:ident { $body:ident, $record:ident };)+) => {
        impl Record {
            $(
                #[doc = concat!("The body, if it is a [`", stringify!($Body), "`](", "kinds::", stringify!($module), "::", stringify!($Body), ").")]
                pub fn $body(&self) -> Option<&kinds::$module::$Body> {
                    kinds::Kind::of(&self.body)
                }

                #[doc = concat!("The record, if its body is a [`", stringify!($Body), "`](", "kinds::", stringify!($module), "::", stringify!($Body), ").")]
                pub fn $record(&self) -> Option<TypedRecord<'_, kinds::$module::$Body>> {
                    self.of_kind()
                }
            )+
        }
    };
}

with_kinds!(accessors);
