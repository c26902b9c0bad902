//! Figures of experiments with connections. A record has a row for the whole and one for each step.

use super::common::FROM_PLAN;
use super::{Better, Figure, Part, Row, Style, Value};
use crate::connect::{ConnectBody, ConnectSummary, Step};

/// Figures of a record of connections.
pub const CONNECT: &[Figure] = &[
    Figure {
        name: "Step",
        field: "step",
        meaning: "Step of setting up a worker's connections: open (its endpoint), register (its memory), exchange (cards over the control channel, and waiting for the slowest rank), connect (to its peers), first_byte (until one has gone each way), total (all of these), close (taking it down, which is not in total).",
        computed: "The record's steps, in their order.",
        style: Style::Plain,
        better: None,
        value: |row| step(row).map(|step| step.name()).into(),
        trials: None,
    },
    Figure {
        name: "Register (B)",
        field: "register_bytes",
        meaning: "Bytes of memory that each worker registers with its device.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| point(row, |body| body.point.register_bytes),
        trials: None,
    },
    Figure {
        name: "Connections",
        field: "connections_at_once",
        meaning: "Connections that all ranks together have at a time.",
        computed: "Pairs of workers that the traffic connects.",
        style: Style::Plain,
        better: None,
        value: |row| point(row, |body| body.point.connections()),
        trials: None,
    },
    Figure {
        name: "Conn rate (conn/s)",
        field: "connections_per_s_mean",
        meaning: "Connections per second over all ranks together, each set up, used for one byte each way and taken down again.",
        computed: "Mean over the trials of connections / window.",
        style: Style::Rate,
        better: Some(Better::High),
        value: |row| summary(row, |summary| summary.connections_per_s.mean),
        trials: Some(connections_per_s),
    },
    Figure {
        name: "Conn CI95 (%)",
        field: "connections_ci95_fraction",
        meaning: "Half width of the 95 % confidence interval of Conn rate, as a part of it. Not available for a single trial.",
        computed: "Student's t with (trials - 1) degrees of freedom x sample standard deviation across trials / square root of the trials / mean.",
        style: Style::Scaled(100.0),
        better: None,
        value: |row| ci95_fraction(row),
        trials: None,
    },
    Figure {
        name: "Set up",
        field: "connections",
        meaning: "Connections of all trials, each counted once for its two ends.",
        computed: "Counted.",
        style: Style::Plain,
        better: None,
        value: |row| summary(row, |summary| summary.connections),
        trials: None,
    },
    Figure {
        name: "CPU (ns/conn)",
        field: "cpu_ns_per_connection",
        meaning: "CPU time that all workers together spend on one connection.",
        computed: "CPU time of all workers inside the windows / connections.",
        style: Style::Scaled(1.0),
        better: Some(Better::Low),
        value: |row| summary(row, |summary| summary.cpu_ns_per_connection),
        trials: None,
    },
];

fn body<'a>(row: &Row<'a>) -> Option<&'a ConnectBody> {
    row.record.connect()
}

fn step(row: &Row<'_>) -> Option<Step> {
    match row.part {
        Part::Step(step) => Some(step.step),
        _ => None,
    }
}

/// Columns of what was asked for, in every row.
fn point<T: Into<Value>>(row: &Row<'_>, of: fn(&ConnectBody) -> T) -> Value {
    body(row).map(of).into()
}

/// A figure of the whole; steps have latencies only.
fn summary<T: Into<Value>>(row: &Row<'_>, of: fn(&ConnectSummary) -> T) -> Value {
    let whole = body(row).filter(|_| matches!(row.part, Part::Whole));
    whole.and_then(|body| body.summary.as_ref()).map(of).into()
}

fn ci95_fraction(row: &Row<'_>) -> Value {
    summary(row, |summary| {
        let spread = summary.connections_per_s;
        let known = spread.ci95.filter(|_| spread.mean > 0.0);
        known.map(|ci95| ci95 / spread.mean)
    })
}

fn connections_per_s(row: &Row<'_>) -> Vec<f64> {
    let trials = body(row).into_iter().flat_map(|body| &body.trials);
    trials.map(|trial| trial.connections_per_s).collect()
}
