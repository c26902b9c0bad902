//! Finds out whether a buffer on an AMD GPU stays in GPU memory while a NIC has it registered as a dmabuf. If amdgpu
//! cannot keep the buffer in place, it moves the buffer to host memory without an error.

use super::super::kernel_files::Tree;
use super::kernel_config::KernelConfig;
use super::pci::gpu_function;

/// The kernel option for exporting memory without moving it to the host. Kernels that never move it do not have the
/// option.
pub(super) const MOVE_NOTIFY: &str = "CONFIG_DMABUF_MOVE_NOTIFY";

/// First Linux release that keeps a buffer in GPU memory while a NIC's driver has it pinned.
const PINS_IN_PLACE: [u32; 2] = [6, 15];

/// First version of AMD's packaged amdgpu that keeps pinned buffers in GPU memory even on older kernels.
const PACKAGED_PINS_IN_PLACE: [u32; 3] = [6, 14, 14];

/// Kernel module of the only NIC driver that does not pin buffers, but is notified when they move.
const MOVES_ALONG: &str = "mlx5_core";

/// Smallest buffer for which a move can be distinguished from allocations of other processes.
const SEEN_BYTES_MIN: u64 = 16 << 20;

/// A GPU's memory that all processes together use, as reported by the GPU's driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmdMemoryUse {
    /// Bytes of GPU memory.
    own_bytes: u64,
    /// Bytes of host memory given to the GPU.
    host_bytes: u64,
}

impl AmdMemoryUse {
    /// Reads the memory use of the GPU with this PCI address; `None` if the kernel does not report it.
    pub fn read(tree: &Tree, address: &str) -> Option<Self> {
        let function = format!("sys/bus/pci/devices/{}", gpu_function(tree, address));
        Some(Self {
            own_bytes: tree.number(format!("{function}/mem_info_vram_used"))?,
            host_bytes: tree.number(format!("{function}/mem_info_gtt_used"))?,
        })
    }

    /// Returns whether a buffer of `bytes` moved to the host between this reading and a later one. True if the move is
    /// visible; false if the host memory in use is too small for the buffer. `None` if other processes may hide a move,
    /// or an earlier buffer may have moved.
    fn moved(self, later: Self, bytes: u64) -> Option<bool> {
        let most = bytes / 4 * 3;
        let left = self.own_bytes.saturating_sub(later.own_bytes) >= most;
        let came = later.host_bytes.saturating_sub(self.host_bytes) >= most;
        if bytes >= SEEN_BYTES_MIN && left && came {
            return Some(true);
        }
        (later.host_bytes < most).then_some(false)
    }
}

/// Returns why a buffer of `bytes` may be in host memory although an RDMA device has registered it as a GPU dmabuf.
/// `before` and `after` are readings from before and after the registration. `None` if the buffer is in GPU memory.
pub fn amd_dmabuf_doubt(
    tree: &Tree,
    device: &str,
    before: Option<AmdMemoryUse>,
    after: Option<AmdMemoryUse>,
    bytes: u64,
) -> Option<String> {
    let seen = before.zip(after);
    match seen.and_then(|(before, after)| before.moved(after, bytes)) {
        Some(true) => Some(format!(
            "amdgpu moved the GPU's memory to the host when {device} registered it (mem_info_vram_used and mem_info_gtt_used): \
             bytes go to and from memory of the host"
        )),
        Some(false) => None,
        None => by_kernel(tree, device),
    }
}

/// Returns the same as [`amd_dmabuf_doubt`], but judged only by the kernel's version and configuration.
fn by_kernel(tree: &Tree, device: &str) -> Option<String> {
    // Without amdgpu, this host has no GPU memory that amdgpu could move.
    if !tree.exists("sys/module/amdgpu") {
        return None;
    }
    let config = KernelConfig::read(tree);
    let unset = |config: &&KernelConfig| config.option(MOVE_NOTIFY) == Some(false);
    let why = match &config {
        None => "the kernel's configuration cannot be read".to_owned(),
        Some(config) if unset(&config) => format!("{MOVE_NOTIFY} is not set in {}", config.file),
        Some(_) if may_move(tree, device) => {
            "before Linux 6.15 and amdgpu-dkms 6.14.14 amdgpu does so for every NIC but mlx5's"
                .to_owned()
        }
        Some(_) => return None,
    };
    Some(format!(
        "the GPU's memory may be the host's while {device} has it as a dmabuf, to which amdgpu moves what it cannot keep in \
         place, without an error: {why}"
    ))
}

/// Returns whether amdgpu moves memory when an RDMA device registers it, on a kernel that has `MOVE_NOTIFY` set.
pub(super) fn may_move(tree: &Tree, device: &str) -> bool {
    let driver = tree.link_name(format!("sys/class/infiniband/{device}/device/driver"));
    // Only amdgpu from AMD's packages has a version.
    let releases: [(&str, &[u32]); 2] = [
        ("proc/sys/kernel/osrelease", &PINS_IN_PLACE),
        ("sys/module/amdgpu/version", &PACKAGED_PINS_IN_PLACE),
    ];
    let pins_in_place = releases.into_iter().any(|(file, least)| {
        let text = tree.text(file).unwrap_or_default();
        let numbers = text.split(|c: char| !c.is_ascii_digit());
        let numbers: Vec<u32> = numbers.map_while(|number| number.parse().ok()).collect();
        numbers.as_slice() >= least
    });
    driver.as_deref() != Some(MOVES_ALONG) && !pins_in_place
}

