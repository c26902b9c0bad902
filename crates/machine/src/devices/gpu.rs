//! NVIDIA and AMD GPUs on the PCI bus, and whether this process can open them.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_sys::nvml::MigSlice;

use super::super::kernel_files::{Tree, value_of};
use super::Absent;
use super::gpu_pairs::GpuLinks;
use super::near::NearNic;
use super::pci::{
    AMD, PciFunction, function_of, functions, hexadecimal, resource_bytes, resource_is_wide,
};
use super::slices;

const NVIDIA: u32 = 0x10de;
/// PCI classes of display controllers and of processing accelerators. Some data-centre GPUs are in the second class.
const CLASSES: [u32; 2] = [0x03, 0x12];

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// "NVIDIA" or "AMD".
    pub vendor: String,
    /// Model name, or its PCI device number if no driver reports the name.
    pub model: String,
    /// The driver; absent if none uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Size of its memory; absent if the driver does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Bytes of its memory that other PCI devices can address at once: the size of NVIDIA's BAR1 or AMD's BAR0. Absent
    /// if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// Links other than PCI to host memory; absent if there are none or they are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_links: Option<GpuLinks>,
    /// Parts into which the GPU is divided (MIG slices, AMD compute partitions). Empty for a whole GPU, and for a GPU
    /// with MIG on but no slices yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<GpuSlice>,
    /// The nearest NICs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<NearNic>,
    /// Location on the PCI bus.
    pub pci: PciFunction,
    /// True if the GPU's device files exist here, so that a program could open it.
    pub usable: bool,
}

/// A part of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuSlice {
    /// Model and profile of the slice, or the driver's numbers for it if the management library does not answer.
    pub name: String,
    /// The identifier that CUDA_VISIBLE_DEVICES takes; absent if the management library does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Size of its memory; absent if the management library does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl From<&MigSlice> for GpuSlice {
    fn from(slice: &MigSlice) -> Self {
        Self {
            name: slice.name.clone(),
            uuid: Some(slice.uuid.clone()),
            memory_bytes: slice.memory_bytes,
        }
    }
}

/// Returns the version of NVIDIA's kernel driver, if it is loaded.
pub(crate) fn nvidia_driver(tree: &Tree) -> Option<String> {
    tree.text("sys/module/nvidia/version").or_else(|| {
        let text = tree.text("proc/driver/nvidia/version")?;
        let mut words = text.lines().next()?.split_whitespace();
        let is_number = |word: &&str| {
            word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        };
        words.find(is_number).map(str::to_owned)
    })
}

/// Iterates over the GPUs on the PCI bus.
fn all(tree: &Tree) -> impl Iterator<Item = Gpu> {
    functions(tree)
        .into_iter()
        .filter_map(|path| gpu(tree, &path))
}

/// Returns the models of the GPUs on the PCI bus.
pub(crate) fn gpu_models(tree: &Tree) -> Vec<String> {
    all(tree).map(|gpu| gpu.model).collect()
}

/// Returns the vendors of the host's GPUs, as in [`Gpu::vendor`]. If some GPUs are usable, all others are ignored. An
/// example is a CPU's integrated display in a machine with an accelerator.
pub fn gpu_makers_here(tree: &Tree) -> BTreeSet<String> {
    let gpus: Vec<Gpu> = all(tree).collect();
    let has_usable = gpus.iter().any(|gpu| gpu.usable);
    let of = gpus.into_iter().filter(|gpu| gpu.usable || !has_usable);
    of.map(|gpu| gpu.vendor).collect()
}

/// Returns the PCI addresses of the host's GPUs, in numerical order.
pub fn gpu_addresses(tree: &Tree) -> Vec<String> {
    all(tree).map(|gpu| gpu.pci.address).collect()
}

pub(super) fn find(tree: &Tree, absent: &mut Vec<Absent>) -> Vec<Gpu> {
    let found: Vec<Gpu> = all(tree).collect();
    if found.is_empty() {
        absent.push(Absent::new(
            "GPUs",
            "no display or accelerator of NVIDIA or AMD is on the PCI bus",
            "Use a host with one, or have it passed through to this virtual machine.",
        ));
    }
    for vendor in ["NVIDIA", "AMD"] {
        let idle = found.iter();
        let idle = idle.filter(|gpu| gpu.vendor == vendor && !gpu.usable);
        let addresses: Vec<&str> = idle.map(|gpu| gpu.pci.address.as_str()).collect();
        if !addresses.is_empty() {
            let (why, how) = unusable(tree, vendor);
            let what = format!("{vendor} GPUs for programs");
            absent.push(Absent::new(
                what,
                format!("{}: {why}", addresses.join(", ")),
                how,
            ));
        }
    }
    found
}

