//! A point of an experiment with collectives. Every value is fixed except the backend: the trials of several backends
//! alternate.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::groups::{Grouping, Groups};
use crate::kind::{AnyPoint, EngineFacts};
use crate::point::BoundChoice;
use crate::point::is_default;
use crate::transfer::PointLength;
use tonnage_collective::{Algorithm, Collective, Dtype, Reduction, Shape};
use tonnage_engine::backend::BackendVariant;
use tonnage_engine::{EngineOptions, Lists};
use tonnage_units::{Bytes, PairPlace, Result};

tonnage_units::names! {
    /// Alignment of the ranks before each call.
    pub enum Align: "alignment" {
        /// The library's own barrier, outside the clock.
        Barrier = "barrier",
        /// None: calls follow each other.
        None = "none",
    }
}

tonnage_units::names! {
    /// When inputs are written again.
    pub enum Refill: "refill" {
        /// Before each iteration.
        Iteration = "iteration",
        /// Before each trial.
        Trial = "trial",
    }
}

tonnage_units::names! {
    /// Combination of the ranks' times of an iteration.
    pub enum RankTime: "combination" {
        /// Time of the slowest rank.
        Max = "max",
        /// Mean of the times.
        Mean = "mean",
        /// Time of the fastest rank.
        Min = "min",
    }
}

/// Default Python of torch backends.
pub(super) const PYTHON_DEFAULT: &str = "python3";

/// Prefix of the names of native backends.
const NATIVE: &str = "native:";

/// One cell of a sweep. Every field is explicit: defaults were filled in when the plan was expanded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CollectivePoint {
    /// Heading under which tables list the point, if the plan gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Backends, as in `--backend`. Their trials alternate.
    pub backends: Vec<String>,
    /// Options of the engines of native backends that differ from their defaults.
    #[serde(default, skip_serializing_if = "EngineOptions::is_empty")]
    pub engine_options: EngineOptions,
    /// Operation.
    #[serde(deserialize_with = "Collective::deserialize_recorded")]
    pub op: Collective,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Combination of the elements; absent if the operation does not reduce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction: Option<Reduction>,
    /// Root of a rooted operation, counted within its group; 0 otherwise.
    pub root: u32,
    /// True when results replace the inputs, if the backend supports both.
    pub in_place: bool,
    /// Requested size. It is the bytes of each rank for all-reduce, reduce, broadcast and send-recv-*, the bytes of all
    /// ranks together for other operations, and 0 for a barrier.
    pub size_bytes: u64,
    /// Elements of one block, which a rank sends to or receives from one other rank.
    pub block_elements: u64,
    /// Ranks of the run.
    pub ranks: u32,
    /// Groups of ranks that call at once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub groups: Groups,
    /// Algorithm of native backends; absent if the warm-up chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// Longest message of native backends; absent if the warm-up chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Alignment before each call.
    pub align: Align,
    /// When inputs are written again.
    pub refill: Refill,
    /// Memory that the elements live in.
    pub memory: String,
    /// Sockets of ranks that exchange bytes, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<PairPlace>,
    /// Seed of the data.
    pub seed: u64,
    /// Python of torch backends.
    #[serde(default = "python_default", skip_serializing_if = "is_python_default")]
    pub python: String,
    /// Longest time of one call.
    pub timeout_ns: u64,
    /// True when the last iteration of each trial is checked.
    pub verify: bool,
    /// How the times of all ranks become one time in tables: their maximum, mean or minimum.
    pub across: RankTime,
    /// True when each rank is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_rank: bool,
    /// True when a line is printed for each call of each rank.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub each: bool,
    /// Upper bound of bus bandwidth.
    #[serde(alias = "limit")]
    pub bound: BoundChoice,
    /// Length of the measurement.
    pub length: PointLength,
}

fn python_default() -> String {
    PYTHON_DEFAULT.to_owned()
}

fn is_python_default(python: &String) -> bool {
    python == PYTHON_DEFAULT
}

impl CollectivePoint {
    /// Returns how the ranks are divided into groups.
    pub fn grouping(&self) -> Grouping {
        Grouping::from_checked(self.groups, self.ranks)
    }

    /// Returns the shape of one group's call.
    pub fn shape(&self) -> Shape {
        Shape {
            op: self.op,
            ranks: self.grouping().size(),
            root: self.root,
            dtype: self.dtype,
            block: self.block_elements,
        }
    }
}

impl AnyPoint for CollectivePoint {
    fn least_time(&self) -> Duration {
        self.length.least_time()
    }

    fn planned_time(&self) -> Option<Duration> {
        self.length.planned_time()
    }

    /// Returns the engines of the point's native backends.
    fn engines(&self) -> Vec<&str> {
        let all = self.backends.iter();
        all.filter_map(|backend| backend.strip_prefix(NATIVE))
            .collect()
    }

    fn engine_facts(&self, lists: &Lists) -> Result<Vec<EngineFacts>> {
        let facts = |name: &String| {
            let (entry, variant) = lists.backend(name)?;
            match entry.variant {
                BackendVariant::Engine => EngineFacts::for_engine(lists, variant),
                BackendVariant::Nothing | BackendVariant::OneOf(_) => Ok(EngineFacts {
                    has_devices: false,
                    libraries: entry.libraries,
                    lifecycle: &entry.lifecycle,
                }),
            }
        };
        self.backends.iter().map(facts).collect()
    }

    fn threads(&self) -> u32 {
        1
    }

    fn socket_placement(&self) -> Option<PairPlace> {
        self.place
    }

    fn name(&self) -> String {
        let (op, dtype, size) = (self.op, self.dtype, self.size_bytes);
        format!("{}, op {op}, {dtype}, size {size}", self.backends.join(","))
    }

    fn progress(&self) -> String {
        let size = match self.op {
            Collective::Barrier => String::new(),
            _ => format!(" {}", Bytes(self.size_bytes)),
        };
        format!("{} {}{size}", self.backends.join(","), self.op)
    }
}
