//! Figures of latencies, of whatever a row is about: operations, transfers of a phase, steps.

use super::{Better, Figure, Part, Row, Style, Value};
use crate::{Body, Latency};

const MICROSECONDS: Style = Style::Scaled(1e-3);
const FROM_HISTOGRAM: &str = "From one histogram of all samples of all trials and workers, with three significant \
     digits; never below the minimum or above the maximum, which are exact.";

/// Figures of latency. The title of a table says what one sample is; see Latency kind.
pub const LATENCY: &[Figure] = &[
    Figure {
        name: "Samples",
        field: "latency_samples",
        meaning: "Number of latencies that the figures are of.",
        computed: "Counted over all trials and workers.",
        style: Style::Plain,
        better: None,
        value: |row| latency(row, |latency| latency.samples),
        trials: None,
    },
    Figure {
        name: "Min Lat (us)",
        field: "latency_ns_min",
        meaning: "Smallest latency, exact.",
        computed: "Kept beside the histogram.",
        style: MICROSECONDS,
        better: Some(Better::Low),
        value: |row| latency(row, |latency| latency.latency_ns_min),
        trials: None,
    },
    Figure {
        name: "Avg Lat (us)",
        field: "latency_ns_mean",
        meaning: "Mean latency, exact.",
        computed: "Sum of all samples / their number.",
        style: MICROSECONDS,
        better: Some(Better::Low),
        value: |row| latency(row, |latency| latency.latency_ns_mean),
        trials: None,
    },
    Figure {
        name: "p50 (us)",
        field: "latency_ns_p50",
        meaning: "Median latency: half of the samples are not above it.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        better: Some(Better::Low),
        value: |row| latency(row, |latency| latency.latency_ns_p50),
        trials: None,
    },
    Figure {
        name: "p90 (us)",
        field: "latency_ns_p90",
        meaning: "Latency that 90 % of the samples do not exceed.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        better: Some(Better::Low),
        value: |row| latency(row, |latency| latency.latency_ns_p90),
        trials: None,
    },
    Figure {
        name: "p99 (us)",
        field: "latency_ns_p99",
        meaning: "Latency that 99 % of the samples do not exceed.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        better: Some(Better::Low),
        value: |row| latency(row, |latency| latency.latency_ns_p99),
        trials: None,
    },
    Figure {
        name: "p99.9 (us)",
        field: "latency_ns_p999",
        meaning: "Latency that 99.9 % of the samples do not exceed. With fewer than a thousand samples \
             it is close to the largest.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        better: Some(Better::Low),
        value: |row| latency(row, |latency| latency.latency_ns_p999),
        trials: None,
    },
    Figure {
        name: "Max Lat (us)",
        field: "latency_ns_max",
        meaning: "Largest latency, exact however long it was.",
        computed: "Kept beside the histogram.",
        style: MICROSECONDS,
        better: Some(Better::Low),
        value: |row| latency(row, |latency| latency.latency_ns_max),
        trials: None,
    },
];

/// A figure of the row's latencies, unknown where none were recorded.
fn latency<T: Into<Value>>(row: &Row<'_>, of: fn(&Latency) -> T) -> Value {
    row.latency().map(of).into()
}

impl<'a> Row<'a> {
    /// Latencies of what the row is about.
    pub fn latency(&self) -> Option<&'a Latency> {
        match (&self.record.body, self.part) {
            (_, Part::Step(step)) => Some(&step.latency),
            (Body::Transfer(body), Part::Whole) => body.summary.as_ref()?.latency.as_ref(),
            (Body::File(_) | Body::Connect(_), Part::Whole) => None,
        }
    }
}
