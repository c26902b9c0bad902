//! The memories of tonnage, one file each. What a memory is, is in [`tonnage_engine::memory`].

mod copy;
mod host;

use tonnage_engine::memory::MemoryEntry;

pub use host::{HOST, HUGE, SMALL};

/// Every memory, the default first.
pub static MEMORIES: &[MemoryEntry] = &[HOST, SMALL, HUGE];
