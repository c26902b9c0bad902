//! The list of backends: a row for each. Whoever opens one is in `tonnage_bench`.

use crate::backend::{BackendEntry, BackendVariant};
use crate::{Collective, Dtype, Reduction};

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
};

/// Every backend, in the order in which help and messages list them.
pub static BACKENDS: &[BackendEntry] = &[NATIVE];
