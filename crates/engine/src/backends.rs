//! Rows of the backends that `tonnage_bench` opens itself: they need its engines or start processes of their own.

use tonnage_collective::{Collective, Dtype, Reduction};

use crate::Lifecycle;
use crate::backend::{BackendEntry, BackendPart, BackendVariant};

/// The program's own collectives, over one of its engines.
pub const NATIVE: BackendEntry = BackendEntry {
    name: "native",
    about: "tonnage's own collectives over one of its engines: shows what the path can do",
    needs: "an engine with write-imm, such as native:shm or native:fabric:tcp",
    variant: BackendVariant::Engine,
    usual: &[],
    needs_launcher: false,
    ops: &Collective::ALL,
    dtypes: &Dtype::ALL,
    reductions: &Reduction::ALL,
    in_place_always: &[],
    has_algorithms: true,
    libraries: &[],
    lifecycle: Lifecycle::NONE,
    open: None,
};

/// PyTorch's device name for GPU memory, also on AMD GPUs.
pub const TORCH_GPU_MEMORY: &str = "cuda";

/// Libraries behind torch.distributed, and a variant that calls no library.
pub const TORCH_VARIANTS: &[BackendPart] = &[
    BackendPart {
        name: "gloo",
        about: "by Gloo, over TCP",
        needs: "",
    },
    BackendPart {
        name: "nccl",
        about: "by NCCL, between GPUs",
        needs: " built for CUDA, and a GPU for each rank",
    },
    BackendPart {
        name: "mpi",
        about: "by an MPI",
        needs: " built from source with an MPI, because no packaged PyTorch supports it",
    },
    BackendPart {
        name: "null",
        about: "calls nothing, to show the overhead of the thread itself",
        needs: "",
    },
];

/// Collectives of torch.distributed, through one Python process per rank.
pub const TORCH: BackendEntry = BackendEntry {
    name: "torch",
    about: "torch.distributed",
    needs: "a Python (--python) with PyTorch",
    variant: BackendVariant::OneOf(TORCH_VARIANTS),
    usual: &["gloo"],
    needs_launcher: false,
    ops: &Collective::ALL,
    dtypes: &Dtype::ALL,
    reductions: &Reduction::ALL,
    in_place_always: &[
        Collective::AllReduce,
        Collective::Reduce,
        Collective::Broadcast,
    ],
    has_algorithms: false,
    libraries: &[],
    lifecycle: Lifecycle::NONE,
    open: None,
};
