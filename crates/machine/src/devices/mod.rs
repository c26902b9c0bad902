//! All devices and memory of this host that could move or hold bytes. For each missing one, the inventory has the
//! reason and the way to get it.
//!
//! This module reads the kernel's files and libfabric's list, and defines the types that `tonnage devices --json`
//! prints. From these types, `tonnage_report::devices` prints the page for people. Engines, in turn, open the devices.

mod amd_placement;
mod amd_registration;
mod cuda;
mod fabric;
mod files;
pub(crate) mod gpu;
mod gpu_pairs;
mod kernel_config;
mod kread;
mod memory;
mod near;
mod network;
mod nvml;
mod pci;
mod pci_path;
mod providers;
mod rdma;
mod registration;
mod slices;
mod timeout;
mod xgmi;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use amd_placement::{AmdMemoryUse, amd_dmabuf_doubt};
pub use amd_registration::has_amd_peer_memory;
pub use cuda::{CudaGpu, LIBCUDA_VARIABLE, LIBHIP_VARIABLE};
pub use fabric::{FabricLibrary, FabricOffer, FabricProvider};
pub use files::MountedFileSystem;
pub use gpu::{Gpu, GpuSlice, gpu_addresses, gpu_makers_here};
pub use gpu_pairs::{GpuLinks, GpuPair, PeerAccess};
pub use kread::KernelModule;
pub use memory::{MemoryFound, NumaNode};
pub use near::{NearNic, nic_of_gpu, rdma_address};
pub use network::NetworkInterface;
pub use nvml::{LIBNVML_VARIABLE, LinkTable, gpu_links};
pub use pci::{PciFunction, PcieLink, gpu_function, nominal_link_bytes_per_s};
pub use pci_path::PciPath;
pub use rdma::{RdmaDevice, RdmaGid, RdmaPort};
pub use registration::peer_memory_module;

use super::environment::{HostIdentity, Processors};
use super::kernel_files::Tree;
use super::topology::Topology;

/// Something that cannot be used here, although this module looked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    pub what: String,
    /// The place that was checked, and the result.
    pub why: String,
    /// How to get it, with the exact command if there is one.
    pub how: String,
}

impl Absent {
    fn new(what: impl Into<String>, why: impl Into<String>, how: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            why: why.into(),
            how: how.into(),
        }
    }
}

/// Inventory of a host. If a list is empty or an option `None`, `absent` has the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// Host name and boot identifier.
    pub host: HostIdentity,
    /// Processors.
    pub cpu: Processors,
    /// NUMA nodes, at least one.
    pub numa: Vec<NumaNode>,
    /// Memory and huge pages.
    pub memory: MemoryFound,
    /// Network interfaces, including the loopback.
    pub networks: Vec<NetworkInterface>,
    /// RDMA devices.
    pub rdma: Vec<RdmaDevice>,
    /// The kernel module for `verbs:kernel`; absent if it is not loaded, or has another ABI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_module: Option<KernelModule>,
    /// The usable libfabrics: first the one that this program uses, last the embedded one.
    pub libfabric: Vec<FabricLibrary>,
    /// NVIDIA and AMD GPUs.
    pub gpus: Vec<Gpu>,
    /// NVIDIA GPUs that the driver lists; empty until the driver is queried.
    #[serde(default)]
    pub cuda: Vec<CudaGpu>,
    /// AMD GPUs that the runtime lists; empty until the runtime is queried.
    #[serde(default)]
    pub hip: Vec<CudaGpu>,
    /// Each ordered pair of GPUs, with the path between the two. Access is added when drivers are queried.
    #[serde(default)]
    pub gpu_pairs: Vec<GpuPair>,
    /// The module with which RDMA devices register memory of NVIDIA GPUs; absent if none is loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_memory_module: Option<String>,
    /// The path of the file that shows AMD's peer memory client. With this client, RDMA drivers can register GPU memory
    /// by address. Absent without the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amd_peer_memory: Option<String>,
    /// Kernel options that let AMD's driver export GPU memory, on a host with a GPU and an RDMA device; absent if they
    /// are missing or cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amd_dmabuf_options: Option<String>,
    /// File systems that hold files.
    pub file_systems: Vec<MountedFileSystem>,
    /// Things that are missing here, or present but unusable.
    pub absent: Vec<Absent>,
    /// Well-known libfabric providers that none of the libraries offers here.
    pub providers_absent: Vec<Absent>,
}

