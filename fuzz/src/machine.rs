//! Any contents of kernel files are a machine. The facts that are read from them must be consistent.
//!
//! The input is several files, one after another. A line "@ PATH" begins a file, and paths that are not in the list
//! below are ignored.
use tonnage_machine::counters::{Snapshot, difference, received_bytes, sent_bytes};
use tonnage_machine::environment::Environment;
use tonnage_machine::kernel_files::invented::Machine;
use tonnage_machine::topology::Topology;

const PATHS: [&str; 22] = [
    "etc/os-release",
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/self/cgroup",
    "proc/self/net/dev",
    "proc/self/net/netstat",
    "proc/self/net/snmp",
    "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data",
    "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer",
    "sys/devices/system/cpu/cpu0/cache/index2/level",
    "sys/devices/system/cpu/cpu0/cache/index2/size",
    "sys/devices/system/cpu/cpu0/topology/physical_package_id",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
    "sys/devices/system/cpu/cpu1/topology/thread_siblings_list",
    "sys/devices/system/cpu/online",
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/node0/meminfo",
    "sys/devices/system/node/node1/cpulist",
    "sys/fs/cgroup/cpu.max",
    "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    "sys/kernel/mm/transparent_hugepage/enabled",
];

pub fn try_input(input: &[u8]) {
    let text = crate::text(input);
    let machine = Machine::new();
    let mut laid_out = false;
    for file in text.split("@ ").skip(1) {
        let (path, content) = file.split_once('\n').unwrap_or((file, ""));
        if PATHS.contains(&path) {
            machine.file(path, content);
            laid_out = true;
        }
    }
    if !laid_out {
        return;
    }
    let tree = machine.tree();
    let topology = Topology::read_from(&tree, vec![0, 1]);
    assert!(topology.cpus.is_sorted_by(|one, other| one.id < other.id));
    assert!(!topology.nodes.is_empty());
    for cpu in &topology.cpus {
        assert_eq!(topology.cpu(cpu.id), Some(cpu));
        topology.memory_node_of_cpu(cpu.id);
    }
    assert!(topology.cores() >= topology.sockets().min(1));
    assert!(topology.threads_per_core() as usize <= topology.cpus.len().max(1));
    Environment::read_from(&tree, &topology);
    let snapshot = Snapshot::read(&tree, &[]);
    let devices = snapshot.devices();
    let all = Snapshot::read(&tree, &devices);
    for device in &devices {
        let counters = all.of(device).expect("a device that was listed");
        assert!(
            difference(counters, counters)
                .values()
                .all(|moved| *moved == 0)
        );
        sent_bytes(counters);
        received_bytes(counters);
    }
}
