//! Figures that records of every kind have.

use tonnage_engine::EngineOptions;
use tonnage_plan::point::Traffic;

use super::{Figure, Part, Row, Style, Value};
use crate::{Body, Outcome};

pub(super) const FROM_PLAN: &str =
    "As the plan or the command line asked for it; the record's point repeats it.";

/// Name of a point, and what all kinds are asked for.
pub const ASKED: &[Figure] = &[
    Figure {
        name: "Kind",
        field: "kind",
        meaning: "What the row is about: transfer (bytes between memories), file (bytes between memory and files), connect \
             (setting up connections).",
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
        value: |row| label(row).into(),
        trials: None,
    },
    Figure {
        name: "Engine",
        field: "engine",
        meaning: "What moved the bytes; `tonnage devices` lists the engines.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| engine(row).into(),
        trials: None,
    },
    Figure {
        name: "Engine options",
        field: "engine_options",
        meaning: "Options of the engine's own that differ from their defaults; `tonnage devices` lists all of them.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| pairs(engine_options(row)),
        trials: None,
    },
    Figure {
        name: "Ranks",
        field: "ranks",
        meaning: "Processes of the run.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| ranks(row).into(),
        trials: None,
    },
    Figure {
        name: "Workers",
        field: "workers",
        meaning: "Threads of each rank that move bytes, each with its own engine.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| workers(row).into(),
        trials: None,
    },
    Figure {
        name: "Traffic",
        field: "traffic",
        meaning: "Who talks to whom: pair (initiator i with target i), fan-out (rank 0 to all others), \
             fan-in (all others to rank 0), all-to-all.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| traffic(row).map(Traffic::name).into(),
        trials: None,
    },
    Figure {
        name: "Memory",
        field: "memory",
        meaning: "Where the bytes live: host memory with the pages that serve the engine best, with small \
             (normal) pages only, or with the largest to be had. The record's `effective` part says what was had.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| memory(row).into(),
        trials: None,
    },
];

/// Outcome of a point.
pub const OUTCOME: &[Figure] = &[
    Figure {
        name: "Trials",
        field: "trials",
        meaning: "Timed repetitions of the point.",
        computed: "Counted.",
        style: Style::Plain,
        better: None,
        value: |row| trials(row).into(),
        trials: None,
    },
    Figure {
        name: "Outcome",
        field: "outcome",
        meaning: "What became of the point: measured, skipped (it could not be tried here) or \
             failed.",
        computed: "Decided when the point ends.",
        style: Style::Plain,
        better: None,
        value: |row| outcome(row).0.into(),
        trials: None,
    },
    Figure {
        name: "Why",
        field: "outcome_why",
        meaning: "Why a point was skipped or failed, and what to do.",
        computed: "Written by whatever stopped it.",
        style: Style::Plain,
        better: None,
        value: |row| outcome(row).1.into(),
        trials: None,
    },
];

fn label<'a>(row: &Row<'a>) -> Option<&'a str> {
    match &row.record.body {
        Body::Transfer(body) => body.point.label.as_deref(),
        Body::File(body) => body.point.label.as_deref(),
        Body::Connect(body) => body.point.label.as_deref(),
    }
}

fn engine<'a>(row: &Row<'a>) -> &'a str {
    match &row.record.body {
        Body::Transfer(body) => &body.point.engine,
        Body::File(body) => &body.point.engine,
        Body::Connect(body) => &body.point.engine,
    }
}

fn engine_options<'a>(row: &Row<'a>) -> &'a EngineOptions {
    match &row.record.body {
        Body::Transfer(body) => &body.point.engine_options,
        Body::File(body) => &body.point.engine_options,
        Body::Connect(body) => &body.point.engine_options,
    }
}

fn ranks(row: &Row<'_>) -> u32 {
    match &row.record.body {
        Body::Transfer(body) => body.point.ranks,
        Body::File(body) => body.point.ranks,
        Body::Connect(body) => body.point.ranks,
    }
}

fn workers(row: &Row<'_>) -> Option<u32> {
    match &row.record.body {
        Body::Transfer(body) => Some(body.point.workers),
        Body::File(_) => None,
        Body::Connect(body) => Some(body.point.workers),
    }
}

fn traffic(row: &Row<'_>) -> Option<Traffic> {
    match &row.record.body {
        Body::Transfer(body) => Some(body.point.traffic),
        Body::File(_) => None,
        Body::Connect(body) => Some(body.point.traffic),
    }
}

fn memory<'a>(row: &Row<'a>) -> Option<&'a str> {
    match &row.record.body {
        Body::Transfer(body) => Some(&body.point.memory),
        Body::File(_) => None,
        Body::Connect(body) => Some(&body.point.memory),
    }
}

fn trials(row: &Row<'_>) -> Option<u32> {
    match (&row.record.body, row.part) {
        (Body::Transfer(body), _) => body.summary.as_ref().map(|summary| summary.trials),
        (Body::Connect(body), _) => body.summary.as_ref().map(|summary| summary.trials),
        (Body::File(_), Part::Whole | Part::Step(_)) => None,
    }
}

fn outcome<'a>(row: &Row<'a>) -> (&'static str, Option<&'a str>) {
    match &row.record.outcome {
        Outcome::Measured => ("measured", None),
        Outcome::Skipped { why } => ("skipped", Some(why)),
        Outcome::Failed { why } => ("failed", Some(why)),
    }
}

/// NAME=VALUE, several with a space between them; unknown where there are none.
pub(super) fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> Value {
    let texts: Vec<_> = pairs
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if texts.is_empty() {
        return Value::Unknown;
    }
    Value::Text(texts.join(" "))
}
