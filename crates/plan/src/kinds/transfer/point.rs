//! A point of a transfer, with every value fixed.

use std::time::Duration;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::background::Background;
use super::batching::{BatchOf, Batching};
use super::length::PointLength;
use super::loads::PairLoads;
use super::memories::Memories;
use super::paced::Rate;
use super::slots::Slots;
use super::verification::Verification;
use crate::kind::AnyPoint;
use crate::point::{BoundChoice, is_default};
use crate::roles::Roles;
use tonnage_engine::paths::Division;
use tonnage_engine::{EngineOptions, Lists, Verb};
use tonnage_units::{Bytes, PairPlace};

/// One cell of a sweep. Every field is explicit: defaults were filled in when the plan was expanded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TransferPoint {
    /// Heading under which tables list the point, if the plan gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Engine name with its variant, as in `--engine`.
    pub engine: String,
    /// The engine's own options that differ from their defaults.
    #[serde(default, skip_serializing_if = "EngineOptions::is_empty")]
    pub engine_options: EngineOptions,
    /// Operation.
    pub op: Verb,
    /// Initiating ranks and their targets.
    #[serde(flatten)]
    pub roles: Roles,
    /// Bytes of each pair in an execution of a traffic file, with a row for each initiator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loads: Option<PairLoads>,
    /// Pinned threads in each rank, each with its own engine.
    #[serde(alias = "workers")]
    pub threads: u32,
    /// Division of the operations between a thread and a peer over several paths.
    #[serde(flatten)]
    pub division: Division,
    /// Number of positions by which the device lists of ranks that only serve are rotated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rail_shift: u32,
    /// Calls that the measuring loops make. Absent for the engine's own calls.
    #[serde(default, skip_serializing_if = "is_default")]
    pub api: TransferApi,
    /// Session that library calls use. Absent for the engine's own calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionUse>,
    /// Sockets of threads that exchange bytes, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<PairPlace>,
    /// Pacing of operations.
    pub pacing: Pacing,
    /// Batches, if the pacing has them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub batching: Batching,
    /// Background load that some of the threads move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
    /// Way in which threads wait for completions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cq: CqMode,
    /// Kinds of memory of both ends.
    #[serde(flatten)]
    pub memories: Memories,
    /// Slots that operations walk over.
    #[serde(flatten)]
    pub slots: Slots,
    /// True when the latency of each operation (or batch) is recorded. Off saves the clock read of each operation.
    pub latency: bool,
    /// Operations with verified data.
    pub verify: Verification,
    /// True when each initiating rank has figures of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_rank: bool,
    /// Upper bound to compare the bandwidth with.
    #[serde(alias = "limit")]
    pub bound: BoundChoice,
    /// Length of the measurement.
    pub length: PointLength,
}

impl TransferPoint {
    /// Returns whether a lane is released together with its operation.
    pub fn releases_lanes(&self) -> bool {
        self.session.is_some_and(SessionUse::releases_lanes)
    }

    /// Largest number of operations of one batch that a thread posts to a peer: the whole batch, unless the threads of
    /// a rank share it. 0 without batches.
    pub fn batch_share_max(&self) -> u32 {
        match (self.pacing, self.batching.of) {
            (Pacing::Batch { batch }, BatchOf::Thread) => batch,
            (Pacing::Batch { batch }, BatchOf::Rank) => batch.div_ceil(self.threads.max(1)),
            _ => 0,
        }
    }

    /// Number of batches that a rank has in flight towards one peer.
    pub fn batches_to_a_peer(&self) -> u32 {
        let owners = match self.batching.of {
            BatchOf::Thread => self.threads,
            BatchOf::Rank => 1,
        };
        owners.saturating_mul(self.batching.in_flight)
    }

    /// Number of operations of one batch that thread `worker` posts.
    pub fn batch_share(&self, worker: u32) -> u32 {
        match (self.pacing, self.batching.of) {
            (Pacing::Batch { batch }, BatchOf::Rank) => {
                let threads = self.threads.max(1);
                batch / threads + u32::from(worker < batch % threads)
            }
            _ => self.batch_share_max(),
        }
    }

    /// Number of operations that one lane may have in flight.
    pub fn depth(&self) -> u32 {
        match self.pacing {
            Pacing::PingPong => 1,
            Pacing::Stream { depth } | Pacing::Paced { depth, .. } => depth,
            Pacing::Batch { .. } => self
                .batch_share_max()
                .saturating_mul(self.batching.in_flight),
        }
    }
}

