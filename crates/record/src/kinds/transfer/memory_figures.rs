//! Figures of the memories of both ends, beside the one that points of every kind have.

use tonnage_plan::transfer::TransferPoint;

use crate::figures::{Figure, Row, Value, pairs};

/// Figures of the memories.
pub(super) const MEMORIES: &[Figure] = &[
    Figure::asked(
        "Target memory",
        "target_memory",
        "Memory of the ranks that are initiated to; that of Memory where nothing else was asked for.",
        |row| {
            point(row, |point| {
                let target = point.target_memory.as_ref();
                target.unwrap_or(&point.memory).clone()
            })
        },
    ),
    Figure::asked(
        "Memory options",
        "memory_options",
        "Options of the memories' own that differ from their defaults, each for the ends whose memory knows it; \
             `tonnage devices` lists all of them.",
        |row| point(row, |point| pairs(&point.memory_options)),
    ),
];

fn point(row: &Row<'_>, of: fn(&TransferPoint) -> String) -> Value {
    let body = row.record.transfer();
    body.map(|body| of(&body.point)).into()
}
