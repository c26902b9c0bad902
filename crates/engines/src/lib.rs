//! The engines of tonnage, one file each. This file holds the one list of them; docs/ADDING-AN-ENGINE.md walks through
//! adding to it. The definition of an engine is in [`tonnage_engine`]; everything that needs `unsafe` is in
//! `tonnage_sys`.
#![forbid(unsafe_code)]

pub mod fabric;
mod host_file;
pub mod memory;
pub mod mpiio;
pub mod null;
pub mod posix;
pub mod shm;
pub mod uring;

use tonnage_engine::calls::FileEntry;
use tonnage_engine::{Entry, Lists};
use tonnage_units::Result;

/// Every engine, in the order in which help texts and reports list them.
pub static ENGINES: &[Entry] = &[null::ENTRY, shm::ENTRY, fabric::ENTRY];

/// Every engine for files, in the same way.
pub static FILE_ENGINES: &[FileEntry] = &[posix::ENTRY, uring::ENTRY, mpiio::ENTRY];

/// All engines and memories, for the program to hand down.
pub static LISTS: Lists = Lists {
    engines: ENGINES,
    file_engines: FILE_ENGINES,
    memories: memory::MEMORIES,
};

/// Ends, together with all other ranks, what engines of this process have started for its whole life: MPI. For the end of
/// a run in which nothing failed; ranks that have died would be waited for.
///
/// # Errors
/// What could not be ended in order.
pub fn finish() -> Result<()> {
    mpiio::finish()
}

/// Removes from this machine what engines of a rank have left there that was killed. Its run must have ended.
pub fn clean_up_after(pid: u32) {
    fabric::clean_up_after(pid);
}

/// The example of docs/ADDING-AN-ENGINE.md is compiled with the tests, so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/ADDING-AN-ENGINE.md")]
pub struct AddingAnEngine;
