//! Draws the page of `tonnage devices` from the results of [`tonnage_machine::devices`].
//!
//! This module only formats; the crate `machine` detects devices. [`engines`] draws the page of `tonnage engines`.

pub mod engines;
mod fabric;
mod gpus;
mod rows;
mod summary;

pub use summary::summary;
use tonnage_machine::devices::{
    Absent, Inventory, KernelModule, MemoryFound, MountedFileSystem, NetworkInterface, NumaNode,
    RdmaDevice, RdmaPort,
};
use tonnage_machine::environment::Processors;
use tonnage_units::Result;
use tonnage_units::quantity::human::{link_speed, size, thousandths};

use crate::text::counted;
use rows::{DeviceRow, folded, free_of, group, place, row, shortened};

/// The inventory as one indented JSON object.
///
/// # Errors
/// [`tonnage_units::Error::Failed`] if serialization fails, e.g. for a mount point with a name that is not UTF-8.
pub fn json(found: &Inventory) -> Result<String> {
    let text = serde_json::to_string_pretty(found);
    text.map_err(|why| {
        tonnage_units::Error::Failed(format!("the devices cannot be written as JSON: {why}"))
    })
}

/// The inventory as groups of aligned lines. Missing items come last.
pub fn text(found: &Inventory) -> String {
    let mut page = format!("Devices of {}\n", found.host.name);
    group(&mut page, "Processors", &processors(&found.cpu));
    group(&mut page, "NUMA nodes", &numa(&found.numa));
    group(&mut page, "Memory", &memory(&found.memory));
    group(&mut page, "Network", &networks(&found.networks));
    let mut rdma = rdma(&found.rdma);
    rdma.extend(found.kernel_module.iter().map(kernel_module));
    group(&mut page, "RDMA", &rdma);
    for (libraries, rows) in fabric::tables(&found.libfabric) {
        group(&mut page, &fabric::heading(&libraries), &rows);
    }
    group(&mut page, "GPUs", &gpus::gpus(&found.gpus));
    let by_cuda = gpus::driver_gpus(("cuda", "CUDA"), &found.cuda);
    group(&mut page, "GPUs by CUDA", &by_cuda);
    let by_hip = gpus::driver_gpus(("hip", "HIP"), &found.hip);
    group(&mut page, "GPUs by HIP", &by_hip);
    group(
        &mut page,
        "Parts of GPUs (MIG, compute partitions)",
        &gpus::slices(&found.gpus),
    );
    group(&mut page, "GPU to GPU", &gpus::pairs(found));
    group(&mut page, "GPU to nearest NICs", &gpus::nics(found));
    group(
        &mut page,
        "File systems",
        &file_systems(&found.file_systems),
    );
    let providers_absent = &found.providers_absent;
    let absent: Vec<&Absent> = found.absent.iter().chain(providers_absent).collect();
    missing(&mut page, &absent);
    page += "\nEngines, memories and backends of this program: tonnage engines\n\
             All properties of these devices: tonnage devices --json\n";
    page
}

fn missing(page: &mut String, absent: &[&Absent]) {
    if absent.is_empty() {
        return;
    }
    page.push_str("\nNot here\n");
    for absent in absent {
        page.push_str(&folded(&format!("  {}: {}", absent.what, absent.why)));
        page.push_str(&folded(&format!("      {}", absent.how)));
    }
}

fn processors(cpu: &Processors) -> Vec<DeviceRow> {
    let shape = format!(
        "{}, {}, {} per core",
        counted(cpu.sockets, "socket"),
        counted(cpu.cores, "core"),
        counted(cpu.threads_per_core, "thread")
    );
    let usable = match cpu.quota_millicpus {
        Some(quota) => format!(
            "{} (limited to {} CPUs' time)",
            cpu.allowed,
            thousandths(quota)
        ),
        None => cpu.allowed.clone(),
    };
    let mut rows = vec![
        row(["model", &cpu.model]),
        row(["shape", &shape]),
        row(["online", &cpu.online]),
        row(["usable", &usable]),
    ];
    let caches = [("L2", cpu.l2_bytes), ("L3", cpu.l3_bytes)];
    let caches = caches
        .iter()
        .filter_map(|(name, bytes)| Some(format!("{name} {}", size((*bytes)?))));
    let caches = caches.collect::<Vec<_>>().join(", ");
    if !caches.is_empty() {
        rows.push(row(["caches", &caches]));
    }
    let governor = match cpu.frequency_khz_max {
        Some(khz) => format!("{}, at most {} MHz", cpu.governor, khz / 1000),
        None => cpu.governor.clone(),
    };
    rows.push(row(["governor", &governor]));
    rows
}

fn numa(nodes: &[NumaNode]) -> Vec<DeviceRow> {
    let one = |node: &NumaNode| {
        let cpus = if node.cpus.is_empty() {
            "no CPUs".to_owned()
        } else {
            format!("CPUs {}", node.cpus)
        };
        row([
            &format!("node {}", node.node),
            &cpus,
            &free_of(node.memory_free_bytes, node.memory_bytes),
        ])
    };
    nodes.iter().map(one).collect()
}

fn memory(memory: &MemoryFound) -> Vec<DeviceRow> {
    let total = free_of(memory.available_bytes, memory.total_bytes);
    let lockable = memory.lockable_bytes.map_or_else(
        || "without limit".to_owned(),
        |bytes| format!("{} unless privileged", size(bytes)),
    );
    let mut rows = vec![row(["total", &total]), row(["lockable", &lockable])];
    for pool in &memory.huge_pools {
        let pages = format!("{} of {} pages free", pool.free, pool.total);
        rows.push(row([&format!("huge {}", size(pool.page_bytes)), &pages]));
    }
    let transparent = &memory.transparent;
    let transparent = format!(
        "{}; shared memory: {}",
        transparent.enabled, transparent.shmem_enabled
    );
    rows.push(row(["transparent huge", &transparent]));
    rows
}

