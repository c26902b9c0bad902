//! The engines of tonnage, a file or a folder each, and its memories. This file holds the lists of them.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`null`] | moves nothing: the harness's own floor, and the shortest engine to read first |
//! | [`shm`] | between ranks of one host over a shared mapping |
//! | [`cuda`] | copies of a GPU within one process |
//! | [`cuda_ipc`] | between GPUs of one host, into memory of other processes |
//! | [`hip`] | rows of the same two for GPUs of AMD |
//! | [`fabric`] | by any provider of libfabric |
//! | `registration` | memory of GPUs, registered with network cards |
//! | `staged` | any of them that has sends, through pinned memory at both ends |
//! | [`verbs`] | by RDMA devices, straight through libibverbs |
//! | [`posix`], [`uring`], [`mpiio`] | engines for files |
//! | [`mpi`] | a backend of collectives; others are in `tonnage_bench` |
//! | [`mpi_world`] | the MPI library that both use |
//! | [`memory`] | where bytes live |
//! | `rings`, `libraries`, `host_file` | what several engines need: rings of arrivals, files of libraries, files of this host |
//!
//! The contract of engines is [`tonnage_engine`]; unsafe calls into libraries and the system are in `tonnage_sys`; the
//! loops that drive engines are in `tonnage_loops`. To add one, go to docs/ADDING-AN-ENGINE.md.
#![forbid(unsafe_code)]

pub mod cuda;
pub mod cuda_ipc;
pub mod fabric;
pub mod hip;
mod host_file;
mod libraries;
pub mod memory;
pub mod mpi;
pub mod mpi_world;
pub mod mpiio;
pub mod null;
pub mod posix;
mod registration;
mod rings;
pub mod shm;
mod staged;
pub mod uring;
pub mod verbs;

use tonnage_engine::backend::BackendEntry;
use tonnage_engine::backends::{NATIVE, TORCH};
use tonnage_engine::calls::FileEntry;
use tonnage_engine::{Entry, Lists};

/// Every engine, in the order in which help texts and reports list them.
pub static ENGINES: &[Entry] = &[
    null::ENTRY,
    shm::ENTRY,
    fabric::ENTRY,
    verbs::ENTRY,
    cuda::ENTRY,
    cuda_ipc::ENTRY,
    hip::ENTRY,
    hip::IPC,
];

/// Every engine for files, in the same way.
pub static FILE_ENGINES: &[FileEntry] = &[posix::ENTRY, uring::ENTRY, mpiio::ENTRY];

/// Every backend of collectives, in the same way.
pub static BACKENDS: &[BackendEntry] = &[NATIVE, mpi::BACKEND, TORCH];

/// All engines and memories, for the program to hand down.
pub static LISTS: Lists = Lists {
    engines: ENGINES,
    file_engines: FILE_ENGINES,
    memories: memory::MEMORIES,
    backends: BACKENDS,
};

/// The example of docs/ADDING-AN-ENGINE.md is compiled with the tests, so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/ADDING-AN-ENGINE.md")]
pub struct AddingAnEngine;