impl AnyPoint for TransferPoint {
    fn least_time(&self) -> Duration {
        self.length.least_time()
    }

    fn planned_time(&self) -> Option<Duration> {
        let round = self.length.planned_time()?;
        Some(round.saturating_mul(self.roles.round_count()))
    }

    fn thread_ranks(&self, lists: &Lists) -> Option<u32> {
        let entry = lists.engine(&self.engine).ok()?;
        entry.one_process.then_some(self.roles.ranks)
    }

    fn engines(&self) -> Vec<&str> {
        vec![&self.engine]
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn socket_placement(&self) -> Option<PairPlace> {
        self.place
    }

    fn name(&self) -> String {
        format!(
            "engine {}, op {}, size {}",
            self.engine,
            self.op.name(),
            self.slots.size_bytes
        )
    }

    fn progress(&self) -> String {
        let size = Bytes(self.slots.size_bytes.into());
        let place = self.place.map(|place| format!(", {place}"));
        let place = place.unwrap_or_default();
        format!(
            "{} {} {size}, {}{place}",
            self.engine,
            self.op.name(),
            self.pacing
        )
    }

    fn crosses_devices(&self) -> bool {
        true
    }

    fn spans_devices(&self) -> bool {
        !self.division.rails.is_single()
    }

    fn rail_shift(&self) -> u32 {
        self.rail_shift
    }

    fn without_bound(&self) -> Option<&'static str> {
        match self.bound {
            _ if self.loads.is_some() => {
                Some("--traffic-file, which loads links unevenly: leave it out")
            }
            _ if self.background.is_some() => {
                Some("--background, which shares the path: leave it out")
            }
            BoundChoice::None => Some("--bound none: leave it out, or use --bound auto"),
            BoundChoice::Auto if self.pacing == Pacing::PingPong => Some(
                "--ping-pong, which has one operation in flight: leave it out, or use --depth in place of --ping-pong",
            ),
            BoundChoice::Auto | BoundChoice::Stated { .. } => None,
        }
    }
}

/// Pacing of operations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Pacing {
    /// One operation, then a wait for the answer.
    PingPong,
    /// A true sliding window: a new operation for every one that completes.
    Stream {
        /// Operations in flight on each lane.
        #[serde(alias = "window")]
        depth: u32,
    },
    /// Post a batch, then wait for all its operations.
    Batch {
        /// Operations of one batch.
        batch: u32,
    },
    /// Open loop: operations are due at fixed times, and latency counts from the due time.
    Paced {
        /// Most operations in flight on each lane.
        #[serde(alias = "window")]
        depth: u32,
        /// Rate of each initiating rank.
        #[serde(flatten)]
        rate: Rate,
    },
}

/// Writes a pacing in two or three words, such as `depth 64`.
impl fmt::Display for Pacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PingPong => f.write_str("ping-pong"),
            Self::Stream { depth } => write!(f, "depth {depth}"),
            Self::Batch { batch } => write!(f, "batch {batch}"),
            Self::Paced { rate, .. } => rate.fmt(f),
        }
    }
}

/// Kind of figure that a pacing is meant to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacingAim {
    /// Bandwidth, with as many operations in flight as the depth allows.
    Bandwidth,
    /// Time of one operation that does not wait for others.
    Latency,
    /// Latency of operations at a requested rate. The rate also determines the bandwidth.
    LatencyAtRate,
}

impl Pacing {
    /// Returns the figure that this pacing is meant to measure, which is a point's default metric.
    pub fn aim(self) -> PacingAim {
        match self {
            Self::PingPong => PacingAim::Latency,
            Self::Stream { .. } | Self::Batch { .. } => PacingAim::Bandwidth,
            Self::Paced { .. } => PacingAim::LatencyAtRate,
        }
    }

    /// Name of this pacing, as records have it in `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::PingPong => "ping-pong",
            Self::Stream { .. } => "stream",
            Self::Batch { .. } => "batch",
            Self::Paced { .. } => "paced",
        }
    }
}

tonnage_units::names! {
    /// Way in which threads wait for completions, at both ends.
    pub enum CqMode: "way of waiting", default Busy {
        /// Threads poll without end.
        Busy = "busy",
        /// Threads sleep until the device has an event for them.
        Event = "event",
    }
}

