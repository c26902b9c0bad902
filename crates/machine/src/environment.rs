//! Properties of a host that explain a result; part of every record.
//!
//! Reading them is fast and cannot fail. The full list of devices, for people, is in [`super::devices`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tonnage_sys::libfabric::Libfabric;
use tonnage_sys::library::libc_version;

use super::cpu_time::LimitedGroup;
use super::devices::gpu::{gpu_models, nvidia_driver};
use super::kernel_files::{Tree, value_of};
use super::pages::{HugePool, Transparent, huge_pools, meminfo_bytes, transparent};
use super::topology::Topology;
use super::variables::recorded_variables;
use tonnage_units::number_list;

/// Kernel modules of drivers. Their versions are recorded, if they report them.
const DRIVERS: &str =
    "amdgpu bnxt_en bnxt_re cxi_core efa ena hfi1 ib_core ionic irdma lustre mlx5_core";

/// Identity of a host and of its boot. It is not part of [`Environment`], so that identical hosts have equal
/// environments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIdentity {
    /// The host's name.
    pub name: String,
    /// The kernel's random identifier of this boot; absent if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

impl HostIdentity {
    /// Reads name and boot identifier.
    pub fn read() -> Self {
        Self {
            name: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            boot_id: Tree::host().text("proc/sys/kernel/random/boot_id"),
        }
    }
}

/// The environment of one host. Two hosts with the same hardware and setup have equal environments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Environment {
    /// The distribution's own name, or "unknown".
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// Machine architecture as the kernel names it.
    pub architecture: String,
    /// True for a virtual machine; absent if the CPU does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualised: Option<bool>,
    /// Time source of the kernel; absent if it reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_source: Option<String>,
    /// Processors.
    pub cpu: Processors,
    /// Models of the GPUs, in PCI bus order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// Memory.
    pub memory: MemoryState,
    /// Versions by name: the C library, libfabric if this process has loaded it, and drivers that report theirs.
    pub libraries: BTreeMap<String, String>,
    /// Environment variables that affect communication libraries; never one that may hold a secret.
    pub variables: BTreeMap<String, String>,
}

/// The processors of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Processors {
    /// Model name, or "unknown".
    pub model: String,
    /// CPUs that are online, such as "0-15".
    pub online: String,
    /// CPUs that this process may use.
    pub allowed: String,
    /// Tightest CPU quota of a control group (version 1 or 2), in thousandths of a CPU; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_millicpus: Option<u64>,
    /// Number of sockets.
    pub sockets: u32,
    /// Number of physical cores of all sockets.
    pub cores: u32,
    /// Number of CPUs that share a core.
    pub threads_per_core: u32,
    /// Size of one level-1 data cache, the first CPU's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l1d_bytes: Option<u64>,
    /// Size of one level-2 cache, the first CPU's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_bytes: Option<u64>,
    /// Size of one level-3 cache, the first CPU's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l3_bytes: Option<u64>,
    /// Frequency governor of the first CPU, or "unknown: " and the reason.
    pub governor: String,
    /// Highest frequency of the first CPU; absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_khz_max: Option<u64>,
}

/// The memory of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryState {
    /// Total size; absent if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// NUMA nodes, such as "0-1".
    pub numa_nodes: String,
    /// Pools of huge pages.
    pub huge_pools: Vec<HugePool>,
    /// Policy for transparent huge pages.
    pub transparent: Transparent,
}

impl Environment {
    /// Reads this host's environment in a few milliseconds; `more` names additional environment variables to record. It
    /// cannot fail: an unreadable value is absent, or text with the reason.
    pub fn read(more: &[&str], topology: &Topology) -> Self {
        Self {
            variables: recorded_variables(std::env::vars_os(), more),
            ..Self::read_from(&Tree::host(), topology)
        }
    }

    /// Reads the machine laid out in `tree`. Kernel, architecture, libraries and environment variables always come from
    /// the running process.
    pub fn read_from(tree: &Tree, topology: &Topology) -> Self {
        let uname = rustix::system::uname();
        Self {
            os: os_name(tree),
            kernel: uname.release().to_string_lossy().into_owned(),
            architecture: uname.machine().to_string_lossy().into_owned(),
            virtualised: virtualised(tree),
            clock_source: tree
                .text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            cpu: Processors::read_from(tree, topology),
            gpus: gpu_models(tree),
            memory: MemoryState::read_from(tree, topology),
            libraries: libraries(tree),
            variables: recorded_variables(std::env::vars_os(), &[]),
        }
    }
}

