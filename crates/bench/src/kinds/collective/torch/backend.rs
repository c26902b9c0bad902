//! Libraries that torch.distributed can call.

/// Library behind torch.distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TorchBackend {
    /// Gloo, over TCP.
    Gloo,
    /// NCCL, between GPUs.
    Nccl,
    /// An MPI that torch was built with.
    Mpi,
    /// None: nothing is called, and what is left is the worker's own time.
    Null,
}

impl TorchBackend {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gloo, Self::Nccl, Self::Mpi, Self::Null];

    /// Torch's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gloo => "gloo",
            Self::Nccl => "nccl",
            Self::Mpi => "mpi",
            Self::Null => "floor",
        }
    }

    /// Advice for a torch that lacks it.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Gloo => {
                "Install a PyTorch with gloo (python3 -m pip install torch has it), or name another Python by --python"
            }
            Self::Nccl => {
                "Install a PyTorch built for CUDA (python3 -m pip install torch on Linux), or name another Python by \
                 --python"
            }
            Self::Mpi => {
                "No packaged PyTorch has it: build PyTorch from its source on a host with an MPI's mpicc, and name its \
                 Python by --python"
            }
            Self::Null => "Name another Python by --python",
        }
    }
}

impl std::str::FromStr for TorchBackend {
    type Err = tonnage_units::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|each| each.name() == text);
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|each| each.name()).collect();
            tonnage_units::names::unknown("backend of torch", text, &names)
        })
    }
}
