//! Figures that records of every kind have, and options that several have.

use super::engine::memory_of;
use super::{Figure, Style, pairs};
use crate::Outcome;

pub(crate) const FROM_PLAN: &str =
    "As the plan or the command line asked for it; the record's point repeats it.";

/// Name of a point, and options that points of all kinds have.
pub const ASKED: &[Figure] = &[
    Figure {
        name: "Kind",
        field: "kind",
        meaning: "Kind of the experiment, such as transfer (bytes between memories) or file (bytes between memory and files).",
        computed: "The record's kind.",
        style: Style::Plain,
        better: None,
        value: |row| row.record.body.kind().into(),
        trials: None,
    },
    Figure {
        name: "Plan",
        field: "plan",
        meaning: "The plan that the point belongs to.",
        computed: "The plan's own name, or that of the command.",
        style: Style::Plain,
        better: None,
        value: |row| row.record.plan.as_str().into(),
        trials: None,
    },
    Figure {
        name: "Label",
        field: "label",
        meaning: "The heading under which the plan puts the point, if it gave one.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| row.options().label().into(),
        trials: None,
    },
    Figure {
        name: "Engine",
        field: "engine",
        meaning: "Mover of the bytes; `tonnage devices` lists the engines. Of collectives the backend, such as native:shm.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| row.body().engine(row.part).into(),
        trials: None,
    },
    Figure {
        name: "Engine options",
        field: "engine_options",
        meaning: "Options of the engine's own that differ from their defaults; `tonnage devices` lists all of them.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| pairs(row.options().engine_options()).into(),
        trials: None,
    },
    Figure {
        name: "Ranks",
        field: "ranks",
        meaning: "Processes that take part.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| row.options().ranks().into(),
        trials: None,
    },
];

/// Options of kinds whose ranks exchange something.
pub const EXCHANGE: &[Figure] = &[
    Figure {
        name: "Workers",
        field: "workers",
        meaning: "Threads of each rank that move bytes, each with its own engine.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| row.options().workers().into(),
        trials: None,
    },
    Figure {
        name: "Traffic",
        field: "traffic",
        meaning: "Pattern of the exchange between ranks, such as pair (initiator i with target i) or fan-in (all others to \
             rank 0); the help of --traffic lists them.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| row.options().traffic().map(|traffic| traffic.name()).into(),
        trials: None,
    },
    Figure {
        name: "Place",
        field: "place",
        meaning: "Sockets of the workers that exchange bytes with each other: near (each with its peer on one socket), \
             far (initiator and target on two) or mixed. Empty where they are on different hosts or not pinned, and where the kernel \
             names no sockets.",
        computed: "From the CPUs that workers were pinned to; as the plan asked for it where none was.",
        style: Style::Plain,
        better: None,
        value: |row| row.record.place().map(|place| place.name()).into(),
        trials: None,
    },
    MEMORY_OF,
];

const MEMORY_OF: Figure = Figure {
    name: "Memory",
    field: "memory",
    meaning: "Memory that the bytes live in; `tonnage devices` lists the memories. The record's `effective` part says \
             what was had.",
    computed: FROM_PLAN,
    style: Style::Plain,
    better: None,
    value: |row| {
        let had = row.record.collective().and_then(|_| memory_of(row));
        had.or_else(|| row.options().memory()).into()
    },
    trials: None,
};

/// Memory, of kinds that have nothing else of what ranks exchange.
pub const MEMORY: &[Figure] = &[MEMORY_OF];

/// Operation of kinds that have several.
pub const OPERATION: &[Figure] = &[Figure {
    name: "Op",
    field: "op",
    meaning: "Action of one operation: write, write-imm, read or send; or the collective, such as all-reduce.",
    computed: FROM_PLAN,
    style: Style::Plain,
    better: None,
    value: |row| row.body().operation(row.part).into(),
    trials: None,
}];

/// Options of kinds that keep operations in flight.
pub const IN_FLIGHT: &[Figure] = &[Figure {
    name: "Window",
    field: "window",
    meaning: "Operations in flight at a time, on each lane of a transfer and by each thread of a file experiment; a new \
         one is posted for every one that completes.",
    computed: FROM_PLAN,
    style: Style::Plain,
    better: None,
    value: |row| row.options().window().into(),
    trials: None,
}];

/// Outcome of a point.
pub const OUTCOME: &[Figure] = &[
    Figure {
        name: "Trials",
        field: "trials",
        meaning: "Timed repetitions of the point, or of the phase.",
        computed: "Counted.",
        style: Style::Plain,
        better: None,
        value: |row| row.body().trials(row.part).into(),
        trials: None,
    },
    Figure {
        name: "Outcome",
        field: "outcome",
        meaning: "End of the whole point: measured, skipped (it could not be tried here) or failed. A phase of files that \
             had ended before another one failed has its figures all the same.",
        computed: "Decided when the point ends.",
        style: Style::Plain,
        better: None,
        value: |row| row.record.outcome.status().into(),
        trials: None,
    },
    Figure {
        name: "Why",
        field: "outcome_why",
        meaning: "Reason that a point was skipped or failed, and the next thing to do.",
        computed: "Written by whatever stopped it.",
        style: Style::Plain,
        better: None,
        value: |row| row.record.outcome.why().into(),
        trials: None,
    },
];

impl Outcome {
    /// Name of the outcome, as `status` has it in records.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Skipped { .. } => "skipped",
            Self::Failed { .. } => "failed",
        }
    }

    /// Reason that a point was not measured.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Measured => None,
            Self::Skipped { why } | Self::Failed { why } => Some(why),
        }
    }
}