fn gpu(tree: &Tree, path: &Path) -> Option<Gpu> {
    let class = hexadecimal(tree, path.join("class"))? >> 16;
    let vendor = hexadecimal(tree, path.join("vendor"))?;
    if !CLASSES.contains(&class) || ![NVIDIA, AMD].contains(&vendor) {
        return None;
    }
    let pci = function_of(tree, path)?;
    let number = tree.text(path.join("device")).unwrap_or_default();
    let driver = tree.link_name(path.join("driver"));
    let (name, memory_bytes, usable, slices) = if vendor == NVIDIA {
        let file = format!("proc/driver/nvidia/gpus/{}/information", pci.address);
        let information = tree.text(file);
        let value = |key| information.as_deref().and_then(|text| value_of(text, key));
        let minor = value("Device Minor");
        let file = minor.map(|minor| format!("dev/nvidia{minor}"));
        let usable = tree.exists("dev/nvidiactl") && file.is_some_and(|file| tree.exists(file));
        let slices = minor.map_or_else(Vec::new, |minor| slices::slices(tree, minor));
        (value("Model").map(str::to_owned), None, usable, slices)
    } else {
        let memory = tree.number(path.join("mem_info_vram_total"));
        let usable = driver.as_deref() == Some("amdgpu") && tree.exists("dev/kfd");
        let partitions = slices::partitions(tree, path, &pci.address);
        let name = tree.text(path.join("product_name"));
        (name, memory, usable, partitions)
    };
    let slices = slices.into_iter().map(|name| GpuSlice {
        name,
        uuid: None,
        memory_bytes: None,
    });
    Some(Gpu {
        vendor: if vendor == NVIDIA { "NVIDIA" } else { "AMD" }.to_owned(),
        model: name.unwrap_or_else(|| format!("PCI device {number}")),
        driver,
        memory_bytes,
        // Other devices reach a GPU's memory through this BAR. On NVIDIA GPUs it is the second BAR, which has number 2
        // if the first BAR is 64 bits wide, as from Hopper on.
        window_bytes: resource_bytes(
            tree,
            path,
            match vendor {
                NVIDIA if resource_is_wide(tree, path, 0) => 2,
                NVIDIA => 1,
                _ => 0,
            },
        ),
        host_links: None,
        slices: slices.collect(),
        nics: Vec::new(),
        pci,
        usable,
    })
}

