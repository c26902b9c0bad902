//! Figures of pairs that move bytes in both directions at once.

use crate::figures::{Better, Figure, GIGA, MICROSECONDS, Row, Value};
use crate::transfer::directions::{Directions, PairDirection, TrialDirections};

/// Figures of both directions.
pub(super) const DIRECTIONS: &[Figure] = &[
    Figure {
        name: "BW forward (GB/s)",
        field: "forward_bandwidth_bytes_per_s_mean",
        meaning: "Bandwidth of what the first ranks of pairs initiate while the ranks behind them initiate towards them, GB \
             of 1e9 bytes. With BW back it adds up to Avg BW.",
        computed: "Mean over the trials of the direction's payload bytes / window of the trial.",
        style: GIGA,
        better: Some(Better::High),
        value: |row| {
            direction(row, FORWARD, |direction| {
                direction.bandwidth_bytes_per_s.mean
            })
        },
        trials: Some(|row| trials(row, |trial| trial.forward.bandwidth_bytes_per_s)),
    },
    Figure {
        name: "BW back (GB/s)",
        field: "back_bandwidth_bytes_per_s_mean",
        meaning: "Bandwidth of what the ranks behind the first ones initiate, back to these, at the same time.",
        computed: "Mean over the trials of the direction's payload bytes / window of the trial.",
        style: GIGA,
        better: Some(Better::High),
        value: |row| direction(row, BACK, |direction| direction.bandwidth_bytes_per_s.mean),
        trials: Some(|row| trials(row, |trial| trial.back.bandwidth_bytes_per_s)),
    },
    Figure {
        name: "Lat forward (us)",
        field: "forward_latency_ns_mean",
        meaning: "Mean latency of what the first ranks of pairs initiate while bytes move both ways.",
        computed: "Mean over all operations, or batches, of the direction.",
        style: MICROSECONDS,
        better: Some(Better::Low),
        value: |row| direction(row, FORWARD, mean_latency),
        ..Figure::PLAIN
    },
    Figure {
        name: "Lat back (us)",
        field: "back_latency_ns_mean",
        meaning: "Mean latency of what the ranks behind them initiate at the same time.",
        computed: "Mean over all operations, or batches, of the direction.",
        style: MICROSECONDS,
        better: Some(Better::Low),
        value: |row| direction(row, BACK, mean_latency),
        ..Figure::PLAIN
    },
];

const FORWARD: fn(&Directions) -> &PairDirection = |both| &both.forward;
const BACK: fn(&Directions) -> &PairDirection = |both| &both.back;

fn mean_latency(direction: &PairDirection) -> Value {
    Value::from(direction.latency_ns_mean).bounded(direction.unfinished > 0)
}

fn direction<T: Into<Value>>(
    row: &Row<'_>,
    which: fn(&Directions) -> &PairDirection,
    of: fn(&PairDirection) -> T,
) -> Value {
    let summary = row.record.transfer().and_then(|body| body.summary.as_ref());
    let both = summary.and_then(|summary| summary.directions.as_ref());
    both.map(|both| of(which(both))).into()
}

fn trials(row: &Row<'_>, of: fn(&TrialDirections) -> f64) -> Vec<Option<f64>> {
    let trials = row
        .record
        .transfer()
        .into_iter()
        .flat_map(|body| &body.trials);
    trials
        .map(|trial| trial.directions.as_ref().map(of))
        .collect()
}
