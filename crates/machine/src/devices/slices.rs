//! Parts of divided GPUs: NVIDIA's MIG slices, as the driver lists them for access control, and AMD's compute
//! partitions.

use std::path::Path;

use super::super::kernel_files::Tree;
use super::xgmi;

/// Returns the slices of the GPU with this minor number, such as "gi1/ci0". A GPU instance (gi) owns a part of the
/// memory and copy engines; a compute instance (ci) in it owns processors. Empty for a whole GPU.
pub(super) fn slices(tree: &Tree, minor: &str) -> Vec<String> {
    let mig = format!("proc/driver/nvidia/capabilities/gpu{minor}/mig");
    let parts = |path: &str, prefix: &str| {
        let mut names = tree.names(path);
        names.retain(|name| name.strip_prefix(prefix).is_some_and(is_number));
        names
    };
    let mut slices = Vec::new();
    for instance in parts(&mig, "gi") {
        let compute = parts(&format!("{mig}/{instance}"), "ci");
        if compute.is_empty() {
            // A GPU instance without compute instances cannot run anything yet, but is listed too.
            slices.push(instance);
        } else {
            slices.extend(compute.iter().map(|part| format!("{instance}/{part}")));
        }
    }
    slices
}

/// Compute partition modes of an AMD GPU, each with its number of partitions. `None` means that the number varies: CPX
/// has one partition for each die. Any other word of the kernel means that the GPU is whole.
const MODES: [(&str, Option<usize>); 4] = [
    ("DPX", Some(2)),
    ("TPX", Some(3)),
    ("QPX", Some(4)),
    ("CPX", None),
];

/// Returns the compute partitions of the AMD GPU at this path, such as "CPX part 0 (NPS4)". "CPX" is the mode; "NPS4"
/// means that the memory is divided into 4 domains. Empty for a whole GPU, and for a GPU without these modes.
pub(super) fn partitions(tree: &Tree, path: &Path, address: &str) -> Vec<String> {
    let text = |file: &str| tree.text(path.join(file));
    let word = text("current_compute_partition").unwrap_or_default();
    let Some((mode, count)) = MODES.into_iter().find(|(mode, _)| *mode == word) else {
        return Vec::new();
    };
    let memory = text("current_memory_partition");
    let memory = memory.map_or_else(String::new, |memory| format!(" ({memory})"));
    // Each partition is a node of the driver's list, but a container may see only its own partition.
    let seen = xgmi::nodes_at(tree, address);
    if count.map_or(seen == 0, |count| seen != count) {
        return vec![format!("{mode}{memory}")];
    }
    let part = |part: usize| format!("{mode} part {part}{memory}");
    (0..seen).map(part).collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::*;

    #[test]
    fn partitions_are_those_of_the_mode_that_is_set() {
        let machine = Machine::new();
        let path = "sys/bus/pci/devices/0000:05:00.0";
        let found = |machine: &Machine| {
            let path = Path::new(path);
            partitions(&machine.tree(), path, "0000:05:00.0")
        };
        assert!(found(&machine).is_empty());
        let set = |mode: &str| {
            machine.file(&format!("{path}/current_compute_partition"), mode);
        };
        for whole in ["SPX\n", "UNKNOWN\n"] {
            set(whole);
            assert!(found(&machine).is_empty(), "{whole}");
        }
        set("CPX\n");
        assert_eq!(found(&machine), ["CPX"]);
        machine.file(&format!("{path}/current_memory_partition"), "NPS4\n");
        // Two partitions of this GPU, with their numbers in the function field, and one partition of another GPU.
        for (node, location) in [(1, 1280), (2, 1281), (3, 33536)] {
            let file = format!("sys/class/kfd/kfd/topology/nodes/{node}/properties");
            machine.file(&file, &format!("location_id {location}\ndomain 0"));
        }
        assert_eq!(found(&machine), ["CPX part 0 (NPS4)", "CPX part 1 (NPS4)"]);
        set("DPX\n");
        assert_eq!(found(&machine), ["DPX part 0 (NPS4)", "DPX part 1 (NPS4)"]);
        // Only two of four partitions are visible, and it is unknown which two.
        set("QPX\n");
        assert_eq!(found(&machine), ["QPX (NPS4)"]);
    }

    #[test]
    fn slices_are_listed_by_instance_and_processors() {
        let machine = Machine::new();
        let root = "proc/driver/nvidia/capabilities";
        machine.file(&format!("{root}/mig/config"), "");
        assert!(slices(&machine.tree(), "0").is_empty());
        for slice in ["gi10/ci0", "gi2/ci0", "gi2/ci1", "gi7"] {
            let file = format!("{root}/gpu0/mig/{slice}/access");
            machine.file(&file, "DeviceFileMinor: 3");
        }
        let found = slices(&machine.tree(), "0");
        assert_eq!(found, ["gi2/ci0", "gi2/ci1", "gi7", "gi10/ci0"]);
        assert!(slices(&machine.tree(), "1").is_empty());
    }
}
