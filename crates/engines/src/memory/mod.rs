//! The memories of tonnage. Those of the host differ in their pages only and share a file (`host`); `copy` measures how
//! fast the CPU copies them. The definition of a memory is in [`tonnage_engine::memory`].

mod copy;
mod host;

use tonnage_engine::memory::MemoryEntry;

pub use host::{HOST, HUGE, SMALL, of_arena};

/// Every memory, the default first.
pub static MEMORIES: &[MemoryEntry] = &[HOST, SMALL, HUGE];
