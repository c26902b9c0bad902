//! Several hosts on one machine, for tests and for people who try things.
//!
//! A host is a network namespace: it has its own interface `eth0` with its own address, and programs in it see its own
//! host name, its own /etc/hosts and its own /sys/class/net. It may have more such links, `eth1` and so on; those of
//! one number, a rail, reach each other and no others. Each rail is a bridge, and all bridges are in a namespace of
//! their own, the switch; nothing of the machine's network is touched, and several sets of hosts may be there at once.
//! CPUs, memory, files and processes are the machine's, shared by all.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `hosts.rs` | [`Hosts`]: making them, running programs in them |
//! | `link.rs` | [`Link`]: cutting, mending, shaping and looking at one link of a host; keeping its links apart |
//! | `slot.rs`, `clean.sh` | folder and namespaces of one set of hosts, and its removal, whatever happens |
//! | `on.sh`, `inside.sh` | running a program in a host |
//! | `rate.rs` | [`Rate`], [`LinkRates`]: how fast a link is, either way |
//! | `slurm.rs` | [`Slurm`]: a real Slurm whose nodes are these hosts |
//! | `ssh.rs` | [`Ssh`]: a real sshd in each host, and a client that knows them |
//! | `tool.rs` | running the system's programs, and what their failures mean; work in a network namespace |
//! | `main.rs` | `make hosts`: the same for a person with a shell |
//!
//! It needs root, and `ip` and `tc`. The measuring program does not depend on any of this.

#![forbid(unsafe_code)]

mod hosts;
mod link;
mod rate;
mod slot;
mod slurm;
mod ssh;
mod tool;

pub use hosts::{Hosts, HostsSpec};
pub use link::{Link, LinkCounters};
pub use rate::{LinkRates, Rate};
pub use slurm::Slurm;
pub use ssh::Ssh;

/// The reason why there are no hosts, or why something could not be done with them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine cannot do it, and the text says what it lacks: a reason for a test to skip itself.
    #[error("{0}")]
    Unavailable(String),
    /// It should have worked.
    #[error("{0}")]
    Failed(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
