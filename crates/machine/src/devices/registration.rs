//! Mechanisms by which a NIC can reach memory of NVIDIA GPUs: dmabuf export, or the peer memory module, which gives
//! RDMA devices the pages of a GPU. If one is missing, the reason is reported.

use super::super::kernel_files::Tree;
use super::Absent;
use super::cuda::CudaGpu;

/// Modules that let RDMA devices register GPU addresses: NVIDIA's own, and its predecessor.
const MODULES: [&str; 2] = ["nvidia_peermem", "nv_peer_mem"];

/// Returns the name of the loaded module; `None` if neither is loaded.
pub fn peer_memory_module(tree: &Tree) -> Option<String> {
    let loaded = |name: &&str| tree.exists(format!("sys/module/{name}"));
    MODULES.into_iter().find(loaded).map(str::to_owned)
}

/// Reports a missing module, if the host has NVIDIA's driver. The caller has checked for a GPU and an RDMA device.
pub(super) fn without_module(tree: &Tree, absent: &mut Vec<Absent>) {
    if tree.exists("sys/module/nvidia") && peer_memory_module(tree).is_none() {
        absent.push(Absent::new(
            "peer memory of NVIDIA GPUs",
            "there is neither /sys/module/nvidia_peermem nor /sys/module/nv_peer_mem: it is not loaded",
            "Run `modprobe nvidia_peermem`, which comes with NVIDIA's driver and loads only with the card's drivers of \
             MLNX_OFED or DOCA, or a kernel with their patch; or register GPU memory as dmabuf, which needs no module.",
        ));
    }
}

/// Reports why the driver does not export memory of these GPUs as a dmabuf.
pub(super) fn without_dmabuf(tree: &Tree, gpus: &[CudaGpu], absent: &mut Vec<Absent>) {
    let names = |dmabuf: Option<bool>| {
        let all = gpus.iter().filter(|gpu| gpu.dmabuf == dmabuf);
        let names: Vec<String> = all.map(|gpu| format!("cuda:{}", gpu.number)).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let what = "dmabuf of NVIDIA GPUs";
    if let Some(names) = names(None) {
        let why =
            format!("{names}: the driver does not know the question, which came with CUDA 11.7");
        let how = "Install a driver of CUDA 11.7 (515) or newer, with its open kernel modules.";
        absent.push(Absent::new(what, why, how));
    }
    let Some(names) = names(Some(false)) else {
        return;
    };
    let text = tree.text("proc/driver/nvidia/version");
    let modules = text.map(|text| text.contains("Open Kernel Module"));
    let (why, how) = match modules {
        Some(false) => (
            "the kernel module is the proprietary one, which exports none",
            "Install the driver's open kernel modules (nvidia-open), which GPUs from Turing on have.",
        ),
        _ => (
            "the driver says that it exports none",
            "It needs the driver's open kernel modules (nvidia-open), Linux 5.12 or newer, and a GPU from Turing on that is \
             not shared out to virtual machines.",
        ),
    };
    absent.push(Absent::new(what, format!("{names}: {why}"), how));
}

#[cfg(test)]
mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::*;

    #[test]
    fn a_module_is_named_or_missed() {
        let machine = Machine::new();
        let missed = |machine: &Machine| {
            let mut absent = Vec::new();
            without_module(&machine.tree(), &mut absent);
            absent.pop()
        };
        // Without NVIDIA's driver, a missing module is not reported.
        assert_eq!(missed(&machine), None);
        machine.file("sys/module/nvidia/version", "570.1");
        let how = missed(&machine).unwrap().how;
        let advice = "modprobe nvidia_peermem`, which comes with NVIDIA's driver and loads only";
        assert!(how.contains(advice), "{how}");
        machine.file("sys/module/nv_peer_mem/refcnt", "0");
        assert_eq!(missed(&machine), None);
        let found = peer_memory_module(&machine.tree());
        assert_eq!(found.as_deref(), Some("nv_peer_mem"));
    }

    #[test]
    fn the_reason_without_dmabuf_is_that_of_this_driver() {
        let machine = Machine::new();
        let gpu = |number, dmabuf| CudaGpu {
            number,
            dmabuf,
            ..super::super::cuda::tests::gpu()
        };
        let said = |gpus: &[CudaGpu]| {
            let mut absent = Vec::new();
            without_dmabuf(&machine.tree(), gpus, &mut absent);
            let whys = absent.into_iter().map(|absent| absent.why);
            whys.collect::<Vec<_>>()
        };
        assert!(said(&[gpu(0, Some(true))]).is_empty());
        let some = [gpu(0, None), gpu(1, Some(false)), gpu(2, Some(false))];
        let both = said(&some);
        assert!(
            both[0].starts_with("cuda:0: the driver does not know"),
            "{both:?}"
        );
        assert!(
            both[1].starts_with("cuda:1, cuda:2: the driver says"),
            "{both:?}"
        );
        let version = "proc/driver/nvidia/version";
        for (kind, why) in [
            ("UNIX Open Kernel Module for x86_64", "the driver says"),
            ("UNIX x86_64 Kernel Module", "the proprietary one"),
        ] {
            machine.file(version, &format!("NVRM version: NVIDIA {kind}  570.1"));
            assert!(said(&some)[1].contains(why), "{kind}");
        }
    }
}