/// Link of a network device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceLink {
    /// The kernel's name of the interface or RDMA device.
    pub name: String,
    /// State of the link, as the kernel reports it. For a device with several ports, it is the state of the best port.
    pub state: String,
}

/// Links of this host's network devices.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceLinks {
    /// Links that the kernel lists here.
    pub links: Vec<DeviceLink>,
    /// Why the host may have other links: no device is listed, or a container's own network hides them.
    pub gap: Option<String>,
}

/// Finds the links of this host's network devices, within a few milliseconds.
pub fn links() -> DeviceLinks {
    links_of(&Tree::host())
}

fn links_of(tree: &Tree) -> DeviceLinks {
    let mut absent = Vec::new();
    let networks = network::find(tree, &mut absent);
    let no_networks = absent.first().map(|gap| gap.why.clone());
    let rdma = rdma::find(tree, &networks, &mut absent);
    // A container's network namespace hides the host's interfaces.
    let is_virtual = networks.iter().all(|interface| interface.driver.is_none());
    let hidden = || "only virtual interfaces are listed, as in a container".to_owned();
    let gap = no_networks.or_else(|| is_virtual.then(hidden));
    let interfaces = networks.into_iter().map(|interface| DeviceLink {
        name: interface.name,
        state: interface.state,
    });
    let devices = rdma.into_iter().map(|device| {
        let mut active = device
            .ports
            .iter()
            .filter(|port| port.state.contains("ACTIVE"));
        let port = active.next().or(device.ports.first());
        DeviceLink {
            name: device.name.clone(),
            state: port.map_or_else(|| "unknown".to_owned(), |port| port.state.clone()),
        }
    });
    DeviceLinks {
        links: interfaces.chain(devices).collect(),
        gap,
    }
}

impl Inventory {
    /// Reads the inventory of this host. It cannot fail, and takes a few seconds at most, even if a file server or a
    /// libfabric provider does not answer.
    pub fn read() -> Self {
        let libfabric = super::fabric::load_libfabric();
        let mut found = Self::read_from(&Tree::host(), &Topology::read(), libfabric);
        rdma::ask_mtu(&mut found.rdma);
        found
    }

    /// Queries the GPU drivers, and adds the information that the kernel does not provide. A driver may take seconds to
    /// answer. On a machine without GPUs, drivers are queried only if a variable names a driver's library.
    pub fn ask_drivers(mut self) -> Self {
        let cuda = self.ask_driver(&cuda::BY_CUDA);
        let hip = self.ask_driver(&cuda::BY_HIP);
        let usable = self.has_usable(cuda::BY_CUDA.vendor);
        let is_nvidia = |gpu: &&Gpu| gpu.vendor == cuda::BY_CUDA.vendor && gpu.usable;
        let pci = self.gpus.iter().filter(is_nvidia);
        let by_cuda = cuda.gpus.iter().map(|gpu| &gpu.pci_address);
        let pci = pci.map(|gpu| &gpu.pci.address);
        let addresses: BTreeSet<String> = pci.chain(by_cuda).cloned().collect();
        let mut nvml = nvml::NvmlAnswer::default();
        if usable || !cuda.gpus.is_empty() {
            nvml = nvml::ask(addresses.into_iter().collect(), &mut self.absent);
        }
        self.add_driver_answers(&Tree::host(), &Topology::read(), cuda, hip, &nvml);
        self
    }

    /// Returns whether the host has a GPU of this vendor that processes can open.
    fn has_usable(&self, vendor: &str) -> bool {
        let is_usable = |gpu: &Gpu| gpu.vendor == vendor && gpu.usable;
        self.gpus.iter().any(is_usable)
    }

