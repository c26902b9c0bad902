//! The [`Memory`] trait: where bytes live, and how whoever owns them fills and compares them.
//!
//! What is written to be verified is in [`crate::pattern`]; the memories themselves are in `tonnage_engines`.

use std::os::fd::BorrowedFd;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonnage_sys::mapping::Arena;
use tonnage_units::names::unknown;
use tonnage_units::{Error, Result};

use crate::pattern::{Key, Mismatches};

/// Where the bytes live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// Host memory. Where no peer maps it, the kernel is asked for transparent 2 MiB pages.
    Host,
    /// Host memory with the system's normal pages and no others.
    Small,
    /// Host memory with the largest pages to be had: 1 GiB, 2 MiB, transparent.
    Huge,
}

impl MemoryKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Host, Self::Small, Self::Huge];

    /// The name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Small => "small",
            Self::Huge => "huge",
        }
    }
}

impl FromStr for MemoryKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| unknown("memory kind", text, &Self::ALL.map(Self::name)))
    }
}

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
    /// Which pages.
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

/// How memory is had; the program hands the conductor the one that it has.
#[derive(Debug)]
pub struct Memories {
    /// Allocates and prefaults.
    pub allocate: fn(&Request) -> Result<Arc<dyn Memory>>,
    /// Refuses what the workers of one host together cannot have, before anything is touched.
    pub check_fits: fn(MemoryKind, u64) -> Result<()>,
}
