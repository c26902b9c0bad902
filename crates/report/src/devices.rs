//! The page that `tonnage devices` prints, drawn from what [`tonnage_machine::devices`] found.
//!
//! Words and columns live here, also those of the lists of engines, memories and backends that end it; looking at the
//! machine does not.

mod engines;
mod fabric;
mod rows;
mod summary;

pub use engines::{backends, engines, file_engines, memories};
pub use summary::summary;
use tonnage_machine::devices::{
    Absent, CudaGpu, Gpu, Inventory, KernelModule, MemoryFound, MountedFileSystem,
    NetworkInterface, NumaNode, PciFunction, PcieLink, RdmaDevice, RdmaPort,
};
use tonnage_machine::environment::Processors;
use tonnage_units::Result;
use tonnage_units::quantity::human::{gigabytes_per_s, link_speed, size, thousandths};

use rows::{DeviceRow, free_of, group, row, shortened};

/// The inventory as one JSON object, indented for people.
///
/// # Errors
/// [`tonnage_units::Error::Failed`] when it cannot be written as JSON, as for a mount point whose name is not UTF-8.
pub fn json(found: &Inventory) -> Result<String> {
    let text = serde_json::to_string_pretty(found);
    text.map_err(|why| {
        tonnage_units::Error::Failed(format!("the devices cannot be written as JSON: {why}"))
    })
}

/// The inventory as a page of grouped, aligned lines; what is missing comes last.
pub fn text(found: &Inventory) -> String {
    let mut page = format!("Devices of {}\n", found.host.name);
    group(&mut page, "Processors", &processors(&found.cpu));
    group(&mut page, "NUMA nodes", &numa(&found.numa));
    group(&mut page, "Memory", &memory(&found.memory));
    group(&mut page, "Network", &networks(&found.networks));
    let mut rdma = rdma(&found.rdma);
    rdma.extend(found.kernel_module.iter().map(kernel_module));
    group(&mut page, "RDMA", &rdma);
    for library in &found.libfabric {
        group(&mut page, &fabric::heading(library), &fabric::rows(library));
    }
    group(&mut page, "GPUs", &gpus(&found.gpus));
    group(
        &mut page,
        "GPUs by CUDA",
        &driven(("cuda", "CUDA"), &found.cuda),
    );
    group(
        &mut page,
        "GPUs by HIP",
        &driven(("hip", "HIP"), &found.hip),
    );
    group(
        &mut page,
        "File systems",
        &file_systems(&found.file_systems),
    );
    let providers_absent = &found.providers_absent;
    let absent: Vec<&Absent> = found.absent.iter().chain(providers_absent).collect();
    missing(&mut page, &absent);
    page
}

fn missing(page: &mut String, absent: &[&Absent]) {
    if absent.is_empty() {
        return;
    }
    page.push_str("\nNot here\n");
    for absent in absent {
        page.push_str(&format!(
            "  {}\n    why  {}\n    how  {}\n",
            absent.what, absent.why, absent.how
        ));
    }
}

