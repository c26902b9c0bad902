//! Slices of NVIDIA's GPUs (MIG), as the driver lists them for access control.

use super::super::kernel_files::Tree;

/// Slices of the GPU with this minor number, such as "gi1/ci0": a part of its memory and copy engines (a GPU instance),
/// and processors in it (a compute instance). Empty for a GPU that is whole.
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
        match compute.is_empty() {
            // Nothing can run in it yet.
            true => slices.push(instance),
            false => slices.extend(compute.iter().map(|part| format!("{instance}/{part}"))),
        }
    }
    slices
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::*;

    #[test]
    fn slices_are_listed_by_instance_and_processors() {
        let machine = Machine::new();
        let root = "proc/driver/nvidia/capabilities";
        machine.file(&format!("{root}/mig/config"), "");
        assert!(slices(&machine.tree(), "0").is_empty());
        for file in [
            "gi10/ci0/access",
            "gi2/ci0/access",
            "gi2/ci1/access",
            "gi7/access",
        ] {
            machine.file(&format!("{root}/gpu0/mig/{file}"), "DeviceFileMinor: 3");
        }
        assert_eq!(
            slices(&machine.tree(), "0"),
            ["gi2/ci0", "gi2/ci1", "gi7", "gi10/ci0"]
        );
        assert!(slices(&machine.tree(), "1").is_empty());
    }
}