    fn ask_driver(&mut self, asked: &cuda::DriverQuery) -> cuda::DriverAnswer {
        let named = std::env::var_os(asked.variable).is_some_and(|path| !path.is_empty());
        if !named && !self.has_usable(asked.vendor) {
            return cuda::DriverAnswer::default();
        }
        cuda::ask(asked, &mut self.absent)
    }

    /// Adds the drivers' answers.
    fn add_driver_answers(
        &mut self,
        tree: &Tree,
        topology: &Topology,
        cuda: cuda::DriverAnswer,
        mut hip: cuda::DriverAnswer,
        nvml: &nvml::NvmlAnswer,
    ) {
        for gpu in &mut hip.gpus {
            gpu.pci_address = gpu_function(tree, &gpu.pci_address);
        }
        let by_drivers = || cuda.gpus.iter().chain(&hip.gpus);
        let unknown = |gpu: &CudaGpu| {
            let mut listed = self.gpus.iter();
            listed.all(|listed| listed.pci.address != gpu.pci_address)
        };
        if by_drivers().any(unknown) {
            // In a container that does not see the host's bus, drivers list GPUs that the kernel does not list.
            let all = by_drivers().map(|gpu| gpu.pci_address.clone());
            let all = all.chain(self.gpus.iter().map(|gpu| gpu.pci.address.clone()));
            let known = std::mem::take(&mut self.gpu_pairs);
            self.gpu_pairs = gpu_pairs::pairs(tree, topology, &all.collect::<Vec<_>>());
            // Pairs keep the links that the kernel's driver has already reported.
            for pair in &mut self.gpu_pairs {
                let same = |old: &&GpuPair| (&old.from, &old.to) == (&pair.from, &pair.to);
                pair.links = known.iter().find(same).and_then(|old| old.links.clone());
            }
            self.absent.push(Absent::new(
                "nearest NICs of some GPUs",
                "the kernel's list of PCI devices (/sys/bus/pci/devices) lacks a GPU that its driver has",
                "In a container, mount the host's /sys; or choose NICs with --devices.",
            ));
        }
        cuda.add_to(&mut self.gpu_pairs);
        hip.add_to(&mut self.gpu_pairs);
        nvml.add_to(&mut self.gpu_pairs);
        for gpu in &mut self.gpus {
            let address = &gpu.pci.address;
            match nvml.slices(address) {
                None => {}
                Some([]) if gpu.slices.is_empty() => self.absent.push(Absent::new(
                    "slices of a GPU (MIG)",
                    format!("{address}: MIG is on but the GPU has no slices, so programs cannot use it"),
                    "Create slices (`nvidia-smi mig -cgi ... -C`), or switch MIG off (`nvidia-smi -mig 0`).",
                )),
                // The kernel lists slices, but this container has no handle to them.
                Some([]) => {}
                Some(slices) => gpu.slices = slices.iter().map(GpuSlice::from).collect(),
            }
            gpu.host_links = nvml.to_host(address).cloned();
            if gpu.host_links.is_some() {
                // The host's processors reach this GPU's memory through these links, so BAR1 is not a window to it.
                gpu.window_bytes = None;
            }
        }
        registration::without_dmabuf(tree, &cuda.gpus, &mut self.absent);
        amd_registration::without_dmabuf(&hip.gpus, &mut self.absent);
        self.cuda = cuda.gpus;
        self.hip = hip.gpus;
    }

    /// Reads the machine laid out in `tree`. `libfabric` is the loaded library, or the reason why none could be loaded.
    pub fn read_from(
        tree: &Tree,
        topology: &Topology,
        libfabric: Result<tonnage_sys::libfabric::Libfabric, String>,
    ) -> Self {
        let mut absent = Vec::new();
        let networks = network::find(tree, &mut absent);
        let numa = memory::numa_nodes(topology);
        let memory = memory::find(tree, &mut absent);
        let rdma = rdma::find(tree, &networks, &mut absent);
        let kernel_module = kread::find(tree, &rdma, &mut absent);
        let libfabric = fabric::find(libfabric, &mut absent);
        let (gpus, gpu_pairs) = gpus(tree, topology, &networks, &rdma, &mut absent);
        let has_amd = gpus.iter().any(|gpu| gpu.vendor == cuda::BY_HIP.vendor);
        let amd_dmabuf_options = (has_amd && !rdma.is_empty())
            .then(|| amd_registration::kernel_exports(tree, &mut absent))
            .flatten();
        Self {
            host: HostIdentity::read(),
            cpu: Processors::read_from(tree, topology),
            numa,
            memory,
            networks,
            providers_absent: providers::absent(tree, &rdma, &libfabric),
            rdma,
            kernel_module,
            libfabric,
            gpus,
            cuda: Vec::new(),
            hip: Vec::new(),
            gpu_pairs,
            peer_memory_module: peer_memory_module(tree),
            amd_peer_memory: amd_registration::listed(tree),
            amd_dmabuf_options,
            file_systems: files::find(tree, &mut absent),
            absent,
        }
    }
}

