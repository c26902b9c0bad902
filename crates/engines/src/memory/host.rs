//! Host memory with normal, transparent or reserved huge pages.
//!
//! The verification pattern is in [`tonnage_engine::pattern`]. Copy rates are measured in [`super::copy`].

use std::io;
use std::sync::Arc;

use tonnage_engine::memory::{
    AvailableMemory, CopyRange, CopyRate, CopyRepetitions, Memory, MemoryEntry, MemoryReport,
    Request,
};
use tonnage_sys::clock::Clock;
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_units::{Error, Result};

use super::copy;

/// Host memory. If only this process maps it, the kernel is asked for transparent huge pages. If peers map it, it has
/// normal pages.
pub const HOST: MemoryEntry = MemoryEntry {
    name: "host",
    about: "host memory; if no peer maps it, with transparent 2 MiB pages as far as the kernel has them",
    allocate: |request| match sharing(request) {
        Sharing::Private => allocate_private(request),
        Sharing::Shared => allocate_plain(request, Pages::Normal, "host", Vec::new()),
    },
    ..SMALL
};

/// Host memory with normal pages only.
pub const SMALL: MemoryEntry = MemoryEntry {
    name: "small",
    about: "host memory with normal pages only",
    variant: None,
    host_addressable: true,
    takes_gpu: false,
    options: &[],
    allocate: |request| allocate_plain(request, Pages::Small, "small", Vec::new()),
    available: |_| available(0),
    device: |_| None,
    libraries: &[],
};

/// Host memory with the largest pages that this host can provide.
pub const HUGE: MemoryEntry = MemoryEntry {
    name: "huge",
    about: "host memory with the largest available pages: 1 GiB, 2 MiB or transparent",
    allocate: allocate_huge,
    // The kernel does not count reserved pages as available, so they are added.
    available: |_| available(reserved_bytes()),
    ..SMALL
};

/// Wraps bytes that were not allocated by a list row, such as a caller's bytes. `kind` is the name of this memory in
/// reports.
pub fn from_arena(arena: Arena, kind: &str) -> Arc<dyn Memory> {
    Arc::new(HostMemory::new(arena, kind, Vec::new(), Ok(None)))
}

fn len(request: &Request<'_>) -> Result<usize> {
    usize::try_from(request.bytes).map_err(|_| {
        Error::Usage(format!(
            "{} bytes of memory cannot be addressed",
            request.bytes
        ))
    })
}

fn sharing(request: &Request<'_>) -> Sharing {
    if request.shared {
        Sharing::Shared
    } else {
        Sharing::Private
    }
}

/// Allocates memory that only this process maps. It requests transparent huge pages, because devices and sockets then
/// walk fewer pages. If the kernel provides fewer huge pages or none, the allocation succeeds, and the record has a
/// remark.
fn allocate_private(request: &Request<'_>) -> Result<Arc<dyn Memory>> {
    let (arena, bound) = match map(len(request)?, Pages::Transparent, request) {
        Ok(mapped) => mapped,
        Err(error) => {
            let why = vec![format!("transparent pages: {error}")];
            return allocate_plain(request, Pages::Normal, "host", why);
        }
    };
    let why = match arena.transparent_bytes() {
        Ok(got) if got >= arena.len() as u64 => Vec::new(),
        Ok(got) => vec![format!(
            "transparent pages: the kernel provided {got} of {} bytes",
            arena.len()
        )],
        Err(error) => vec![format!(
            "transparent pages: their number is unknown: {error}"
        )],
    };
    Ok(Arc::new(HostMemory::new(arena, "host", why, bound)))
}

/// Allocates memory with pages of a kind that every kernel supports.
fn allocate_plain(
    request: &Request<'_>,
    pages: Pages,
    kind: &str,
    why_not_better: Vec<String>,
) -> Result<Arc<dyn Memory>> {
    let bytes = len(request)?;
    let (arena, bound) = map(bytes, pages, request)
        .map_err(|error| Error::io(format!("cannot map {bytes} bytes of memory"), error))?;
    Ok(Arc::new(HostMemory::new(
        arena,
        kind,
        why_not_better,
        bound,
    )))
}

/// The NUMA node to which memory is bound, or the reason why it is not bound.
type Bound = std::result::Result<Option<u32>, String>;

