//! The envelope: a record around a body of any kind.
//!
//! Bodies are with their kinds ([`crate::kinds`]); accounts of engines and hosts in [`crate::environment`].

use serde::{Deserialize, Serialize};
use tonnage_plan::published::Cell;

use crate::cpu_loss::CpuLoss;
use crate::environment::{Effective, HostGroup, Placed};
use crate::kinds::transfer::Trial;
use crate::kinds::{
    self, Body, CollectiveBody, ConnectBody, FileBody, Kind, StressBody, TransferBody, TuneBody,
    with_kinds,
};
use crate::limit::Limit;
use crate::network_path::NetworkPath;
use crate::outcome::Outcome;
use crate::side::Side;
use crate::wire_proof::WireProof;

/// Version of the format. A reader takes this one and no other.
pub const SCHEMA_VERSION: u32 = 2;

/// One point of a plan and what became of it: one JSON line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// Version of the format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA_VERSION)))]
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
    /// True where the plan lets a machine lack what the point needs: skipped, it is no failure of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// The point that was asked for, and its results.
    #[serde(flatten)]
    pub body: Body,
    /// Real choices of the ranks, ranks with the same answer together.
    pub effective: Vec<Effective>,
    /// Environment of the hosts, hosts with the same answer together.
    pub environment: Vec<HostGroup>,
    /// Sockets of the workers that exchange bytes with each other; absent where some are on different hosts, are not
    /// pinned, or run on CPUs whose sockets the kernel does not name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed: Option<Placed>,
    /// A cache-line ping-pong beside the point, which tells whether the way between two CPUs changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// Upper bound that utilization is a fraction of; parts that have limits of their own, such as phases, hold them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Counts of the devices that the payload had to cross; absent where the engine names none, and unless measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_proof: Option<WireProof>,
    /// Interfaces, queueing disciplines, congestion control and buffers of the TCP sockets that the engine had open;
    /// absent for engines without such sockets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_paths: Vec<NetworkPath>,
    /// CPU time that ranks did not get during their trials, because a quota was used up or their CPUs ran other threads;
    /// the ranks that lost the most, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_losses: Vec<CpuLoss>,
    /// Remarks that a reader has to know: what a read proves, what a file system cannot do, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Figures that others measured in this cell, of each published table of the plan that has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published_rows: Vec<PublishedRow>,
    /// Number of the repetition of the plan, counted from 0; absent unless it was measured several times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repetition: Option<u32>,
    /// The side of a comparison that it was measured for; absent unless two sides took turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    /// CRC-32 of the line before this key, in eight hexadecimal digits; `None` in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
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

/// Figures that others measured in the cell of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PublishedRow {
    /// The machine, and whatever a reader has to know.
    pub what: String,
    /// Headers, as tables print them, with the published units.
    pub columns: Vec<String>,
    /// Values, as many as there are columns.
    pub row: Vec<Cell>,
}

/// The program that wrote a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Program {
    /// Cargo's version.
    pub version: String,
    /// Commit that it was built from, with "-dirty" when the tree had changes; "unknown" outside a checkout.
    pub git_revision: String,
}

/// The cache-line ping-pong between the CPUs of the first pair, before and after the point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        /// True when the two differ by more than a fifth: the way between the two CPUs changed. Virtual machines switch
        /// between two such times. Whether the figures changed with it, the trials show.
        changed: bool,
    },
    /// It could not run.
    Skipped {
        /// Reason, and what to do.
        why: String,
    },
}

/// Trials whose rates and latencies are this close together show no change of the machine.
const TRIALS_AGREE: f64 = 0.1;

/// A canary that changed around a point whose trials do not agree, or show nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CanaryDoubt {
    /// CPUs that it ran on.
    pub cpus: [u32; 2],
    /// One way, median, before the point.
    pub before_ns: f64,
    /// One way, median, after the point.
    pub after_ns: f64,
    /// Distance of the slowest trial from the fastest, as a part of the slowest; `None` for a single trial.
    pub trials_differ_by: Option<f64>,
}

/// Distance of the slowest trial from the fastest, by rate or by latency, whichever is larger; `None` for fewer than two
/// trials.
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

/// A record of a transfer.
pub type TransferRecord<'a> = Of<'a, TransferBody>;

/// A record of a file experiment.
pub type FileRecord<'a> = Of<'a, FileBody>;

/// A record of an experiment with connections.
pub type ConnectRecord<'a> = Of<'a, ConnectBody>;

/// A record of a stress.
pub type StressRecord<'a> = Of<'a, StressBody>;
/// A record of a search.
pub type TuneRecord<'a> = Of<'a, TuneBody>;
/// A record of collectives.
pub type CollectiveRecord<'a> = Of<'a, CollectiveBody>;

impl Record {
    /// Returns whether nothing went wrong: it was measured with all its parts, or is optional and was skipped, whole or
    /// in part.
    pub fn is_fine(&self) -> bool {
        match self.outcome {
            Outcome::Measured => self.optional || !self.body.any().lacks_a_part(),
            Outcome::Skipped { .. } => self.optional,
            Outcome::Failed { .. } => false,
        }
    }

    /// A canary that changed around this point, if the trials do not show that its figures stayed the same.
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

    /// The words for a skip.
    pub fn skipped(&self) -> &'static str {
        if self.optional {
            "skipped, which the plan allows"
        } else {
            "skipped"
        }
    }

    /// Sockets of the workers that exchange bytes: as they were, or as they were asked for where nothing was placed.
    pub fn place(&self) -> Option<Placed> {
        let asked = self.body.any().options().place.map(Placed::from);
        self.placed.or(asked)
    }

    /// The record with its body, if it is of this kind.
    pub fn of_kind<B: Kind>(&self) -> Option<Of<'_, B>> {
        let body = B::of(&self.body)?;
        Some(Of { record: self, body })
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
                pub fn $record(&self) -> Option<Of<'_, kinds::$module::$Body>> {
                    self.of_kind()
                }
            )+
        }
    };
}

with_kinds!(accessors);
