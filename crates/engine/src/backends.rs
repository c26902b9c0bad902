//! Rows of backends that `tonnage_bench` opens itself: they need its engines, or processes of their own.

use tonnage_collective::{Collective, Dtype, Reduction};

use crate::Lifecycle;
use crate::backend::{BackendEntry, BackendVariant};

/// Collectives of this program's own, over one of its engines.
pub const NATIVE: BackendEntry = BackendEntry {
    name: "native",
    about: "collectives of this program's own over one of its engines: what the path can do",
    variant: BackendVariant::Engine,
    ops: &Collective::ALL,
    dtypes: &Dtype::ALL,
    reductions: &Reduction::ALL,
    in_place_always: &[],
    has_algorithms: true,
    libraries: &[],
    lifecycle: Lifecycle::NONE,
    open: None,
};
