//! `hip` and `hip-ipc`: copies by AMD GPUs, within one process and between the ranks of a machine. This file has only
//! their list rows. The engines are [`crate::cuda`] and [`crate::cuda_ipc`], and the names of the runtime's functions
//! are in `tonnage_sys::hip`.

use tonnage_engine::Entry;

use crate::memory::amd::AMD;
use crate::{cuda, cuda_ipc};

/// The list row for copies within one process.
pub const ENTRY: Entry = cuda::entry(
    AMD,
    "copies of an AMD GPU within one process: host and GPU, one GPU, two of them",
    |request| cuda::open(AMD, request),
);

/// The list row for copies between processes.
pub const IPC: Entry = cuda_ipc::entry(
    AMD,
    "AMD GPUs of one machine, copies by the initiator's GPU into memory that the peer's process has allocated",
    |request| cuda_ipc::open(AMD, request),
);
