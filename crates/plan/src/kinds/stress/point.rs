//! A point of a stress: all values that determine its random transfers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kind::AnyPoint;
use tonnage_engine::{EngineOptions, Verb};
use tonnage_units::Nanos;

/// One stress. Every field is explicit: defaults were filled in when the plan was expanded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StressPoint {
    /// Heading under which tables list the point, if the plan gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Engines that take turns, joined by commas as in `--engine`.
    pub engine: String,
    /// The engines' own options that differ from their defaults.
    #[serde(default, skip_serializing_if = "EngineOptions::is_empty")]
    pub engine_options: EngineOptions,
    /// Ranks of the run.
    pub ranks: u32,
    /// Operations to draw from. Each engine uses only those that it supports.
    pub ops: Vec<Verb>,
    /// Largest payload of one operation.
    pub size_bytes_max: u32,
    /// Numbers of threads to draw from.
    #[serde(alias = "workers")]
    pub threads: Vec<u32>,
    /// Memories to draw from, joined by commas as in `--memory`.
    pub memory: String,
    /// Seed of the draws.
    pub seed: u64,
    /// Time after which no further transfer is drawn.
    pub duration_ns: u64,
}

impl StressPoint {
    /// Names of the engines.
    pub fn engines(&self) -> impl Iterator<Item = &str> {
        self.engine.split(',')
    }

    /// Names of the memories.
    pub fn memories(&self) -> impl Iterator<Item = &str> {
        self.memory.split(',')
    }
}

impl AnyPoint for StressPoint {
    fn planned_time(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.duration_ns))
    }

    fn engines(&self) -> Vec<&str> {
        self.engines().collect()
    }

    fn threads(&self) -> u32 {
        self.threads.iter().copied().max().unwrap_or(1)
    }

    fn name(&self) -> String {
        format!("engine {}, stress of seed {}", self.engine, self.seed)
    }

    fn progress(&self) -> String {
        format!(
            "stress of {} for {}, seed {}",
            self.engine,
            Nanos(self.duration_ns),
            self.seed
        )
    }

    fn crosses_devices(&self) -> bool {
        false
    }
}
