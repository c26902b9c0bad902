//! Figures of the memories of both ends, beside the one that points of every kind have.

use tonnage_plan::transfer::TransferPoint;

use crate::figures::common::FROM_PLAN;
use crate::figures::{Figure, Row, Style, Value, pairs};

/// Figures of the memories.
pub(super) const MEMORIES: &[Figure] = &[
    Figure {
        name: "Target memory",
        field: "target_memory",
        meaning: "Memory of the ranks that are initiated to; that of Memory where nothing else was asked for.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| {
            point(row, |point| {
                let target = point.target_memory.as_ref();
                target.unwrap_or(&point.memory).clone()
            })
        },
        trials: None,
    },
    Figure {
        name: "Memory options",
        field: "memory_options",
        meaning: "Options of the memories' own that differ from their defaults, each for the ends whose memory knows it; \
             `tonnage devices` lists all of them.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |point| pairs(&point.memory_options)),
        trials: None,
    },
];

fn point(row: &Row<'_>, of: fn(&TransferPoint) -> String) -> Value {
    let body = row.record.transfer();
    body.map(|body| of(&body.point)).into()
}
