//! A point: one cell of a sweep, with everything fixed. It is what a record repeats word for word, and what
//! `--resume` compares to find out what has been measured already.

use serde::{Deserialize, Serialize};

use tonnage_engine::memory::MemoryKind;
use tonnage_engine::{EngineOptions, Verb};

/// One cell of a sweep. Every field is explicit: defaults were filled in when the plan was expanded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The heading under which the plan puts it, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Engine name, as in `--engine`, with what follows its colon.
    pub engine: String,
    /// The engine's own options that differ from their defaults.
    #[serde(default, skip_serializing_if = "EngineOptions::is_empty")]
    pub engine_options: EngineOptions,
    /// What each operation does.
    pub op: Verb,
    /// Who talks to whom.
    pub traffic: Traffic,
    /// Ranks of the run.
    pub ranks: u32,
    /// Pinned threads in each rank, each with its own engine.
    pub workers: u32,
    /// Payload bytes of one operation, 1 or more.
    pub size_bytes: u32,
    /// How operations are issued.
    pub pacing: Pacing,
    /// Where the bytes live.
    pub memory: MemoryKind,
    /// Bytes over which the operations of one lane walk: a whole number of strides.
    pub footprint_bytes: u64,
    /// Distance between the starts of two neighbouring slots.
    pub stride_bytes: u64,
    /// In which order slots are used.
    pub addresses: Addresses,
    /// Seeds addresses and data.
    pub seed: u64,
    /// Whether each operation's (or batch's) latency is recorded; off costs no clock read per operation.
    pub latency: bool,
    /// Whether every trial's bytes are checked, outside the clock.
    pub verify: bool,
    /// What the bandwidth is set beside.
    pub limit: LimitChoice,
    /// How long it is measured.
    pub length: Length,
}

impl Point {
    /// Slots in the footprint of one lane, at least 1.
    pub fn slots(&self) -> u64 {
        (self.footprint_bytes / self.stride_bytes.max(1)).max(1)
    }

    /// Operations that one lane may have in flight.
    pub fn depth(&self) -> u32 {
        match self.pacing {
            Pacing::PingPong => 1,
            Pacing::Stream { window } | Pacing::Paced { window, .. } => window,
            Pacing::Batch { batch } => batch,
        }
    }
}

/// Who talks to whom. An initiator posts the operations; for a read the bytes flow towards it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// Rank i of the first half with rank i + N/2: initiator i, target i. N is even.
    Pair,
    /// Rank 0 initiates to every other rank at once (1 → N).
    FanOut,
    /// Every other rank initiates to rank 0 at once (N → 1, incast).
    FanIn,
    /// Every rank initiates to every other.
    AllToAll,
}

impl Traffic {
    /// All patterns.
    pub const ALL: [Self; 4] = [Self::Pair, Self::FanOut, Self::FanIn, Self::AllToAll];

    /// The name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::FanOut => "fan-out",
            Self::FanIn => "fan-in",
            Self::AllToAll => "all-to-all",
        }
    }

    /// The targets of `rank` among `ranks`, ascending. Empty when it only serves.
    pub fn targets(self, rank: u32, ranks: u32) -> Vec<u32> {
        match self {
            Self::Pair if rank < ranks / 2 => vec![rank + ranks / 2],
            Self::FanOut if rank == 0 => (1..ranks).collect(),
            Self::FanIn if rank != 0 => vec![0],
            Self::AllToAll => (0..ranks).filter(|&other| other != rank).collect(),
            _ => Vec::new(),
        }
    }

    /// The ranks that initiate towards `rank`, ascending.
    pub fn initiators(self, rank: u32, ranks: u32) -> Vec<u32> {
        match self {
            Self::Pair if rank >= ranks / 2 && rank < ranks / 2 * 2 => vec![rank - ranks / 2],
            Self::FanOut if rank != 0 => vec![0],
            Self::FanIn if rank == 0 => (1..ranks).collect(),
            Self::AllToAll => (0..ranks).filter(|&other| other != rank).collect(),
            _ => Vec::new(),
        }
    }
}

/// How operations are issued.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Pacing {
    /// One operation, then wait for the answer.
    PingPong,
    /// A true sliding window: a new operation for every one that completes.
    Stream {
        /// Operations in flight on each lane.
        window: u32,
    },
    /// Post a batch, wait for all of it.
    Batch {
        /// Operations of one batch.
        batch: u32,
    },
    /// Open loop: operations are due at fixed times, and latency counts from the time they were due.
    Paced {
        /// Most operations in flight on each lane.
        window: u32,
        /// Operations per second of each initiating rank, shared by its workers.
        rate_per_s: f64,
    },
}

/// In which order the slots of a footprint are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Addresses {
    /// One after the other, round and round.
    Sequential,
    /// A seeded pseudo-random slot for each operation.
    Random,
    /// Always the first slot.
    Fixed,
}

/// What the bandwidth is set beside.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum LimitChoice {
    /// The engine's own limit, measured beside the point.
    Auto,
    /// None is measured and utilization is not reported.
    None,
    /// The user states it.
    Stated {
        /// In bytes per second.
        bytes_per_s: f64,
    },
}

/// How long a point is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Length {
    /// Trials; with `until_ci` the fewest.
    pub trials: u32,
    /// How long one trial is.
    pub trial: TrialLength,
    /// Untimed operations before the first trial, at least this long; 0 turns warming up off.
    pub warmup_ns: u64,
    /// Go on until the 95 % confidence interval of the mean bandwidth is within this fraction of it, on either side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ci: Option<f64>,
    /// With `until_ci`: stop all the same when the trials have taken this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_ns: Option<u64>,
}

/// How long one trial is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialLength {
    /// At least this long; what is in flight then is finished and counted.
    DurationNs(u64),
    /// This many operations of each worker (batches under `batch`, round trips under `ping-pong`).
    Iterations(u64),
}
