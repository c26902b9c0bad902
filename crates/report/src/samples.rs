//! Records for tests, made by one builder whose figures follow from each other as those of a real run do.

pub mod connect;
pub mod files;
mod network;

use serde_json::{Value, json};
use tonnage_engine::{EngineReport, Verb};
use tonnage_plan::point::{LimitChoice, Traffic};
use tonnage_plan::transfer::{Addresses, Length, Pacing, TransferPoint, TrialLength};
use tonnage_record::environment::Memories;
use tonnage_record::histogram::LatencyHistogram;
use tonnage_record::spread::spread;
use tonnage_record::transfer::{Pace, Summary, Trial};
use tonnage_record::{
    Canary, Effective, LatencyKind, Limit, Outcome, Program, Record, SCHEMA_VERSION, TransferBody,
};

pub use network::{fabric, paths, proven_paths, side_by_side};

/// Under construction.
pub struct Sample {
    record: Record,
    body: TransferBody,
    latencies: LatencyHistogram,
}

/// An engine's account of itself.
pub fn account(value: Value) -> EngineReport {
    serde_json::from_value(value).unwrap()
}

/// Memory of the host, alike for all workers.
pub fn host_memory() -> Memories {
    serde_json::from_value(json!({"kind": "host", "pages": "normal", "numa_node": 0})).unwrap()
}

/// A measured point of shm writes between two ranks, still without trials.
pub fn sample(pacing: Pacing, size_bytes: u32) -> Sample {
    let point = TransferPoint {
        label: None,
        engine: "shm".to_owned(),
        engine_options: Default::default(),
        op: Verb::Write,
        traffic: Traffic::Pair,
        ranks: 2,
        workers: 1,
        size_bytes,
        pacing,
        memory: "host".into(),
        footprint_bytes: u64::from(size_bytes) * 16,
        stride_bytes: size_bytes.into(),
        addresses: Addresses::Sequential,
        seed: 1,
        latency: true,
        verify: false,
        limit: LimitChoice::Auto,
        length: Length {
            trials: 3,
            trial: TrialLength::DurationNs(200_000_000),
            warmup_ns: 50_000_000,
            until_ci: None,
            max_duration_ns: None,
        },
    };
    let effective = Effective {
        ranks: "0-1".to_owned(),
        engine: account(json!({"name": "shm"})),
        memory: host_memory(),
        cpus: vec![Some(0)],
        yielding: false,
    };
    let body = TransferBody::new(point);
    let record = Record {
        schema_version: SCHEMA_VERSION,
        run_id: "7f3a".to_owned(),
        plan: "transfer".to_owned(),
        time_unix_ns: 1_760_000_000_000_000_000,
        tonnage: Program {
            version: "0.1.0".to_owned(),
            git_revision: "0123456".to_owned(),
        },
        outcome: Outcome::Measured,
        body: body.clone().into(),
        effective: vec![effective],
        environment: Vec::new(),
        canary: Some(Canary::Measured {
            cpus: [0, 1],
            before_ns: 52.1,
            after_ns: 52.9,
            changed: false,
        }),
        limit: None,
        wire_proof: None,
        remarks: Vec::new(),
    };
    Sample {
        record,
        body,
        latencies: LatencyHistogram::new(),
    }
}

impl Sample {
    /// Changes the point before trials are added.
    pub fn with(mut self, change: impl FnOnce(&mut TransferPoint)) -> Self {
        change(&mut self.body.point);
        self
    }

