//! Figures of a latency with and without a background.

use super::background::{BackgroundSummary, TrialBackground};
use crate::figures::common::FROM_PLAN;
use crate::figures::{Better, Figure, GIGA, MICROSECONDS, Row, Style, Value};

const RATIO: &str = "Mean over the trials, each of which measures both, one after the other.";
const RATIO_CI: &str = "Student's t over the ratios of the trials; absent for one trial.";

/// Figures of a latency beside a load.
pub(super) const BACKGROUND: &[Figure] = &[
    Figure {
        name: "Background",
        field: "background",
        meaning: "Load that workers of their own move beside the latency: operation, size, window and pairs; empty without.",
        computed: FROM_PLAN,
        style: Style::Plain,
        better: None,
        value: |row| {
            let body = row.record.transfer();
            let background = body.and_then(|body| body.point.background);
            background.map(|background| background.to_string()).into()
        },
        trials: None,
    },
    Figure {
        name: "Load asked (op/s)",
        field: "background_rate_per_s",
        meaning: "Operations per second of the background in each initiating rank, as asked; full where it has no rate, \
             but what its window carries.",
        computed: FROM_PLAN,
        style: Style::Rate,
        better: None,
        value: |row| {
            let body = row.record.transfer();
            match body.and_then(|body| body.point.background) {
                None => Value::Unknown,
                Some(background) => match background.rate_per_s {
                    None => "full".into(),
                    Some(rate_per_s) => rate_per_s.into(),
                },
            }
        },
        trials: None,
    },
    Figure {
        name: "Load (GB/s)",
        field: "background_bandwidth_bytes_per_s_mean",
        meaning: "Bandwidth that the background really moved, all ranks together, GB of 1e9 bytes.",
        computed: "Mean over the trials of its payload bytes / its window.",
        style: GIGA,
        better: None,
        value: |row| loaded(row, |loaded| loaded.bandwidth_bytes_per_s.mean),
        trials: Some(|row| trials(row, |trial| trial.bandwidth_bytes_per_s)),
    },
    Figure {
        name: "Idle p50 (us)",
        field: "idle_latency_ns_p50",
        meaning: "Median latency without the background, which is p50 beside it.",
        computed: "From one histogram of the halves of all trials without the load.",
        style: MICROSECONDS,
        better: Some(Better::Low),
        value: |row| loaded(row, |loaded| loaded.idle.latency_ns_p50),
        trials: Some(|row| trials(row, |trial| trial.idle.latency_ns_p50 as f64)),
    },
    Figure {
        name: "Idle p99 (us)",
        field: "idle_latency_ns_p99",
        meaning: "Latency without the background that 99 % of the samples do not exceed.",
        computed: "From one histogram of the halves of all trials without the load.",
        style: MICROSECONDS,
        better: Some(Better::Low),
        value: |row| loaded(row, |loaded| loaded.idle.latency_ns_p99),
        trials: Some(|row| trials(row, |trial| trial.idle.latency_ns_p99 as f64)),
    },
    Figure {
        name: "p50 / idle",
        field: "latency_ratio_p50",
        meaning: "Median latency beside the background / without it.",
        computed: RATIO,
        style: Style::Plain,
        better: Some(Better::Low),
        value: |row| loaded(row, |loaded| loaded.latency_ratio_p50.mean),
        trials: Some(|row| trials(row, TrialBackground::ratio_p50)),
    },
    Figure {
        name: "± p50",
        field: "latency_ratio_p50_ci95",
        meaning: "Half width of the 95 % confidence interval of p50 / idle.",
        computed: RATIO_CI,
        style: Style::Plain,
        better: None,
        value: |row| loaded(row, |loaded| loaded.latency_ratio_p50.ci95),
        trials: None,
    },
    Figure {
        name: "p99 / idle",
        field: "latency_ratio_p99",
        meaning: "99th percentile of the latency beside the background / without it.",
        computed: RATIO,
        style: Style::Plain,
        better: Some(Better::Low),
        value: |row| loaded(row, |loaded| loaded.latency_ratio_p99.mean),
        trials: Some(|row| trials(row, TrialBackground::ratio_p99)),
    },
    Figure {
        name: "± p99",
        field: "latency_ratio_p99_ci95",
        meaning: "Half width of the 95 % confidence interval of p99 / idle.",
        computed: RATIO_CI,
        style: Style::Plain,
        better: None,
        value: |row| loaded(row, |loaded| loaded.latency_ratio_p99.ci95),
        trials: None,
    },
];

fn loaded<T: Into<Value>>(row: &Row<'_>, of: fn(&BackgroundSummary) -> T) -> Value {
    let summary = row.record.transfer().and_then(|body| body.summary.as_ref());
    let background = summary.and_then(|summary| summary.background.as_ref());
    background.map(of).into()
}

fn trials(row: &Row<'_>, of: fn(&TrialBackground) -> f64) -> Vec<Option<f64>> {
    let body = row.record.transfer().into_iter();
    let trials = body.flat_map(|body| &body.trials);
    trials
        .map(|trial| trial.background.as_ref().map(of))
        .collect()
}
