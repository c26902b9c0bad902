//! `hip` and `hip-ipc`: copies by AMD GPUs, within one process and between the ranks of a machine. This file has only
//! their list rows. The engines are [`crate::cuda`] and [`crate::cuda_ipc`], and the names of the runtime's functions
//! are in `tonnage_sys::hip`.

use tonnage_engine::Entry;

use crate::memory::amd::AMD;
use crate::{cuda, cuda_ipc};

/// The list row for copies within one process.
pub const ENTRY: Entry = cuda::entry(
    AMD,
    "copies by an AMD GPU within one process: between host and GPU, within a GPU, or between two GPUs",
    |request| cuda::open(AMD, request),
);

/// The list row for copies between processes.
pub const IPC: Entry = cuda_ipc::entry(
    AMD,
    "copies between AMD GPUs of one host, by the initiator's GPU, to and from memory that the peer's process has \
     allocated",
    |request| cuda_ipc::open(AMD, request),
);