    /// Adds a trial of operations one after another (batch after batch, round trip after round trip): its window is
    /// the sum of their times and a pause of 50 ns after each.
    pub fn trial(mut self, latencies_ns: &[u64]) -> Self {
        let mut histogram = LatencyHistogram::new();
        latencies_ns
            .iter()
            .for_each(|&latency_ns| histogram.record(latency_ns));
        let each: u64 = match self.body.point.pacing {
            Pacing::Batch { batch } => batch.into(),
            Pacing::PingPong => 2,
            _ => 1,
        };
        let ways = if self.body.point.pacing == Pacing::PingPong {
            2
        } else {
            1
        };
        let window_ns = latencies_ns
            .iter()
            .map(|latency_ns| latency_ns * ways + 50)
            .sum();
        let operations = latencies_ns.len() as u64 * each;
        let payload_bytes = operations * u64::from(self.body.point.size_bytes);
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
            verified_bytes: self.body.point.verify.then_some(payload_bytes),
        });
        if recorded {
            self.latencies.merge(&histogram);
        }
        self
    }

    /// Takes the trials together.
    pub fn summarize(mut self, kind: LatencyKind, limit: Option<(&str, f64)>) -> Self {
        let trials = &self.body.trials;
        let of = |value: fn(&Trial) -> f64| spread(&trials.iter().map(value).collect::<Vec<_>>());
        let sum = |value: fn(&Trial) -> u64| trials.iter().map(value).sum::<u64>();
        let operations = sum(|trial| trial.operations);
        let bandwidth = of(|trial| trial.bandwidth_bytes_per_s);
        let limit = limit.map(|(what, bytes_per_s)| Limit {
            what: what.to_owned(),
            bytes_per_s,
        });
        let pace = match self.body.point.pacing {
            Pacing::Paced { rate_per_s, .. } => Some(Pace {
                offered_per_s: rate_per_s,
                reached_per_s: of(|trial| trial.message_rate_per_s).mean,
                late_fraction: 0.0125,
            }),
            _ => None,
        };
        self.body.summary = Some(Summary {
            trials: trials.len() as u32,
            operations,
            payload_bytes: sum(|trial| trial.payload_bytes),
            bandwidth_bytes_per_s: bandwidth,
            message_rate_per_s: of(|trial| trial.message_rate_per_s),
            latency: self.latencies.summary(kind),
            initiator_cpu_ns_per_operation: sum(|trial| trial.initiator_cpu_ns) as f64
                / operations as f64,
            target_cpu_ns_per_operation: sum(|trial| trial.target_cpu_ns) as f64
                / operations as f64,
            utilization: limit
                .as_ref()
                .map(|limit| bandwidth.mean / limit.bytes_per_s),
            pace,
            converged: None,
        });
        self.record.limit = limit;
        self.body.histogram = (self.latencies.count() > 0).then(|| self.latencies.to_data());
        self
    }

    /// A point that could not be tried, or failed.
    pub fn without_result(mut self, outcome: Outcome) -> Self {
        self.record.outcome = outcome;
        self.record.canary = None;
        self
    }

    /// Changes what was measured.
    pub fn body_with(mut self, change: impl FnOnce(&mut TransferBody)) -> Self {
        change(&mut self.body);
        self
    }

    /// Changes the envelope at the end.
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

const COPY: Option<(&str, f64)> = Some(("memory copy, rep movsb, 1 copier", 12.5e9));

