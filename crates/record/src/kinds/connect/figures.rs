//! Figures of connection set-up. A record has one row for the whole record and one per step.

use crate::body::Part;
use crate::connect::{ConnectBody, ConnectSummary};
use crate::figures::common::{ASKED, EXCHANGE, OUTCOME};
use crate::figures::engine::ENGINE;
use crate::figures::latency::LATENCY;
use crate::figures::moved::CI95;
use crate::figures::{Better, Figure, Figures, PERCENT, Row, Style, Value};

/// All figures of a record of connections.
pub const FIGURES: Figures = &[ASKED, ENGINE, EXCHANGE, CONNECT, LATENCY, OUTCOME];

const CONNECT: &[Figure] = &[
    Figure {
        name: "Step",
        field: "step",
        meaning: "Step of setting up a thread's connections: open (its endpoint), register (its memory), exchange (cards over the control channel, and waiting for the slowest rank), connect (to its peers), first_byte (until one has gone each way), total (all of these), close (taking it down, which is not in total). Absent in the row of the whole.",
        computed: "The record's steps, in their order.",
        value: |row| {
            body(row)
                .and_then(|body| body.step(row.part))
                .map(|step| step.step.name())
                .into()
        },
        ..Figure::PLAIN
    },
    Figure::of_option(
        "Register (B)",
        "register_bytes",
        "Bytes of memory that each thread registers with its device.",
        |row| point(row, |body| body.point.register_bytes),
    ),
    Figure {
        name: "Connections",
        field: "connections_at_once",
        meaning: "Connections that all ranks together have at a time.",
        computed: "Pairs of threads that the traffic connects.",
        value: |row| point(row, |body| body.point.connections()),
        ..Figure::PLAIN
    },
    Figure {
        name: "Conn rate (conn/s)",
        field: "connections_per_s_mean",
        keep: 90,
        meaning: "Connections per second over all ranks together, each set up, used for one byte each way and taken down again.",
        computed: "Mean over the trials of connections / measured interval.",
        style: Style::Rate,
        better: Some(Better::High),
        value: |row| summary(row, |summary| summary.connections_per_s.mean),
        trials: Some(connections_per_s),
    },
    Figure {
        name: "Conn CI95 (%)",
        field: "connections_ci95_fraction",
        meaning: "Half width of the 95 % confidence interval of Conn rate, as a part of it. Not available for a single trial.",
        computed: CI95,
        style: PERCENT,
        value: |row| summary(row, |summary| summary.connections_per_s.ci95_fraction()),
        ..Figure::PLAIN
    },
    Figure {
        name: "Set up",
        field: "connections_set_up",
        meaning: "Connections of all trials, each counted once for its two ends.",
        computed: "Counted.",
        value: |row| summary(row, |summary| summary.connections),
        ..Figure::PLAIN
    },
    Figure {
        name: "CPU (ns/conn)",
        field: "cpu_ns_per_connection",
        keep: 20,
        meaning: "CPU time that all threads together spend on one connection.",
        computed: "CPU time of all threads inside the measured intervals / connections.",
        style: Style::Scaled(1.0),
        better: Some(Better::Low),
        value: |row| summary(row, |summary| summary.cpu_ns_per_connection),
        trials: Some(cpu_times),
    },
];

fn body<'a>(row: &Row<'a>) -> Option<&'a ConnectBody> {
    row.record.connect()
}

/// Returns a figure of the point. All rows show it.
fn point<T: Into<Value>>(row: &Row<'_>, of: fn(&ConnectBody) -> T) -> Value {
    body(row).map(of).into()
}

/// Returns the body, but only in the row of the whole record.
fn whole<'a>(row: &Row<'a>) -> Option<&'a ConnectBody> {
    body(row).filter(|_| row.part == Part::Whole)
}

/// Returns a figure of the whole record. In the rows of steps it is unknown, because steps have only latencies.
fn summary<T: Into<Value>>(row: &Row<'_>, of: fn(&ConnectSummary) -> T) -> Value {
    whole(row)
        .and_then(|body| body.summary.as_ref())
        .map(of)
        .into()
}

fn connections_per_s(row: &Row<'_>) -> Vec<Option<f64>> {
    let trials = whole(row).into_iter().flat_map(|body| &body.trials);
    trials.map(|trial| Some(trial.connections_per_s)).collect()
}

fn cpu_times(row: &Row<'_>) -> Vec<Option<f64>> {
    let trials = whole(row).into_iter().flat_map(|body| &body.trials);
    let of = |cpu_ns, connections| (connections > 0).then(|| cpu_ns as f64 / connections as f64);
    trials
        .map(|trial| of(trial.cpu_ns, trial.connections))
        .collect()
}
