//! The engines and memories of tonnage, one file or folder each. This file holds the lists of them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`null`] | moves nothing: measures the harness's own floor, and is the shortest engine to read first |
//! | [`shm`] | between ranks of one host, through a shared mapping |
//! | [`cuda`] | GPU copies within one process |
//! | [`cuda_ipc`] | between GPUs of one host, into memory of other processes |
//! | [`hip`] | the entries of these two for AMD GPUs |
//! | [`fabric`] | any libfabric provider |
//! | `registration` | GPU memory registered with NICs |
//! | `staged` | any engine with sends, through pinned memory at both ends |
//! | [`verbs`] | RDMA devices, directly through libibverbs |
//! | [`posix`], [`uring`], [`mpiio`] | engines for files |
//! | [`mpi`] | a collective backend; others are in `tonnage_bench` |
//! | [`mpi_world`] | the MPI library that `mpi` and `mpiio` share |
//! | [`memory`] | kinds of memory |
//! | `rings`, `libraries`, `host_file` | shared parts: rings of arrivals, paths of libraries, files of this host |
//!
//! The engine contract is [`tonnage_engine`]; unsafe calls into libraries and the system are in `tonnage_sys`; the
//! loops that drive engines are in `tonnage_loops`. To add an engine, read docs/ADDING-AN-ENGINE.md.
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

/// All engines, in the order in which help texts and reports list them.
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

/// All file engines, in the order of help texts and reports.
pub static FILE_ENGINES: &[FileEntry] = &[posix::ENTRY, uring::ENTRY, mpiio::ENTRY];

/// All collective backends, in the order of help texts and reports.
pub static BACKENDS: &[BackendEntry] = &[NATIVE, mpi::BACKEND, TORCH];

/// All lists, which the program passes down.
pub static LISTS: Lists = Lists {
    engines: ENGINES,
    file_engines: FILE_ENGINES,
    memories: memory::MEMORIES,
    backends: BACKENDS,
};

/// The example of docs/ADDING-AN-ENGINE.md is compiled with the tests, to keep it correct.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/ADDING-AN-ENGINE.md")]
pub struct AddingAnEngine;
