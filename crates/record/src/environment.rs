//! What was really done, and on which hosts: ranks and hosts with the same answer are described together, so that a
//! record of 44,000 ranks stays small.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
