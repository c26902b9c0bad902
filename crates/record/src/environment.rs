//! Configuration that ranks used, and their hosts. Equal ranks and equal hosts are described once, so that even a
//! record of 44,000 ranks stays small.

use serde::{Deserialize, Serialize};
use tonnage_engine::EngineReport;
use tonnage_engine::memory::MemoryReport;
use tonnage_units::{PairPlace, number_list};

/// The effective configuration shared by some ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Effective {
    /// Ranks with this configuration, such as "0-3,8".
    pub ranks: String,
    /// The engine's report: its name, library, provider and device, and its choices.
    pub engine: EngineReport,
    /// The memory actually allocated, and the reason if it is less than requested.
    pub memory: Memories,
    /// CPU of each thread, `null` if not pinned.
    pub cpus: Vec<Option<u32>>,
    /// Socket of each of these CPUs, `null` if the thread is not pinned or the kernel reports no socket. Absent in
    /// records of files and of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<Option<u32>>,
    /// True if the host has more threads than CPUs. Waiting threads then yield their CPU instead of spinning.
    pub yielding: bool,
}

tonnage_units::names! {
    /// Actual sockets of the threads that exchange bytes with each other.
    pub enum Placed: "place of pairs" {
        /// In each pair, initiator and target are on one socket.
        Near = "near",
        /// In each pair, initiator and target are on different sockets.
        Far = "far",
        /// Some pairs are on one socket, others on two.
        Mixed = "mixed",
    }
}

impl Placed {
    /// Whether this matches the requested placement.
    pub fn matches(self, asked: PairPlace) -> bool {
        self == Self::from(asked)
    }

    /// Returns a description for titles of tables.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Near => PairPlace::Near.describe(),
            Self::Far => PairPlace::Far.describe(),
            Self::Mixed => "some peers on one socket, some on two",
        }
    }
}

impl From<PairPlace> for Placed {
    fn from(place: PairPlace) -> Self {
        match place {
            PairPlace::Near => Self::Near,
            PairPlace::Far => Self::Far,
        }
    }
}

/// Memory of a rank's threads. If it is equal for all threads, it is described once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Memories {
    /// Memory of each thread, if they differ.
    Several(Vec<MemoryReport>),
    /// Memory of every thread.
    Alike(Box<MemoryReport>),
}

impl Memories {
    /// Returns the descriptions as a slice.
    pub fn all(&self) -> &[MemoryReport] {
        match self {
            Self::Several(all) => all,
            Self::Alike(one) => std::slice::from_ref(&**one),
        }
    }
}

impl Default for Memories {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl From<Vec<MemoryReport>> for Memories {
    fn from(mut all: Vec<MemoryReport>) -> Self {
        match (all.len(), all.pop()) {
            (1, Some(one)) => Self::Alike(Box::new(one)),
            (_, last) => Self::Several(all.into_iter().chain(last).collect()),
        }
    }
}

/// Hosts with the same environment, described once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostGroup {
    /// Ranks on these hosts, such as "0-3,8".
    pub ranks: String,
    /// Launcher, and how the ranks found each other: "tonnage --ranks", "OMPI_COMM_WORLD_*, PMIx", …
    pub launcher: String,
    /// CPU model, governor, kernel, NUMA nodes, huge pages, library versions, …
    pub machine: tonnage_machine::Environment,
    /// Hosts of the group, each with its differences from `machine`.
    pub hosts: Vec<HostEntry>,
}

/// One host of a group of hosts that have the same environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostEntry {
    /// The host's name.
    pub name: String,
    /// Ranks on this host, such as "0-3,8".
    pub ranks: String,
    /// Offset of this host's clock from rank 0's: subtract it from a local time. 0 on rank 0's own host.
    pub clock_offset_ns: i64,
    /// Largest possible error of the offset at the start of the point: half the best round trip, plus 100 ppm of the
    /// estimate's age.
    pub clock_uncertainty_ns: u64,
    /// Memory of this host; absent if it equals the group's amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Free huge pages of this host, in the order of the group's pools; absent if they equal the group's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages_free: Option<Vec<u64>>,
}

/// One host as its first rank describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct DescribedHost {
    /// Description of the host.
    pub machine: tonnage_machine::Environment,
    /// Ranks on the host.
    pub ranks: Vec<u32>,
    /// Name and clock of the host.
    pub host: HostEntry,
}

/// Amounts of memory, which differ slightly even between otherwise identical hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnMemory {
    total_bytes: Option<u64>,
    /// Free huge pages of each pool.
    free: Vec<u64>,
}

impl OwnMemory {
    /// Moves these amounts out of a description. The descriptions of otherwise identical hosts are then equal.
    pub fn take(machine: &mut tonnage_machine::Environment) -> Self {
        let memory = &mut machine.memory;
        let pools = memory.huge_pools.iter_mut();
        Self {
            total_bytes: memory.total_bytes.take(),
            free: pools.map(|pool| std::mem::take(&mut pool.free)).collect(),
        }
    }

    /// Restores these amounts in a description.
    pub fn put_back(&self, machine: &mut tonnage_machine::Environment) {
        machine.memory.total_bytes = self.total_bytes;
        for (pool, free) in machine.memory.huge_pools.iter_mut().zip(&self.free) {
            pool.free = *free;
        }
    }
}

/// Hosts count as equal if their memory differs by at most this fraction: firmware reserves slightly different amounts.
const MEMORY_FRACTION_ALIKE: f64 = 0.01;

