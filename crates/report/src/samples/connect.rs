//! Records of experiments with connections.

use tonnage_plan::connect::ConnectPoint;
use tonnage_plan::point::Traffic;
use tonnage_plan::transfer::Pacing;
use tonnage_record::connect::{ConnectSummary, ConnectTrial, Step, StepRecord};
use tonnage_record::spread::spread;
use tonnage_record::{ConnectBody, HistogramData, Latency, LatencyKind, Outcome, Record};

use super::builder::{self, sample, skipped};

fn step(step: Step, middle_ns: u64) -> StepRecord {
    let histogram = builder::latencies(middle_ns);
    StepRecord {
        step,
        latency: Latency::summarize(&histogram, LatencyKind::Step).unwrap(),
        histogram: HistogramData::from_histogram(&histogram),
    }
}

fn body(threads: u32, register_bytes: u64) -> ConnectBody {
    ConnectBody::new(ConnectPoint {
        label: None,
        engine: "fabric:tcp".to_owned(),
        engine_options: Default::default(),
        traffic: Traffic::Pair,
        ranks: 2,
        threads,
        place: None,
        register_bytes,
        memory: "huge".to_owned(),
        trials: 3,
        trial_ns: 1_000_000_000,
    })
}

fn measured(threads: u32, register_bytes: u64) -> ConnectBody {
    let trial = |connections: u64| ConnectTrial {
        window_ns: 1_000_000_000,
        connections,
        connections_per_s: connections as f64,
        cpu_ns: 900_000_000 * u64::from(threads),
        start_skew_ns: 120,
    };
    let trials = [670, 664, 666].map(|count| trial(count * u64::from(threads)));
    let rates = trials.each_ref().map(|trial| trial.connections_per_s);
    let connections = trials.iter().map(|trial| trial.connections).sum::<u64>();
    let register_ns = register_bytes / 64 + 900;
    let steps = [
        (Step::Open, 310_000),
        (Step::Register, register_ns),
        (Step::Exchange, 230_000),
        (Step::Connect, 420_000),
        (Step::FirstByte, 95_000),
        (Step::Close, 120_000),
        (Step::Total, 1_055_000 + register_ns),
    ];
    ConnectBody {
        summary: Some(ConnectSummary {
            trials: 3,
            connections,
            connections_per_s: spread(&rates),
            cpu_ns_per_connection: 2.7e9 * f64::from(threads) / connections as f64,
        }),
        trials: trials.to_vec(),
        steps: steps
            .map(|(name, middle_ns)| step(name, middle_ns))
            .to_vec(),
        ..body(threads, register_bytes)
    }
}

fn record(body: ConnectBody, outcome: Outcome) -> Record {
    sample(Pacing::PingPong, 8).record_with(|record| {
        record.plan = "connect".to_owned();
        (record.outcome, record.canary) = (outcome, None);
        record.body = body.into();
    })
}

/// Connections with two numbers of threads and two sizes, and one size that cannot be registered.
pub fn connections() -> Vec<Record> {
    let why = "1G of memory for each of 8 threads cannot be used here: this machine has 6291456000 bytes of memory \
               available. Choose --register 750M or less, fewer --threads or fewer ranks on this machine";
    vec![
        record(measured(1, 4096), Outcome::Measured),
        record(measured(4, 1 << 20), Outcome::Measured),
        record(body(4, 1 << 30), skipped(why)),
    ]
}
