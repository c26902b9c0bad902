//! `hip` and `hip-ipc`: copies by AMD GPUs, within one process and between the ranks of a machine. Only their entries
//! are here. The work is in [`crate::cuda`] and [`crate::cuda_ipc`], and the runtime's names are in `tonnage_sys::hip`.

use tonnage_engine::Entry;

use crate::memory::amd::AMD;
use crate::{cuda, cuda_ipc};

/// The entry for copies within one process.
pub const ENTRY: Entry = cuda::entry(
    AMD,
    "copies of an AMD GPU within one process: host and GPU, one GPU, two of them",
    |request| cuda::open(AMD, request),
);

/// The entry for copies between processes.
pub const IPC: Entry = cuda_ipc::entry(
    AMD,
    "AMD GPUs of one machine, copies by the initiator's GPU into memory that the peer's process has allocated",
    |request| cuda_ipc::open(AMD, request),
);
