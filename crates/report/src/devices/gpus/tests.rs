//! Golden output of the GPU groups.

use super::super::rows::group;
use super::*;
use tonnage_machine::Topology;
use tonnage_machine::devices::PciPath;
use tonnage_machine::kernel_files::invented::Machine;

/// A host with two GPUs and an RDMA device below one switch, and a third GPU at the other socket. `gpu` holds PCI
/// class, vendor and device of the GPUs.
fn host_with(gpu: [&str; 3]) -> Machine {
    let machine = Machine::new();
    machine.processors(2, 2, 1);
    let up = "pci0000:00/0000:00:01.0/0000:01:00.0";
    let nic = ["0x020700", "0x15b3", "0x1021"];
    for (place, ids, node) in [
        (format!("{up}/0000:02:00.0/0000:03:00.0"), gpu, "0"),
        (format!("{up}/0000:02:01.0/0000:04:00.0"), gpu, "0"),
        (format!("{up}/0000:02:02.0/0000:05:00.0"), nic, "0"),
        ("pci0000:80/0000:80:01.0/0000:83:00.0".to_owned(), gpu, "1"),
    ] {
        let path = format!("sys/devices/{place}");
        for (file, text) in ["class", "vendor", "device"].into_iter().zip(ids) {
            machine.file(&format!("{path}/{file}"), text);
        }
        machine.file(&format!("{path}/numa_node"), node);
        // As on an H100: the first BAR is 64-bit and takes two entries.
        let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000";
        let bar0 = "0x0000224042000000 0x0000224042ffffff 0x000000000014220c";
        let bar1 = "0x0000220000000000 0x0000221fffffffff 0x000000000014220c";
        machine.file(&format!("{path}/resource"), &[bar0, none, bar1].join("\n"));
        let address = place.rsplit('/').next().unwrap();
        machine.link(&format!("sys/bus/pci/devices/{address}"), &path);
    }
    let port = "sys/class/infiniband/mlx5_0";
    machine.file(&format!("{port}/ports/1/state"), "4: ACTIVE");
    machine.link(
        &format!("{port}/device"),
        "sys/bus/pci/devices/0000:05:00.0",
    );
    machine
}

/// Returns the same host, with NVIDIA GPUs and their driver.
fn machine() -> Machine {
    let machine = host_with(["0x030200", "0x10de", "0x2330"]);
    machine
        .file("sys/module/nvidia/version", "570.1")
        .file("sys/module/nvidia_peermem/refcnt", "0")
        .file(
            "proc/driver/nvidia/gpus/0000:83:00.0/information",
            "Model: \t\t NVIDIA H100 80GB HBM3\nDevice Minor: \t 2",
        )
        .file(
            "proc/driver/nvidia/capabilities/gpu2/mig/gi9/ci0/access",
            "",
        );
    machine
}

fn inventory(machine: &Machine) -> Inventory {
    let topology = Topology::read_from(&machine.tree(), vec![]);
    Inventory::read_from(&machine.tree(), &topology, Err("none".to_owned()))
}

fn drawn(found: &Inventory) -> String {
    let mut page = String::new();
    for (heading, rows) in [
        ("GPUs", gpus(&found.gpus)),
        ("Slices of GPUs (MIG)", slices(&found.gpus)),
        ("GPU to GPU", pairs(found)),
        ("GPU to nearest NICs", nics(found)),
    ] {
        group(&mut page, heading, &rows);
    }
    page
}

#[test]
fn gpus_of_a_stored_machine_are_drawn() {
    insta::assert_snapshot!(drawn(&inventory(&machine())));
}