/// Maps memory. In some containers, the kernel refuses to bind memory to a node. If the node was chosen automatically,
/// the memory is then mapped unbound, and the record has the reason.
fn map(bytes: usize, pages: Pages, request: &Request<'_>) -> io::Result<(Arena, Bound)> {
    let sharing = sharing(request);
    let bound = Arena::allocate(bytes, pages, sharing, request.node);
    match (bound, request.node) {
        (Err(error), Some(node)) if !request.node_required => {
            let why = format!("node {node}: {error}");
            Arena::allocate(bytes, pages, sharing, None).map(|arena| (arena, Err(why)))
        }
        (result, node) => result.map(|arena| (arena, Ok(node))),
    }
}

/// Tries 1 GiB pages if at least 1 GiB is needed, then 2 MiB pages, then transparent pages. The record has the reasons
/// why the pages are not larger.
fn allocate_huge(request: &Request<'_>) -> Result<Arc<dyn Memory>> {
    let bytes = len(request)?;
    let mut why = Vec::new();
    if bytes < 1 << 30 {
        why.push("1 GiB pages: less than 1 GiB is needed".to_owned());
    }
    for (pages, name, least) in [
        (Pages::Huge1G, "1 GiB pages", 1 << 30),
        (Pages::Huge2M, "2 MiB pages", 0),
    ] {
        if bytes >= least {
            match map(bytes, pages, request) {
                Ok((arena, bound)) => {
                    return Ok(Arc::new(HostMemory::new(arena, "huge", why, bound)));
                }
                Err(error) => why.push(format!("{name}: {error}")),
            }
        }
    }
    match map(bytes, Pages::Transparent, request) {
        Ok((arena, bound)) => match arena.transparent_bytes() {
            // At least half of the pages must be huge. The kernel may leave normal pages at the edges, but a mapping
            // with mostly normal pages does not satisfy the request.
            Ok(got) if got >= bytes as u64 / 2 => {
                return Ok(Arc::new(HostMemory::new(arena, "huge", why, bound)));
            }
            Ok(got) => why.push(format!(
                "transparent pages: the kernel provided {got} of {bytes} bytes"
            )),
            Err(error) => why.push(format!("transparent pages: {error}")),
        },
        Err(error) => why.push(format!("transparent pages: {error}")),
    }
    Err(Error::Unavailable {
        what: "memory huge".into(),
        why: why.join("; "),
        how: huge_advice(bytes, request),
    })
}

fn huge_advice(bytes: usize, request: &Request<'_>) -> String {
    let pages = bytes.div_ceil(2 << 20);
    // The two switches have different names for "only if a program requests it".
    let (switch, word) = if request.shared {
        ("shmem_enabled", "advise")
    } else {
        ("enabled", "madvise")
    };
    format!(
        "Reserve them with `sysctl vm.nr_hugepages={pages}` (for each thread) or allow transparent ones with `echo \
         {word} > /sys/kernel/mm/transparent_hugepage/{switch}`, both as root; or use memory host"
    )
}

/// Returns the total size of all reserved huge pages that are free.
fn reserved_bytes() -> u64 {
    let pools = tonnage_machine::pages::huge_pools(&tonnage_machine::kernel_files::Tree::host());
    let free = pools.iter().map(|pool| pool.page_bytes * pool.free);
    free.sum()
}

/// Returns the memory that the machine and this control group can still provide. If allocations exceed it, the kernel
/// kills a process. `reserved_bytes` are added to both.
fn available(reserved_bytes: u64) -> Option<AvailableMemory> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let machine_bytes = line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10;
    Some(AvailableMemory {
        machine_bytes: machine_bytes.saturating_add(reserved_bytes),
        container_bytes: group_bytes().map(|group| group.saturating_add(reserved_bytes)),
    })
}

/// Returns the memory that the control group (version 2) can still provide; `None` if it has no limit.
pub(super) fn group_bytes() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup{path}/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
}

struct HostMemory {
    arena: Arc<Arena>,
    report: MemoryReport,
}

