//! Options that say something about no call of the experiment: whoever gave one takes the result for that of another
//! call than the one that was measured.

use super::super::options::CallOptions;
use crate::refuse::usage;
use tonnage_collective::Collective;
use tonnage_engine::backend::{BackendEntry, BackendVariant};
use tonnage_units::Result;

/// Refuses options that none of the operations has. One that some have is taken: it is theirs.
pub(super) fn refuse(call: &CallOptions, ops: &[Collective]) -> Result<()> {
    let moves = |op: Collective| op != Collective::Barrier;
    let (no_root, no_reduction, no_bytes) =
        ("no root", "nothing to reduce", "no bytes that it moves");
    // An option, whether it was given, the operations that have it, and what the others lack.
    type Has = fn(Collective) -> bool;
    let options: [(&str, bool, Has, &str); 6] = [
        ("root", call.root.is_some(), Collective::is_rooted, no_root),
        (
            "reduce",
            call.reduce.is_some(),
            Collective::reduces,
            no_reduction,
        ),
        ("sizes", call.sizes.is_some(), moves, no_bytes),
        ("in-place", call.in_place, moves, no_bytes),
        ("dtype", call.dtype.is_some(), moves, no_bytes),
        ("chunk", call.chunk.is_some(), moves, no_bytes),
    ];
    for (option, given, has, lack) in options {
        if given && !ops.iter().copied().any(has) {
            let having: Vec<_> = Collective::ALL.into_iter().filter(|&op| has(op)).collect();
            return usage(format!(
                "{option} has no effect on {}, which has {lack}: leave it out, or add one of op {}",
                names(ops),
                names(&having)
            ));
        }
    }
    Ok(())
}

fn names(ops: &[Collective]) -> String {
    let names: Vec<_> = ops.iter().map(|op| op.name()).collect();
    names.join(", ")
}

/// Refuses options that none of the backends looks at.
pub(super) fn refuse_for_backends(call: &CallOptions, backends: &[&BackendEntry]) -> Result<()> {
    let in_workers = |entry: &&BackendEntry| matches!(entry.variant, BackendVariant::OneOf(_));
    if call.place.is_some() && backends.iter().all(in_workers) {
        return usage("place has no effect on torch's workers, which are not pinned: leave it out");
    }
    Ok(())
}
