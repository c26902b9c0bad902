//! Where the bytes live: the [`Memory`] trait, and host memory with normal or huge pages.
//!
//! What is written into memory to be verified is in [`crate::pattern`]; who uses which part of it is in
//! [`crate::layout`]. GPU memory will be one more file beside this one.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use serde_json::{Value, json};
use tonnage_sys::mapping::{Arena, Pages, Sharing};

use crate::pattern::{Key, Mismatches};
use crate::plan::point::MemoryKind;
use crate::{Error, Result};

/// Memory that engines can register and peers can reach.
pub trait Memory: Send + Sync {
    /// The mapped bytes, where the host can address them.
    fn arena(&self) -> &Arc<Arena>;
    /// What was had: kind, page size, node, and why it is less than what was asked for.
    fn effective(&self) -> Value;
    /// Writes the bytes that `key` says belong at `offset..offset + len`; `origin` is where the key's own offset 0 lies.
    ///
    /// # Errors
    /// When the range lies outside.
    fn fill(&self, origin: u64, offset: u64, len: u64, key: Key) -> Result<()>;
    /// Compares the range with what [`Self::fill`] would have written, and adds what differs to `found`.
    ///
    /// # Errors
    /// When the range lies outside.
    fn verify(
        &self,
        origin: u64,
        offset: u64,
        len: u64,
        key: Key,
        found: &mut Mismatches,
    ) -> Result<()>;
    /// A file descriptor through which a device can reach the bytes, where there is one.
    fn dmabuf(&self) -> Option<BorrowedFd<'_>>;
}

/// What is asked of an allocation.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Normal or huge pages.
    pub kind: MemoryKind,
    /// Bytes of this worker.
    pub bytes: u64,
    /// Whether peers map it.
    pub shared: bool,
    /// The NUMA node to prefer.
    pub node: Option<u32>,
    /// Whether the user named that node: then memory that cannot be bound to it is an error, and not only a remark.
    pub node_required: bool,
}

/// Allocates and prefaults host memory.
///
/// # Errors
/// [`Error::Unavailable`] when the host has too little memory or no huge pages of any kind.
pub fn allocate(request: &Request) -> Result<Arc<dyn Memory>> {
    let bytes = usize::try_from(request.bytes).map_err(|_| {
        Error::Usage(format!(
            "{} bytes of memory cannot be addressed",
            request.bytes
        ))
    })?;
    let sharing = if request.shared {
        Sharing::Shared
    } else {
        Sharing::Private
    };
    match request.kind {
        MemoryKind::Host => {
            let (arena, binding) = map(bytes, Pages::Normal, sharing, request)
                .map_err(|error| Error::io(format!("cannot map {bytes} bytes of memory"), error))?;
            Ok(Arc::new(HostMemory::new(
                arena,
                "host",
                Vec::new(),
                &binding,
            )))
        }
        MemoryKind::Huge => allocate_huge(bytes, sharing, request),
    }
}

/// Where pages come from: the node, or why they could not be bound to it.
enum Binding {
    Node(Option<u32>),
    Refused(String),
}

/// Maps memory; where the kernel refuses to bind it to the node that was chosen automatically, as in some containers, it
/// is mapped unbound and the record says so.
fn map(
    bytes: usize,
    pages: Pages,
    sharing: Sharing,
    request: &Request,
) -> io::Result<(Arena, Binding)> {
    let bound = Arena::allocate(bytes, pages, sharing, request.node);
    match (bound, request.node) {
        (Err(error), Some(node)) if !request.node_required => {
            let why = format!("node {node}: {error}");
            Arena::allocate(bytes, pages, sharing, None).map(|arena| (arena, Binding::Refused(why)))
        }
        (result, node) => result.map(|arena| (arena, Binding::Node(node))),
    }
}

/// 1 GiB pages for a gigabyte and more, then 2 MiB pages, then transparent ones. Says which it got and why not better.
fn allocate_huge(bytes: usize, sharing: Sharing, request: &Request) -> Result<Arc<dyn Memory>> {
    let mut why = Vec::new();
    if bytes < 1 << 30 {
        why.push("1 GiB pages: less than 1 GiB is needed".to_owned());
    }
    for (pages, name, least) in [
        (Pages::Huge1G, "1 GiB pages", 1 << 30),
        (Pages::Huge2M, "2 MiB pages", 0),
    ] {
        if bytes >= least {
            match map(bytes, pages, sharing, request) {
                Ok((arena, binding)) => {
                    return Ok(Arc::new(HostMemory::new(arena, "huge", why, &binding)));
                }
                Err(error) => why.push(format!("{name}: {error}")),
            }
        }
    }
    match map(bytes, Pages::Transparent, sharing, request) {
        Ok((arena, binding)) => match arena.transparent_bytes() {
            // At least half: the kernel may leave an edge in normal pages, but a mapping that is mostly normal pages
            // is not what was asked for.
            Ok(got) if got >= bytes as u64 / 2 => {
                return Ok(Arc::new(HostMemory::new(arena, "huge", why, &binding)));
            }
            Ok(got) => why.push(format!(
                "transparent pages: the kernel gave {got} of {bytes} bytes"
            )),
            Err(error) => why.push(format!("transparent pages: {error}")),
        },
        Err(error) => why.push(format!("transparent pages: {error}")),
    }
    Err(Error::Unavailable {
        what: "--memory huge".into(),
        why: why.join("; "),
        how: huge_advice(bytes, request),
    })
}