impl Processors {
    /// Reads the processors of the machine laid out in `tree`.
    pub fn read_from(tree: &Tree, topology: &Topology) -> Self {
        let first = topology.cpus.first().map_or(0, |cpu| cpu.id);
        let cpu = format!("sys/devices/system/cpu/cpu{first}");
        let online: Vec<u32> = topology.cpus.iter().map(|cpu| cpu.id).collect();
        let limits = LimitedGroup::all(tree);
        Self {
            model: cpu_model(tree).unwrap_or_else(|| "unknown".to_owned()),
            online: number_list::format(&online),
            allowed: number_list::format(&topology.allowed),
            quota_millicpus: limits.first().map(|group| group.quota_millicpus),
            sockets: topology.sockets(),
            cores: topology.cores(),
            threads_per_core: topology.threads_per_core(),
            l1d_bytes: cache_bytes(tree, &cpu, 1),
            l2_bytes: cache_bytes(tree, &cpu, 2),
            l3_bytes: cache_bytes(tree, &cpu, 3),
            governor: tree
                .try_text(format!("{cpu}/cpufreq/scaling_governor"))
                .unwrap_or_else(|why| format!("unknown: {why}")),
            frequency_khz_max: tree.number(format!("{cpu}/cpufreq/cpuinfo_max_freq")),
        }
    }
}

impl MemoryState {
    /// Reads the memory of the machine laid out in `tree`.
    pub fn read_from(tree: &Tree, topology: &Topology) -> Self {
        let nodes: Vec<u32> = topology.nodes.iter().map(|node| node.id).collect();
        Self {
            total_bytes: meminfo_bytes(tree, "MemTotal"),
            numa_nodes: number_list::format(&nodes),
            huge_pools: huge_pools(tree),
            transparent: transparent(tree),
        }
    }
}

fn os_name(tree: &Tree) -> String {
    let text = tree
        .text("etc/os-release")
        .or_else(|| tree.text("usr/lib/os-release"));
    let text = text.unwrap_or_default();
    let mut lines = text.lines();
    let name = lines.find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or("unknown", |name| name.trim_matches('"'))
        .to_owned()
}