tonnage_units::names! {
    /// Calls by which the loops reach an engine.
    pub enum TransferApi: "api", default Engine {
        /// The engine's own post and poll.
        Engine = "engine",
        /// The library's operations, with tickets that are polled for their end.
        Poll = "poll",
        /// The library's futures: a task for each operation in flight awaits it.
        Async = "async",
    }
}

tonnage_units::names! {
    /// Life of the library's lanes.
    pub enum SessionUse: "session" {
        /// A lane is resolved once.
        On = "on",
        /// Memory and peer are looked up by their names for each operation.
        Off = "off",
        /// A lane is made and released for each operation.
        Fresh = "fresh",
        /// The local memory is registered and deregistered for each operation as well.
        Register = "register",
    }
}

impl SessionUse {
    /// Returns whether a lane is released when its operation ends. A released lane cannot be flushed.
    pub fn releases_lanes(self) -> bool {
        matches!(self, Self::Fresh | Self::Register)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Traffic;
    use crate::testing::transfer_point;
    use crate::transfer::{Access, TargetFootprint};
    use serde_json::{Value, from_value, json};
    use tonnage_engine::paths::{Cut, Rails};

    /// Returns a point in which no key is omitted as a default, and its JSON.
    fn full() -> (TransferPoint, Value) {
        let roles = Roles {
            initiators: Some(1),
            target_shift: 1,
            bidirectional: true,
            ..Roles::new(Traffic::Pair, 3)
        };
        let cut = Cut {
            chunk_bytes: 32,
            chunks_max: 2,
        };
        let point = TransferPoint {
            roles,
            division: Division {
                rails: Rails::Stripe,
                queue_pairs: 2,
                cut: Some(cut),
            },
            rail_shift: 1,
            memories: Memories {
                memory: "host".into(),
                target_memory: Some("huge".into()),
                memory_options: [("alloc".into(), "parts".into())].into(),
            },
            slots: Slots {
                target_footprint: TargetFootprint::Shared,
                local_access: Some(Access::Random),
                ..transfer_point().slots
            },
            ..transfer_point()
        };
        let value = json!({
            "engine": "shm", "op": "write",
            "traffic": "pair", "ranks": 3, "initiators": 1, "target_shift": 1, "bidirectional": true,
            "threads": 1, "rails": "stripe", "rail_shift": 1, "queue_pairs": 2,
            "cut": {"chunk_bytes": 32, "chunks_max": 2},
            "size_bytes": 64, "pacing": {"kind": "stream", "depth": 64},
            "memory": "host", "target_memory": "huge", "memory_options": {"alloc": "parts"},
            "footprint_bytes": 4096, "target_footprint": "shared", "stride_bytes": 64,
            "access": "sequential", "local_access": "random", "seed": 1,
            "latency": true, "verify": false, "bound": {"kind": "auto"},
            "length": {"trials": 5, "trial": {"duration_ns": 200000000}, "warmup_ns": 50000000},
        });
        (point, value)
    }

    #[test]
    fn groups_have_no_level_of_their_own_in_json() {
        let (point, value) = full();
        assert_eq!(serde_json::to_value(&point).unwrap(), value);
        assert_eq!(from_value::<TransferPoint>(value.clone()).unwrap(), point);
        let mut plain = value;
        for key in [
            "initiators",
            "target_shift",
            "bidirectional",
            "rails",
            "rail_shift",
            "queue_pairs",
            "cut",
            "target_memory",
            "memory_options",
            "target_footprint",
            "local_access",
        ] {
            plain.as_object_mut().unwrap().remove(key);
        }
        plain["ranks"] = 2.into();
        assert_eq!(serde_json::to_value(transfer_point()).unwrap(), plain);
        assert_eq!(
            from_value::<TransferPoint>(plain).unwrap(),
            transfer_point()
        );
    }

    #[test]
    fn unknown_and_missing_keys_are_refused_by_name() {
        let (_, value) = full();
        let mut unknown = value.clone();
        unknown["colour"] = "red".into();
        let refused = |value| from_value::<TransferPoint>(value).unwrap_err().to_string();
        let message = refused(unknown);
        assert!(message.contains("unknown field `colour`"), "{message}");
        for key in [
            "traffic",
            "ranks",
            "memory",
            "size_bytes",
            "footprint_bytes",
        ] {
            let mut missing = value.clone();
            missing.as_object_mut().unwrap().remove(key);
            let message = refused(missing);
            assert!(
                message.contains(&format!("missing field `{key}`")),
                "{message}"
            );
        }
    }
}
