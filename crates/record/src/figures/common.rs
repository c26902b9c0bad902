//! Figures that records of every kind have, and figures of options that several kinds share.

use super::engine::memory_of;
use super::{Figure, format_pairs};
use crate::Outcome;

/// Name of a point, and options of all kinds.
pub const ASKED: &[Figure] = &[
    Figure {
        name: "Kind",
        field: "kind",
        meaning: "Kind of the experiment, such as transfer (bytes between memories) or file (bytes between memory and files).",
        computed: "The record's kind.",
        value: |row| row.record.body.kind().into(),
        ..Figure::PLAIN
    },
    Figure {
        name: "Plan",
        field: "plan",
        meaning: "The plan that the point belongs to.",
        computed: "The plan's own name, or that of the command.",
        value: |row| row.record.plan.as_str().into(),
        ..Figure::PLAIN
    },
    Figure::of_option(
        "Label",
        "label",
        "The heading under which the plan puts the point, if it gave one.",
        |row| row.options().label.into(),
    ),
    Figure::of_option(
        "Engine",
        "engine",
        "Mover of the bytes; `tonnage engines` lists the engines. Of collectives the backend, such as native:shm.",
        |row| row.body().engine(row.part).into(),
    ),
    Figure::of_option(
        "Engine options",
        "engine_options",
        "Options of the engine's own that differ from their defaults; `tonnage engines` lists all of them.",
        |row| format_pairs(row.options().engine_options).into(),
    ),
    Figure::of_option("Ranks", "ranks", "Processes that take part.", |row| {
        row.options().ranks.into()
    }),
];

/// Options of kinds in which ranks exchange bytes.
pub const EXCHANGE: &[Figure] = &[
    Figure::of_option(
        "Threads",
        "threads",
        "Threads of each rank that move bytes, each with its own engine.",
        |row| row.options().threads.into(),
    ),
    Figure::of_option(
        "Traffic",
        "traffic",
        "Pattern of the exchange between ranks, such as pair (initiator i with target i) or fan-in (all others to \
             rank 0); the help of --traffic lists them.",
        |row| row.options().traffic.map(|traffic| traffic.name()).into(),
    ),
    Figure {
        name: "Place",
        field: "place",
        meaning: "Sockets of the threads that exchange bytes with each other: near (each with its peer on one socket), \
             far (initiator and target on two) or mixed. Empty if they are on different hosts or not pinned, or if the kernel \
             reports no sockets.",
        computed: "From the CPUs that threads were pinned to; if none was pinned, as requested by the plan.",
        value: |row| row.record.placement().map(|place| place.name()).into(),
        ..Figure::PLAIN
    },
    MEMORY_OF,
];

const MEMORY_OF: Figure = Figure::of_option(
    "Memory",
    "memory",
    "Memory that the bytes live in; `tonnage engines` lists the memories. The record's `effective` part has \
             the memory actually used.",
    |row| {
        let had = row.record.collective().and_then(|_| memory_of(row));
        had.or_else(|| row.options().memory).into()
    },
);

/// The memory option, for kinds that show none of the other options of an exchange.
pub const MEMORY: &[Figure] = &[MEMORY_OF];

/// The operation, for kinds with several operations.
pub const OPERATION: &[Figure] = &[Figure::of_option(
    "Op",
    "op",
    "Action of one operation: write, write-imm, read or send; or the collective, such as all-reduce.",
    |row| row.body().operation(row.part).into(),
)];

/// Options of kinds that keep operations in flight.
pub const IN_FLIGHT: &[Figure] = &[Figure::of_option(
    "Depth",
    "depth",
    "Operations in flight at a time, on each lane of a transfer and by each thread of a file experiment; a new \
         one is posted for every one that completes.",
    |row| row.options().depth.into(),
)];

/// Outcome of a point.
pub const OUTCOME: &[Figure] = &[
    Figure {
        name: "Trials",
        field: "trials",
        meaning: "Timed repetitions of the point, or of the phase.",
        computed: "Counted.",
        value: |row| row.body().trials(row.part).into(),
        ..Figure::PLAIN
    },
    Figure {
        name: "Outcome",
        field: "outcome",
        meaning: "End of the whole point: measured, skipped (it could not be tried here) or failed. A phase of files that \
             had ended before another one failed still has its figures.",
        computed: "Decided when the point ends.",
        value: |row| row.record.outcome.status().into(),
        ..Figure::PLAIN
    },
    Figure {
        name: "Why",
        field: "outcome_why",
        meaning: "Reason that a point was skipped or failed, and the next thing to do.",
        computed: "Reported by the part of the program that stopped it.",
        value: |row| row.record.outcome.why().into(),
        ..Figure::PLAIN
    },
];

impl Outcome {
    /// Returns the name of the outcome, as in `status` of a record.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Skipped { .. } => "skipped",
            Self::Failed { .. } => "failed",
        }
    }

    /// Returns the reason that a point was not measured.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Measured => None,
            Self::Skipped { why } | Self::Failed { why } => Some(why),
        }
    }
}