fn virtualised(tree: &Tree) -> Option<bool> {
    let text = tree.text("proc/cpuinfo")?;
    // Only x86 kernels list flags. On other architectures the answer is unknown.
    let flags = value_of(&text, "flags")?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

fn cpu_model(tree: &Tree) -> Option<String> {
    let text = tree.text("proc/cpuinfo")?;
    if let Some(model) = value_of(&text, "model name").or_else(|| value_of(&text, "cpu")) {
        return Some(model.to_owned());
    }
    // ARM kernels report only the numbers of the implementer and the part.
    let (maker, part) = (
        value_of(&text, "CPU implementer")?,
        value_of(&text, "CPU part")?,
    );
    Some(format!("implementer {maker} part {part}"))
}

/// Returns the size of the first CPU's data (or unified) cache of this level.
fn cache_bytes(tree: &Tree, cpu: &str, level: u32) -> Option<u64> {
    let cache = format!("{cpu}/cache");
    tree.names(&cache).into_iter().find_map(|index| {
        let index = format!("{cache}/{index}");
        let text = |file: &str| tree.text(format!("{index}/{file}"));
        let is_right = text("level")? == level.to_string() && text("type")? != "Instruction";
        let size = text("size").filter(|_| is_right)?;
        size.strip_suffix('K')?
            .parse::<u64>()
            .ok()?
            .checked_mul(1024)
    })
}

fn libraries(tree: &Tree) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if let Some(version) = libc_version() {
        found.insert("libc".to_owned(), version);
    }
    // libfabric's version is read only if the library is already loaded, because only engines that have loaded it
    // depend on it. Loading it would take longer than everything else here.
    if let Some(library) = Libfabric::loaded() {
        found.insert("libfabric".to_owned(), library.release().to_string());
    }
    if let Some(version) = nvidia_driver(tree) {
        found.insert("driver nvidia".to_owned(), version);
    }
    for driver in DRIVERS.split(' ') {
        if let Some(version) = tree.text(format!("sys/module/{driver}/version")) {
            found.insert(format!("driver {driver}"), version);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::kernel_files::invented::Machine;
    use super::*;

    fn read(machine: &Machine) -> Environment {
        let tree = machine.tree();
        Environment::read_from(&tree, &Topology::read_from(&tree, vec![]))
    }

    #[test]
    fn an_invented_machine_is_read_whole() {
        let machine = Machine::new();
        let cpu = "sys/devices/system/cpu/cpu0";
        let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        let info = "processor: 0\nmodel name\t: Model X\nflags : fpu hypervisor sse";
        let mounts = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        let driver =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Fri\nGCC version: 12.2";
        machine.processors(2, 2, 2).files(
            "",
            &[
                ("etc/os-release", "NAME=x\nPRETTY_NAME=\"Invented 1\""),
                ("proc/cpuinfo", info),
                ("proc/meminfo", "MemTotal: 2048 kB"),
                ("proc/self/cgroup", "0::/a/b"),
                ("proc/self/mountinfo", mounts),
                ("sys/fs/cgroup/a/b/cpu.max", "max 100000"),
                ("sys/fs/cgroup/a/cpu.max", "150000 100000"),
                (clock, "tsc"),
                (&format!("{cpu}/cpufreq/scaling_governor"), "performance"),
                (&format!("{cpu}/cpufreq/cpuinfo_max_freq"), "3500000"),
                ("sys/module/mlx5_core/version", "24.10"),
                ("proc/driver/nvidia/version", driver),
            ],
        );
        for (level, kind, size) in [
            ("1", "Data", "48K"),
            ("2", "Unified", "2048K"),
            ("3", "Unified", "32768K"),
        ] {
            let files = [("level", level), ("type", kind), ("size", size)];
            machine.files(&format!("{cpu}/cache/index{level}"), &files);
        }
        let environment = read(&machine);
        assert_eq!(environment.os, "Invented 1");
        assert_eq!(environment.virtualised, Some(true));
        assert_eq!(environment.clock_source.as_deref(), Some("tsc"));
        let expected = Processors {
            model: "Model X".into(),
            online: "0-7".into(),
            allowed: "0-7".into(),
            quota_millicpus: Some(1500),
            sockets: 2,
            cores: 4,
            threads_per_core: 2,
            l1d_bytes: Some(48 << 10),
            l2_bytes: Some(2 << 20),
            l3_bytes: Some(32 << 20),
            governor: "performance".into(),
            frequency_khz_max: Some(3_500_000),
        };
        assert_eq!(environment.cpu, expected);
        assert_eq!(environment.memory.total_bytes, Some(2 << 20));
        assert_eq!(environment.memory.numa_nodes, "0-1");
        assert_eq!(environment.libraries["driver mlx5_core"], "24.10");
        assert_eq!(environment.libraries["driver nvidia"], "570.86.10");
    }

    #[test]
    fn an_empty_machine_is_read_too() {
        let environment = read(&Machine::new());
        assert_eq!(environment.os, "unknown");
        assert_eq!(environment.virtualised, None);
        assert_eq!(environment.cpu.model, "unknown");
        assert!(environment.cpu.governor.starts_with("unknown: "));
        assert_eq!(environment.memory.total_bytes, None);
    }

    #[test]
    fn this_host_is_read_quickly_and_survives_json() {
        let topology = Topology::read();
        let first = Environment::read(&[], &topology);
        assert!(first.libraries.contains_key("libc") || cfg!(not(target_env = "gnu")));
        // The fastest of several readings counts, because other programs use the CPUs too.
        let read = |_| {
            let start = Instant::now();
            assert_eq!(Environment::read(&[], &topology).cpu, first.cpu);
            start.elapsed()
        };
        let fastest = (0..20).map(read).min().unwrap();
        assert!(fastest < Duration::from_millis(10), "{fastest:?}");
        let json = serde_json::to_string(&first).unwrap();
        assert_eq!(serde_json::from_str::<Environment>(&json).unwrap(), first);
        assert!(json.len() < 8192, "{json}");
        assert!(!HostIdentity::read().name.is_empty());
        let is_known = |cpu: &u32| topology.cpu(*cpu).is_some();
        assert!(topology.allowed.iter().all(is_known) && topology.cores() >= 1);
    }
}
