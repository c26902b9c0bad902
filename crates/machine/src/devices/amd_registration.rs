//! Mechanisms by which a NIC can reach memory of AMD GPUs: dmabuf export, or amdgpu's peer memory client, which gives
//! RDMA devices the pages of a GPU. If one is missing, the reason is reported.

use super::super::kernel_files::Tree;
use super::Absent;
use super::amd_placement::{MOVE_NOTIFY, may_move};
use super::cuda::CudaGpu;
use super::kernel_config::KernelConfig;

/// Where RDMA drivers list amdgpu's peer memory client. The path differs between kernels and packages.
const PEERS: [&str; 3] = [
    "sys/kernel/mm/memory_peers/amdkfd/version",
    "sys/kernel/memory_peers/amdkfd/version",
    "sys/memory_peers/amdkfd/version",
];

/// Kernel option without which no other device can reach memory of a GPU.
const PEER_TO_PEER: &str = "CONFIG_PCI_P2PDMA";

const DMABUF: &str = "dmabuf of AMD GPUs";

/// Returns whether the kernel lists AMD's peer memory client, which translates GPU addresses for RDMA devices.
pub fn has_amd_peer_memory(tree: &Tree) -> bool {
    listed(tree).is_some()
}

/// Returns the path of the file that lists AMD's peer memory client, if there is one.
pub(super) fn listed(tree: &Tree) -> Option<String> {
    let path = PEERS.iter().find(|path| tree.exists(path))?;
    Some(format!("/{path}"))
}

/// Reports a missing peer memory client, if the host has amdgpu. The caller has checked for a GPU and an RDMA device.
pub(super) fn without_peer_memory(tree: &Tree, absent: &mut Vec<Absent>) {
    if tree.exists("sys/module/amdgpu") && listed(tree).is_none() {
        absent.push(Absent::new(
            "peer memory of AMD GPUs",
            "no amdkfd is under memory_peers in /sys/kernel/mm, /sys/kernel or /sys: amdgpu has not registered with the \
             drivers of RDMA devices, or those have no such list",
            "Register GPU memory as dmabuf, which needs no module. Else install amdgpu-dkms of AMD's packages, with the \
             card's drivers of MLNX_OFED or DOCA, and see `dmesg | grep PeerDirect`: Linux's own amdgpu has no such part.",
        ));
    }
}

/// Returns the kernel options that let amdgpu export memory, with the file that lists them. If the options are missing
/// or cannot be read, returns `None` and adds the reason to `absent`.
pub(super) fn kernel_exports(tree: &Tree, absent: &mut Vec<Absent>) -> Option<String> {
    if !tree.exists("sys/module/amdgpu") {
        return None;
    }
    let Some(config) = KernelConfig::read(tree) else {
        absent.push(Absent::new(
            DMABUF,
            "the kernel's configuration cannot be read (/proc/config.gz, /boot/config-*), so that it is not known whether \
             amdgpu exports memory of GPUs to others",
            "Ask the host, where this is a container: grep -E 'PCI_P2PDMA|DMABUF_MOVE_NOTIFY' /boot/config-$(uname -r).",
        ));
        return None;
    };
    let exports = config.option(PEER_TO_PEER) == Some(true);
    let in_place = config.option(MOVE_NOTIFY);
    if exports && in_place != Some(false) {
        let options: &[&str] = match in_place {
            Some(_) => &[PEER_TO_PEER, MOVE_NOTIFY],
            None => &[PEER_TO_PEER],
        };
        let devices = tree.names("sys/class/infiniband");
        if let Some(device) = devices.iter().find(|device| may_move(tree, device)) {
            absent.push(Absent::new(
                "dmabuf of AMD GPUs in their own memory",
                format!(
                    "before Linux 6.15 and amdgpu-dkms 6.14.14 amdgpu moves memory to the host, without an error, when a \
                     NIC registers it whose driver pins it, as any but mlx5's does; such as {device}"
                ),
                "Use a newer one of the two, or an mlx5 NIC; a remark in records shows where memory was moved, or may be.",
            ));
        }
        return Some(format!("{} ({})", options.join(", "), config.file));
    }
    let file = &config.file;
    let why = if exports {
        format!(
            "{MOVE_NOTIFY} is not set in {file}: amdgpu moves memory that another device registers to the host, without an \
             error"
        )
    } else {
        format!(
            "{PEER_TO_PEER} is not set in {file}: amdgpu lets no other device reach memory on its card"
        )
    };
    absent.push(Absent::new(
        DMABUF,
        why,
        "Use a kernel with CONFIG_PCI_P2PDMA=y, and CONFIG_DMABUF_MOVE_NOTIFY=y where it has that option.",
    ));
    None
}