/// Returns the GPUs, each with its nearest NICs, and the pairs of GPUs.
fn gpus(
    tree: &Tree,
    topology: &Topology,
    networks: &[NetworkInterface],
    rdma: &[RdmaDevice],
    absent: &mut Vec<Absent>,
) -> (Vec<Gpu>, Vec<GpuPair>) {
    let mut gpus = gpu::find(tree, absent);
    let nics = near::nics(networks, rdma);
    for gpu in &mut gpus {
        gpu.nics = near::nearest(tree, topology, &gpu.pci.address, &nics);
    }
    let far = gpus.iter();
    let far = far.filter(|gpu| gpu.nics.is_empty() && !nics.is_empty());
    let far: Vec<&str> = far.map(|gpu| gpu.pci.address.as_str()).collect();
    if !far.is_empty() {
        let far = far.join(", ");
        absent.push(Absent::new(
            "nearest NICs of GPUs",
            format!("{far}: neither the PCI tree nor NUMA nodes show how near a NIC is"),
            "Choose the NIC with --devices.",
        ));
    }
    if !gpus.is_empty() && !rdma.is_empty() {
        registration::without_module(tree, absent);
        amd_registration::without_peer_memory(tree, absent);
    }
    let addresses: Vec<String> = gpus.iter().map(|gpu| gpu.pci.address.clone()).collect();
    let mut pairs = gpu_pairs::pairs(tree, topology, &addresses);
    gpu_pairs::add_links(&mut pairs, xgmi::links(tree));
    (gpus, pairs)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::kernel_files::invented::Machine;
    use super::*;

    #[test]
    fn an_empty_machine_lists_missing_things_and_how_to_get_them() {
        let tree = Machine::new().tree();
        let topology = Topology::read_from(&tree, vec![0]);
        let found = Inventory::read_from(&tree, &topology, Err("no such file".to_owned()));
        let missing: Vec<&str> = found.absent.iter().map(|a| a.what.as_str()).collect();
        let expected =
            "network interfaces, huge pages, RDMA devices, installed libfabric, GPUs, file systems";
        assert_eq!(missing.join(", "), expected);
        for absent in found.absent.iter().chain(&found.providers_absent) {
            assert!(!absent.why.is_empty(), "{absent:?}");
            assert!(!absent.how.is_empty(), "{absent:?}");
        }
    }

    /// A machine with two linked AMD GPUs and one NVIDIA GPU.
    fn three_gpus() -> Machine {
        let machine = Machine::new();
        for (bus, ids) in [
            ("05", ["0x120000", "0x1002"]),
            ("06", ["0x120000", "0x1002"]),
            ("21", ["0x030200", "0x10de"]),
        ] {
            let path = format!("sys/devices/pci0000:00/0000:{bus}:00.0");
            let bars = "0x0 0xffff 0x40200\n0x100000 0x1fffff 0x14220c";
            machine.files(
                &path,
                &[("class", ids[0]), ("vendor", ids[1]), ("resource", bars)],
            );
            machine.link(&format!("sys/bus/pci/devices/0000:{bus}:00.0"), &path);
        }
        machine.files(
            "sys/class/kfd/kfd/topology/nodes",
            &[
                ("1/properties", "location_id 1280"),
                ("2/properties", "location_id 1536"),
                ("1/io_links/0/properties", "type 11\nnode_from 1\nnode_to 2"),
            ],
        );
        machine
    }

    /// Two partitions of an AMD GPU, with addresses as the runtime reports them.
    fn two_parts() -> cuda::DriverAnswer {
        let mut hip = cuda::DriverAnswer::default();
        hip.gpus = vec![cuda::tests::gpu(); 2];
        for (part, gpu) in hip.gpus.iter_mut().enumerate() {
            gpu.pci_address = format!("0000:05:00.{part}");
        }
        hip
    }

    /// The drivers report one GPU that the kernel does not list.
    #[test]
    fn answers_of_drivers_are_added_to_those_of_the_kernel() {
        let machine = three_gpus();
        let (tree, topology) = (machine.tree(), Topology::read_from(&machine.tree(), vec![]));
        let told = |slices| {
            let mut found = Inventory::read_from(&tree, &topology, Err(String::new()));
            let mut cuda = cuda::DriverAnswer::default();
            cuda.gpus.push(super::cuda::tests::gpu());
            let nvml = nvml::tests::of_slices("0000:21:00.0", slices);
            found.add_driver_answers(&tree, &topology, cuda, two_parts(), &nvml);
            found
        };
        let slice = tonnage_sys::nvml::MigSlice {
            name: "1g.10gb".to_owned(),
            uuid: "MIG-0".to_owned(),
            memory_bytes: None,
        };
        let found = told(vec![slice]);
        let [one, other] = [0, 1].map(|part: usize| &*found.hip[part].pci_address);
        assert_eq!((one, other), ("0000:05:00.0", "0000:05:00.0"));
        // Four GPUs make 12 ordered pairs. The link that the kernel reported is still there.
        assert_eq!(found.gpu_pairs.len(), 12);
        let linked: Vec<_> = found
            .gpu_pairs
            .iter()
            .filter(|pair| pair.links.is_some())
            .collect();
        assert_eq!(
            (&*linked[0].from, &*linked[0].to),
            ("0000:05:00.0", "0000:06:00.0")
        );
        assert_eq!(linked.len(), 1);
        let says = |found: &Inventory, what| found.absent.iter().any(|absent| absent.what == what);
        assert!(says(&found, "nearest NICs of some GPUs"));
        assert!(!says(&found, "slices of a GPU (MIG)"));
        // A GPU has no PCI window if other links lead to its memory.
        let windows: Vec<_> = found.gpus.iter().map(|gpu| gpu.window_bytes).collect();
        assert_eq!(windows, [Some(1 << 16), Some(1 << 16), None]);
        assert_eq!(found.gpus[2].slices[0].name, "1g.10gb");
        assert!(says(&told(Vec::new()), "slices of a GPU (MIG)"));
        machine.files(
            "proc/driver/nvidia",
            &[
                ("gpus/0000:21:00.0/information", "Device Minor: 0"),
                ("capabilities/gpu0/mig/gi1/ci0/access", ""),
            ],
        );
        let found = told(Vec::new());
        assert!(!says(&found, "slices of a GPU (MIG)"));
        assert_eq!(found.gpus[2].slices[0].name, "gi1/ci0");
    }

    #[test]
    fn a_list_of_links_knows_of_its_gaps() {
        let machine = Machine::new();
        let gap = || links_of(&machine.tree()).gap.unwrap_or_default();
        assert!(gap().contains("none except the loopback"), "{}", gap());
        machine.files("sys/class/net/eth0", &[("type", "1"), ("mtu", "1500")]);
        assert!(gap().contains("virtual"), "{}", gap());
        machine.link(
            "sys/class/net/eth0/device/driver",
            "sys/bus/pci/drivers/ena",
        );
        assert_eq!(gap(), "");
    }

    #[test]
    fn this_host_is_listed_in_bounded_time_and_survives_json() {
        let start = Instant::now();
        let found = Inventory::read();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(30), "{took:?}");
        assert!(
            found.networks.iter().any(|network| network.name == "lo"),
            "{found:?}"
        );
        assert!(!found.numa.is_empty());
        let json = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Inventory>(&json).unwrap(), found);
    }
}
