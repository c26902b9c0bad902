//! Memory and huge pages, as the kernel's own files tell.

use serde::{Deserialize, Serialize};

use super::kernel_files::{Tree, marked};

/// The pool of one size of huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HugePool {
    /// Size of one page.
    pub page_bytes: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Pages of the pool that nobody holds.
    pub free: u64,
}

/// The pools of all sizes that the CPU knows, smallest page first; empty where the kernel has no huge pages.
pub fn huge_pools(tree: &Tree) -> Vec<HugePool> {
    let root = "sys/kernel/mm/hugepages";
    let mut pools: Vec<HugePool> = tree
        .names(root)
        .into_iter()
        .filter_map(|name| {
            let kib: u64 = name
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()?;
            Some(HugePool {
                page_bytes: kib.checked_mul(1024)?,
                total: tree.number(format!("{root}/{name}/nr_hugepages"))?,
                free: tree.number(format!("{root}/{name}/free_hugepages"))?,
            })
        })
        .collect();
    pools.sort_unstable_by_key(|pool| pool.page_bytes);
    pools
}

/// The kernel's policy for transparent huge pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Transparent {
    /// For private memory: "always", "madvise", "never", or "unknown: " and why.
    pub enabled: String,
    /// For shared memory: "always", "within_size", "advise", "never", …, or "unknown: " and why.
    pub shmem_enabled: String,
}

/// Reads both settings.
pub fn transparent(tree: &Tree) -> Transparent {
    let root = "sys/kernel/mm/transparent_hugepage";
    let setting = |name: &str| match tree.try_text(format!("{root}/{name}")) {
        Ok(text) => marked(&text).to_owned(),
        Err(why) => format!("unknown: {why}"),
    };
    Transparent {
        enabled: setting("enabled"),
        shmem_enabled: setting("shmem_enabled"),
    }
}

/// A line of /proc/meminfo in bytes, such as "MemTotal".
pub(super) fn meminfo_bytes(tree: &Tree, key: &str) -> Option<u64> {
    let text = tree.text("proc/meminfo")?;
    let value = super::kernel_files::value_of(&text, key)?;
    value
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::super::kernel_files::invented::Machine;
    use super::*;

    #[test]
    fn pools_are_listed_by_size() {
        let machine = Machine::new();
        let root = "sys/kernel/mm/hugepages";
        machine
            .file(&format!("{root}/hugepages-1048576kB/nr_hugepages"), "4")
            .file(&format!("{root}/hugepages-1048576kB/free_hugepages"), "1")
            .file(&format!("{root}/hugepages-2048kB/nr_hugepages"), "0")
            .file(&format!("{root}/hugepages-2048kB/free_hugepages"), "0")
            .file(&format!("{root}/rubbish/nr_hugepages"), "0");
        let pools = huge_pools(&machine.tree());
        assert_eq!(
            pools[0],
            HugePool {
                page_bytes: 2 << 20,
                total: 0,
                free: 0
            }
        );
        assert_eq!(
            pools[1],
            HugePool {
                page_bytes: 1 << 30,
                total: 4,
                free: 1
            }
        );
        assert_eq!(pools.len(), 2);
    }

    #[test]
    fn settings_that_cannot_be_read_say_why() {
        let machine = Machine::new();
        machine.file(
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never",
        );
        let found = transparent(&machine.tree());
        assert_eq!(found.enabled, "madvise");
        assert!(found.shmem_enabled.starts_with("unknown: "), "{found:?}");
    }

    #[test]
    fn memory_is_in_bytes() {
        let machine = Machine::new();
        machine.file("proc/meminfo", "MemTotal:       24684084 kB\nMemFree: 1 kB");
        assert_eq!(
            meminfo_bytes(&machine.tree(), "MemTotal"),
            Some(24_684_084 * 1024)
        );
        assert_eq!(meminfo_bytes(&machine.tree(), "Nothing"), None);
    }
}