fn processors(cpu: &Processors) -> Vec<DeviceRow> {
    let plural =
        |count: u32, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let shape = format!(
        "{}, {}, {} per core",
        plural(cpu.sockets, "socket"),
        plural(cpu.cores, "core"),
        plural(cpu.threads_per_core, "thread")
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
    rows.push(row(["transparent", &transparent]));
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

/// The module that posts in the kernel.
fn kernel_module(module: &KernelModule) -> DeviceRow {
    let name = format!("module {}", module.name);
    let version = format!("version {}", module.version);
    let layout = format!("layout {}", module.abi);
    row([&name, "verbs:kernel", &version, &layout, &module.device])
}

/// The address that packets of RoCE usually carry, and how many there are.
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

fn gpus(gpus: &[Gpu]) -> Vec<DeviceRow> {
    let one = |gpu: &Gpu| {
        let driver = gpu.driver.as_deref().unwrap_or("no driver");
        let memory = gpu.memory_bytes.map_or_else(String::new, size);
        let usable = if gpu.usable { "usable" } else { "not usable" };
        let [numa, pcie] = place(Some(&gpu.pci));
        row([
            &gpu.pci.address,
            &gpu.vendor,
            &gpu.model,
            driver,
            usable,
            &memory,
            &numa,
            &pcie,
        ])
    };
    gpus.iter().map(one).collect()
}

/// GPUs by the names that `--memory` takes, and the version of an interface.
fn driven((memory, interface): (&str, &str), gpus: &[CudaGpu]) -> Vec<DeviceRow> {
    let one = |gpu: &CudaGpu| {
        let dmabuf = match gpu.dmabuf {
            Some(true) => "dmabuf",
            Some(false) => "no dmabuf",
            None => "dmabuf unknown",
        };
        let rate = gpu.memory_bytes_per_s;
        let rate = rate.map_or_else(String::new, |rate| gigabytes_per_s(rate as f64));
        let copy_engines = match gpu.copy_engines {
            1 => "1 copy engine".to_owned(),
            count => format!("{count} copy engines"),
        };
        row([
            &format!("{memory}:{}", gpu.number),
            &gpu.name,
            &size(gpu.memory_bytes),
            &rate,
            &copy_engines,
            &format!("compute {}", gpu.compute),
            &gpu.pci_address,
            dmabuf,
            &format!("{interface} {}", gpu.cuda_version),
            &gpu.uuid,
        ])
    };
    gpus.iter().map(one).collect()
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

/// NUMA node and PCIe link, in words.
fn place(pci: Option<&PciFunction>) -> [String; 2] {
    let numa = pci
        .and_then(|pci| pci.numa_node)
        .map(|node| format!("node {node}"));
    let link = pci.and_then(|pci| pci.link.as_ref()).map(pcie);
    [numa.unwrap_or_default(), link.unwrap_or_default()]
}

fn pcie(link: &PcieLink) -> String {
    let rate = link.bytes_per_s / 100_000_000;
    let now = format!(
        "PCIe {} x{}, {}.{} GB/s",
        link.generation,
        link.lanes,
        rate / 10,
        rate % 10
    );
    if !link.below_maximum {
        return now;
    }
    format!(
        "{now} (BELOW its maximum: PCIe {} x{})",
        link.generation_max, link.lanes_max
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_link_stands_out() {
        let mut link = PcieLink {
            generation: 4,
            lanes: 16,
            bytes_per_s: 31_507_692_304,
            generation_max: 4,
            lanes_max: 16,
            below_maximum: false,
        };
        assert_eq!(pcie(&link), "PCIe 4 x16, 31.5 GB/s");
        link.generation_max = 5;
        link.below_maximum = true;
        assert_eq!(
            pcie(&link),
            "PCIe 4 x16, 31.5 GB/s (BELOW its maximum: PCIe 5 x16)"
        );
    }

    /// A figure that the driver does not tell leaves its place empty, and the columns where they are.
    #[test]
    fn gpus_have_their_memorys_rate_and_copy_engines() {
        let mut gpu = CudaGpu {
            number: 0,
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            uuid: "d1d1d1d1-d1d1-d1d1-d1d1-d1d1d1d1d1d1".to_owned(),
            memory_bytes: 80 << 30,
            pci_address: "0000:1b:00.0".to_owned(),
            compute: "9.0".to_owned(),
            copy_engines: 3,
            memory_bytes_per_s: Some(3_352_320_000_000),
            dmabuf: Some(true),
            cuda_version: "12.4".to_owned(),
        };
        let by = ("cuda", "CUDA");
        let row = driven(by, std::slice::from_ref(&gpu)).remove(0);
        assert_eq!(row[2..5], ["80 GiB", "3352 GB/s", "3 copy engines"]);
        (gpu.copy_engines, gpu.memory_bytes_per_s) = (1, None);
        let unknown = driven(by, &[gpu]).remove(0);
        assert_eq!(unknown[2..5], ["80 GiB", "", "1 copy engine"]);
        assert_eq!(unknown.len(), row.len());
    }

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
    fn long_lists_say_how_much_is_left_out() {
        assert_eq!(shortened(&["a", "b"]), "a, b");
        assert_eq!(shortened(&["x"; 8]), "x, x, x, x, x, x and 2 more");
    }

    #[test]
    fn this_host_is_drawn_and_what_is_missing_comes_last() {
        let found = Inventory::read();
        let page = text(&found);
        for heading in ["Processors", "NUMA nodes", "Memory", "Network"] {
            assert!(page.contains(&format!("\n{heading}\n")), "{page}");
        }
        assert!(page.contains(": embedded in tonnage\n"), "{page}");
        let (_, not_here) = page.split_once("\nNot here\n").unwrap_or((&page, ""));
        for absent in found.absent.iter().chain(&found.providers_absent) {
            assert!(
                not_here.contains(&absent.why) && not_here.contains(&absent.how),
                "{page}"
            );
        }
        let read: Inventory = serde_json::from_str(&json(&found).unwrap()).unwrap();
        assert_eq!(read, found);
    }
}
