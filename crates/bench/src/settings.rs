//! Settings of a run that are not part of any point. Points are in `tonnage_plan`.

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

/// Settings of a run that are not part of any point.
#[derive(Clone)]
pub struct Settings {
    /// The plan's name, for the records.
    pub plan: String,
    /// This host's CPUs, read once by each process before a thread is pinned: a pinned thread sees its own CPU alone, and
    /// so does each thread that it starts.
    pub topology: Arc<Topology>,
    /// CPUs that workers are pinned to.
    pub cpus: CpuChoice,
    /// Source of memory.
    pub numa: Numa,
    /// Devices that engines use.
    pub devices: DeviceNames,
    /// GPUs that the ranks of a host get in turn; empty where none was named.
    pub gpus: Vec<u32>,
    /// Speed of links whose devices do not say it, bytes per second.
    pub link_bytes_per_s: Option<u64>,
    /// Libraries to load instead of those that engines find.
    pub libraries: Libraries,
    /// The engines and memories of the program.
    pub lists: Lists,
    /// The clock of everything that is timed. The conductor lets it follow the kernel's before each step.
    pub clock: Clock,
    /// The program that writes the records.
    pub program: Program,
    /// Number of this repetition of the plan, where there are several.
    pub repetition: Option<u32>,
    /// Ledger of files that this rank makes, for whoever is left when it is killed.
    pub ledger: Option<Ledger>,
}

impl Settings {
    /// The GPU of a rank with this place on its host; `None` where none was named.
    pub fn gpu(&self, local_rank: u32) -> Option<u32> {
        let place = (local_rank as usize).checked_rem(self.gpus.len())?;
        self.gpus.get(place).copied()
    }
}

/// Devices that were named: for all ranks, and for some of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceNames {
    /// Names for every rank, or the one word `all`; empty when engines are to choose.
    pub all_ranks: Vec<String>,
    /// Names for one rank in place of those.
    pub of_ranks: BTreeMap<u32, Vec<String>>,
    /// True where the workers of some points use all devices, so that those of others may leave some unused.
    pub may_idle: bool,
}

impl DeviceNames {
    /// The word that stands for all devices.
    pub const ALL: &'static str = "all";

    /// Returns whether no device was named.
    pub fn is_empty(&self) -> bool {
        self.all_ranks.is_empty() && self.of_ranks.is_empty()
    }

    /// The request of one rank, whose workers use all of its devices if `spans`; and whether it is for this rank alone.
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

/// The NUMA node that a worker's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Numa {
    /// The node of the worker's CPU.
    #[default]
    Auto,
    /// Wherever the kernel takes it.
    None,
    /// This node.
    Node(u32),
}

impl Numa {
    /// The node for a worker on `cpu`; `None` leaves it to the kernel.
    ///
    /// # Errors
    /// [`Error::Usage`] for a node that this host does not have, with those that it has.
    pub fn node(self, topology: &Topology, cpu: Option<u32>) -> Result<Option<u32>> {
        match self {
            // With one node there is nothing to choose, and some containers forbid even asking.
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
            // `parse` alone would take "+3" too.
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