/// The page must show AMD GPUs with their partitions, runtime names, and whether NICs can reach their memory.
#[test]
fn amd_gpus_are_drawn_with_facts_from_the_kernel() {
    let machine = host_with(["0x120000", "0x1002", "0x74a1"]);
    let gpu = "sys/bus/pci/devices/0000:83:00.0";
    machine
        .file("sys/module/amdgpu/refcnt", "1")
        .file("proc/sys/kernel/osrelease", "6.8.0")
        .file("boot/config-6.8.0", "# CONFIG_PCI_P2PDMA is not set")
        .file(&format!("{gpu}/current_compute_partition"), "DPX");
    let mut found = inventory(&machine);
    let missing = |found: &Inventory, what: &str| {
        let mut absent = found.absent.iter();
        absent.any(|absent| absent.what == format!("{what} of AMD GPUs"))
    };
    assert!(missing(&found, "dmabuf") && missing(&found, "peer memory"));
    assert_eq!(slices(&found.gpus)[0][1], "DPX");
    found.hip = vec![CudaGpu {
        pci_address: "0000:83:00.0".to_owned(),
        ..cuda_gpu()
    }];
    let page = drawn(&found);
    assert!(
        page.contains("  hip:0 ") && !page.contains("  module  "),
        "{page}"
    );
    // If a GPU has two partitions, no runtime name means the whole GPU, so its PCI address is printed.
    let part = found.hip[0].clone();
    found.hip.push(CudaGpu { number: 1, ..part });
    let names = GpuNames::new(&found);
    assert_eq!(names.name("0000:83:00.0"), "83:00.0");
    machine
        .file("boot/config-6.8.0", "CONFIG_PCI_P2PDMA=y")
        .file("sys/kernel/mm/memory_peers/amdkfd/version", "1.0");
    let found = inventory(&machine);
    assert!(!missing(&found, "dmabuf") && !missing(&found, "peer memory"));
    let rows = nics(&found);
    let kernel = ["kernel", "CONFIG_PCI_P2PDMA (/boot/config-6.8.0)"];
    assert!(rows.iter().any(|row| row[..2] == kernel), "{rows:?}");
    let module = ["module", "amdgpu", "hands memory of AMD GPUs to NICs"];
    assert!(rows.iter().any(|row| row[..] == module), "{rows:?}");
}

/// Pairs that differ in links or in the access of one direction must get different labels.
#[test]
fn pairs_are_told_apart_by_links_and_access() {
    let mut found = inventory(&machine());
    let links = |count, switched, bytes_per_s| {
        let kind = "NVLink".to_owned();
        Some(GpuLinks {
            kind,
            count: Some(count),
            switched,
            bytes_per_s,
        })
    };
    let access = |granted, why_not: Option<&str>| {
        Some(tonnage_machine::devices::PeerAccess {
            granted,
            native_atomics: granted,
            performance_rank: u32::from(!granted),
            why_not: why_not.map(str::to_owned),
        })
    };
    for pair in &mut found.gpu_pairs {
        (pair.links, pair.access) = match (&pair.from[5..7], &pair.to[5..7]) {
            ("03", "04") => (links(18, true, Some(478_116_000_000)), access(true, None)),
            ("04", "03") => (links(1, false, None), access(true, None)),
            (_, "83") => (None, access(false, Some("the chipset does not support it"))),
            _ => (None, access(true, None)),
        };
    }
    insta::assert_snapshot!(drawn(&found));
}

/// Sixteen GPUs must take three blocks of columns, and no block may be wider than the page.
#[test]
fn a_large_matrix_keeps_to_the_width() {
    let mut found = inventory(&machine());
    let address = |number: u32| format!("0001:{number:02x}:00.0");
    let pair = found.gpu_pairs[0].clone();
    found.gpu_pairs.clear();
    for from in 0..16 {
        for to in (0..16).filter(|to| *to != from) {
            let links = GpuLinks {
                kind: "NVLink".to_owned(),
                count: Some(18),
                switched: true,
                bytes_per_s: None,
            };
            let (from, to) = (address(from), address(to));
            found.gpu_pairs.push(GpuPair {
                from,
                to,
                links: Some(links),
                ..pair.clone()
            });
        }
    }
    let mut page = String::new();
    let rows = pairs(&found);
    group(&mut page, "GPU to GPU", &rows);
    assert_eq!(rows.len(), 3 * 17 + 1, "{page}");
    // Addresses outside the default PCI domain are printed in full.
    assert!(page.contains("0001:0f:00.0"), "{page}");
    crate::tests::fits(&page);
}

