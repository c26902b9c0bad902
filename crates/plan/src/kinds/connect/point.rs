//! A point of an experiment with connections, with every value fixed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kind::AnyPoint;
use crate::point::Traffic;
use crate::roles::Roles;
use tonnage_engine::EngineOptions;
use tonnage_units::{Bytes, PairPlace};

/// One cell of a sweep. Every field is explicit: defaults were filled in when the plan was expanded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConnectPoint {
    /// Heading under which tables list the point, if the plan gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Engine name with its variant, as in `--engine`.
    pub engine: String,
    /// The engine's own options that differ from their defaults.
    #[serde(default, skip_serializing_if = "EngineOptions::is_empty")]
    pub engine_options: EngineOptions,
    /// Pattern of the connections: in pairs, or all to rank 0.
    pub traffic: Traffic,
    /// Ranks of the run.
    pub ranks: u32,
    /// Pinned threads in each rank, each with a connection to each of its peers.
    #[serde(alias = "workers")]
    pub threads: u32,
    /// Sockets of threads that exchange bytes, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<PairPlace>,
    /// Bytes of memory that each thread registers.
    pub register_bytes: u64,
    /// Kind of the registered memory.
    pub memory: String,
    /// Timed repetitions.
    pub trials: u32,
    /// Measured time of one repetition.
    pub trial_ns: u64,
}

impl ConnectPoint {
    /// Number of connections that exist at the same time in all ranks together: one for each pair of connected threads.
    pub fn connections(&self) -> u64 {
        let (initiators, targets) = self.roles().initiating_ranks();
        u64::from(initiators) * u64::from(targets) * u64::from(self.threads)
    }

    /// Ranks that connect to each other.
    pub fn roles(&self) -> Roles {
        Roles::new(self.traffic, self.ranks)
    }
}

impl AnyPoint for ConnectPoint {
    fn least_time(&self) -> Duration {
        Duration::from_nanos(self.trial_ns)
    }

    fn planned_time(&self) -> Option<Duration> {
        let trials_ns = self.trial_ns.saturating_mul(u64::from(self.trials));
        Some(Duration::from_nanos(trials_ns))
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
            "engine {}, threads {}, register {}",
            self.engine,
            self.threads,
            Bytes(self.register_bytes)
        )
    }

    fn progress(&self) -> String {
        let place = self.place.map(|place| format!(", {place}"));
        let place = place.unwrap_or_default();
        format!("{} {} threads{place}", self.engine, self.threads)
    }
}
