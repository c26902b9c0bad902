//! Figures of latencies. One latency sample is an operation, a transfer of a phase, or a step, depending on the row.

use super::{Better, Figure, Row, Value};
use crate::histogram::{Latency, LatencyKind};

const FROM_HISTOGRAM: &str = "From one histogram of all samples of all trials and threads, with three significant \
     digits; never below the minimum or above the maximum, which are exact. A percentile with ≥ is a lower bound: it rests \
     on operations of an open loop that were due and never ended, each of which counts with the time from when it was due \
     to the end of its trial; or it lies in the last bin, at 60 s.";

/// Figures of latency. `Latency kind` defines one sample.
pub const LATENCY: &[Figure] = &[
    Figure {
        name: "Latency kind",
        field: "latency_kind",
        meaning: "Kind of one latency sample: operation (post to completion of one operation; with files a call's begin \
             to its end, without the sync that --fsync each adds), batch (first post to last completion of one batch), \
             one_way (half the round trip of a ping-pong in which each side waits for data to arrive), response (the \
             time an operation was due to its completion), step (one step of setting up connections) or call (one call of \
             a collective, on its slowest rank).",
        computed: "From the pacing and the operation; a read under ping-pong is of kind operation, because nothing \
             arrives at its target.",
        value: |row| latency(row, |latency| latency.kind.name()),
        ..Figure::PLAIN
    },
    Figure {
        name: "Samples",
        field: "latency_samples",
        meaning: "Number of latencies that the figures are of.",
        computed: "Counted over all trials and threads.",
        value: |row| latency(row, |latency| latency.samples),
        ..Figure::PLAIN
    },
    Figure {
        name: "Unfinished",
        field: "latency_unfinished",
        meaning: "Samples of operations of an open loop that were due and were never issued. The latency of each is a lower \
             bound: the time from when it was due to the end of its trial.",
        computed: "Counted over all trials and threads.",
        better: Some(Better::Low),
        value: |row| {
            latency(row, |latency| {
                latency.lower_bounds.map_or(0, |bounds| bounds.unfinished)
            })
        },
        ..Figure::PLAIN
    },
    Figure {
        name: "Lower bounds",
        field: LOWER_BOUNDS,
        meaning: "Columns of CSV whose values in this row are lower bounds, which tables mark with ≥; empty if none are.",
        computed: "From the samples of operations that never ended, and of those above 60 s.",
        value: lower_bounds,
        ..Figure::PLAIN
    },
    Figure {
        name: "Min Lat (us)",
        field: "latency_ns_min",
        keep: 20,
        meaning: "Smallest latency, exact.",
        computed: "Kept next to the histogram.",
        value: |row| latency(row, |latency| latency.latency_ns_min),
        ..Figure::TIME_US
    },
    Figure {
        name: "Avg Lat (us)",
        field: "latency_ns_mean",
        keep: 40,
        meaning: "Mean latency, exact.",
        computed: "Sum of all samples / their number. With ≥ a lower bound, because some operations never ended.",
        value: |row| extreme(row, |latency| latency.latency_ns_mean),
        ..Figure::TIME_US
    },
    Figure {
        name: "p50 (us)",
        field: "latency_ns_p50",
        keep: 80,
        meaning: "Median latency: half of the samples are not above it.",
        computed: FROM_HISTOGRAM,
        value: |row| percentile(row, |latency| latency.latency_ns_p50),
        ..Figure::TIME_US
    },
    Figure {
        name: "p90 (us)",
        field: "latency_ns_p90",
        keep: 10,
        meaning: "Latency that 90 % of the samples do not exceed.",
        computed: FROM_HISTOGRAM,
        value: |row| percentile(row, |latency| latency.latency_ns_p90),
        ..Figure::TIME_US
    },
    Figure {
        name: "p99 (us)",
        field: "latency_ns_p99",
        keep: 60,
        meaning: "Latency that 99 % of the samples do not exceed.",
        computed: FROM_HISTOGRAM,
        value: |row| percentile(row, |latency| latency.latency_ns_p99),
        ..Figure::TIME_US
    },
    Figure {
        name: "p99.9 (us)",
        field: "latency_ns_p999",
        keep: 10,
        meaning: "Latency that 99.9 % of the samples do not exceed. With fewer than a thousand samples \
             it is close to the largest.",
        computed: FROM_HISTOGRAM,
        value: |row| percentile(row, |latency| latency.latency_ns_p999),
        ..Figure::TIME_US
    },
    Figure {
        name: "Max Lat (us)",
        field: "latency_ns_max",
        keep: 30,
        meaning: "Largest latency, exact however long it was.",
        computed: "Kept next to the histogram. With ≥ a lower bound, because some operations never ended.",
        value: |row| extreme(row, |latency| latency.latency_ns_max),
        ..Figure::TIME_US
    },
];

/// Whether a sample ends with the arrival of its bytes.
pub const DELIVERED: &[Figure] = &[Figure {
    name: "Delivered",
    field: "latency_delivered",
    meaning: "Arrival of the bytes written, by the end of a latency sample: yes if they are in the peer's memory then; \
         no if the latency is to local completion, and the bytes may still be in flight.",
    computed: "From what the engine promises about completions; absent for reads and ping-pongs, whose kind implies it, and \
         if it is unknown.",
    value: |row| latency(row, |latency| latency.delivered),
    ..Figure::PLAIN
}];

/// Name of the figure that lists which of the row's other figures are lower bounds.
const LOWER_BOUNDS: &str = "lower_bounds";

/// Returns the names of the row's figures that are lower bounds.
fn lower_bounds(row: &Row<'_>) -> Value {
    let others = super::of(&row.record.body).filter(|figure| figure.field != LOWER_BOUNDS);
    let is_bound = |figure: &&Figure| matches!((figure.value)(row), Value::AtLeast(_));
    let found: Vec<&str> = others.filter(is_bound).map(|figure| figure.field).collect();
    found.join(" ").into()
}

/// Returns a percentile of the row's latencies.
fn percentile(row: &Row<'_>, of: fn(&Latency) -> u64) -> Value {
    let is_bound = |latency: &Latency| {
        let bounds = latency.lower_bounds;
        bounds.is_some_and(|bounds| bounds.has_percentile(of(latency)))
    };
    latency(row, |latency| {
        Value::from(of(latency)).lower_bound_if(is_bound(latency))
    })
}

/// Returns the mean or maximum of the row's latencies.
fn extreme<T: Into<Value>>(row: &Row<'_>, of: fn(&Latency) -> T) -> Value {
    let is_bound = |latency: &Latency| {
        let bounds = latency.lower_bounds;
        bounds.is_some_and(|bounds| bounds.has_extremes())
    };
    latency(row, |latency| {
        of(latency).into().lower_bound_if(is_bound(latency))
    })
}

/// Returns a figure of the row's latencies; unknown if no latencies were recorded.
fn latency<T: Into<Value>>(row: &Row<'_>, of: impl FnOnce(&Latency) -> T) -> Value {
    row.body().latency(row.part).map(of).into()
}

impl LatencyKind {
    /// Returns the name as it appears in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operation => "operation",
            Self::Batch => "batch",
            Self::OneWay => "one_way",
            Self::Response => "response",
            Self::Step => "step",
            Self::Call => "call",
        }
    }
}
