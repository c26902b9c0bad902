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
mod slots;
pub mod uring;

use tonnage_engine::calls::FileEntry;
use tonnage_engine::{Entry, Lists};

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

/// The example of docs/ADDING-AN-ENGINE.md is compiled with the tests, so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/ADDING-AN-ENGINE.md")]
pub struct AddingAnEngine;
