//! The kernel module that posts one-sided operations, for `verbs:kernel`.

use serde::{Deserialize, Serialize};
use tonnage_sys::kread::{KREAD_ABI, KREAD_DEVICE};

use super::Absent;
use super::rdma::RdmaDevice;
use crate::kernel_files::Tree;

/// The loaded kernel module, with an ABI that this program supports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelModule {
    /// Name of the module.
    pub name: String,
    /// Version of the module.
    pub version: String,
    /// Number of the module's ABI, the layout of its calls.
    pub abi: u32,
    /// Device file of the module.
    pub device: String,
}

const NAME: &str = "tonnage_kread";

/// Looks for the module, if there are RDMA devices. tonnage itself never loads it.
pub(super) fn find(
    tree: &Tree,
    rdma: &[RdmaDevice],
    absent: &mut Vec<Absent>,
) -> Option<KernelModule> {
    if rdma.is_empty() {
        return None;
    }
    let text = |name: &str| tree.text(format!("sys/module/{NAME}/{name}"));
    let what = format!("module {NAME} (verbs:kernel)");
    let Some(version) = text("version") else {
        absent.push(Absent::new(
            what,
            format!("there is no /sys/module/{NAME}: it is not loaded"),
            "Build it and load it as root, as kernel/tonnage_kread/README.md says: make -C kernel/tonnage_kread, then insmod. \
             It posts reads and writes in the kernel, and is never loaded automatically.",
        ));
        return None;
    };
    let abi = text("parameters/abi").and_then(|number| number.parse::<u32>().ok());
    if abi == Some(KREAD_ABI) {
        return Some(KernelModule {
            name: NAME.to_owned(),
            version,
            abi: KREAD_ABI,
            device: KREAD_DEVICE.to_owned(),
        });
    }
    let has = abi.map_or_else(|| "none".to_owned(), |abi| abi.to_string());
    absent.push(Absent::new(
        what,
        format!("version {version} is loaded, which has layout {has} of its calls, and this program {KREAD_ABI}"),
        format!(
            "Build the module of this tonnage version and load it: make -C kernel/{NAME}, rmmod {NAME}, insmod \
             kernel/{NAME}/{NAME}.ko."
        ),
    ));
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_files::invented::Machine;

    fn found(files: &[(&str, &str)]) -> (Option<KernelModule>, Vec<Absent>) {
        let machine = Machine::new();
        machine.file("sys/class/infiniband/rxeA/ports/1/state", "4: ACTIVE");
        for (path, text) in files {
            machine.file(&format!("sys/module/tonnage_kread/{path}"), text);
        }
        let mut absent = Vec::new();
        let tree = machine.tree();
        let module = find(&tree, &RdmaDevice::all(&tree), &mut absent);
        (module, absent)
    }

    #[test]
    fn the_module_is_reported_with_its_version_or_how_to_get_it() {
        let (module, absent) = found(&[("version", "1.0.0"), ("parameters/abi", "1")]);
        assert_eq!(module.map(|it| it.version).as_deref(), Some("1.0.0"));
        assert!(absent.is_empty());
        let (module, absent) = found(&[]);
        assert_eq!(module, None);
        assert!(absent[0].why.contains("not loaded") && absent[0].how.contains("insmod"));
        let (module, absent) = found(&[("version", "9.9"), ("parameters/abi", "7")]);
        assert_eq!(module, None);
        assert!(absent[0].why.contains("9.9") && absent[0].why.contains("layout 7 of its calls"));
    }

    #[test]
    fn without_rdma_devices_it_is_not_missing() {
        let mut absent = Vec::new();
        assert_eq!(find(&Machine::new().tree(), &[], &mut absent), None);
        assert!(absent.is_empty());
    }
}
