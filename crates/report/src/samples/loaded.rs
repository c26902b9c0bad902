//! Records of latency under load.

use super::builder::{sample, three_trials};
use tonnage_engine::Verb;
use tonnage_plan::transfer::{Background, Pacing};
use tonnage_record::transfer::{
    BackgroundSummary, CpuSharing, Trial, TrialBackground, TrialLatency,
};
use tonnage_record::{Latency, LatencyKind, Record};
use tonnage_units::histogram::LatencyHistogram;

/// A ping-pong with a background load at several rates. The latency grows with the load, like that of a queue.
pub fn loaded() -> Vec<Record> {
    let beside = |rate_per_s: Option<f64>, middle_ns: u64, gigabytes_per_s: f64| {
        let sample = sample(Pacing::PingPong, 8).with(|point| {
            (point.op, point.threads) = (Verb::WriteImm, 2);
            let background: Background = "op=write,size=1M,depth=8,pair=same".parse().unwrap();
            point.background = Some(Background {
                rate_per_s,
                ..background
            });
        });
        let sample = three_trials(sample, middle_ns).summarize(LatencyKind::OneWay, None);
        let (idle, latencies) = background_latencies();
        let load = |(at, trial): (usize, &mut Trial)| {
            let bandwidth = gigabytes_per_s * 1e9;
            let payload_bytes = (bandwidth * trial.window_ns as f64 * 1e-9) as u64;
            let latency_ns_p50 = middle_ns * [100, 101, 99][at] / 100;
            trial.background = Some(TrialBackground {
                window_ns: trial.window_ns,
                operations: payload_bytes >> 20,
                payload_bytes,
                bandwidth_bytes_per_s: bandwidth,
                verified_bytes: None,
                stall: None,
                idle,
                loaded: TrialLatency {
                    samples: trial.operations / 2,
                    latency_ns_mean: trial.latency_ns_mean.unwrap_or_default(),
                    latency_ns_p50,
                    latency_ns_p99: latency_ns_p50 * 11 / 10,
                    lower_bounds: None,
                },
            });
        };
        let sample = sample.body_with(|body| {
            body.trials.iter_mut().enumerate().for_each(load);
            let backgrounds = body
                .trials
                .iter()
                .filter_map(|trial| trial.background.as_ref());
            let backgrounds: Vec<_> = backgrounds.collect();
            let latency = Latency::summarize(&latencies, LatencyKind::OneWay).unwrap();
            let summary = BackgroundSummary::from_trials(&backgrounds, Some(latency));
            body.measuring_cpus = Some(CpuSharing::Own);
            body.summary.as_mut().unwrap().background = summary;
        });
        sample.record()
    };
    vec![
        beside(Some(1000.0), 120, 1.05),
        beside(Some(4000.0), 160, 4.19),
        beside(None, 900, 9.5),
    ]
}

/// Latency without a background, for one trial and as a histogram.
fn background_latencies() -> (TrialLatency, LatencyHistogram) {
    let mut histogram = LatencyHistogram::new();
    (0..2000u64).for_each(|at| histogram.record(100 + at % 10));
    (TrialLatency::summarize(&histogram).unwrap(), histogram)
}