#[cfg(test)]
mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::*;

    const BYTES: u64 = 32 << 20;

    fn used(own_bytes: u64, host_bytes: u64) -> Option<AmdMemoryUse> {
        Some(AmdMemoryUse {
            own_bytes,
            host_bytes,
        })
    }

    fn machine(release: &str, config: &str) -> Machine {
        let machine = Machine::new();
        machine.files(
            "",
            &[
                ("sys/module/amdgpu/refcnt", "1"),
                ("proc/sys/kernel/osrelease", release),
                (&format!("boot/config-{release}"), config),
            ],
        );
        for (device, driver) in [("mlx5_0", "mlx5_core"), ("bnxt_re0", "bnxt_en")] {
            let driver_path = format!("sys/bus/pci/drivers/{driver}");
            machine.file(&format!("{driver_path}/bind"), "");
            let link = format!("sys/class/infiniband/{device}/device/driver");
            machine.link(&link, &driver_path);
        }
        machine
    }

    #[test]
    fn memory_that_changes_its_place_is_seen() {
        let machine = machine("6.20.0", "CONFIG_PCI_P2PDMA=y");
        let said = |before, after, bytes| {
            amd_dmabuf_doubt(&machine.tree(), "bnxt_re0", before, after, bytes)
        };
        let before = used(10 * BYTES, BYTES);
        let moved = said(before, used(9 * BYTES, 2 * BYTES), BYTES).unwrap();
        assert!(moved.starts_with("amdgpu moved"), "{moved}");
        // Three cases without doubt: the buffer did not move; it is too small for a move to be visible; there are no
        // readings, but this kernel keeps buffers in place.
        assert_eq!(said(before, before, BYTES), None);
        assert_eq!(said(before, used(9 * BYTES, 2 * BYTES), 4096), None);
        assert_eq!(said(None, None, BYTES), None);
        // Another process frees GPU memory, or allocates host memory, during the registration.
        assert_eq!(said(before, used(9 * BYTES, BYTES), BYTES), None);
        assert_eq!(said(before, used(10 * BYTES, 2 * BYTES), BYTES), None);
    }

    #[test]
    fn memory_seen_in_place_is_not_doubted() {
        let machine = machine("6.8.0", "# CONFIG_DMABUF_MOVE_NOTIFY is not set");
        let same = used(BYTES, 0);
        let said = |before, after| {
            amd_dmabuf_doubt(&machine.tree(), "mlx5_0", before, after, BYTES).is_some()
        };
        assert!(!said(same, same));
        // The GPU already uses as much host memory as the buffer needs, from an earlier registration of this buffer or
        // from another process. So a move cannot be ruled out.
        let earlier = used(0, BYTES);
        assert!(said(earlier, earlier) && said(same, earlier.and(used(BYTES, BYTES))));
        assert!(said(same, None));
    }

    #[test]
    fn kernels_are_doubted_that_may_move_it() {
        const BOTH: &str = "CONFIG_PCI_P2PDMA=y\nCONFIG_DMABUF_MOVE_NOTIFY=y";
        const UNSET: &str = "CONFIG_PCI_P2PDMA=y\n# CONFIG_DMABUF_MOVE_NOTIFY is not set";
        let moves = Some("before Linux 6.15");
        let unset = Some("CONFIG_DMABUF_MOVE_NOTIFY is not set in /boot");
        for (release, config, version, device, part) in [
            ("6.8.0-31", BOTH, "", "mlx5_0", None),
            ("6.8.0-31", BOTH, "", "bnxt_re0", moves),
            ("6.8.0-31", BOTH, "", "efa_0", moves),
            ("6.8.0-31", BOTH, "6.14.13", "bnxt_re0", moves),
            ("6.8.0-31", BOTH, "6.14.14", "bnxt_re0", None),
            ("6.15.1", BOTH, "", "bnxt_re0", None),
            ("7.0.0", BOTH, "", "bnxt_re0", None),
            ("6.8.0-31", UNSET, "", "mlx5_0", unset),
            ("6.15.1", UNSET, "", "bnxt_re0", unset),
        ] {
            let machine = machine(release, config);
            if !version.is_empty() {
                machine.file("sys/module/amdgpu/version", version);
            }
            let said = amd_dmabuf_doubt(&machine.tree(), device, None, None, BYTES);
            let case = format!("{release} {version} {device}: {said:?}");
            match part {
                None => assert!(said.is_none(), "{case}"),
                Some(part) => assert!(said.is_some_and(|said| said.contains(part)), "{case}"),
            }
        }
        // A host without amdgpu, then a container that cannot read the kernel's configuration.
        let machine = Machine::new();
        let said = |machine: &Machine| amd_dmabuf_doubt(&machine.tree(), "efa_0", None, None, 1);
        assert_eq!(said(&machine), None);
        machine.file("sys/module/amdgpu/refcnt", "1");
        assert!(said(&machine).unwrap().ends_with("cannot be read"));
    }

    /// The memory use of a partition is read from the PCI device of the whole GPU.
    #[test]
    fn use_is_read_of_the_card() {
        let machine = Machine::new();
        let card = "sys/bus/pci/devices/0000:05:00.0";
        machine.file(&format!("{card}/vendor"), "0x1002");
        let read = |machine: &Machine| AmdMemoryUse::read(&machine.tree(), "0000:05:00.3");
        assert_eq!(read(&machine), None);
        let used_bytes = [("mem_info_vram_used", "4096"), ("mem_info_gtt_used", "64")];
        machine.files(card, &used_bytes);
        assert_eq!(read(&machine), used(4096, 64));
    }
}
