//! CPUs that this process may use, and the cores, sockets and NUMA nodes that they share, as read from the kernel.
//! [`super::placement`] decides which worker runs on which CPU.

use std::collections::BTreeMap;

use rustix::thread::{CpuSet, sched_getaffinity};

use super::kernel_files::Tree;
use tonnage_units::number_list;

/// One logical CPU that is online.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub id: u32,
    /// The physical core, unique on the host. It is identified by the lowest number among the CPUs that share it.
    pub core: u32,
    /// The socket's number; `None` if the kernel does not report it, as on some virtual machines.
    pub package: Option<u32>,
    /// The NUMA node; 0 if the kernel lists none.
    pub node: u32,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number.
    pub id: u32,
    /// The node's online CPUs, ascending; empty for a memory-only node.
    pub cpus: Vec<u32>,
    /// Size of its memory, if the kernel reports it.
    pub memory_bytes: Option<u64>,
    /// Size of its free memory.
    pub memory_free_bytes: Option<u64>,
}

/// The online CPUs and NUMA nodes of this host, and the CPUs that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// All online CPUs, ascending.
    pub cpus: Vec<Cpu>,
    /// All NUMA nodes, ascending; a single one if the kernel lists none.
    pub nodes: Vec<Node>,
    /// The CPUs that this process may use, ascending; all CPUs if the kernel does not report them.
    pub allowed: Vec<u32>,
}

impl Topology {
    /// Reads this host's topology. It cannot fail: without information, it assumes one socket, one node, and a core for
    /// every CPU.
    ///
    /// The kernel answers for the calling thread, and a pinned thread may use only one CPU. So read the topology before
    /// threads are pinned, and pass it down.
    pub fn read() -> Self {
        Self::read_from(&Tree::host(), allowed_cpus())
    }

    /// Reads the machine laid out in `tree`, for a process that may use the CPUs in `allowed`. If `allowed` is empty,
    /// it may use all CPUs.
    pub fn read_from(tree: &Tree, allowed: Vec<u32>) -> Self {
        let online = tree.text("sys/devices/system/cpu/online");
        let online = online.and_then(|text| number_list::parse(&text).ok());
        let online = sorted(online.unwrap_or_else(|| allowed.clone()));
        let nodes = read_nodes(tree, &online);
        let cpus = read_cpus(tree, &online, &nodes);
        Self {
            cpus,
            nodes,
            allowed: sorted(if allowed.is_empty() { online } else { allowed }),
        }
    }

    /// Returns the CPU with this number; `None` if it is not online.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        let at = self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok()?;
        self.cpus.get(at)
    }

    /// Returns the NUMA node of a CPU.
    pub fn numa_node_of_cpu(&self, id: u32) -> Option<u32> {
        self.cpu(id).map(|cpu| cpu.node)
    }

    /// Returns the online CPUs of a NUMA node, ascending; empty if the node is memory-only or does not exist.
    pub fn cpus_of_node(&self, node: u32) -> &[u32] {
        let node = self.nodes.iter().find(|n| n.id == node);
        node.map_or(&[], |n| &n.cpus)
    }

    /// Returns the NUMA node to allocate this CPU's memory on: the CPU's own node if it has memory, else the lowest
    /// node that has some.
    pub fn memory_node_of_cpu(&self, id: u32) -> Option<u32> {
        let has_memory = |node: &&Node| node.memory_bytes.is_none_or(|bytes| bytes > 0);
        let own = self.numa_node_of_cpu(id)?;
        let mut with_memory = self.nodes.iter().filter(has_memory);
        let lowest = with_memory.clone().next()?.id;
        let is_own = |node: &&Node| node.id == own;
        Some(with_memory.find(is_own).map_or(lowest, |node| node.id))
    }

    /// Returns the NUMA node to allocate memory on for the first CPU that this process may use.
    pub fn first_memory_node(&self) -> Option<u32> {
        let first = self.allowed.first();
        first.and_then(|&cpu| self.memory_node_of_cpu(cpu))
    }

    /// Returns the socket of a CPU; `None` if unknown.
    pub fn socket_of_cpu(&self, id: u32) -> Option<u32> {
        self.cpu(id)?.package
    }

    /// Returns the number of sockets; one if the kernel lists none.
    pub fn sockets(&self) -> u32 {
        let packages = self.cpus.iter().filter_map(|cpu| cpu.package);
        sorted(packages.collect()).len().max(1) as u32
    }

    /// Returns the number of sockets on which this process may use a CPU.
    pub fn allowed_sockets(&self) -> u32 {
        sorted(self.sockets_of_allowed()).len() as u32
    }

    fn sockets_of_allowed(&self) -> Vec<u32> {
        let allowed = self.allowed.iter();
        allowed.filter_map(|&cpu| self.socket_of_cpu(cpu)).collect()
    }

    /// Returns whether pairs can be placed both near and far. The CPUs that this process may use must span two sockets,
    /// and two of them must be on one socket.
    pub fn has_near_and_far(&self) -> bool {
        let (sockets, distinct) = (self.sockets_of_allowed().len(), self.allowed_sockets());
        distinct >= 2 && sockets > distinct as usize
    }

    /// Returns the number of physical cores.
    pub fn cores(&self) -> u32 {
        sorted(self.cpus.iter().map(|cpu| cpu.core).collect()).len() as u32
    }

    /// Returns the largest number of CPUs that share a physical core.
    pub fn threads_per_core(&self) -> u32 {
        let mut threads = BTreeMap::<u32, u32>::new();
        for cpu in &self.cpus {
            *threads.entry(cpu.core).or_default() += 1;
        }
        threads.into_values().max().unwrap_or(1)
    }
}

