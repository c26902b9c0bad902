//! Operations at a given rate: the offered rate, and the rate that was reached.

use serde::{Deserialize, Serialize};
use tonnage_plan::transfer::{Pacing, Rate, TransferPoint};

use super::figures::{point, summary};
use crate::figures::{Better, Figure, PERCENT, Style};

/// A period without completions: operations from a thread of a paced run to one rank were due or in flight, but none
/// ended. The period is far longer than this thread's other waits for completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stall {
    /// Length of the stall.
    pub length_ns: u64,
    /// Start of the stall, from the aligned start of the trial.
    pub begin_ns: u64,
    /// Longest part of the stall that falls into a single iteration of the initiating thread's loop. If this is most of
    /// the stall, the loop itself did not run. Possible reasons are a stopped process, a CPU that ran another thread,
    /// and an engine call that took this long.
    pub loop_ns: u64,
    /// The initiating rank.
    pub rank: u32,
    /// The target rank.
    pub peer: u32,
}

/// Offered and reached rate of a paced run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pace {
    /// Requested operations per second, over all initiating ranks.
    pub offered_per_s: f64,
    /// Completed operations per second, over all initiating ranks.
    pub reached_per_s: f64,
    /// Fraction of the operations that were issued late or never, because the depth was reached or the loop was late.
    pub late_fraction: f64,
    /// Fraction of the operations that were due but never issued.
    #[serde(default)]
    pub never_issued_fraction: f64,
}

/// Offered rates.
pub(super) const OFFERED: &[Figure] = &[
    Figure {
        style: Style::Rate,
        ..Figure::of_option(
            "Offered (op/s)",
            "offered_per_s",
            "Operations per second that were asked for, all initiating ranks together.",
            |row| point(row, offered_per_s),
        )
    },
    Figure {
        style: Style::Scaled(1e-9),
        ..Figure::of_option(
            "Offered (GB/s)",
            "offered_bytes_per_s",
            "Payload per second that was asked for, all initiating ranks together, GB of 1e9 bytes; empty if the rate \
             was given in operations.",
            |row| point(row, offered_bytes_per_s),
        )
    },
    Figure::of_option(
        "Burst",
        "burst",
        "Operations of a rate that are due at once; 1 if each has its own time.",
        |row| point(row, |point| rate(point).map(|rate| rate.burst)),
    ),
];

/// Reached rates, and figures that explain delays.
pub(super) const REACHED: &[Figure] = &[
    Figure {
        name: "Reached (op/s)",
        field: "reached_per_s",
        meaning: "Operations per second that completed, all initiating ranks together. Well below the offered rate, the \
             path is saturated and latencies grow with the length of the run.",
        computed: "Operations completed / measured interval.",
        style: Style::Rate,
        better: Some(Better::High),
        value: |row| {
            summary(row, |summary| {
                summary.pace.as_ref().map(|pace| pace.reached_per_s)
            })
        },
        ..Figure::PLAIN
    },
    Figure {
        name: "Late (%)",
        field: "late_fraction",
        meaning: "Part of the operations that were issued only after the next burst was due, or never, because the depth \
             was full or the loop was behind. Their wait is inside the response latency.",
        computed: "Operations issued late / all operations.",
        style: PERCENT,
        better: Some(Better::Low),
        value: |row| {
            summary(row, |summary| {
                summary.pace.as_ref().map(|pace| pace.late_fraction)
            })
        },
        ..Figure::PLAIN
    },
    Figure {
        name: "Longest stall (ms)",
        field: "stall_ns_max",
        meaning: "The longest time in which operations of an open loop were due or in flight from one thread to a rank and \
             none of them ended, if it was far longer than the other waits for completions; empty without any.",
        computed: "The largest of all trials; their records have its place.",
        style: Style::Scaled(1e-6),
        better: Some(Better::Low),
        value: |row| {
            let trials = row.record.transfer().map_or(&[][..], |body| &body.trials);
            let stalls = trials.iter().filter_map(|trial| trial.stall);
            stalls.map(|stall| stall.length_ns).max().into()
        },
        ..Figure::PLAIN
    },
];

fn rate(point: &TransferPoint) -> Option<Rate> {
    match point.pacing {
        Pacing::Paced { rate, .. } => Some(rate),
        _ => None,
    }
}

/// Multiplies a value per initiating rank by the number of ranks that initiate at the same time.
fn of_all_initiators(point: &TransferPoint, each: f64) -> f64 {
    each * f64::from(point.roles.initiating_at_once())
}

fn offered_per_s(point: &TransferPoint) -> Option<f64> {
    Some(of_all_initiators(point, rate(point)?.rate_per_s))
}

fn offered_bytes_per_s(point: &TransferPoint) -> Option<f64> {
    Some(of_all_initiators(point, rate(point)?.rate_bytes_per_s?))
}
