//! The only crate of tonnage that contains `unsafe`.
//!
//! What lives here: owning handles over what the operating system and C libraries give us (mapped memory, the time-stamp
//! counter, run-time loaded libraries). Every function that leaves this crate is safe to call with any argument.
//! What does not: engines, loops, statistics. Those are in the other crates, which forbid `unsafe`. Next: [`mapping`],
//! whose `Arena` all bytes are moved through, and `tonnage_engine`.

pub mod clock;
pub mod copy;
pub mod counting_alloc;
pub mod descriptor;
pub mod files;
pub mod host;
pub mod interfaces;
pub mod launcher;
pub mod libfabric;
pub mod library;
pub mod mapping;
pub mod mpi;
pub mod pmix;
pub mod process;
mod smaps;
pub mod uring;
