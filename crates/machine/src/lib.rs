//! Facts about this host: its devices, CPUs, memory, mounts and counters.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`environment`] | what explains a figure: goes into every record |
//! | [`devices`] | everything that could move bytes here, for people (`tonnage devices`) |
//! | [`direct`] | whether a file's transfers can leave the page cache out |
//! | [`topology`] | CPUs, cores, sockets, NUMA nodes |
//! | [`placement`] | which worker runs on which CPU |
//! | [`mounts`] | what is mounted where files are |
//! | [`pages`] | huge pages |
//! | [`counters`] | what devices and TCP have counted |
//! | [`fabric`] | which libfabric is used |
//! | [`tree`] | reading the kernel's files, or an invented machine's |

#![forbid(unsafe_code)]

pub mod counters;
pub mod devices;
pub mod direct;
pub mod environment;
pub mod fabric;
pub mod mounts;
pub mod pages;
pub mod placement;
pub mod topology;
pub mod tree;
mod variables;

pub use environment::{Environment, Host};
pub use placement::{Choice, Placement, pin_thread, place_workers};
pub use topology::{Topology, allowed_cpus};
