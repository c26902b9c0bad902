//! A process's rank in the run, and how the ranks find each other. Launchers provide both. `tonnage_ranks::detect`
//! reads them, and engines that start before the ranks meet receive them.

use std::net::SocketAddr;

/// This process's rank, and how it finds the other ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Rank number, 0 .. `size`.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// Index among the ranks of this host. Without a `local_size` from the launcher, it is 0 until `Rank::join` has
    /// counted the ranks.
    pub local_rank: u32,
    /// Number of ranks on this host, if the launcher provides it.
    pub local_size: Option<u32>,
    /// Origin of these values: "RANK/WORLD_SIZE", "OMPI_COMM_WORLD_*", "tonnage --ranks", …. Once the ranks have met,
    /// the mechanism by which they met is appended: "OMPI_COMM_WORLD_*, PMIx".
    pub source: String,
    /// How the ranks find each other.
    pub meeting: Meeting,
}

/// How the ranks find each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meeting {
    /// The run has one rank.
    Alone,
    /// tonnage started all ranks on this host; rank 0 has the listening socket as its standard input.
    Local {
        /// Address of that socket.
        control: SocketAddr,
    },
    /// Rank 0 listens on this address, and all others connect to it.
    Master {
        /// Host name or address.
        host: String,
        /// TCP port.
        port: u16,
        /// Origin of the address. Messages name the address by it and suggest the setting to change.
        source: AddressSource,
    },
    /// The launcher hands rank 0's address and secret to the other ranks.
    Exchange(Exchange),
    /// Rank 0 is on the first host of a Slurm step, and all ranks know the port.
    FirstHost {
        /// The first host's name.
        host: String,
        /// TCP port.
        port: u16,
        /// True if the step has more than one host. If not, the ranks meet on 127.0.0.1.
        others: bool,
    },
}

/// Origin of rank 0's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSource {
    /// The command line: `--master`.
    Option,
    /// `MASTER_ADDR` and `MASTER_PORT`.
    Variable,
    /// `PET_MASTER_ADDR` and `PET_MASTER_PORT`, which a TrainJob gives its pods.
    TrainJob,
    /// Rank 0 itself, through its launcher.
    Launcher,
    /// The host list of a Slurm step.
    Step,
}

impl AddressSource {
    /// Returns the host as the user gave it, for messages.
    pub fn host(self, host: &str) -> String {
        match self {
            Self::Option => format!("--master {host}"),
            Self::Variable => format!("MASTER_ADDR={host}"),
            Self::TrainJob => format!("PET_MASTER_ADDR={host}"),
            Self::Launcher => format!("{host}, which the launcher passed on,"),
            Self::Step => format!("{host}, the first host of the step,"),
        }
    }

    /// Advice for a host that is not rank 0's.
    pub fn suggest_other_host(self) -> &'static str {
        match self {
            Self::Option => "--master must name the host of rank 0",
            Self::Variable => "MASTER_ADDR must be the host of rank 0",
            Self::TrainJob => {
                "PET_MASTER_ADDR must be the host name of the pod with PET_NODE_RANK=0"
            }
            Self::Launcher => "choose another interface with --control-interface NAME",
            Self::Step => "start with --mpi=pmix or --mpi=pmi2, which pass on rank 0's address",
        }
    }

    /// Advice for a port that is in use.
    pub fn suggest_other_port(self) -> &'static str {
        match self {
            Self::Option => "Choose another port with --master HOST:PORT, the same for all ranks",
            Self::Variable => {
                "Choose another port with MASTER_PORT or TONNAGE_PORT, the same for all ranks"
            }
            Self::TrainJob => "Choose another port with TONNAGE_PORT, the same for all pods",
            Self::Launcher => "Choose another TONNAGE_PORT, or leave it out",
            Self::Step => "Choose another port with TONNAGE_PORT, the same for all ranks",
        }
    }
}

/// How the launcher exchanges short messages between ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exchange {
    /// The PMIx library, which talks to the launcher's server.
    Pmix,
    /// The text protocol PMI-1 over an open file.
    Pmi1 {
        /// Number of the file descriptor.
        fd: i32,
    },
}
