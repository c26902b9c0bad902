//! Memory for a thread's transfers. It is on the NUMA node where the thread runs, and first touched there.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonnage_sys::mapping::{Arena, Pages, Sharing};

use crate::settings::Numa;
use tonnage_engine::memory::MemoryReport;
use tonnage_machine::Topology;
use tonnage_units::Bytes;
use tonnage_units::{Error, Result};

/// CPU and NUMA node that a thread's memory is allocated for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadSource {
    /// The CPU that the thread is pinned to.
    cpu: Option<u32>,
    /// The NUMA node to request; `None` lets the kernel choose.
    node: Option<u32>,
    /// Whether the user requested the node.
    required: bool,
}

#[derive(Debug, Clone)]
pub struct ThreadMemory {
    /// The allocated bytes.
    pub arena: Arc<Arena>,
    /// The NUMA node that was requested and granted.
    asked: Option<u32>,
    /// Why the memory is not bound to the node that the program chose; `None` if it is bound.
    why_not_bound: Option<String>,
}

impl ThreadSource {
    /// Returns CPU and node for the memory of a thread on `cpu`.
    ///
    /// # Errors
    /// [`Error::Usage`] if this host has no such node.
    pub fn for_cpu(numa: Numa, topology: &Topology, cpu: Option<u32>) -> Result<Self> {
        Ok(Self {
            cpu,
            node: numa.node(topology, cpu)?,
            required: matches!(numa, Numa::Node(_)),
        })
    }

    /// Allocates the memory of a thread. First pins the calling thread to the CPU of `self`, because pages that are not
    /// bound come from the node that first touches them.
    pub fn allocate(self, bytes: u64, thread: u32) -> Result<ThreadMemory> {
        if let Some(cpu) = self.cpu {
            tonnage_machine::pin_thread(cpu)?;
        }
        let map = |node| Arena::allocate(bytes as usize, Pages::Normal, Sharing::Private, node);
        let (arena, asked, why_not_bound) = match (map(self.node), self.node) {
            (Err(error), Some(node)) if !self.required => {
                (map(None), None, Some(format!("node {node}: {error}")))
            }
            (arena, node) => (arena, node, None),
        };
        let arena = arena.map_err(|error| {
            let on = self
                .node
                .map(|node| format!(" on NUMA node {node} (choose another --numa, or none)"));
            let what = format!(
                "cannot allocate {} for thread {thread}{}",
                Bytes(bytes),
                on.filter(|_| self.required).unwrap_or_default()
            );
            Error::io(what, error)
        })?;
        Ok(ThreadMemory {
            arena: Arc::new(arena),
            asked,
            why_not_bound,
        })
    }
}

/// Combines the memory of all threads of a rank into one report.
pub fn report<'a>(threads: impl Iterator<Item = &'a ThreadMemory>) -> MemoryReport {
    let (mut bytes, mut pages, mut asked, mut why) = (0, BTreeMap::new(), Vec::new(), None);
    for memory in threads {
        bytes += memory.arena.len() as u64;
        asked.push(memory.asked);
        why = why.or_else(|| memory.why_not_bound.clone());
        // Some containers forbid this query. The nodes are then unknown.
        for (node, count) in memory.arena.nodes().unwrap_or_default() {
            *pages.entry(node).or_default() += count;
        }
    }
    asked.dedup();
    let asked = if let [only] = asked[..] { only } else { None };
    MemoryReport {
        kind: "host".to_owned(),
        bytes,
        why_not_bound: why,
        ..MemoryReport::default()
    }
    .on_nodes(asked, &pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_machine::topology::{Cpu, Node};

    /// Two sockets with a CPU and a node each.
    fn two_nodes() -> Topology {
        let ids = || 0..2u32;
        Topology {
            cpus: ids()
                .map(|id| Cpu {
                    id,
                    core: id,
                    package: Some(id),
                    node: id,
                })
                .collect(),
            nodes: ids()
                .map(|id| Node {
                    id,
                    cpus: vec![id],
                    memory_bytes: Some(1 << 30),
                    memory_free_bytes: Some(1 << 30),
                })
                .collect(),
            allowed: ids().collect(),
        }
    }

    #[test]
    fn a_thread_gets_memory_of_its_own_node() {
        let topology = two_nodes();
        let node =
            |numa, cpu| ThreadSource::for_cpu(numa, &topology, cpu).map(|source| source.node);
        assert_eq!(node(Numa::Auto, Some(1)).unwrap(), Some(1));
        assert_eq!(node(Numa::Auto, Some(0)).unwrap(), Some(0));
        assert_eq!(node(Numa::Auto, None).unwrap(), None);
        assert_eq!(node(Numa::None, Some(1)).unwrap(), None);
        assert_eq!(node(Numa::Node(1), None).unwrap(), Some(1));
        assert!(node(Numa::Node(7), None).is_err());
    }

    #[test]
    fn a_refused_node_is_recorded_or_an_error() {
        let source = |required| ThreadSource {
            cpu: None,
            node: Some(1000),
            required,
        };
        let memory = source(false).allocate(1 << 20, 0).unwrap();
        let report = report([&memory].into_iter());
        assert_eq!((report.bytes, report.numa_asked), (1 << 20, None));
        let why = report.why_not_bound.unwrap();
        assert!(why.starts_with("node 1000: "), "{why}");
        let error = source(true).allocate(1 << 20, 3).unwrap_err().to_string();
        assert!(
            error.contains("thread 3 on NUMA node 1000 (choose another --numa"),
            "{error}"
        );
    }

    #[test]
    fn pages_are_read_back() {
        let memory = ThreadSource::for_cpu(Numa::Auto, &two_nodes(), None).unwrap();
        let memory = memory.allocate(1 << 20, 0).unwrap();
        let report = report([&memory, &memory].into_iter());
        assert_eq!(report.bytes, 2 << 20);
        match memory.arena.nodes() {
            Ok(nodes) => assert!(nodes.contains_key(&report.numa_node.unwrap())),
            Err(error) => println!("skip: the kernel does not report the nodes of pages: {error}"),
        }
    }
}
