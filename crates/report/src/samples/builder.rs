//! Builder of test records with consistent figures, as in a real run.

use serde_json::{Value, json};
use tonnage_engine::EngineReport;
use tonnage_plan::testing::transfer_point;
use tonnage_plan::transfer::{Pacing, PointLength, Slots, TransferPoint};
use tonnage_record::environment::Memories;
use tonnage_record::histogram::{HistogramData, Latency};
use tonnage_record::spread::spread;
use tonnage_record::transfer::{BatchPhase, BatchPhases, Pace, Summary, Trial};
use tonnage_record::{
    Body, Bound, Canary, Effective, LatencyKind, Outcome, Placed, Program, Record, SCHEMA_VERSION,
    TransferBody,
};
use tonnage_units::histogram::LatencyHistogram;

/// A sample under construction.
pub struct Sample {
    record: Record,
    body: TransferBody,
    latencies: LatencyHistogram,
}

/// An engine's report on itself.
pub fn account(value: Value) -> EngineReport {
    serde_json::from_value(value).unwrap()
}

/// Host memory, the same for all threads.
pub fn host_memory() -> Memories {
    serde_json::from_value(json!({"kind": "host", "pages": "normal", "numa_node": 0})).unwrap()
}

/// Outcome of a point that could not be tried.
pub fn skipped(why: &str) -> Outcome {
    Outcome::Skipped {
        why: why.to_owned(),
    }
}

/// Outcome of a failed point.
pub fn failed(why: &str) -> Outcome {
    Outcome::Failed {
        why: why.to_owned(),
    }
}

/// Two thousand latencies around this one; one in five hundred is five times as long.
pub fn latencies(middle_ns: u64) -> LatencyHistogram {
    let mut histogram = LatencyHistogram::new();
    for at in 0..2000 {
        let slow = if at % 500 == 499 { 5 } else { 1 };
        histogram.record(slow * (middle_ns + at * 7919 % (middle_ns / 10)));
    }
    histogram
}

/// Length of a measurement.
pub fn length() -> PointLength {
    PointLength {
        trials: 3,
        ..transfer_point().length
    }
}

/// A point of shm writes between two ranks.
fn point_of(pacing: Pacing, size_bytes: u32) -> TransferPoint {
    let example = transfer_point();
    TransferPoint {
        pacing,
        slots: Slots {
            size_bytes,
            footprint_bytes: u64::from(size_bytes) * 16,
            stride_bytes: size_bytes.into(),
            ..example.slots
        },
        length: length(),
        ..example
    }
}

/// Record of a point with two ranks and no optional fields.
pub(super) fn measured(plan: &str, body: impl Into<Body>, engine: Value) -> Record {
    Record {
        schema_version: SCHEMA_VERSION,
        run_id: "7f3a".to_owned(),
        plan: plan.to_owned(),
        time_unix_ns: 1_760_000_000_000_000_000,
        tonnage: Program {
            version: "0.1.0".to_owned(),
            git_revision: "0123456".to_owned(),
        },
        outcome: Outcome::Measured,
        optional: false,
        out_of_time: false,
        body: body.into(),
        effective: vec![Effective {
            ranks: "0-1".to_owned(),
            engine: account(engine),
            memory: host_memory(),
            cpus: vec![Some(0)],
            sockets: vec![Some(0)],
            yielding: false,
        }],
        environment: Vec::new(),
        placed: None,
        canary: None,
        bound: None,
        wire_proof: None,
        network_paths: Vec::new(),
        cpu_losses: Vec::new(),
        remarks: Vec::new(),
        published_rows: Vec::new(),
        repetition: None,
        side: None,
        checksum: None,
    }
}

/// A measured point of shm writes between two ranks, still without trials.
pub fn sample(pacing: Pacing, size_bytes: u32) -> Sample {
    let point = point_of(pacing, size_bytes);
    let body = TransferBody::new(point);
    let record = Record {
        placed: Some(Placed::Near),
        canary: Some(Canary::Measured {
            cpus: [0, 1],
            before_ns: 52.1,
            after_ns: 52.9,
            changed: false,
        }),
        ..measured("transfer", body.clone(), json!({"name": "shm"}))
    };
    Sample {
        record,
        body,
        latencies: LatencyHistogram::new(),
    }
}

/// Splits a batch's time: a tenth to prepare, three tenths to post, the rest to wait.
fn phases(latency: &Latency) -> BatchPhases {
    let part = |tenths: u64| BatchPhase {
        time_ns_mean: latency.latency_ns_mean * tenths as f64 / 10.0,
        time_ns_p50: latency.latency_ns_p50 * tenths / 10,
        time_ns_p99: latency.latency_ns_p99 * tenths / 10,
    };
    BatchPhases {
        prepare: part(1),
        post: part(3),
        complete: part(6),
    }
}

impl Sample {
    /// Changes the point before trials are added.
    pub fn with(mut self, change: impl FnOnce(&mut TransferPoint)) -> Self {
        change(&mut self.body.point);
        self
    }

