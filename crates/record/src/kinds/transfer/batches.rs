//! Figures of batches.

use tonnage_plan::transfer::{Batching, Pacing, TransferPoint};

use super::figures::summary;
use crate::figures::{Figure, Row, Value};
use crate::histogram::LatencyKind;
use crate::transfer::{BatchPhases, TransferBody};

/// Batch options of the point.
pub(super) const BATCHES: &[Figure] = &[
    Figure::of_option(
        "Batch of",
        "batch_of",
        "Owner of a batch: thread (each thread has batches of its own) or rank (the threads of a rank share each \
             batch out, and its latency is that of all of them together). Empty if the pacing has none.",
        |row| batches(row, |batching| batching.of.name().into()),
    ),
    Figure::of_option(
        "Batches",
        "batches_in_flight",
        "Batches of a thread, or of a rank, that are in flight together; empty if the pacing has none.",
        |row| batches(row, |batching| batching.in_flight.into()),
    ),
    Figure::of_option(
        "Call",
        "batch_call",
        "Calls that hand a batch over: one with all operations, or many, one for each. Empty if the pacing \
             has no batches.",
        |row| batches(row, |batching| batching.call.name().into()),
    ),
    Figure::of_option(
        "Merge",
        "merge",
        "Merging within a batch: on turns operations that are adjacent at both ends into one. Empty \
             if the pacing has no batches.",
        |row| batches(row, |batching| batching.merge.name().into()),
    ),
];

const PREPARE: &str = "From before the first operation is built until the last one is. The cost of a session is in the \
     library's call, and so in Post. With batches of a rank this phase and the next are the first thread's.";
const POST: &str = "From there until the engine, or the library, has taken the last operation. With futures (--api \
     async) the library is called when they are polled, which is in Complete.";
const COMPLETE: &str =
    "From there to the completion of the last one; of a rank's batch, of all threads' last ones.";

/// Phases that make up the latency of a batch.
pub(super) const PHASES: &[Figure] = &[
    Figure {
        name: "Prepare mean (us)",
        field: "batch_prepare_ns_mean",
        meaning: "Mean time of building a batch's operations.",
        computed: PREPARE,
        value: |row| phase(row, |phases| phases.prepare.time_ns_mean),
        ..Figure::TIME_US
    },
    Figure {
        name: "Prepare p50 (us)",
        field: "batch_prepare_ns_p50",
        meaning: "Median time of building a batch's operations.",
        computed: PREPARE,
        value: |row| phase(row, |phases| phases.prepare.time_ns_p50),
        ..Figure::TIME_US
    },
    Figure {
        name: "Prepare p99 (us)",
        field: "batch_prepare_ns_p99",
        meaning: "Time that 99 % of the batches do not exceed, of building a batch's operations.",
        computed: PREPARE,
        value: |row| phase(row, |phases| phases.prepare.time_ns_p99),
        ..Figure::TIME_US
    },
    Figure {
        name: "Post mean (us)",
        field: "batch_post_ns_mean",
        meaning: "Mean time of handing a batch over to the engine or the library, waits for room included.",
        computed: POST,
        value: |row| phase(row, |phases| phases.post.time_ns_mean),
        ..Figure::TIME_US
    },
    Figure {
        name: "Post p50 (us)",
        field: "batch_post_ns_p50",
        meaning: "Median time of handing a batch over to the engine or the library, waits for room included.",
        computed: POST,
        value: |row| phase(row, |phases| phases.post.time_ns_p50),
        ..Figure::TIME_US
    },
    Figure {
        name: "Post p99 (us)",
        field: "batch_post_ns_p99",
        meaning: "Time that 99 % of the batches do not exceed, of handing a batch over to the engine or the library, waits for room included.",
        computed: POST,
        value: |row| phase(row, |phases| phases.post.time_ns_p99),
        ..Figure::TIME_US
    },
    Figure {
        name: "Complete mean (us)",
        field: "batch_complete_ns_mean",
        meaning: "Mean time of waiting for a batch after it was handed over.",
        computed: COMPLETE,
        value: |row| phase(row, |phases| phases.complete.time_ns_mean),
        ..Figure::TIME_US
    },
    Figure {
        name: "Complete p50 (us)",
        field: "batch_complete_ns_p50",
        meaning: "Median time of waiting for a batch after it was handed over.",
        computed: COMPLETE,
        value: |row| phase(row, |phases| phases.complete.time_ns_p50),
        ..Figure::TIME_US
    },
    Figure {
        name: "Complete p99 (us)",
        field: "batch_complete_ns_p99",
        meaning: "Time that 99 % of the batches do not exceed, of waiting for a batch after it was handed over.",
        computed: COMPLETE,
        value: |row| phase(row, |phases| phases.complete.time_ns_p99),
        ..Figure::TIME_US
    },
];

/// Operations after merging.
pub(super) const MERGED: &[Figure] = &[Figure {
    name: "Merged to",
    field: "merged_operations",
    meaning: "Operations actually posted for batches, after adjacent ones were merged.",
    computed: "Counted by the initiators, over all trials; before operations are cut into parts.",
    value: |row| summary(row, |summary| summary.merged_operations),
    ..Figure::PLAIN
}];

/// Returns a time of a phase.
fn phase<T: Into<Value>>(row: &Row<'_>, of: fn(&BatchPhases) -> T) -> Value {
    let summary = row.record.transfer().and_then(|body| body.summary.as_ref());
    let phases = summary.and_then(|summary| summary.batch_phases.as_ref());
    phases.map(of).into()
}

/// Returns an option of the point's batches; unknown if the pacing is not by batches.
fn batches(row: &Row<'_>, of: fn(&Batching) -> Value) -> Value {
    let point = row.record.transfer().map(|body| &body.point);
    let has = point.filter(|point| batch(point).is_some());
    has.map_or(Value::Unknown, |point| of(&point.batching))
}

/// Returns the number of operations in one batch.
pub(super) fn batch(point: &TransferPoint) -> Option<u32> {
    match point.pacing {
        Pacing::Batch { batch } => Some(batch),
        _ => None,
    }
}

/// Returns the payload bytes of one batch to one peer.
pub(super) fn batch_bytes(point: &TransferPoint) -> Option<u64> {
    batch(point).map(|batch| u64::from(batch) * u64::from(point.slots.size_bytes))
}

/// Returns the bandwidth of the fastest batch; `None` if several batches use the path at the same time.
pub(super) fn fastest_batch_bytes_per_s(body: &TransferBody) -> Option<f64> {
    let latency = body.summary.as_ref()?.latency.as_ref()?;
    let alone = body.batches_at_once() == 1 && latency.kind == LatencyKind::Batch;
    let bytes = batch_bytes(&body.point).filter(|_| alone && latency.latency_ns_min > 0)?;
    Some(bytes as f64 * 1e9 / latency.latency_ns_min as f64)
}
