//! Rows of backends that `tonnage_bench` opens itself: they need its engines, or processes of their own.

use tonnage_collective::{Collective, Dtype, Reduction};

use crate::Lifecycle;
use crate::backend::{BackendEntry, BackendVariant};

/// Collectives of this program's own, over one of its engines.
pub const NATIVE: BackendEntry = BackendEntry {
    name: "native",
    about: "collectives of this program's own over one of its engines: what the path can do",
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

/// Libraries behind torch.distributed, and none at all.
pub const TORCH_VARIANTS: &[&str] = &["gloo", "nccl", "mpi", "null"];

/// Collectives of torch.distributed, by a process of Python for each rank.
pub const TORCH: BackendEntry = BackendEntry {
    name: "torch",
    about: "torch.distributed's collectives (gloo, nccl, mpi), by a Python with PyTorch; null calls nothing",
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
