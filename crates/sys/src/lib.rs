//! The only crate of tonnage that contains `unsafe`.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`mapping`], `smaps` | mapped memory, which all bytes are moved through; the kernel's account of it |
//! | [`copy`], [`fold`] | the CPU's ways to copy memory, and to reduce elements in it |
//! | [`wide`] | loops over plain numbers in the CPU's widest instructions |
//! | [`registrable`] | memory of the host or of a device, as network cards register it |
//! | [`clock`] | the clock of the timed loops |
//! | [`cuda`], [`hip`], [`libfabric`], [`mpi`], [`nvml`], [`pmix`], [`verbs`] | C libraries that are loaded at run time, one each |
//! | [`library`], `header`, `signal_actions` | loading a C library and looking symbols up; declarations of C headers; signals that libraries take |
//! | [`error`] | errors of those libraries |
//! | [`files`], [`uring`] | system calls on files, and io_uring |
//! | [`kread`] | the calls of the module that posts one-sided operations in the kernel |
//! | [`host`], [`interfaces`] | names of this host and container, and its network interfaces |
//! | [`process`], [`launcher`], [`descriptor`] | permissions of this process, its launcher, and open files that it inherited |
//! | [`out_of_memory`] | the program's allocator, which says when memory has run out |
//! | [`counting_alloc`] | an allocator that counts, for tests |
//!
//! Every function that leaves this crate is safe to call with any argument. Engines, loops and statistics are in the
//! other crates, which forbid `unsafe`. Next: [`mapping`], and `tonnage_engine`.

// Authors of other crates read these docs; other crates have comments where they help.
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
