//! Records of stress runs.

use serde_json::json;
use tonnage_engine::Verb;
use tonnage_plan::stress::StressPoint;
use tonnage_plan::transfer::Pacing;
use tonnage_record::stress::{StressFailure, StressRow};
use tonnage_record::{Latency, LatencyKind, Outcome, Record, StressBody};

use super::builder::{self, account, failed, sample, skipped};

fn row(engine: &str, op: Verb, middle_ns: u64) -> StressRow {
    let histogram = builder::latencies(middle_ns);
    StressRow {
        draws: 96,
        operations: 40_000,
        payload_bytes: 320_000_000,
        verified_bytes: 150_000_000,
        window_ns: 40_000 * middle_ns,
        initiator_cpu_ns: 30_000 * middle_ns,
        latency: Latency::summarize(&histogram, LatencyKind::Operation),
        ..StressRow::new(engine, op)
    }
}

fn body(seed: u64, rows: Vec<StressRow>) -> StressBody {
    let point = StressPoint {
        label: None,
        engine: "shm,fabric:tcp".to_owned(),
        engine_options: Default::default(),
        ranks: 3,
        ops: vec![Verb::Write, Verb::Read],
        size_bytes_max: 1 << 20,
        threads: vec![1, 2],
        memory: "host,huge".to_owned(),
        seed,
        duration_ns: 20_000_000_000,
    };
    StressBody {
        rows,
        ..StressBody::new(point)
    }
}

fn record(body: StressBody, outcome: Outcome) -> Record {
    let tcp = account(json!({
        "name": "fabric",
        "library": {"version": "libfabric 1.22", "library": "embedded in tonnage"},
        "provider": "tcp", "provider_version": "122.0", "device": "eth0",
    }));
    sample(Pacing::PingPong, 8).record_with(|record| {
        record.plan = "stress".to_owned();
        (record.outcome, record.canary) = (outcome, None);
        let mut second = record.effective[0].clone();
        second.engine = tcp;
        record.effective.push(second);
        record.body = body.into();
    })
}

fn rows() -> Vec<StressRow> {
    vec![
        row("shm", Verb::Write, 2_100),
        row("shm", Verb::Read, 3_400),
        row("fabric:tcp", Verb::Write, 31_000),
        row("fabric:tcp", Verb::Read, 52_000),
    ]
}

/// A correct run, one with a wrong byte, one that was interrupted, and one with a missing engine.
pub fn stresses() -> Vec<Record> {
    let mut right = body(7, rows());
    right.elapsed_ns = 20_013_000_000;
    right.rows[2].skipped = 3;
    let why = "verify on fabric:tcp where data of several slots land in one cannot be used here: a write that completed \
               may still be on its way, so that nobody knows which came last. Choose the same order at both ends, or \
               --op read";
    right.rows[2].skipped_why = Some(why.to_owned());
    let mut wrong = right.clone();
    wrong.point.seed = 8;
    wrong.rows[1].failures = 2;
    let why = "rank 1 on node7: 1 of 65537 bytes are wrong; at offset 4096 there should be 5a, and there is 5b";
    wrong.first_failure = Some(StressFailure {
        draw: 17,
        engine: "shm".to_owned(),
        op: Verb::Read,
        why: why.to_owned(),
        command: "tonnage transfer --engine shm --op read --traffic shift --shift 2 --sizes 65537 --depth 8 --memory \
                  host --footprint 2443813 --gap 512 --access permuted --seed 206190 --verify --bound none --trials 1 \
                  --iters 44 --warmup 0ns --ranks 3"
            .to_owned(),
    });
    let mut early = body(9, rows());
    early.elapsed_ns = 4_200_000_000;
    let absent = skipped(
        "fabric:efa cannot be used here: libfabric offers no such provider. Choose another engine",
    );
    let mut all = vec![
        record(right, Outcome::Measured),
        record(wrong, failed("2 of 384 transfers failed")),
        record(early, failed("interrupted by signal 2 (SIGINT)")),
        record(body(10, Vec::new()), absent),
    ];
    all[3].effective.clear();
    all
}
