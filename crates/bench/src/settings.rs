//! Settings of a run that are not part of a point. `tonnage_plan` has the points.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use crate::kinds::files::ledger::Ledger;
use crate::time_limit::TimeLimit;
use tonnage_engine::{DeviceRequest, Libraries, Lists};
use tonnage_machine::{CpuChoice, Topology};
use tonnage_record::Program;
use tonnage_sys::clock::Clock;
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// Settings of a run that are not part of a point.
#[derive(Clone)]
pub struct Settings {
    /// Name of the plan, which records contain.
    pub plan: String,
    /// This host's CPUs. They are read once per process, before any thread is pinned: pinned threads, and threads
    /// started by these, see only their own CPU.
    pub topology: Arc<Topology>,
    /// How to choose CPUs for workers.
    pub cpus: CpuChoice,
    /// How to choose the NUMA node of memory.
    pub numa: Numa,
    /// Names of devices that engines must use.
    pub devices: DeviceNames,
    /// GPUs that the ranks of a host get in turn; empty if the user named none.
    pub gpus: Vec<u32>,
    /// Link speed to assume if a device does not report one, in bytes per second.
    pub link_bytes_per_s: Option<u64>,
    /// Paths of libraries that replace those that engines find themselves.
    pub libraries: Libraries,
    /// The program's engines and memories.
    pub lists: Lists,
    /// Clock for all measurements. The conductor synchronizes it with the kernel's clock before each timed step.
    pub clock: Clock,
    /// Name and version of the program that writes the records.
    pub program: Program,
    /// Time limit of the whole run, if there is one; the same on all ranks.
    pub time_limit: Option<TimeLimit>,
    /// Number of this repetition, if the plan is repeated.
    pub repetition: Option<u32>,
    /// Ledger of the files that this rank creates, which outlives the rank.
    pub ledger: Option<Ledger>,
}

impl Settings {
    /// Returns the GPU for the rank with this index on its host. `None` if the user named none.
    pub fn gpu(&self, local_rank: u32) -> Option<u32> {
        let place = (local_rank as usize).checked_rem(self.gpus.len())?;
        self.gpus.get(place).copied()
    }
}

/// Names of the devices to use, for all ranks and for individual ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceNames {
    /// Names for all ranks, or the single word `all`; empty if engines choose.
    pub all_ranks: Vec<String>,
    /// Names for individual ranks, which replace those for all ranks.
    pub of_ranks: BTreeMap<u32, Vec<String>>,
    /// Whether workers may leave devices unused. This is not a mistake if other points of the plan use all of them.
    pub may_idle: bool,
}

impl DeviceNames {
    /// The word that means all devices.
    pub const ALL: &'static str = "all";

    /// Returns whether no devices were named.
    pub fn is_empty(&self) -> bool {
        self.all_ranks.is_empty() && self.of_ranks.is_empty()
    }

    /// Returns the devices that one rank requests, and whether they were named for this rank alone. If none are named,
    /// `spans` decides: workers that span devices use all devices of the rank, others their own.
    pub fn request(&self, rank: u32, spans: bool) -> (DeviceRequest<'_>, bool) {
        let own = self.of_ranks.get(&rank);
        let request = match &own.unwrap_or(&self.all_ranks)[..] {
            [] if spans => DeviceRequest::All,
            [] => DeviceRequest::Own,
            [word] if word == Self::ALL => DeviceRequest::All,
            names => DeviceRequest::Named(names),
        };
        (request, own.is_some())
    }
}

/// How to choose the NUMA node of a worker's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Numa {
    /// Use the node of the worker's CPU.
    #[default]
    Auto,
    /// Let the kernel choose.
    None,
    /// Use this node.
    Node(u32),
}

impl Numa {
    /// Returns the node for the memory of a worker on `cpu`; `None` lets the kernel choose.
    ///
    /// # Errors
    /// [`Error::Usage`] if this host has no such node. The message lists the nodes that exist.
    pub fn node(self, topology: &Topology, cpu: Option<u32>) -> Result<Option<u32>> {
        match self {
            // With a single node there is no choice. Besides, some containers forbid NUMA system calls.
            Self::Auto if topology.nodes.len() < 2 => Ok(None),
            Self::Auto => Ok(cpu.and_then(|cpu| topology.memory_node_of_cpu(cpu))),
            Self::None => Ok(None),
            Self::Node(node) => {
                let nodes: Vec<u32> = topology.nodes.iter().map(|node| node.id).collect();
                if nodes.contains(&node) {
                    return Ok(Some(node));
                }
                Err(Error::Usage(format!(
                    "this host has no NUMA node {node}: choose --numa among {}, auto or none",
                    number_list::format(&nodes)
                )))
            }
        }
    }
}

impl FromStr for Numa {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            // Only digits are allowed, because `parse` alone would accept "+3".
            _ if text.bytes().all(|byte| byte.is_ascii_digit())
                && text.len() < 6
                && !text.is_empty() =>
            {
                text.parse().map(Self::Node).map_err(|_| not_a_node(text))
            }
            _ => Err(not_a_node(text)),
        }
    }
}

fn not_a_node(text: &str) -> Error {
    Error::Usage(format!(
        "{text:?} is not a NUMA node: write auto, none or a number"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numa_is_automatic_none_or_a_node() {
        assert_eq!("auto".parse::<Numa>().unwrap(), Numa::Auto);
        assert_eq!("none".parse::<Numa>().unwrap(), Numa::None);
        assert_eq!("1".parse::<Numa>().unwrap(), Numa::Node(1));
        let message = "first".parse::<Numa>().unwrap_err().to_string();
        assert_eq!(
            message,
            "\"first\" is not a NUMA node: write auto, none or a number"
        );
    }
}
