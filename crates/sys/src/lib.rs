//! The only crate of tonnage that contains `unsafe`.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`mapping`], `smaps` | mapped memory, which holds all payload; the kernel's statistics of it |
//! | [`copy`], [`fold`] | copying and reducing memory by the CPU |
//! | [`wide`] | loops over plain numbers with the CPU's widest instructions |
//! | [`registrable`] | host or device memory that NICs register |
//! | [`clock`] | the clock of the timed loops |
//! | [`cuda`], [`hip`], [`libfabric`], [`mpi`], [`nvml`], [`pmix`], [`verbs`] | C libraries that are loaded at run time |
//! | [`library`], `header`, `signal_actions` | loading a C library and its symbols; declarations of C headers; signal handlers that libraries replace |
//! | [`error`] | errors of those libraries |
//! | [`files`], [`uring`] | system calls on files, and io_uring |
//! | [`kread`] | the calls of the module that posts one-sided operations in the kernel |
//! | [`host`], [`interfaces`] | names of this host and container, and its network interfaces |
//! | [`process`], [`launcher`], [`descriptor`] | permissions of this process, its launcher, and open files that it inherited |
//! | [`out_of_memory`] | the program's allocator, which reports exhausted memory |
//! | [`counting_alloc`] | a counting allocator for tests |
//!
//! All public functions of this crate are safe to call with any argument. Engines, loops and statistics are in the
//! other crates, which forbid `unsafe`. Read [`mapping`] next, then `tonnage_engine`.

// Authors of other crates depend on this documentation, so it is required here.
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod clock;
pub mod copy;
pub mod counting_alloc;
pub mod cuda;
pub mod descriptor;
pub mod error;
pub mod files;
pub mod fold;
mod header;
pub mod hip;
pub mod host;
pub mod interfaces;
pub mod kread;
pub mod launcher;
pub mod libfabric;
pub mod library;
pub mod mapping;
pub mod mpi;
pub mod nvml;
pub mod out_of_memory;
pub mod pmix;
pub mod process;
pub mod registrable;
mod signal_actions;
mod smaps;
pub mod uring;
pub mod verbs;
pub mod wide;
