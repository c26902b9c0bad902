//! Where the bytes live: the [`Memory`] trait, and host memory with normal or huge pages.
//!
//! What is written into memory to be verified is in [`crate::pattern`]; who uses which part of it is in
//! [`crate::layout`]. GPU memory will be one more file beside this one.

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
    /// Bytes that all workers of this host allocate together, to refuse what cannot fit before anything is touched.
    pub host_bytes: u64,
    /// Whether peers map it.
    pub shared: bool,
    /// The NUMA node to prefer.
    pub node: Option<u32>,
}

/// Allocates and prefaults host memory.
///
/// # Errors
/// [`Error::Unavailable`] when the host has too little memory or no huge pages of any kind.
pub fn allocate(request: &Request) -> Result<Arc<dyn Memory>> {
    refuse_what_cannot_fit(request)?;
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
            let arena = Arena::allocate(bytes, Pages::Normal, sharing, request.node)
                .map_err(|error| Error::io(format!("cannot map {bytes} bytes of memory"), error))?;
            Ok(Arc::new(HostMemory::new(
                arena,
                "host",
                Vec::new(),
                request.node,
            )))
        }
        MemoryKind::Huge => allocate_huge(bytes, sharing, request),
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
            match Arena::allocate(bytes, pages, sharing, request.node) {
                Ok(arena) => {
                    return Ok(Arc::new(HostMemory::new(arena, "huge", why, request.node)));
                }
                Err(error) => why.push(format!("{name}: {error}")),
            }
        }
    }
    match Arena::allocate(bytes, Pages::Transparent, sharing, request.node) {
        Ok(arena) => match arena.transparent_bytes() {
            // At least half: the kernel may leave an edge in normal pages, but a mapping that is mostly normal pages
            // is not what was asked for.
            Ok(got) if got >= bytes as u64 / 2 => {
                return Ok(Arc::new(HostMemory::new(arena, "huge", why, request.node)));
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
    let pages = request.host_bytes.max(bytes as u64).div_ceil(2 << 20);
    let switch = if request.shared {
        "shmem_enabled"
    } else {
        "enabled"
    };
    format!(
        "Reserve them with `sysctl vm.nr_hugepages={pages}` or allow transparent ones with \
         `echo advise > /sys/kernel/mm/transparent_hugepage/{switch}`, both as root; or use --memory host"
    )
    .replace("advise > /sys/kernel/mm/transparent_hugepage/enabled", "madvise > /sys/kernel/mm/transparent_hugepage/enabled")
}

/// An allocation beyond the free memory would be answered by the kernel killing a process at random.
fn refuse_what_cannot_fit(request: &Request) -> Result<()> {
    let Some(available) = available_bytes() else {
        return Ok(());
    };
    if request.host_bytes.max(request.bytes) <= available {
        return Ok(());
    }
    Err(Error::Unavailable {
        what: format!("{} bytes of buffers", request.host_bytes.max(request.bytes)),
        why: format!("this host has {available} bytes of memory available"),
        how: "Choose a smaller --footprint, fewer --workers or fewer ranks on this host".into(),
    })
}

fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// Host memory.
struct HostMemory {
    arena: Arc<Arena>,
    effective: Value,
}

impl HostMemory {
    fn new(arena: Arena, kind: &str, why_not_better: Vec<String>, node: Option<u32>) -> Self {
        let transparent = arena.transparent_bytes().unwrap_or(0);
        let pages = match arena.pages() {
            Pages::Normal => "normal",
            Pages::Transparent => "transparent 2 MiB",
            Pages::Huge2M => "2 MiB",
            Pages::Huge1G => "1 GiB",
        };
        let effective = json!({
            "kind": kind,
            "pages": pages,
            "bytes": arena.len(),
            "transparent_huge_bytes": transparent,
            "shared": arena.file().is_some(),
            "numa_node": node,
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
            host_bytes: bytes,
            shared: false,
            node: None,
        }
    }

    #[test]
    fn more_than_the_host_has_is_refused_before_it_is_touched() {
        let error = allocate(&request(MemoryKind::Host, 1 << 50)).err().unwrap();
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
