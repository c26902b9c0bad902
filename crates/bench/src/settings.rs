//! Settings of a run that are not part of a point. Points are in `tonnage_plan`.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use crate::kinds::files::ledger::Ledger;
use tonnage_engine::{DeviceRequest, Libraries, Lists};
use tonnage_machine::{CpuChoice, Topology};
use tonnage_record::Program;
use tonnage_sys::clock::Clock;
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// Settings of a run that are not part of a point.
#[derive(Clone)]
pub struct Settings {
    /// Name of the plan, for the records.
    pub plan: String,
    /// This host's CPUs, read once per process before any thread is pinned. A pinned thread sees only its own CPU, and
    /// so do the threads that it starts.
    pub topology: Arc<Topology>,
    /// CPUs for pinning workers.
    pub cpus: CpuChoice,
    /// NUMA node for memory.
    pub numa: Numa,
    /// Devices that engines use.
    pub devices: DeviceNames,
    /// GPUs that the ranks of a host get in turn; empty if none were given.
    pub gpus: Vec<u32>,
    /// Bytes per second of links whose devices do not report a speed.
    pub link_bytes_per_s: Option<u64>,
    /// Libraries to load instead of those that engines find themselves.
    pub libraries: Libraries,
    /// The program's engines and memories.
    pub lists: Lists,
    /// The clock for all measurements. The conductor synchronizes it with the kernel's before each step.
    pub clock: Clock,
    /// The program that writes the records.
    pub program: Program,
    /// Number of this repetition of the plan, if there are several.
    pub repetition: Option<u32>,
    /// Ledger of files that this rank creates; it outlives the rank.
    pub ledger: Option<Ledger>,
}

impl Settings {
    /// Returns the GPU of a rank by its index on the host; `None` if none were given.
    pub fn gpu(&self, local_rank: u32) -> Option<u32> {
        let place = (local_rank as usize).checked_rem(self.gpus.len())?;
        self.gpus.get(place).copied()
    }
}

/// Names of the chosen devices, for all ranks and for some of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceNames {
    /// Names for every rank, or the single word `all`; empty if engines choose.
    pub all_ranks: Vec<String>,
    /// Names for one rank, which replace the common ones.
    pub of_ranks: BTreeMap<u32, Vec<String>>,
    /// Whether workers may leave devices unused, because the workers of other points use them all.
    pub may_idle: bool,
}

impl DeviceNames {
    /// The word that means all devices.
    pub const ALL: &'static str = "all";

    /// Whether no devices were chosen.
    pub fn is_empty(&self) -> bool {
        self.all_ranks.is_empty() && self.of_ranks.is_empty()
    }

    /// Returns the request of one rank, and whether it is for this rank alone. If `spans`, its workers use all of its
    /// devices.
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

/// NUMA node for a worker's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Numa {
    /// The node of the worker's CPU.
    #[default]
    Auto,
    /// The kernel's choice.
    None,
    /// This node.
    Node(u32),
}

impl Numa {
    /// Returns the node for a worker on `cpu`; `None` leaves the choice to the kernel.
    ///
    /// # Errors
    /// [`Error::Usage`] if this host has no such node; the message lists the existing ones.
    pub fn node(self, topology: &Topology, cpu: Option<u32>) -> Result<Option<u32>> {
        match self {
            // With one node there is no choice, and some containers forbid the query.
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
            // `parse` alone would accept "+3".
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
