//! Columns of what was asked for, and of what it was done with.

use tonnage_plan::transfer::Pacing;

use super::super::engine;
use super::values::{batch, batch_bytes, offered_per_s};
use super::{Column, Style, Value, addresses_name, pacing_name};

const FROM_PLAN: &str =
    "As the plan or the command line asked for it; the record's point repeats it.";

/// Columns that are known before anything is measured.
pub const ASKED: &[Column] = &[
    Column {
        name: "Kind",
        field: "kind",
        meaning: "What the row is about: \"transfer\" for bytes between memories, \"file\" for a file experiment.",
        computed: "It follows from the record: one has the key point, the other the key file.",
        style: Style::Plain,
        value: |_| "transfer".into(),
    },
    Column {
        name: "Plan",
        field: "plan",
        meaning: "The plan that the point belongs to.",
        computed: "The plan's own name, or that of the command.",
        style: Style::Plain,
        value: |record| record.plan.as_str().into(),
    },
    Column {
        name: "Label",
        field: "label",
        meaning: "The heading under which the plan puts the point, if it gave one.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| record.body.point.label.as_deref().into(),
    },
    Column {
        name: "Engine",
        field: "engine",
        meaning: "What moved the bytes; `tonnage devices` lists the engines.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| record.body.point.engine.as_str().into(),
    },
    Column {
        name: "Engine options",
        field: "engine_options",
        meaning: "Options of the engine's own that differ from their defaults; `tonnage devices` lists all of them.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| some(engine::options(&record.body.point)),
    },
    Column {
        name: "Library",
        field: "library",
        meaning: "The library that moved the bytes, with its version and the file that it was loaded from.",
        computed: "The engine's own word, ranks with the same answer together; absent where the engine uses none.",
        style: Style::Plain,
        value: |record| some(engine::library(record.record)),
    },
    Column {
        name: "Provider",
        field: "provider",
        meaning: "The part of the library that moved the bytes, with its version.",
        computed: "The engine's own word, ranks with the same answer together; absent where the engine has none.",
        style: Style::Plain,
        value: |record| some(engine::provider(record)),
    },
    Column {
        name: "Device",
        field: "device",
        meaning: "The device, or devices, that the engine used.",
        computed: "The engine's own word, ranks with the same answer together; absent where the engine has none.",
        style: Style::Plain,
        value: |record| some(engine::device(record)),
    },
    Column {
        name: "Op",
        field: "op",
        meaning: "What one operation does: write, write-imm, read or send.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| record.body.point.op.name().into(),
    },
    Column {
        name: "Traffic",
        field: "traffic",
        meaning: "Who talks to whom: pair (initiator i with target i), fan-out (rank 0 to all others), \
             fan-in (all others to rank 0), all-to-all.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| record.body.point.traffic.name().into(),
    },
    Column {
        name: "Ranks",
        field: "ranks",
        meaning: "Processes of the run.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| record.body.point.ranks.into(),
    },
    Column {
        name: "Workers",
        field: "workers",
        meaning: "Threads of each rank that move bytes, each with its own engine.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| record.body.point.workers.into(),
    },
    Column {
        name: "Pacing",
        field: "pacing",
        meaning: "How operations are issued: ping-pong (one, then wait for the answer), stream (a \
             sliding window), batch (post B, wait for B), paced (due at fixed times, whatever the \
             completions do).",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| pacing_name(record.body.point.pacing).into(),
    },
    Column {
        name: "Memory",
        field: "memory",
        meaning: "Where the bytes live: host memory with the pages that serve the engine best, with small \
             (normal) pages only, or with the largest to be had. The record's `effective` part says what was had.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| record.body.point.memory.as_str().into(),
    },
    Column {
        name: "Addresses",
        field: "addresses",
        meaning: "In which order operations walk over the footprint: sequential, random (seeded) or \
             fixed (always the same place). It changes results several-fold, because it decides \
             what caches hold.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| addresses_name(record.body.point.addresses).into(),
    },
    Column {
        name: "Footprint (B)",
        field: "footprint_bytes",
        meaning: "Bytes over which the operations of one lane walk, on either side. Whether they fit a \
             cache decides the bandwidth.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| record.body.point.footprint_bytes.into(),
    },
    Column {
        name: "Stride (B)",
        field: "stride_bytes",
        meaning: "Distance between the starts of two neighbouring places in the footprint.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| record.body.point.stride_bytes.into(),
    },
    Column {
        name: "MsgSize (B)",
        field: "size_bytes",
        meaning: "Payload bytes of one operation.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| record.body.point.size_bytes.into(),
    },
    Column {
        name: "BatchSize",
        field: "batch",
        meaning: "Operations that are posted together and then all waited for, on each lane.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| batch(&record.body.point).into(),
    },
    Column {
        name: "Window",
        field: "window",
        meaning: "Operations in flight on each lane; a new one is posted for every one that \
             completes.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| match record.body.point.pacing {
            Pacing::Stream { window } | Pacing::Paced { window, .. } => window.into(),
            _ => Value::Unknown,
        },
    },
    Column {
        name: "TotalSize (MB)",
        field: "batch_payload_bytes",
        meaning: "Payload of one batch, in megabytes of 1e6 bytes.",
        computed: "MsgSize x BatchSize.",
        style: Style::Scaled(1e-6),
        value: |record| batch_bytes(&record.body.point).into(),
    },
    Column {
        name: "Offered (op/s)",
        field: "offered_per_s",
        meaning: "Operations per second that were asked for, all initiating ranks together.",
        computed: FROM_PLAN,
        style: Style::Rate,
        value: |record| offered_per_s(&record.body.point).into(),
    },
];

/// A text, unless it is empty.
fn some(text: String) -> Value {
    if text.is_empty() {
        Value::Unknown
    } else {
        Value::Text(text)
    }
}