fn networks(networks: &[NetworkInterface]) -> Vec<DeviceRow> {
    let (real, virtual_ones): (Vec<_>, Vec<_>) = networks.iter().partition(|n| n.driver.is_some());
    let mut rows: Vec<DeviceRow> = real.into_iter().map(interface).collect();
    let names: Vec<&str> = virtual_ones
        .iter()
        .map(|network| network.name.as_str())
        .collect();
    if !names.is_empty() {
        rows.push(row(["without a device:", &shortened(&names)]));
    }
    rows
}

fn interface(network: &NetworkInterface) -> DeviceRow {
    let link = network
        .link_bits_per_s
        .map_or_else(|| "rate unknown".to_owned(), link_speed);
    let mtu = network
        .mtu_bytes
        .map_or_else(|| "MTU unknown".to_owned(), |mtu| format!("MTU {mtu}"));
    let rdma = match network.rdma_devices.as_slice() {
        [] => String::new(),
        devices => format!("RDMA {}", devices.join(",")),
    };
    let driver = network.driver.as_deref().unwrap_or("no driver");
    let [numa, pcie] = place(network.pci.as_ref());
    row([
        &network.name,
        driver,
        &network.state,
        &link,
        &mtu,
        &numa,
        &pcie,
        &rdma,
    ])
}

fn rdma(devices: &[RdmaDevice]) -> Vec<DeviceRow> {
    let ports = |device: &RdmaDevice| {
        let driver = device
            .driver
            .clone()
            .unwrap_or_else(|| "in software".to_owned());
        let firmware = device
            .firmware
            .as_ref()
            .map_or_else(String::new, |f| format!("firmware {f}"));
        let [numa, pcie] = place(device.pci.as_ref());
        let one = |port: &RdmaPort| {
            let name = format!("{} port {}", device.name, port.port);
            let network = port.network.as_deref().unwrap_or_default();
            let address = address(port);
            let mtu = port
                .mtu_bytes
                .map_or_else(String::new, |mtu| format!("MTU {mtu}"));
            row([
                &name,
                &driver,
                &port.state,
                &port.rate,
                &port.link_layer,
                &mtu,
                network,
                &address,
                &numa,
                &pcie,
                &firmware,
            ])
        };
        device.ports.iter().map(one).collect::<Vec<DeviceRow>>()
    };
    devices.iter().flat_map(ports).collect()
}

/// The kernel module behind `verbs:kernel`.
fn kernel_module(module: &KernelModule) -> DeviceRow {
    let name = format!("module {}", module.name);
    let version = format!("version {}", module.version);
    let layout = format!("layout {}", module.abi);
    row([&name, "verbs:kernel", &version, &layout, &module.device])
}

/// Usual source address of RoCE packets, and the number of addresses.
fn address(port: &RdmaPort) -> String {
    let Some(gid) = port.usual_gid() else {
        return String::new();
    };
    let others = match port.gids.len() {
        0 | 1 => String::new(),
        all => format!(" of {all}"),
    };
    format!("GID {}{others} {} ({})", gid.index, gid.ip(), gid.kind)
}

fn file_systems(file_systems: &[MountedFileSystem]) -> Vec<DeviceRow> {
    let one = |file_system: &MountedFileSystem| {
        let size = free_of(file_system.available_bytes, file_system.total_bytes);
        let access = if file_system.read_only {
            "read only"
        } else {
            ""
        };
        let mount = file_system.mount.display().to_string();
        row([
            &mount,
            &file_system.kind,
            &file_system.source,
            &size,
            access,
        ])
    };
    file_systems.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_an_empty_group_is_left_out() {
        let mut page = String::new();
        group(&mut page, "Empty", &[]);
        group(
            &mut page,
            "Some",
            &[row(["a", "long cell", ""]), row(["wide", "b", "c"])],
        );
        assert_eq!(page, "\nSome\n  a     long cell\n  wide  b          c\n");
    }

    #[test]
    fn long_lists_count_the_names_left_out() {
        assert_eq!(shortened(&["a", "b"]), "a, b");
        assert_eq!(shortened(&["x"; 8]), "x, x, x, x, x, x and 2 more");
    }

    #[test]
    fn this_host_is_drawn_and_missing_items_come_last() {
        let found = Inventory::read();
        let page = text(&found);
        for heading in ["Processors", "NUMA nodes", "Memory", "Network"] {
            assert!(page.contains(&format!("\n{heading}\n")), "{page}");
        }
        assert!(page.contains("embedded in tonnage)\n"), "{page}");
        let (_, not_here) = page.split_once("\nNot here\n").unwrap_or((&page, ""));
        let unfolded: Vec<&str> = not_here.split_whitespace().collect();
        let unfolded = unfolded.join(" ");
        for absent in found.absent.iter().chain(&found.providers_absent) {
            assert!(
                unfolded.contains(&absent.why) && unfolded.contains(&absent.how),
                "{page}"
            );
        }
        // Commands and paths are not folded.
        let is_word = |line: &str| line.split_whitespace().count() == 1;
        let mut lines = page.lines();
        assert!(
            lines.all(|line| line.chars().count() <= rows::WIDTH || is_word(line)),
            "{page}"
        );
        let read: Inventory = serde_json::from_str(&json(&found).unwrap()).unwrap();
        assert_eq!(read, found);
    }
}
