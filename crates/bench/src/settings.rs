//! Settings of a run that are not part of any point. Points are in `tonnage_plan`.

use tonnage_engine::{Libraries, Lists};
use tonnage_machine::{Choice, Topology};
use tonnage_record::Program;
use tonnage_sys::clock::Clock;
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// Settings of a run that are not part of any point.
#[derive(Clone)]
pub struct Settings {
    /// The plan's name, for the records.
    pub plan: String,
    /// CPUs that workers are pinned to.
    pub cpus: Choice,
    /// Source of memory.
    pub numa: Numa,
    /// Devices that engines use; empty when each is to choose.
    pub devices: Vec<String>,
    /// Libraries to load instead of those that engines find.
    pub libraries: Libraries,
    /// The engines and memories of the program.
    pub lists: Lists,
    /// Calibrated once, before anything is timed.
    pub clock: Clock,
    /// The program that writes the records.
    pub program: Program,
}

/// The NUMA node that a worker's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numa {
    /// The node of the worker's CPU.
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