/// Lines must fit the page even with long GPU names, idle links, and the longest reason for each pair.
#[test]
fn no_line_is_wider_than_the_page() {
    let mut found = inventory(&machine());
    for gpu in &mut found.gpus {
        gpu.model = "NVIDIA H100 80GB HBM3".to_owned();
        gpu.driver = Some("nvidia".to_owned());
        gpu.pci.link = Some(tonnage_machine::devices::PcieLink {
            generation: 1,
            lanes: 16,
            bytes_per_s: 4_000_000_000,
            generation_max: 5,
            lanes_max: 16,
            below_maximum: true,
        });
    }
    for (place, pair) in found.gpu_pairs.iter_mut().enumerate() {
        pair.pci = [PciPath::Node, PciPath::Sockets][place % 2];
        pair.access = Some(tonnage_machine::devices::PeerAccess {
            granted: false,
            native_atomics: false,
            performance_rank: 1,
            why_not: Some("they are below different root complexes".repeat(3)),
        });
    }
    let page = drawn(&found);
    let widest = page.lines().map(|line| line.chars().count()).max();
    let (least, most) = (Some(WIDTH - 10), Some(WIDTH));
    assert!(widest > least && widest <= most, "{widest:?}\n{page}");
    // Folded lines keep all their text.
    assert!(
        page.contains("\n      PCIe 1 x16, 4.0 GB/s (BELOW its maximum: PCIe 5 x16)\n"),
        "{page}"
    );
    let words: Vec<&str> = page.split_whitespace().collect();
    let reason = format!(
        "access: {}",
        "they are below different root complexes".repeat(3)
    );
    assert!(words.join(" ").contains(&reason), "{page}");
}

/// If a GPU has links to the host, they are printed instead of the BAR size. If the number of links is unknown, none is
/// printed.
#[test]
fn links_other_than_pci_are_named_as_far_as_known() {
    let mut found = inventory(&machine());
    let links = |kind: &str, count| GpuLinks {
        kind: kind.to_owned(),
        count,
        switched: false,
        bytes_per_s: None,
    };
    found.gpus[0].host_links = Some(links("NVLink-C2C", Some(10)));
    assert_eq!(gpus(&found.gpus)[0][6], "NVLink-C2C x10 to the host");
    found.gpu_pairs[0].links = Some(links("XGMI", None));
    let rows = pairs(&found);
    assert_eq!(rows[1][2], "XGMI");
    assert!(
        rows.concat().join("\n").contains("XGMI, over other GPUs"),
        "{rows:?}"
    );
}

fn cuda_gpu() -> CudaGpu {
    CudaGpu {
        number: 0,
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        uuid: "d1d1d1d1-d1d1-d1d1-d1d1-d1d1d1d1d1d1".to_owned(),
        memory_bytes: 80 << 30,
        pci_address: "0000:1b:00.0".to_owned(),
        compute: "9.0".to_owned(),
        copy_engines: Some(3),
        memory_bytes_per_s: Some(3_352_320_000_000),
        dmabuf: Some(true),
        cuda_version: "12.4".to_owned(),
    }
}

/// An unknown figure must leave its cell empty and not shift the columns.
#[test]
fn gpus_have_their_memorys_rate_and_copy_engines() {
    let mut gpu = cuda_gpu();
    let row = driver_gpus(("cuda", "CUDA"), std::slice::from_ref(&gpu)).remove(0);
    assert_eq!(row[2..5], ["80 GiB", "3352 GB/s", "3 copy engines"]);
    (gpu.copy_engines, gpu.memory_bytes_per_s) = (Some(1), None);
    let unknown = driver_gpus(("cuda", "CUDA"), &[gpu]).remove(0);
    assert_eq!(unknown[2..5], ["80 GiB", "", "1 copy engine"]);
    assert_eq!(unknown.len(), row.len());
}