/// Returns the CPUs of the calling thread's affinity, ascending; a launcher, taskset or a cpuset may have restricted
/// it. Empty if the kernel does not report the affinity, as on a host with more CPUs than a fixed-size set holds.
fn allowed_cpus() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    let numbers = (0u32..).zip(0..CpuSet::MAX_CPU);
    let allowed = numbers.filter(|&(_, cpu)| set.is_set(cpu));
    allowed.map(|(number, _)| number).collect()
}

/// Sorts the numbers and removes duplicates.
fn sorted(mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn read_nodes(tree: &Tree, online: &[u32]) -> Vec<Node> {
    let root = "sys/devices/system/node";
    let list = |text: String| number_list::parse(&text).ok();
    let read = |name: String| {
        let text = |file: &str| tree.text(format!("{root}/{name}/{file}"));
        let mut cpus = text("cpulist").and_then(list).unwrap_or_default();
        cpus.retain(|cpu| online.binary_search(cpu).is_ok());
        let meminfo = text("meminfo").unwrap_or_default();
        Some(Node {
            id: name.strip_prefix("node")?.parse().ok()?,
            cpus,
            memory_bytes: node_memory_bytes(&meminfo, "MemTotal:"),
            memory_free_bytes: node_memory_bytes(&meminfo, "MemFree:"),
        })
    };
    let nodes: Vec<Node> = tree.names(root).into_iter().filter_map(read).collect();
    if !nodes.is_empty() {
        return nodes;
    }
    vec![Node {
        id: 0,
        cpus: online.to_vec(),
        memory_bytes: None,
        memory_free_bytes: None,
    }]
}

/// Returns a value of a node's meminfo, with lines such as "Node 0 MemTotal: 24684084 kB".
fn node_memory_bytes(meminfo: &str, key: &str) -> Option<u64> {
    let (_, value) = meminfo.lines().find_map(|line| line.split_once(key))?;
    let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

fn read_cpus(tree: &Tree, online: &[u32], nodes: &[Node]) -> Vec<Cpu> {
    let node_of: BTreeMap<u32, u32> = nodes
        .iter()
        .flat_map(|node| node.cpus.iter().map(|cpu| (*cpu, node.id)))
        .collect();
    // The files of one CPU describe all CPUs of its core, so the files of its core's other CPUs are not read.
    let mut shared = BTreeMap::<u32, (u32, Option<u32>)>::new();
    let mut cpus = Vec::with_capacity(online.len());
    for &id in online {
        let (core, package) = match shared.get(&id) {
            Some(known) => *known,
            None => {
                let (siblings, package) = read_core(tree, id);
                let core = siblings.iter().copied().min().unwrap_or(id).min(id);
                let siblings = siblings.into_iter();
                let known = siblings.map(|sibling| (sibling, (core, package)));
                shared.extend(known);
                (core, package)
            }
        };
        cpus.push(Cpu {
            id,
            core,
            package,
            node: node_of.get(&id).copied().unwrap_or(0),
        });
    }
    cpus
}

/// Returns the CPUs that share a core with `id`, and the socket's number if the kernel reports it.
fn read_core(tree: &Tree, id: u32) -> (Vec<u32>, Option<u32>) {
    let topology = format!("sys/devices/system/cpu/cpu{id}/topology");
    let siblings = tree.text(format!("{topology}/thread_siblings_list"));
    let siblings = siblings.and_then(|text| number_list::parse(&text).ok());
    let siblings = siblings.unwrap_or(vec![id]);
    // Some ARM machines and virtual machines report -1.
    let package: Option<i64> = tree.number(format!("{topology}/physical_package_id"));
    (siblings, package.and_then(|id| u32::try_from(id).ok()))
}

#[cfg(test)]
mod tests {
    use super::super::kernel_files::invented::Machine;
    use super::*;

    /// Number of sockets, cores, and threads per core.
    fn counts(topology: &Topology) -> (u32, u32, u32) {
        let (sockets, cores) = (topology.sockets(), topology.cores());
        (sockets, cores, topology.threads_per_core())
    }

    #[test]
    fn two_sockets_with_two_threads_per_core() {
        let machine = Machine::new();
        machine.processors(2, 4, 2);
        let topology = Topology::read_from(&machine.tree(), vec![]);
        assert_eq!(counts(&topology), (2, 8, 2));
        assert_eq!(topology.allowed.len(), 16);
        assert_eq!(topology.cpus_of_node(1), [4, 5, 6, 7, 12, 13, 14, 15]);
        let expected = Cpu {
            id: 12,
            core: 4,
            package: Some(1),
            node: 1,
        };
        assert_eq!(topology.cpu(12), Some(&expected));
        assert_eq!(topology.numa_node_of_cpu(16), None);
        assert_eq!(topology.nodes[0].memory_bytes, Some(1 << 20));
        assert_eq!(topology.nodes[1].memory_free_bytes, Some(1 << 19));
    }

    #[test]
    fn a_node_without_memory_borrows_from_one_that_has_some() {
        let machine = Machine::new();
        machine.processors(2, 1, 1);
        machine.file(
            "sys/devices/system/node/node0/meminfo",
            "Node 0 MemTotal: 0 kB",
        );
        let topology = Topology::read_from(&machine.tree(), vec![]);
        assert_eq!(topology.memory_node_of_cpu(0), Some(1));
        assert_eq!(topology.memory_node_of_cpu(1), Some(1));
        assert_eq!(topology.memory_node_of_cpu(2), None);
    }

    #[test]
    fn a_kernel_without_topology_gives_one_node() {
        let topology = Topology::read_from(&Machine::new().tree(), vec![1, 0]);
        assert_eq!(counts(&topology), (1, 2, 1));
        assert_eq!(topology.nodes.len(), 1);
        assert_eq!(topology.memory_node_of_cpu(1), Some(0));
        assert_eq!(topology.allowed, [0, 1]);
        assert_eq!(
            (topology.socket_of_cpu(1), topology.allowed_sockets()),
            (None, 0)
        );
    }

    #[test]
    fn a_socket_that_the_kernel_does_not_name_is_unknown() {
        let machine = Machine::new();
        machine.processors(2, 1, 1);
        let file = "sys/devices/system/cpu/cpu1/topology/physical_package_id";
        machine.file(file, "-1");
        let topology = Topology::read_from(&machine.tree(), vec![]);
        let sockets = [0, 1, 2].map(|cpu| topology.socket_of_cpu(cpu));
        assert_eq!(sockets, [Some(0), None, None]);
        assert_eq!((topology.sockets(), topology.allowed_sockets()), (1, 1));
    }

    #[test]
    fn near_and_far_need_two_sockets_and_two_cpus_on_one() {
        let machine = Machine::new();
        machine.processors(2, 2, 1);
        for (allowed, sockets, both) in [
            (vec![], 2, true),
            (vec![0, 1, 2], 2, true),
            (vec![0, 2], 2, false),
            (vec![2, 3], 1, false),
        ] {
            let topology = Topology::read_from(&machine.tree(), allowed);
            let found = (topology.allowed_sockets(), topology.has_near_and_far());
            assert_eq!(found, (sockets, both), "{:?}", topology.allowed);
        }
    }
}
