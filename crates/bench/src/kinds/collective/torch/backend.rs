//! Libraries that torch.distributed can use.

use tonnage_engine::backend::BackendPart;
use tonnage_engine::backends::TORCH_VARIANTS as VARIANTS;
use tonnage_units::Result;

/// A library behind torch.distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TorchBackend {
    /// Gloo, over TCP.
    Gloo,
    /// NCCL, between GPUs.
    Nccl,
    /// An MPI that torch was built with.
    Mpi,
    /// No library. The worker makes no calls, so that only the worker's own overhead is measured.
    Null,
}

impl TorchBackend {
    pub const ALL: [Self; 4] = [Self::Gloo, Self::Nccl, Self::Mpi, Self::Null];

    /// Returns torch's name for the library.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gloo => "gloo",
            Self::Nccl => "nccl",
            Self::Mpi => "mpi",
            Self::Null => "floor",
        }
    }

    /// Returns advice for a torch that was built without the library.
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

    /// Finds a library by its name in `variants`, which has the same order as [`Self::ALL`].
    pub fn from_variant(variants: &[BackendPart], variant: &str) -> Result<Self> {
        let place = variants.iter().position(|known| known.name == variant);
        let found = place.and_then(|place| Self::ALL.get(place).copied());
        found.ok_or_else(|| {
            let names: Vec<_> = variants.iter().map(|known| known.name).collect();
            tonnage_units::names::unknown_name_error("backend of torch", variant, &names)
        })
    }

    /// Returns the name that `--backend` uses for the library.
    pub fn variant(self) -> &'static str {
        let place = Self::ALL.iter().position(|it| *it == self).unwrap_or(0);
        VARIANTS.get(place).map_or("", |known| known.name)
    }
}