    /// Adds a trial of sequential operations, batches or round trips. Its measured interval is the sum of their times
    /// plus 50 ns after each.
    pub fn trial(mut self, latencies_ns: &[u64]) -> Self {
        let mut histogram = LatencyHistogram::new();
        latencies_ns.iter().for_each(|&ns| histogram.record(ns));
        let each: u64 = match self.body.point.pacing {
            Pacing::Batch { batch } => batch.into(),
            Pacing::PingPong => 2,
            _ => 1,
        };
        let ways = 1 + u64::from(self.body.point.pacing == Pacing::PingPong);
        let window_ns = latencies_ns.iter().map(|ns| ns * ways + 50).sum();
        let operations = latencies_ns.len() as u64 * each;
        let payload_bytes = operations * u64::from(self.body.point.slots.size_bytes);
        let seconds = window_ns as f64 * 1e-9;
        let recorded = self.body.point.latency;
        self.body.trials.push(Trial {
            window_ns,
            operations,
            payload_bytes,
            bandwidth_bytes_per_s: payload_bytes as f64 / seconds,
            message_rate_per_s: operations as f64 / seconds,
            latency_ns_mean: histogram.mean_ns().filter(|_| recorded),
            latency_ns_min: histogram.min_ns().filter(|_| recorded),
            latency_ns_max: histogram.max_ns().filter(|_| recorded),
            initiator_cpu_ns: window_ns,
            target_cpu_ns: window_ns / 2,
            start_skew_ns: 120,
            in_flight_max: Some(64),
            verified_bytes: self.body.point.verify.is_on().then_some(payload_bytes),
            ..Trial::default()
        });
        if recorded {
            self.latencies.merge(&histogram);
        }
        self
    }

    /// Summarizes the trials.
    pub fn summarize(mut self, kind: LatencyKind, bound: Option<(&str, f64)>) -> Self {
        let trials = &self.body.trials;
        let of = |value: fn(&Trial) -> f64| spread(&trials.iter().map(value).collect::<Vec<_>>());
        let sum = |value: fn(&Trial) -> u64| trials.iter().map(value).sum::<u64>();
        let operations = sum(|trial| trial.operations);
        let bandwidth = of(|trial| trial.bandwidth_bytes_per_s);
        let bound = bound.map(|(what, bytes_per_s)| Bound {
            what: what.to_owned(),
            bytes_per_s,
            ci95_bytes_per_s: None,
            links: None,
        });
        let pace = match self.body.point.pacing {
            Pacing::Paced { rate, .. } => Some(Pace {
                offered_per_s: rate.rate_per_s,
                reached_per_s: of(|trial| trial.message_rate_per_s).mean,
                late_fraction: 0.0125,
                never_issued_fraction: 0.0,
            }),
            _ => None,
        };
        let latency = Latency::summarize(&self.latencies, kind);
        let is_batch = matches!(self.body.point.pacing, Pacing::Batch { .. });
        let batch_phases = latency.as_ref().filter(|_| is_batch).map(phases);
        self.body.summary = Some(Summary {
            batch_phases,
            trials: trials.len() as u32,
            operations,
            payload_bytes: sum(|trial| trial.payload_bytes),
            bandwidth_bytes_per_s: bandwidth,
            message_rate_per_s: of(|trial| trial.message_rate_per_s),
            latency,
            initiator_cpu_ns_per_operation: sum(|trial| trial.initiator_cpu_ns) as f64
                / operations as f64,
            target_cpu_ns_per_operation: sum(|trial| trial.target_cpu_ns) as f64
                / operations as f64,
            utilization: bound
                .as_ref()
                .map(|bound| bandwidth.mean / bound.bytes_per_s),
            pace,
            ..Summary::default()
        });
        self.record.bound = bound;
        self.body.histogram =
            (self.latencies.count() > 0).then(|| HistogramData::from_histogram(&self.latencies));
        self
    }

    /// A point that was skipped or failed.
    pub fn without_result(mut self, outcome: Outcome) -> Self {
        self.record.outcome = outcome;
        self.record.canary = None;
        self
    }

    /// Changes the measured body.
    pub fn body_with(mut self, change: impl FnOnce(&mut TransferBody)) -> Self {
        change(&mut self.body);
        self
    }

    /// Finishes the record, and then changes its envelope.
    pub fn record_with(self, change: impl FnOnce(&mut Record)) -> Record {
        let mut record = self.record();
        change(&mut record);
        record
    }

    /// The record.
    pub fn record(self) -> Record {
        Record {
            body: self.body.into(),
            ..self.record
        }
    }
}

pub(super) const COPY: Option<(&str, f64)> = Some(("memory copy, rep movsb, 1 copier", 12.5e9));

/// Three trials of two thousand samples around `middle_ns`; one in five hundred is five times as slow.
pub(super) fn three_trials(sample: Sample, middle_ns: u64) -> Sample {
    [100, 101, 99].into_iter().fold(sample, |sample, percent| {
        let one = |at: u64| {
            let base = middle_ns * percent / 100;
            let jitter = (at * 7919) % (middle_ns / 10).max(1);
            if at % 500 == 499 {
                base * 5
            } else {
                base + jitter
            }
        };
        sample.trial(&(0..2000).map(one).collect::<Vec<_>>())
    })
}