impl HostGroup {
    /// Describes identical hosts once, in order of first appearance.
    pub fn group(hosts: Vec<DescribedHost>, launcher: &str) -> Vec<Self> {
        let mut groups: Vec<(Self, Vec<u32>)> = Vec::new();
        for DescribedHost {
            machine,
            ranks: of_host,
            mut host,
        } in hosts
        {
            match groups
                .iter_mut()
                .find(|(group, _)| are_equal_hosts(&group.machine, &machine))
            {
                Some((group, ranks)) => {
                    host.note_differences(&group.machine, &machine);
                    group.hosts.push(host);
                    ranks.extend(of_host);
                }
                None => {
                    let group = Self {
                        ranks: String::new(),
                        launcher: launcher.to_owned(),
                        machine,
                        hosts: vec![host],
                    };
                    groups.push((group, of_host));
                }
            }
        }
        let listed = groups.into_iter().map(|(group, ranks)| Self {
            ranks: number_list::format(&ranks),
            ..group
        });
        listed.collect()
    }
}

impl HostEntry {
    /// Records the differences between this host and the group's description.
    fn note_differences(
        &mut self,
        group: &tonnage_machine::Environment,
        own: &tonnage_machine::Environment,
    ) {
        if own.memory.total_bytes != group.memory.total_bytes {
            self.memory_total_bytes = own.memory.total_bytes;
        }
        if own.memory.huge_pools != group.memory.huge_pools {
            let free = own.memory.huge_pools.iter().map(|pool| pool.free);
            self.huge_pages_free = Some(free.collect());
        }
    }
}

/// Returns whether two hosts are equal, apart from free huge pages and small differences in memory.
fn are_equal_hosts(
    left: &tonnage_machine::Environment,
    right: &tonnage_machine::Environment,
) -> bool {
    let near = match (left.memory.total_bytes, right.memory.total_bytes) {
        (Some(left), Some(right)) => {
            left.abs_diff(right) as f64 <= MEMORY_FRACTION_ALIKE * left.max(right) as f64
        }
        (left, right) => left == right,
    };
    let comparable = |machine: &tonnage_machine::Environment| {
        let mut machine = machine.clone();
        OwnMemory::take(&mut machine);
        machine
    };
    near && comparable(left) == comparable(right)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(model: &str, total_bytes: u64, free: u64) -> tonnage_machine::Environment {
        let value = json!({
            "os": "Debian", "kernel": "6.1", "architecture": "x86_64",
            "cpu": {
                "model": model, "online": "0-7", "allowed": "0-7", "sockets": 1, "cores": 4, "threads_per_core": 2,
                "governor": "performance",
            },
            "memory": {
                "total_bytes": total_bytes, "numa_nodes": "0",
                "huge_pools": [{"page_bytes": 2_097_152, "total": 4, "free": free}],
                "transparent": {"enabled": "madvise", "shmem_enabled": "never"},
            },
            "libraries": {}, "variables": {},
        });
        serde_json::from_value(value).unwrap()
    }

    /// Without memory amounts, descriptions of identical hosts are equal, so that they can be sent once.
    #[test]
    fn identical_hosts_are_equal_without_their_memory_amounts() {
        let both = [machine("x", 1_000, 3), machine("x", 1_001, 4)];
        let mut left = both.clone();
        let [one, other] = &mut left;
        let own = [OwnMemory::take(one), OwnMemory::take(other)];
        assert_eq!(one, other);
        for (own, machine) in own.iter().zip(&mut left) {
            own.put_back(machine);
        }
        assert_eq!(left, both);
    }

    fn host(name: &str, machine: tonnage_machine::Environment, ranks: &[u32]) -> DescribedHost {
        DescribedHost {
            machine,
            ranks: ranks.to_vec(),
            host: HostEntry {
                name: name.to_owned(),
                ranks: number_list::format(ranks),
                clock_offset_ns: i64::from(ranks[0]) * -7,
                clock_uncertainty_ns: 40,
                memory_total_bytes: None,
                huge_pages_free: None,
            },
        }
    }

    #[test]
    fn identical_hosts_are_described_once() {
        let all = vec![
            host("a", machine("X", 1 << 40, 4), &[0, 1]),
            host("b", machine("Y", 1 << 40, 4), &[2, 3]),
            host("c", machine("X", (1 << 40) - 4096, 3), &[4, 5]),
        ];
        let groups = HostGroup::group(all, "srun");
        let [first, second] = groups.as_slice() else {
            panic!("{groups:#?}")
        };
        assert_eq!(
            (first.ranks.as_str(), second.ranks.as_str()),
            ("0-1,4-5", "2-3")
        );
        assert_eq!(second.hosts.len(), 1);
        let [a, c] = first.hosts.as_slice() else {
            panic!("{first:#?}")
        };
        assert_eq!((a.memory_total_bytes, &a.huge_pages_free), (None, &None));
        // The third host differs within the limits, and keeps its own values.
        assert_eq!((c.name.as_str(), c.ranks.as_str()), ("c", "4-5"));
        assert_eq!((c.clock_offset_ns, c.clock_uncertainty_ns), (-28, 40));
        assert_eq!(c.memory_total_bytes, Some((1 << 40) - 4096));
        assert_eq!(c.huge_pages_free, Some(vec![3]));
    }

    #[test]
    fn a_thousand_hosts_are_few_bytes_each() {
        let hosts = (0..1000).map(|at| {
            let name = format!("nid{at:05}");
            host(&name, machine("X", 1 << 40, 4), &[at * 44, at * 44 + 43])
        });
        let groups = HostGroup::group(hosts.collect(), "srun");
        let bytes = serde_json::to_vec(&groups).unwrap().len();
        assert_eq!(groups.len(), 1);
        assert!(bytes < 120 * 1000, "{bytes}");
    }
}