impl HostMemory {
    fn new(arena: Arena, kind: &str, why_not_better: Vec<String>, bound: Bound) -> Self {
        let transparent = arena.transparent_bytes().unwrap_or(0);
        let pages = match arena.pages() {
            Pages::Normal | Pages::Small => "normal",
            // madvise gives no guarantee: the kernel may have provided no huge pages.
            Pages::Transparent if transparent == 0 => "normal",
            Pages::Transparent => "transparent 2 MiB",
            Pages::Huge2M => "2 MiB",
            Pages::Huge1G => "1 GiB",
        };
        let (asked, refused) = match bound {
            Ok(node) => (node, None),
            Err(why) => (None, Some(why)),
        };
        // Some containers forbid this query. Then the nodes are unknown.
        let nodes = arena.nodes().unwrap_or_default();
        let report = MemoryReport {
            kind: kind.to_owned(),
            bytes: arena.len() as u64,
            pages: Some(pages.to_owned()),
            transparent_huge_bytes: Some(transparent),
            shared: arena.file().is_some(),
            why_not_bound: refused,
            why_not_larger_pages: why_not_better,
            ..MemoryReport::default()
        }
        .on_nodes(asked, &nodes);
        Self {
            arena: Arc::new(arena),
            report,
        }
    }
}

impl Memory for HostMemory {
    fn bytes(&self) -> u64 {
        self.arena.len() as u64
    }

    fn host(&self) -> Option<&Arc<Arena>> {
        Some(&self.arena)
    }

    fn report(&self) -> MemoryReport {
        self.report.clone()
    }

    fn copy_rates(
        &self,
        stretch: &CopyRange,
        slots: &mut dyn FnMut() -> (u64, u64),
        clock: &Clock,
        turns: CopyRepetitions,
    ) -> Result<Vec<CopyRate>> {
        copy::rates(&self.arena, stretch, slots, clock, turns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: u64) -> Request<'static> {
        Request {
            bytes,
            ..Request::default()
        }
    }

    #[test]
    fn available_memory_is_that_of_this_machine() {
        let available = (HOST.available)("").unwrap().machine_bytes;
        let total = tonnage_machine::kernel_files::Tree::host()
            .text("proc/meminfo")
            .unwrap();
        let total = total.split_whitespace().nth(1).unwrap();
        let total = total.parse::<u64>().unwrap() << 10;
        assert!(
            (1 << 20..=total).contains(&available),
            "{available} of {total}"
        );
        assert!((HUGE.available)("").unwrap().machine_bytes >= 1 << 20);
    }

    #[test]
    fn host_memory_never_fails_and_reports_its_pages() {
        let memory = (HOST.allocate)(&request(3 << 20)).unwrap();
        let report = memory.report();
        let got = report.transparent_huge_bytes.unwrap();
        let why = &report.why_not_larger_pages;
        let pages = if got > 0 {
            "transparent 2 MiB"
        } else {
            "normal"
        };
        assert_eq!(report.pages.as_deref(), Some(pages), "{report:?}");
        assert_eq!(why.is_empty(), got == 4 << 20, "{report:?}");
        let switch = "/sys/kernel/mm/transparent_hugepage/enabled";
        if std::fs::read_to_string(switch).is_ok_and(|text| text.contains("[never]")) {
            assert_eq!(got, 0);
        }
    }

    #[test]
    fn small_and_shared_memory_has_normal_pages_only() {
        for (entry, shared) in [(&SMALL, false), (&SMALL, true), (&HOST, true)] {
            let report = (entry.allocate)(&Request {
                shared,
                ..request(8 << 20)
            });
            let report = report.unwrap().report();
            assert_eq!((report.kind.as_str(), report.bytes), (entry.name, 8 << 20));
            assert_eq!(report.pages.as_deref(), Some("normal"));
            assert_eq!(report.transparent_huge_bytes.unwrap_or(0), 0);
        }
    }

    #[test]
    fn huge_memory_is_huge_or_refused_with_advice() {
        match (HUGE.allocate)(&request(8 << 20)) {
            Ok(memory) => {
                let report = memory.report();
                let transparent = report.transparent_huge_bytes.unwrap();
                let pages = report.pages.as_deref();
                assert!(pages != Some("normal"));
                assert!(
                    pages != Some("transparent 2 MiB") || transparent >= 4 << 20,
                    "{report:?}"
                );
            }
            Err(error) => assert!(error.to_string().contains("vm.nr_hugepages=4"), "{error}"),
        }
    }
}
