//! The engines and memories of tonnage, in one file or folder each. This file contains their lists.
//!
//! | module | contents |
//! | --- | --- |
//! | [`null`] | moves nothing: measures the harness's own cost; the shortest engine, to be read first |
//! | [`shm`] | between ranks of one host, through a shared mapping |
//! | [`cuda`] | copies by a GPU within one process |
//! | [`cuda_ipc`] | copies by GPUs of one machine into memory of other processes |
//! | [`hip`] | list rows of both engines for AMD GPUs |
//! | [`fabric`] | any libfabric provider |
//! | `registration` | registering GPU memory with NICs |
//! | `staged` | wraps an engine that has sends: moves GPU memory through pinned memory at both ends |
//! | [`verbs`] | RDMA devices, directly through libibverbs |
//! | [`posix`], [`uring`], [`mpiio`] | file engines |
//! | [`mpi`] | a collective backend; others are in `tonnage_bench` |
//! | [`mpi_world`] | the MPI library that `mpi` and `mpiio` share |
//! | [`memory`] | kinds of memory |
//! | `rings`, `libraries`, `host_file` | shared code: rings of arrivals, paths of libraries, files of this host |
//!
//! The engine contract is in [`tonnage_engine`], unsafe calls into libraries and the system in `tonnage_sys`, and the
//! loops that drive engines in `tonnage_loops`. To add an engine, read docs/ADDING-AN-ENGINE.md.
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

/// All engines. Help texts and reports list them in this order.
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

/// All file engines. Help texts and reports list them in this order.
pub static FILE_ENGINES: &[FileEntry] = &[posix::ENTRY, uring::ENTRY, mpiio::ENTRY];

/// All backends of collectives. Help texts and reports list them in this order.
pub static BACKENDS: &[BackendEntry] = &[NATIVE, mpi::BACKEND, TORCH];

/// All lists, which the program passes down.
pub static LISTS: Lists = Lists {
    engines: ENGINES,
    file_engines: FILE_ENGINES,
    memories: memory::MEMORIES,
    backends: BACKENDS,
};

/// Compiles the example of docs/ADDING-AN-ENGINE.md as a documentation test, which keeps it correct.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/ADDING-AN-ENGINE.md")]
pub struct AddingAnEngine;