/// Reports the GPUs with memory that the runtime cannot export. A GPU is not reported if the runtime cannot answer the
/// question, because an old runtime may nevertheless export memory.
pub(super) fn without_dmabuf(gpus: &[CudaGpu], absent: &mut Vec<Absent>) {
    let lacking = gpus.iter().filter(|gpu| gpu.dmabuf == Some(false));
    let names: Vec<String> = lacking.map(|gpu| format!("hip:{}", gpu.number)).collect();
    if !names.is_empty() {
        absent.push(Absent::new(
            DMABUF,
            format!(
                "{}: the runtime says that it exports none",
                names.join(", ")
            ),
            "It needs Linux 6.4 or newer, or amdgpu-dkms of AMD's packages.",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::*;

    #[test]
    fn a_registered_client_is_found_at_each_path() {
        let machine = Machine::new();
        let missed = |machine: &Machine| {
            let mut absent = Vec::new();
            without_peer_memory(&machine.tree(), &mut absent);
            absent.len()
        };
        // Without amdgpu, a missing client is not reported.
        assert_eq!(missed(&machine), 0);
        machine.file("sys/module/amdgpu/refcnt", "1");
        assert_eq!(missed(&machine), 1);
        for path in PEERS {
            let machine = Machine::new();
            machine
                .file("sys/module/amdgpu/refcnt", "1")
                .file(path, "1.0");
            assert_eq!(missed(&machine), 0);
            assert_eq!(listed(&machine.tree()), Some(format!("/{path}")));
        }
    }

    #[test]
    fn the_option_that_lacks_is_named() {
        let machine = Machine::new();
        let said = |machine: &Machine| {
            let mut absent = Vec::new();
            let found = kernel_exports(&machine.tree(), &mut absent);
            (found, absent.pop().map(|absent| absent.why))
        };
        assert_eq!(said(&machine), (None, None));
        machine.file("sys/module/amdgpu/refcnt", "1");
        let (found, why) = said(&machine);
        assert!(found.is_none() && why.unwrap().contains("cannot be read"));
        machine.file("proc/sys/kernel/osrelease", "6.8.0");
        let p2p = "CONFIG_PCI_P2PDMA=y";
        let both = format!("{p2p}\nCONFIG_DMABUF_MOVE_NOTIFY=y");
        let without = format!("{p2p}\n# CONFIG_DMABUF_MOVE_NOTIFY is not set");
        let two = "CONFIG_PCI_P2PDMA, CONFIG_DMABUF_MOVE_NOTIFY (/boot/config-6.8.0)";
        let no_p2p = Err("CONFIG_PCI_P2PDMA is not set in /boot/config-6.8.0");
        for (text, expected) in [
            ("CONFIG_DMABUF_MOVE_NOTIFY=y", no_p2p),
            (&without, Err("CONFIG_DMABUF_MOVE_NOTIFY is not set in")),
            // This kernel no longer has the option.
            (p2p, Ok("CONFIG_PCI_P2PDMA (/boot/config-6.8.0)")),
            (&both, Ok(two)),
        ] {
            machine.file("boot/config-6.8.0", text);
            let (found, why) = said(&machine);
            match expected {
                Ok(options) => assert_eq!((found.as_deref(), why), (Some(options), None)),
                Err(part) => assert!(found.is_none() && why.unwrap().starts_with(part), "{text}"),
            }
        }
        // This NIC's driver pins registered memory.
        machine.file("sys/class/infiniband/efa_0/node_type", "1");
        let (found, why) = said(&machine);
        assert!(found.is_some() && why.unwrap().ends_with("such as efa_0"));
        machine.file("sys/module/amdgpu/version", "6.14.14");
        assert_eq!(said(&machine).1, None);
    }

    #[test]
    fn only_a_runtime_known_to_export_nothing_is_reported() {
        let gpu = |number, dmabuf| CudaGpu {
            number,
            dmabuf,
            ..super::super::cuda::tests::gpu()
        };
        let mut absent = Vec::new();
        without_dmabuf(&[gpu(0, None), gpu(1, Some(true))], &mut absent);
        assert!(absent.is_empty());
        without_dmabuf(&[gpu(0, Some(false)), gpu(2, Some(false))], &mut absent);
        assert!(absent[0].why.starts_with("hip:0, hip:2: the runtime says"));
    }
}
