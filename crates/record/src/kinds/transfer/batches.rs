//! Figures of batches.

use tonnage_plan::transfer::{Batching, Pacing, TransferPoint};

use crate::figures::common::FROM_PLAN;
use crate::figures::{Figure, Row, Style, Value};

/// Batches as they were asked for.
pub(super) const BATCHES: &[Figure] = &[
    Figure {
        name: "Batches",
        field: "batches_in_flight",
        meaning: "Batches of a worker that are in flight together; empty where the pacing has none.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| batches(row, |batching| batching.in_flight.into()),
        trials: None,
    },
    Figure {
        name: "Call",
        field: "batch_call",
        meaning: "Calls that hand a batch over: one with all operations, or many, one for each. Empty where the pacing \
             has no batches.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| batches(row, |batching| batching.call.name().into()),
        trials: None,
    },
    Figure {
        name: "Merge",
        field: "merge",
        meaning: "Use of neighbourhood within a batch: on makes operations that are adjacent at both ends into one. Empty \
             where the pacing has no batches.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| batches(row, |batching| batching.merge.name().into()),
        trials: None,
    },
];

/// Operations that became of those of batches.
pub(super) const MERGED: &[Figure] = &[Figure {
    name: "Merged to",
    field: "merged_operations",
    meaning: "Operations that the engine was handed for those of the batches, after neighbours were merged.",
    computed: "Counted by the initiators, over all trials; before operations are cut into parts.",
    style: Style::Plain,
    better: None,
    value: |row| {
        let summary = row.record.transfer().and_then(|body| body.summary.as_ref());
        summary.and_then(|summary| summary.merged_operations).into()
    },
    trials: None,
}];

/// A figure of a point's batches.
fn batches(row: &Row<'_>, of: fn(&Batching) -> Value) -> Value {
    let point = row.record.transfer().map(|body| &body.point);
    let has = point.filter(|point| batch(point).is_some());
    has.map_or(Value::Unknown, |point| of(&point.batching))
}

/// Operations of one batch.
pub(super) fn batch(point: &TransferPoint) -> Option<u32> {
    match point.pacing {
        Pacing::Batch { batch } => Some(batch),
        _ => None,
    }
}
