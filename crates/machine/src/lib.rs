//! Facts about this host: its devices, CPUs, memory, mounts and counters.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`environment`] | properties of the host that explain a figure, in every record |
//! | [`devices`] | everything that could move bytes here, for people (`tonnage devices`) |
//! | [`direct`] | transfers of a file past the page cache |
//! | [`topology`] | CPUs, cores, sockets, NUMA nodes |
//! | [`placement`] | CPUs of workers, and how they are chosen |
//! | [`cpu_time`] | CPU quotas, and time that threads waited for a CPU |
//! | [`pair_placement`] | CPUs of workers that exchange bytes: on one socket, or on two |
//! | [`mounts`] | mounts that hold files |
//! | [`pages`] | huge pages |
//! | [`counters`] | counters of devices and of TCP |
//! | [`socket_paths`] | interface, queueing discipline, congestion control and buffers of open TCP sockets |
//! | [`fabric`] | choice of the libfabric |
//! | [`way_out`] | network interfaces without a way to other hosts |
//! | [`kernel_files`] | reading the kernel's files, or an invented machine's |
//! | `variables` | environment variables that steer communication libraries |
//!
//! Nothing here moves a byte, knows an engine or starts a rank; who shares a host is in `tonnage_ranks`. Next:
//! `tonnage_engines`, which opens what was found here, and `tonnage_report`, which draws it.

#![forbid(unsafe_code)]

pub mod counters;
pub mod cpu_time;
pub mod devices;
pub mod direct;
pub mod environment;
pub mod fabric;
pub mod host_facts;
pub mod kernel_files;
pub mod mounts;
pub mod pages;
pub mod pair_placement;
pub mod placement;
pub mod socket_paths;
pub mod topology;
pub mod variables;
pub mod way_out;

pub use environment::{Environment, HostIdentity};
pub use host_facts::HostFacts;
pub use pages::HugePool;
pub use pair_placement::{MachineRank, place_by_itself, place_pairs};
pub use placement::{
    CpuChoice, OwnCpus, Placement, Workers, pin_thread, place_workers, spread_thread,
};
pub use topology::Topology;