/// Returns why a vendor's GPUs cannot be opened, and what to do.
fn unusable(tree: &Tree, vendor: &str) -> (&'static str, &'static str) {
    let (nvidia, amdgpu) = (
        nvidia_driver(tree).is_some(),
        tree.exists("sys/module/amdgpu"),
    );
    match (vendor, nvidia, amdgpu) {
        ("NVIDIA", false, _) => (
            "the NVIDIA driver is not loaded (no /proc/driver/nvidia/version)",
            "Install it (`apt-get install nvidia-driver` on Debian, `ubuntu-drivers install` on Ubuntu), then `modprobe nvidia`.",
        ),
        ("NVIDIA", true, _) => (
            "the driver is loaded, but their files /dev/nvidia* are not here",
            "Run `nvidia-modprobe -u -c=0`; in a container, start it with `--gpus all`.",
        ),
        (_, _, false) => (
            "the module amdgpu is not loaded",
            "Run `modprobe amdgpu`; where there is no such module, install amdgpu-dkms from AMD's packages.",
        ),
        _ => (
            "the driver is loaded, but /dev/kfd is not here",
            "In a container, start it with `--device /dev/kfd --device /dev/dri`.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::super::pci::tests::invent;
    use super::*;

    fn find_gpus(machine: &Machine) -> (Vec<Gpu>, Vec<Absent>) {
        let mut absent = Vec::new();
        (find(&machine.tree(), &mut absent), absent)
    }

    #[test]
    fn an_nvidia_gpu_is_usable_with_driver_and_device_files() {
        let machine = Machine::new();
        let link = Some(["32.0 GT/s PCIe", "16", "32.0 GT/s PCIe", "16"]);
        let ids = "0x030200 0x10de 0x2335";
        invent(&machine, "0000:1b:00.0", ids, link);
        invent(&machine, "0000:1c:00.0", "0x068000 0x10de 0x22a3", None);
        let (found, absent) = find_gpus(&machine);
        assert_eq!((found.len(), found[0].usable), (1, false));
        assert_eq!(found[0].model, "PCI device 0x2335");
        assert!(absent[0].why.contains("not loaded") && absent[0].why.contains("0000:1b:00.0"));
        let bars = "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n\
                    0x0000220000000000 0x000022000fffffff 0x000000000014220c";
        machine
            .file("sys/bus/pci/devices/0000:1b:00.0/resource", bars)
            .files(
                "proc/driver/nvidia",
                &[
                    ("version", "NVRM version: NVIDIA UNIX Kernel Module 570.1 x"),
                    (
                        "gpus/0000:1b:00.0/information",
                        "Model: \t\t NVIDIA H200\nIRQ: 1\nDevice Minor: \t 0",
                    ),
                    (
                        "capabilities/gpu0/mig/gi1/ci0/access",
                        "DeviceFileMinor: 12",
                    ),
                ],
            );
        let (_, absent) = find_gpus(&machine);
        assert!(absent[0].how.contains("--gpus all"), "{absent:?}");
        machine.file("dev/nvidiactl", "").file("dev/nvidia0", "");
        let (found, absent) = find_gpus(&machine);
        assert!(absent.is_empty());
        assert_eq!((&*found[0].model, found[0].usable), ("NVIDIA H200", true));
        assert_eq!(found[0].pci.link.unwrap().generation, 5);
        assert_eq!(found[0].window_bytes, Some(256 << 20));
        assert_eq!(found[0].slices[0].name, "gi1/ci0");
    }

    /// BARs of an A100 (0, 1 and 3) and of an H100 (0, 2 and 4). The H100's first BAR is 64 bits wide.
    #[test]
    fn bar1_is_the_second_resource_that_is_there() {
        const NONE: &str = "0x0000000000000000 0x0000000000000000 0x0000000000000000";
        let a100 = [
            "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200",
            "0x0000220000000000 0x0000221fffffffff 0x000000000014220c",
            NONE,
            "0x0000222000000000 0x0000222001ffffff 0x000000000014220c",
        ];
        let h100 = [
            "0x0000224042000000 0x0000224042ffffff 0x000000000014220c",
            NONE,
            "0x0000220000000000 0x0000221fffffffff 0x000000000014220c",
            NONE,
            "0x0000224040000000 0x0000224041ffffff 0x000000000014220c",
        ];
        for (device, lines) in [("0x20b2", &a100[..]), ("0x2330", &h100)] {
            let machine = Machine::new();
            let ids = format!("0x030200 0x10de {device}");
            let path = invent(&machine, "0000:1b:00.0", &ids, None);
            machine.file(&format!("{path}/resource"), &lines.join("\n"));
            let window_bytes = find_gpus(&machine).0[0].window_bytes;
            assert_eq!(window_bytes, Some(128 << 30), "{device}");
        }
    }

    #[test]
    fn an_amd_accelerator_is_a_gpu_too() {
        let machine = Machine::new();
        let card = invent(&machine, "0000:05:00.0", "0x120000 0x1002 0x74a1", None);
        machine.files(
            &card,
            &[
                ("mem_info_vram_total", "206141652992"),
                ("product_name", "AMD Instinct MI300X"),
            ],
        );
        let (found, absent) = find_gpus(&machine);
        assert_eq!(found[0].model, "AMD Instinct MI300X");
        assert_eq!(found[0].memory_bytes, Some(206_141_652_992));
        assert!(absent[0].how.contains("modprobe amdgpu"), "{absent:?}");
        machine.link(&format!("{card}/driver"), "sys/bus/pci/drivers/amdgpu");
        machine
            .file("sys/bus/pci/drivers/amdgpu/bind", "")
            .file("sys/module/amdgpu/refcnt", "1");
        assert!(find_gpus(&machine).1[0].why.contains("/dev/kfd"));
        machine.file("dev/kfd", "");
        assert!(find_gpus(&machine).0[0].usable);
        // A display counts only if the machine has no GPU that programs can open.
        let makers = |machine: &Machine| Vec::from_iter(gpu_makers_here(&machine.tree()));
        let display = Machine::new();
        let ids = "0x030200 0x10de 0x2335";
        invent(&display, "0000:01:00.0", ids, None);
        assert_eq!(makers(&display), ["NVIDIA"]);
        invent(&machine, "0000:06:00.0", ids, None);
        assert_eq!(makers(&machine), ["AMD"]);
        // The function field of a partition's address is the partition number.
        let of = |address| super::super::pci::gpu_function(&machine.tree(), address);
        assert_eq!(of("0000:05:00.3"), "0000:05:00.0");
        for own in ["0000:05:00.0", "0000:06:00.1", "0000:77:00.1"] {
            assert_eq!(of(own), own);
        }
    }

    #[test]
    fn other_display_controllers_are_left_out() {
        let machine = Machine::new();
        invent(&machine, "0000:00:02.0", "0x030000 0x1a03 0x2000", None);
        let (found, absent) = find_gpus(&machine);
        assert!(found.is_empty());
        assert_eq!(absent[0].what, "GPUs");
    }
}
