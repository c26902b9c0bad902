//! Memory, NUMA nodes and huge pages.

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use super::super::kernel_files::Tree;
use super::super::pages::{HugePool, Transparent, huge_pools, meminfo_bytes, transparent};
use super::super::topology::Topology;
use super::Absent;
use tonnage_units::number_list;

/// Suggested growth of an exhausted pool of huge pages. It is enough for two ranks with buffers of 256 MiB each. A pool
/// of 1 GiB pages grows by two pages instead, one for each rank.
const SUGGESTED_BYTES: u64 = 1 << 30;

/// The memory of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryFound {
    /// Total size; absent if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Memory that programs could allocate without swapping; absent if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// This process's limit on locked memory, which bounds the memory that RDMA can register; absent if unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lockable_bytes: Option<u64>,
    /// Pools of huge pages.
    pub huge_pools: Vec<HugePool>,
    /// Policy for transparent huge pages.
    pub transparent: Transparent,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// The kernel's number.
    pub node: u32,
    /// The node's CPUs, such as "0-15"; empty for a memory-only node.
    pub cpus: String,
    /// Size of its memory; absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Size of its free memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_free_bytes: Option<u64>,
}

pub(super) fn numa_nodes(topology: &Topology) -> Vec<NumaNode> {
    let node = |node: &super::super::topology::Node| NumaNode {
        node: node.id,
        cpus: number_list::format(&node.cpus),
        memory_bytes: node.memory_bytes,
        memory_free_bytes: node.memory_free_bytes,
    };
    topology.nodes.iter().map(node).collect()
}

pub(super) fn find(tree: &Tree, absent: &mut Vec<Absent>) -> MemoryFound {
    let pools = huge_pools(tree);
    if pools.is_empty() {
        absent.push(Absent::new(
            "huge pages",
            "/sys/kernel/mm/hugepages lists no sizes",
            "Use a kernel that is built with CONFIG_HUGETLBFS.",
        ));
    }
    absent.extend(pools.iter().filter(|pool| pool.free == 0).map(empty_pool));
    MemoryFound {
        total_bytes: meminfo_bytes(tree, "MemTotal"),
        available_bytes: meminfo_bytes(tree, "MemAvailable"),
        lockable_bytes: getrlimit(Resource::Memlock).current,
        huge_pools: pools,
        transparent: transparent(tree),
    }
}

fn empty_pool(pool: &HugePool) -> Absent {
    let size = match pool.page_bytes >> 20 {
        0 => format!("{} KiB", pool.page_bytes >> 10),
        mib if mib % 1024 == 0 => format!("{} GiB", mib >> 10),
        mib => format!("{mib} MiB"),
    };
    let why = match pool.total {
        0 => "the pool is empty".to_owned(),
        total => format!("all {total} pages of the pool are in use"),
    };
    let pages = pool.total + (SUGGESTED_BYTES / pool.page_bytes.max(1)).max(2);
    let kib = pool.page_bytes >> 10;
    let file = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages");
    let mut how = format!("Run `echo {pages} | sudo tee {file}`, and check the value afterwards.");
    if pool.page_bytes >= 1 << 30 {
        let gib = pool.page_bytes >> 30;
        how.push_str(&format!(
            " If not enough contiguous memory is left, boot the kernel with `hugepagesz={gib}G hugepages={pages}`."
        ));
    }
    Absent::new(format!("huge pages of {size}"), why, how)
}

#[cfg(test)]
mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::*;

    #[test]
    fn an_empty_pool_comes_with_the_command_that_fills_it() {
        let machine = Machine::new();
        for (size, total, free) in [("2048", "0", "0"), ("1048576", "3", "0"), ("64", "9", "1")] {
            let counts = [("nr_hugepages", total), ("free_hugepages", free)];
            machine.files(
                &format!("sys/kernel/mm/hugepages/hugepages-{size}kB"),
                &counts,
            );
        }
        let mut absent = Vec::new();
        let found = find(&machine.tree(), &mut absent);
        assert_eq!(found.huge_pools.len(), 3);
        assert_eq!(absent.len(), 2, "{absent:?}");
        assert_eq!(absent[0].what, "huge pages of 2 MiB");
        assert_eq!(absent[0].why, "the pool is empty");
        let command = "echo 512 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
        assert!(absent[0].how.contains(command), "{absent:?}");
        assert_eq!(absent[1].what, "huge pages of 1 GiB");
        assert!(absent[1].why.contains("all 3 pages"), "{absent:?}");
        assert!(absent[1].how.contains("echo 5 ") && absent[1].how.contains("hugepagesz=1G"));
    }

    #[test]
    fn nodes_follow_the_topology() {
        let machine = Machine::new();
        machine.processors(2, 2, 1);
        let nodes = numa_nodes(&Topology::read_from(&machine.tree(), vec![]));
        assert_eq!(nodes.len(), 2);
        assert_eq!(
            (&*nodes[1].cpus, nodes[1].memory_bytes),
            ("2-3", Some(1 << 20))
        );
    }
}
