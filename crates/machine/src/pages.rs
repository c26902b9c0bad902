//! Memory and huge pages, as listed in the kernel's files.

use serde::{Deserialize, Serialize};

use super::kernel_files::{Tree, marked};

/// The pool of one size of huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HugePool {
    /// Size of one page.
    pub page_bytes: u64,
    /// Number of pages in the pool.
    pub total: u64,
    /// Number of free pages in the pool.
    pub free: u64,
}

/// Returns the pools of all page sizes that the CPU supports, smallest first; empty if the kernel has no huge pages.
pub fn huge_pools(tree: &Tree) -> Vec<HugePool> {
    let root = "sys/kernel/mm/hugepages";
    let pool = |name: String| {
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        Some(HugePool {
            page_bytes: kib.parse::<u64>().ok()?.checked_mul(1024)?,
            total: tree.number(format!("{root}/{name}/nr_hugepages"))?,
            free: tree.number(format!("{root}/{name}/free_hugepages"))?,
        })
    };
    let mut pools: Vec<HugePool> = tree.names(root).into_iter().filter_map(pool).collect();
    pools.sort_unstable_by_key(|pool| pool.page_bytes);
    pools
}

/// The kernel's policy for transparent huge pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Transparent {
    /// For private memory: "always", "madvise", "never", or "unknown: " and the reason.
    pub enabled: String,
    /// For shared memory: "always", "within_size", "advise", "never", …, or "unknown: " and the reason.
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

/// Returns a value of /proc/meminfo, such as "MemTotal", in bytes.
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
        for (kib, total, free) in [("1048576", "4", "1"), ("2048", "0", "0")] {
            let pool = [("nr_hugepages", total), ("free_hugepages", free)];
            machine.files(&format!("{root}/hugepages-{kib}kB"), &pool);
        }
        machine.file(&format!("{root}/rubbish/nr_hugepages"), "0");
        let pools = huge_pools(&machine.tree());
        let found: Vec<_> = pools
            .iter()
            .map(|pool| (pool.page_bytes, pool.total, pool.free))
            .collect();
        assert_eq!(found, [(2 << 20, 0, 0), (1 << 30, 4, 1)]);
    }

    #[test]
    fn unreadable_settings_have_a_reason() {
        let machine = Machine::new();
        let file = "sys/kernel/mm/transparent_hugepage/enabled";
        machine.file(file, "always [madvise] never");
        let found = transparent(&machine.tree());
        assert_eq!(found.enabled, "madvise");
        assert!(found.shmem_enabled.starts_with("unknown: "), "{found:?}");
    }

    #[test]
    fn memory_is_in_bytes() {
        let machine = Machine::new();
        machine.file("proc/meminfo", "MemTotal:       24684084 kB\nMemFree: 1 kB");
        let found = |key| meminfo_bytes(&machine.tree(), key);
        assert_eq!(found("MemTotal"), Some(24_684_084 * 1024));
        assert_eq!(found("Nothing"), None);
    }
}
