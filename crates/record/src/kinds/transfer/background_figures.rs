//! Figures of the latency with and without a background load.

use super::TransferBody;
use super::background::{BackgroundSummary, CpuSharing, TrialBackground};
use super::figures::{point, trials};
use crate::figures::{Better, Figure, GIGA, Row, Style, TrialValues, Value};

const MEAN: &str =
    "Geometric mean over the trials, each of which measures without the background and with it.";
const RATIO: &str = "Geometric mean over the trials of the ratio of their two halves, which is that of the two columns \
     before it.";
const INTERVAL: &str =
    "Student's t over the logarithms of the trials' ratios; absent for one trial.";

/// Figures of the load and of the latency under load.
pub(super) const BACKGROUND: &[Figure] = &[
    Figure::of_option(
        "Background",
        "background",
        "Load that separate threads move during the latency measurement: operation, size, depth and pairs; empty without.",
        |row| {
            point(row, |point| {
                point.background.map(|background| background.to_string())
            })
        },
    ),
    Figure {
        style: Style::Rate,
        ..Figure::of_option(
            "Load asked (op/s)",
            "background_rate_per_s",
            "Operations per second of the background in each initiating rank, as requested; full if it has no rate \
             and moves as much as its depth carries.",
            |row| {
                point(row, |point| {
                    let rate_per_s = point.background.map(|background| background.rate_per_s);
                    rate_per_s.map(|rate| rate.map_or_else(|| "full".into(), Value::from))
                })
            },
        )
    },
    Figure {
        name: "Load (GB/s)",
        field: "background_bandwidth_bytes_per_s_mean",
        meaning: "Bandwidth that the background really moved, all ranks together, GB of 1e9 bytes.",
        computed: "Mean over the trials of its payload bytes / its measured interval.",
        style: GIGA,
        value: |row| loaded(row, |load| load.bandwidth_bytes_per_s.mean),
        trials: Some(|row| of_load(row, |trial| trial.bandwidth_bytes_per_s)),
        ..Figure::PLAIN
    },
    Figure {
        name: "Idle p50 (us)",
        field: "idle_latency_ns_p50",
        meaning: "Median latency without the background.",
        computed: MEAN,
        value: |row| loaded(row, |load| load.p50.idle()),
        trials: Some(|row| of_load(row, |trial| trial.idle.latency_ns_p50 as f64)),
        ..Figure::TIME_US
    },
    Figure {
        name: "Loaded p50 (us)",
        field: "loaded_latency_ns_p50",
        meaning: "Median latency with the background.",
        computed: MEAN,
        value: |row| loaded(row, |load| load.p50.loaded()),
        trials: Some(|row| of_load(row, |trial| trial.loaded.latency_ns_p50 as f64)),
        ..Figure::TIME_US
    },
    Figure {
        name: "p50 / idle",
        field: "latency_ratio_p50",
        meaning: "Median latency with the background / without it.",
        computed: RATIO,
        better: Some(Better::Low),
        value: |row| loaded(row, |load| load.p50.ratio()),
        trials: Some(|row| of_load(row, TrialBackground::ratio_p50)),
        ..Figure::PLAIN
    },
    Figure {
        name: "p50 / idle, low",
        field: "latency_ratio_p50_low",
        meaning: "Lower end of the 95 % confidence interval of p50 / idle.",
        computed: INTERVAL,
        value: |row| loaded(row, |load| load.p50.ratio.low),
        ..Figure::PLAIN
    },
    Figure {
        name: "p50 / idle, high",
        field: "latency_ratio_p50_high",
        meaning: "Upper end of the 95 % confidence interval of p50 / idle.",
        computed: INTERVAL,
        value: |row| loaded(row, |load| load.p50.ratio.high),
        ..Figure::PLAIN
    },
    Figure {
        name: "Idle p99 (us)",
        field: "idle_latency_ns_p99",
        meaning: "99th percentile of the latency without the background.",
        computed: MEAN,
        value: |row| loaded(row, |load| load.p99.idle()),
        trials: Some(|row| of_load(row, |trial| trial.idle.latency_ns_p99 as f64)),
        ..Figure::TIME_US
    },
    Figure {
        name: "Loaded p99 (us)",
        field: "loaded_latency_ns_p99",
        meaning: "99th percentile of the latency with the background.",
        computed: MEAN,
        value: |row| loaded(row, |load| load.p99.loaded()),
        trials: Some(|row| of_load(row, |trial| trial.loaded.latency_ns_p99 as f64)),
        ..Figure::TIME_US
    },
    Figure {
        name: "p99 / idle",
        field: "latency_ratio_p99",
        meaning: "99th percentile of the latency with the background / without it.",
        computed: RATIO,
        better: Some(Better::Low),
        value: |row| loaded(row, |load| load.p99.ratio()),
        trials: Some(|row| of_load(row, TrialBackground::ratio_p99)),
        ..Figure::PLAIN
    },
    Figure {
        name: "p99 / idle, low",
        field: "latency_ratio_p99_low",
        meaning: "Lower end of the 95 % confidence interval of p99 / idle.",
        computed: INTERVAL,
        value: |row| loaded(row, |load| load.p99.ratio.low),
        ..Figure::PLAIN
    },
    Figure {
        name: "p99 / idle, high",
        field: "latency_ratio_p99_high",
        meaning: "Upper end of the 95 % confidence interval of p99 / idle.",
        computed: INTERVAL,
        value: |row| loaded(row, |load| load.p99.ratio.high),
        ..Figure::PLAIN
    },
    Figure {
        name: "Ratio of",
        field: "latency_ratio_of",
        meaning: "path: the threads that measure have CPUs of their own, and the ratio is that of the path. scheduler: \
             they share CPUs with the load or with each other, and take turns with them.",
        computed: "From the CPUs of all threads of a machine.",
        value: |row| {
            let cpus = row.record.transfer().and_then(|body| body.measuring_cpus);
            let own = cpus.map(|cpus| cpus == CpuSharing::Own);
            own.map(|own| if own { "path" } else { "scheduler" }).into()
        },
        ..Figure::PLAIN
    },
];

fn loaded<T: Into<Value>>(row: &Row<'_>, of: fn(&BackgroundSummary) -> T) -> Value {
    let background = row.record.transfer().and_then(TransferBody::background);
    background.map(|background| of(&background)).into()
}

fn of_load(row: &Row<'_>, of: fn(&TrialBackground) -> f64) -> TrialValues {
    trials(row, |trial| trial.background.as_ref().map(of))
}
