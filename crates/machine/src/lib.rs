//! Facts about this host: its devices, CPUs, memory, mounts and counters.
//!
//! | module | contents |
//! | --- | --- |
//! | [`environment`] | properties of the host that explain a result, in every record |
//! | [`devices`] | everything that could move bytes here, for people (`tonnage devices`) |
//! | [`host_facts`] | a short summary of a host (`tonnage hosts`) |
//! | [`direct`] | direct I/O on a file, bypassing the page cache |
//! | [`topology`] | CPUs, cores, sockets, NUMA nodes |
//! | [`placement`] | CPUs of workers, and how they are chosen |
//! | [`cpu_time`] | CPU quotas, and time that threads waited for a CPU |
//! | [`pair_placement`] | CPUs of workers that exchange bytes: on one socket, or on two |
//! | [`mounts`] | mounts that hold files |
//! | [`pages`] | huge pages |
//! | [`counters`] | counters of devices and of TCP |
//! | [`tcp_paths`] | interface, queueing discipline, congestion control and buffers of open TCP sockets |
//! | [`fabric`] | choice of the libfabric |
//! | [`host_local`] | network interfaces that lead to no other host |
//! | [`kernel_files`] | reading the kernel's files, or an invented machine's |
//! | `variables` | environment variables that affect communication libraries |
//!
//! Nothing here moves a byte, starts a rank or depends on engines. `tonnage_ranks` finds out which ranks share a host,
//! `tonnage_engines` opens the devices found here, and `tonnage_report` prints them.

#![forbid(unsafe_code)]

pub mod counters;
pub mod cpu_time;
pub mod devices;
pub mod direct;
pub mod environment;
pub mod fabric;
pub mod host_facts;
pub mod host_local;
pub mod kernel_files;
pub mod mounts;
pub mod pages;
pub mod pair_placement;
pub mod placement;
pub mod tcp_paths;
pub mod topology;
pub mod variables;

pub use environment::{Environment, HostIdentity, Processors};
pub use host_facts::HostFacts;
pub use pages::HugePool;
pub use pair_placement::{MachineRank, place_automatically, place_pairs};
pub use placement::{
    AffinityGuard, CpuChoice, Placement, Workers, pin_thread, place_workers, spread_thread,
};
pub use topology::Topology;