/// Three trials of two thousand samples around `middle_ns`, one in five hundred five times as slow.
fn three_trials(sample: Sample, middle_ns: u64) -> Sample {
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

/// Batches of 128 over message sizes, with one skipped and one failed point.
pub fn batches() -> Vec<Record> {
    let batch = |size_bytes, batch, middle_ns| {
        let sample = three_trials(sample(Pacing::Batch { batch }, size_bytes), middle_ns);
        sample.summarize(LatencyKind::Batch, COPY)
    };
    let broken = |size_bytes| sample(Pacing::Batch { batch: 128 }, size_bytes);
    let why = "huge pages of 1 GiB cannot be had here: 0 of them are reserved and 0 can be. Reserve some as root with \
               `echo 4 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages`, or use --memory host";
    vec![
        batch(8, 1, 95).record(),
        batch(8, 128, 1800).record(),
        batch(1024, 128, 14_000).record(),
        batch(65536, 128, 780_000).record_with(|record| {
            record.canary = Some(Canary::Measured {
                cpus: [0, 1],
                before_ns: 52.0,
                after_ns: 71.3,
                changed: true,
            });
        }),
        broken(1 << 20)
            .without_result(Outcome::Skipped {
                why: why.to_owned(),
            })
            .record(),
        broken(1 << 21)
            .without_result(Outcome::Skipped {
                why: why.to_owned(),
            })
            .record(),
        broken(1 << 22)
            .without_result(Outcome::Failed {
                why: "rank 1 on node7: killed by signal 9".to_owned(),
            })
            .record(),
    ]
}

/// Batches of four pairs of two workers, and batches without latencies.
pub fn batches_without_max() -> Vec<Record> {
    let several = three_trials(
        sample(Pacing::Batch { batch: 16 }, 4096)
            .with(|point| (point.ranks, point.workers) = (8, 2)),
        9_000,
    );
    let several = several
        .summarize(LatencyKind::Batch, COPY)
        .record_with(|record| {
            record.effective[0].yielding = true;
        });
    let silent = sample(Pacing::Batch { batch: 16 }, 4096).with(|point| point.latency = false);
    let silent = three_trials(silent, 9_000).summarize(LatencyKind::Batch, None);
    vec![several, silent.record()]
}

/// Windows of a labelled stream, verified, one not narrow enough in time, then a fan-in of one trial.
pub fn streams() -> Vec<Record> {
    let stream = |window, middle_ns| {
        let sample = sample(Pacing::Stream { window }, 4096).with(|point| {
            point.label = Some("4 KiB over windows".to_owned());
            point.verify = true;
            point.footprint_bytes = 1 << 26;
            point.length.until_ci = Some(0.02);
            point.length.max_duration_ns = Some(5_000_000_000);
        });
        three_trials(sample, middle_ns).summarize(LatencyKind::Operation, COPY)
    };
    let fan_in = sample(Pacing::Stream { window: 64 }, 64).with(|point| {
        (point.traffic, point.ranks, point.op) = (Traffic::FanIn, 5, Verb::WriteImm);
        point.latency = false;
        point.length.trials = 1;
        point.length.trial = TrialLength::Iterations(2000);
    });
    vec![
        stream(1, 640).record(),
        stream(64, 410)
            .body_with(|body| {
                if let Some(summary) = &mut body.summary {
                    summary.converged = Some(false);
                }
            })
            .record(),
        fan_in
            .trial(&[20; 2000])
            .summarize(LatencyKind::Operation, None)
            .record_with(|record| {
                record.canary = Some(Canary::Skipped {
                    why: "only one CPU is allowed".into(),
                })
            }),
    ]
}

/// Ping-pongs one way, and a read, whose figures are of whole operations.
pub fn ping_pongs() -> Vec<Record> {
    let one_way = |size_bytes, middle_ns| {
        let sample = sample(Pacing::PingPong, size_bytes).with(|point| point.op = Verb::WriteImm);
        three_trials(sample, middle_ns)
            .summarize(LatencyKind::OneWay, None)
            .record()
    };
    let read = sample(Pacing::PingPong, 8).with(|point| point.op = Verb::Read);
    let read = three_trials(read, 60).summarize(LatencyKind::Operation, None);
    vec![one_way(8, 70), one_way(4096, 410), read.record()]
}

/// An open loop at two rates.
pub fn paced() -> Vec<Record> {
    let at = |rate_per_s, middle_ns| {
        let sample = sample(
            Pacing::Paced {
                window: 64,
                rate_per_s,
            },
            64,
        );
        three_trials(sample, middle_ns)
            .summarize(LatencyKind::Response, None)
            .record()
    };
    vec![at(200_000.0, 4900), at(5e6, 150_000)]
}

/// A verify run: two operations right, one wrong in one size, one engine without bytes to look at, one not here.
pub fn verifies() -> Vec<Record> {
    let point = |engine: &str, op, size_bytes| {
        let engine = engine.to_owned();
        sample(Pacing::Batch { batch: 1 }, size_bytes).with(|point| {
            (point.engine, point.op, point.verify, point.latency) = (engine, op, true, false);
        })
    };
    let right = |op, size_bytes| {
        point("shm", op, size_bytes)
            .trial(&[500])
            .summarize(LatencyKind::Batch, None)
    };
    let mismatch = "rank 1 on node7: trial 0, offset 4096 of worker 0: expected 0x5a, found 0x00. 1 of 1048577 bytes \
                    is wrong; run it again with --seed 1 to see whether it stays";
    let mut records: Vec<_> = [1, 4095, 4097, (1 << 20) + 1]
        .into_iter()
        .flat_map(|size_bytes| {
            [
                right(Verb::Write, size_bytes).record(),
                right(Verb::Read, size_bytes).record(),
            ]
        })
        .collect();
    records.push(right(Verb::Send, 4097).record());
    let wrong = point("shm", Verb::Send, (1 << 20) + 1);
    records.push(
        wrong
            .without_result(Outcome::Failed {
                why: mismatch.to_owned(),
            })
            .record(),
    );
    let silent = point("shm", Verb::WriteImm, 8)
        .with(|point| point.verify = false)
        .trial(&[5]);
    records.push(silent.summarize(LatencyKind::Batch, None).record());
    let why = "null moves no bytes, so there is nothing to check";
    let null = point("null", Verb::Write, 8);
    records.push(
        null.without_result(Outcome::Skipped {
            why: why.to_owned(),
        })
        .record(),
    );
    records
        .iter_mut()
        .for_each(|record| record.plan = super::verify::PLAN.to_owned());
    records
}

/// One of everything.
pub fn all() -> Vec<Record> {
    [
        batches(),
        batches_without_max(),
        streams(),
        ping_pongs(),
        paced(),
        paths(),
        fabric(),
        verifies(),
    ]
    .concat()
}