fn huge_advice(bytes: usize, request: &Request) -> String {
    let pages = bytes.div_ceil(2 << 20);
    // The kernel's own word for "where a program asks for it" differs between the two switches.
    let (switch, word) = if request.shared {
        ("shmem_enabled", "advise")
    } else {
        ("enabled", "madvise")
    };
    format!(
        "Reserve them with `sysctl vm.nr_hugepages={pages}` (for one worker; as many again for each other) or allow \
         transparent ones with `echo {word} > /sys/kernel/mm/transparent_hugepage/{switch}`, both as root; or use \
         --memory host"
    )
}

/// Refuses what a host cannot give, before anything is touched: an allocation beyond the free memory would be answered
/// by the kernel killing a process. To be called once per host, before any of its workers allocates.
///
/// # Errors
/// [`Error::Unavailable`] with what there is and what to change.
pub fn check_fits(kind: MemoryKind, host_bytes: u64) -> Result<()> {
    let Some(mut available) = available_bytes() else {
        return Ok(());
    };
    if kind == MemoryKind::Huge {
        // Reserved pages do not count as available.
        let pools = crate::machine::pages::huge_pools(&crate::machine::tree::Tree::host());
        available += pools
            .iter()
            .map(|pool| pool.page_bytes * pool.free)
            .sum::<u64>();
    }
    if host_bytes <= available {
        return Ok(());
    }
    Err(Error::Unavailable {
        what: format!("{host_bytes} bytes of buffers"),
        why: format!("this host, or the container, has {available} bytes of memory available"),
        how: "Choose a smaller --footprint, fewer --workers or fewer ranks on this host".into(),
    })
}

/// What the host can give, or the control group if that is less.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let host = line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10;
    Some(group_bytes().map_or(host, |group| group.min(host)))
}

/// What the control group (version 2) still grants; `None` without a limit.
fn group_bytes() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup{path}/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
}

/// Host memory.
struct HostMemory {
    arena: Arc<Arena>,
    effective: Value,
}

impl HostMemory {
    fn new(arena: Arena, kind: &str, why_not_better: Vec<String>, binding: &Binding) -> Self {
        let transparent = arena.transparent_bytes().unwrap_or(0);
        let pages = match arena.pages() {
            Pages::Normal => "normal",
            Pages::Transparent => "transparent 2 MiB",
            Pages::Huge2M => "2 MiB",
            Pages::Huge1G => "1 GiB",
        };
        let (node, refused) = match binding {
            Binding::Node(node) => (*node, None),
            Binding::Refused(why) => (None, Some(why)),
        };
        let effective = json!({
            "kind": kind,
            "pages": pages,
            "bytes": arena.len(),
            "transparent_huge_bytes": transparent,
            "shared": arena.file().is_some(),
            "numa_node": node,
            "why_not_bound": refused,
            "why_not_larger_pages": why_not_better,
        });
        Self {
            arena: Arc::new(arena),
            effective,
        }
    }
}

impl Memory for HostMemory {
    fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    fn effective(&self) -> Value {
        self.effective.clone()
    }

    fn fill(&self, origin: u64, offset: u64, len: u64, key: Key) -> Result<()> {
        crate::pattern::fill(&self.arena, origin, offset, len, key)
    }

    fn verify(
        &self,
        origin: u64,
        offset: u64,
        len: u64,
        key: Key,
        found: &mut Mismatches,
    ) -> Result<()> {
        crate::pattern::verify(&self.arena, origin, offset, len, key, found)
    }

    fn dmabuf(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: MemoryKind, bytes: u64) -> Request {
        Request {
            kind,
            bytes,
            shared: false,
            node: None,
            node_required: false,
        }
    }

    #[test]
    fn more_than_the_host_has_is_refused_before_it_is_touched() {
        let error = check_fits(MemoryKind::Host, 1 << 50).unwrap_err();
        assert!(error.to_string().contains("--footprint"), "{error}");
    }

    #[test]
    fn huge_memory_is_huge_or_refused_with_the_way_to_get_it() {
        match allocate(&request(MemoryKind::Huge, 8 << 20)) {
            Ok(memory) => {
                let effective = memory.effective();
                let transparent = effective["transparent_huge_bytes"].as_u64().unwrap();
                assert!(effective["pages"] != "normal");
                assert!(
                    effective["pages"] != "transparent 2 MiB" || transparent >= 4 << 20,
                    "{effective}"
                );
            }
            Err(error) => assert!(error.to_string().contains("vm.nr_hugepages=4"), "{error}"),
        }
    }
}
