//! The place of a buffer of AMD's GPUs while a NIC has it as a dmabuf: the GPU's memory, or the host's, to which the
//! kernel's driver moves a buffer that it cannot keep in its place, without an error.

use super::super::kernel_files::Tree;
use super::kernel_config::KernelConfig;
use super::pci::gpu_function;

/// The option for exporting memory that is not moved to the host for it. Kernels that do so always do not have it.
pub(super) const MOVE_NOTIFY: &str = "CONFIG_DMABUF_MOVE_NOTIFY";

/// The release of Linux from which a buffer that a NIC's driver has pinned stays in the GPU's memory.
const PINS_IN_PLACE: [u32; 2] = [6, 15];

/// The version of amdgpu in AMD's own packages from which it does so on older kernels.
const PACKAGED_PINS_IN_PLACE: [u32; 3] = [6, 14, 14];

/// The driver that is told of a move in place of pinning, by its kernel's module.
const MOVES_ALONG: &str = "mlx5_core";

/// Bytes of a buffer, at least, that stand out of what others allocate meanwhile.
const SEEN_BYTES_MIN: u64 = 16 << 20;

/// Memory that a GPU's driver has in use, of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmdMemoryUse {
    /// Bytes of its own memory.
    own_bytes: u64,
    /// Bytes of the host's that it is given.
    host_bytes: u64,
}

impl AmdMemoryUse {
    /// The use of the GPU with a PCI address; `None` where the kernel does not tell.
    pub fn read(tree: &Tree, address: &str) -> Option<Self> {
        let function = format!("sys/bus/pci/devices/{}", gpu_function(tree, address));
        Some(Self {
            own_bytes: tree.number(format!("{function}/mem_info_vram_used"))?,
            host_bytes: tree.number(format!("{function}/mem_info_gtt_used"))?,
        })
    }

    /// Returns whether so many bytes went to the host between this and a later look: true where they were seen to,
    /// false where so many cannot be there; `None` where others may hide it, or it has happened before.
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

/// The doubt of where so many bytes are that an RDMA device (by its name) has registered as a dmabuf, with looks before
/// and after it; `None` where they are in the GPU's memory.
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

/// The doubt that follows from the kernel alone.
fn by_kernel(tree: &Tree, device: &str) -> Option<String> {
    // Without the module there is no such memory, and nobody to ask.
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

/// Returns whether amdgpu moves memory that an RDMA device registers, where the kernel has been built not to.
pub(super) fn may_move(tree: &Tree, device: &str) -> bool {
    let driver = tree.link_name(format!("sys/class/infiniband/{device}/device/driver"));
    // Linux's own amdgpu has no version.
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
        // In its place; too small to be seen; not told: this kernel is known to keep it there.
        assert_eq!(said(before, before, BYTES), None);
        assert_eq!(said(before, used(9 * BYTES, 2 * BYTES), 4096), None);
        assert_eq!(said(None, None, BYTES), None);
        // Somebody else frees meanwhile, or takes.
        assert_eq!(said(before, used(9 * BYTES, BYTES), BYTES), None);
        assert_eq!(said(before, used(10 * BYTES, 2 * BYTES), BYTES), None);
    }

    #[test]
    fn what_is_seen_in_its_place_is_not_doubted() {
        let machine = machine("6.8.0", "# CONFIG_DMABUF_MOVE_NOTIFY is not set");
        let same = used(BYTES, 0);
        let said = |before, after| {
            amd_dmabuf_doubt(&machine.tree(), "mlx5_0", before, after, BYTES).is_some()
        };
        assert!(!said(same, same));
        // So much is in the host's memory already: this, from an earlier registration, or somebody else's.
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
        // A container that sees no configuration; and no amdgpu at all.
        let machine = Machine::new();
        let said = |machine: &Machine| amd_dmabuf_doubt(&machine.tree(), "efa_0", None, None, 1);
        assert_eq!(said(&machine), None);
        machine.file("sys/module/amdgpu/refcnt", "1");
        assert!(said(&machine).unwrap().ends_with("cannot be read"));
    }

    /// Parts of a GPU have the files of their card.
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
