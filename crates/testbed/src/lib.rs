//! Several hosts on one machine, for tests and for interactive use.
//!
//! A host is a network namespace. It has its own interface `eth0` with its own address, and programs in it see its own
//! host name, /etc/hosts and /sys/class/net. It may have more links: `eth1` and so on. Links of the same number form a
//! rail; they can reach each other, but no link of another rail. Each rail is a bridge, and all bridges are in one more
//! namespace, the switch. The machine's network is not touched, and several sets of hosts may exist at once. All hosts
//! share the machine's CPUs, memory, files and processes.
//!
//! | file | contents |
//! | --- | --- |
//! | `hosts.rs` | [`Hosts`]: creating them, running programs in them |
//! | `link.rs` | [`Link`]: cutting, restoring, shaping and inspecting one link of a host; separating its links |
//! | `workspace.rs`, `clean.sh` | folder and namespaces of one set of hosts, and their guaranteed removal |
//! | `on.sh`, `inside.sh` | running a program in a host |
//! | `rate.rs` | [`Rate`], [`LinkRates`]: speed of a link in each direction |
//! | `slurm.rs` | [`Slurm`]: a real Slurm with these hosts as its nodes |
//! | `ssh.rs` | [`Ssh`]: a real sshd in each host, and a client that knows them |
//! | `tool.rs` | running system programs and classifying their failures; running code in a network namespace |
//! | `main.rs` | `make hosts`: the same for interactive use |
//!
//! The crate needs root, `ip` and `tc`. Only tests and `make hosts` use it.

#![forbid(unsafe_code)]

mod hosts;
mod link;
mod rate;
mod slurm;
mod ssh;
mod tool;
mod workspace;

pub use hosts::{Hosts, HostsSpec};
pub use link::{Link, LinkCounters};
pub use rate::{LinkRates, Rate};
pub use slurm::Slurm;
pub use ssh::Ssh;

/// Why hosts could not be created, or why an operation on them failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine lacks a requirement, named in the text. Tests skip themselves on this error.
    #[error("{0}")]
    Unavailable(String),
    /// An unexpected failure.
    #[error("{0}")]
    Failed(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
