//! Figures of a stress run. A record has one row per engine and operation.

use crate::figures::common::{ASKED, EXCHANGE, OPERATION, OUTCOME};
use crate::figures::engine::ENGINE;
use crate::figures::latency::LATENCY;
use crate::figures::moved::{AMOUNTS, BANDWIDTH, CPU, MESSAGE_RATE};
use crate::figures::{Better, Figure, Figures, Row, Value};
use crate::stress::{StressBody, StressRow};

/// All figures of a record of a stress run.
pub const FIGURES: Figures = &[
    ASKED,
    ENGINE,
    EXCHANGE,
    OPERATION,
    DRAWS,
    BANDWIDTH,
    MESSAGE_RATE,
    LATENCY,
    CPU,
    AMOUNTS,
    FAILURE,
    OUTCOME,
];

const DRAWS: &[Figure] = &[
    Figure::of_option(
        "Seed",
        "stress_seed",
        "Seed that the transfers were drawn from.",
        |row| body(row).map(|body| body.point.seed).into(),
    ),
    Figure {
        name: "Draws",
        field: "draws",
        meaning: "Transfers that a stress drew and tried.",
        computed: "Counted.",
        value: |row| part(row, |part| part.draws),
        ..Figure::PLAIN
    },
    Figure {
        name: "Skipped",
        field: "draws_skipped",
        keep: 70,
        meaning: "Transfers that a stress drew and did not try, because the engine or the machine lacks something they need; the \
             line under the table gives the reason for the first one.",
        computed: "Counted.",
        value: |row| part(row, |part| part.skipped),
        ..Figure::PLAIN
    },
    Figure {
        name: "Failures",
        field: "draw_failures",
        keep: 100,
        meaning: "Transfers of a stress that failed, such as by a wrong byte.",
        computed: "Counted.",
        better: Some(Better::Low),
        value: |row| part(row, |part| part.failures),
        ..Figure::PLAIN
    },
];

const FAILURE: &[Figure] = &[Figure {
    name: "Repeat",
    field: "first_failure_command",
    meaning: "Command line that repeats the first transfer of a stress that failed; in the row of its engine and \
         operation.",
    computed: "Generated from the drawn options.",
    value: |row| {
        let failure = body(row).and_then(|body| body.first_failure.as_ref());
        let (engine, op) = (row.body().engine(row.part), row.body().verb(row.part));
        let failure = failure.filter(|it| it.engine == engine && Some(it.op) == op);
        failure.map(|failure| failure.command.as_str()).into()
    },
    ..Figure::PLAIN
}];

fn body<'a>(row: &Row<'a>) -> Option<&'a StressBody> {
    row.record.stress()
}

fn part<T: Into<Value>>(row: &Row<'_>, of: fn(&StressRow) -> T) -> Value {
    body(row).and_then(|body| body.row(row.part)).map(of).into()
}
