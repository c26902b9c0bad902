//! Records of collectives.

use serde_json::json;
use tonnage_collective::{Algorithm, Collective, Dtype, Reduction};
use tonnage_plan::collective::{Align, CollectivePoint, Groups, RankTime, Refill};
use tonnage_plan::point::BoundChoice;
use tonnage_plan::transfer::Pacing;
use tonnage_record::collective::{
    BackendResult, CollectiveSummary, CollectiveTrial, GroupTimes, RankCalls,
};
use tonnage_record::spread::spread;
use tonnage_record::{
    Bound, CollectiveBody, Effective, HistogramData, Latency, LatencyKind, Outcome, Record, Spread,
};
use tonnage_units::PairPlace;
use tonnage_units::histogram::LatencyHistogram;

use super::builder::{account, failed, length, sample, skipped};

fn point(op: Collective, block_elements: u64) -> CollectivePoint {
    CollectivePoint {
        label: None,
        backends: vec!["native:shm".to_owned(), "native:fabric:tcp".to_owned()],
        engine_options: Default::default(),
        op,
        dtype: Dtype::Float32,
        reduction: op.reduces().then_some(Reduction::Sum),
        root: 0,
        in_place: false,
        size_bytes: block_elements * 4,
        block_elements,
        ranks: 2,
        groups: Groups::All,
        algorithm: None,
        chunk_bytes: None,
        align: Align::Barrier,
        refill: Refill::Iteration,
        memory: "host".to_owned(),
        place: None,
        seed: 1,
        python: "python3".to_owned(),
        timeout_ns: 60_000_000_000,
        verify: true,
        across: RankTime::Max,
        per_rank: false,
        each: false,
        bound: BoundChoice::None,
        length: length(),
    }
}

/// A backend with three trials of two calls. `call_ns` is the approximate call time of the slowest rank.
fn measured(backend: &str, point: &CollectivePoint, call_ns: f64) -> BackendResult {
    let times: Vec<f64> = [0.98, 1.0, 1.02].map(|part| part * call_ns).into();
    let trial = |&ns: &f64| CollectiveTrial {
        iterations: 2,
        call_ns_rank_max: ns,
        call_ns_rank_mean: ns * 0.95,
        call_ns_rank_min: ns * 0.9,
    };
    let mut histogram = LatencyHistogram::default();
    for ns in &times {
        for part in [0.99, 1.01] {
            histogram.record((ns * part) as u64);
        }
    }
    let bytes = point.shape().size_bytes() as f64;
    let rates: Vec<f64> = times.iter().map(|ns| bytes / (ns / 1e9)).collect();
    let of_rank = |(rank, part): (u32, f64)| RankCalls {
        rank,
        call_ns_mean: call_ns * part,
        began_last: 2 + 2 * u64::from(rank),
    };
    BackendResult {
        backend: backend.to_owned(),
        backend_outcome: Outcome::Measured,
        really_in_place: point.in_place,
        chosen_algorithm: Some(Algorithm::Ring),
        chosen_chunk_bytes: Some(65536),
        bus_bound: None,
        trials: times.iter().map(trial).collect(),
        summary: Some(CollectiveSummary {
            trials: 3,
            iterations: 6,
            call_ns: spread(&times),
            call_ns_rank_max: call_ns,
            call_ns_rank_mean: call_ns * 0.95,
            call_ns_rank_min: call_ns * 0.9,
            // The bus factor of an all-reduce over two ranks is 1.
            algbw_bytes_per_s: Some(spread(&rates)),
            busbw_bytes_per_s: Some(spread(&rates)),
            busbw_bound_fraction: None,
            latency: Latency::summarize(&histogram, LatencyKind::Call),
            verified_bytes: 3 * 2 * point.shape().size_bytes(),
            rank_times: [(0, 1.0), (1, 0.9)].map(of_rank).into(),
            group_times: Vec::new(),
        }),
        histogram: Some(HistogramData::from_histogram(&histogram)),
    }
}

fn record(point: CollectivePoint, backends: Vec<BackendResult>, outcome: Outcome) -> Record {
    sample(Pacing::PingPong, 8).record_with(|record| {
        record.plan = "collective".to_owned();
        (record.outcome, record.canary, record.placed) = (outcome, None, None);
        record.body = CollectiveBody { point, backends }.into();
    })
}

/// All-gathers of two concurrent groups; the second one is slower.
fn in_groups() -> Record {
    let point = CollectivePoint {
        ranks: 4,
        groups: Groups::Mod(2),
        backends: vec!["native:shm".to_owned()],
        ..point(Collective::AllGather, 512)
    };
    let mut backend = measured("native:shm", &point, 1_300.0);
    if let Some(summary) = &mut backend.summary {
        // The bus factor of an all-gather over two ranks is one half.
        summary.busbw_bytes_per_s = summary.algbw_bytes_per_s.map(|it| Spread {
            mean: it.mean / 2.0,
            ..it
        });
        let of_group = |(group, ns): (u32, f64)| GroupTimes {
            group,
            group_call_ns_rank_max: ns,
            group_call_ns_rank_mean: ns * 0.95,
            group_call_ns_rank_min: ns * 0.9,
        };
        summary.group_times = [(0, 1_000.0), (1, 1_200.0)].map(of_group).into();
    }
    record(point, vec![backend], Outcome::Measured)
}

/// An all-reduce with GPU tensors, by two Python versions, and one with host memory.
pub fn torch_on_unlike_hosts() -> Record {
    let backends = ["torch:nccl", "native:shm"];
    let point = CollectivePoint {
        backends: backends.map(str::to_owned).into(),
        ..point(Collective::AllReduce, 2)
    };
    let measured = backends.map(|backend| measured(backend, &point, 900.0));
    let mut record = record(point, measured.into(), Outcome::Measured);
    let python = |(ranks, python): (&str, &str)| Effective {
        ranks: ranks.to_owned(),
        engine: account(json!({
            "name": "torch:nccl", "version": "PyTorch 2.4.0", "library": "/usr/bin/python3", "python": python,
        })),
        memory: serde_json::from_value(json!({"kind": "cuda"})).unwrap(),
        cpus: Vec::new(),
        sockets: Vec::new(),
        yielding: false,
    };
    let torch = [("0", "3.11.2"), ("1", "3.12.1")].map(python);
    for own in &mut record.effective {
        "native:shm".clone_into(&mut own.engine.name);
    }
    record.effective.splice(0..0, torch);
    record
}

/// Three operations: all-reduces of two sizes by two backends, with figures per rank; a broadcast with a bound, which
/// only one backend supports; a failed gather.
pub fn collectives() -> Vec<Record> {
    let small = point(Collective::AllReduce, 2);
    let large = CollectivePoint {
        per_rank: true,
        bound: BoundChoice::Auto,
        ..point(Collective::AllReduce, 1 << 20)
    };
    let broadcast = CollectivePoint {
        label: Some("broadcasts".to_owned()),
        root: 1,
        in_place: true,
        algorithm: Some(Algorithm::Tree),
        chunk_bytes: Some(4096),
        place: Some(PairPlace::Near),
        bound: BoundChoice::Stated {
            bytes_per_s: 12.5e9,
        },
        ..point(Collective::Broadcast, 1 << 10)
    };
    let skipped = lacking(
        "native:fabric:tcp",
        "collectives over fabric:tcp cannot be used here",
    );
    let mut alone = measured("native:shm", &broadcast, 2_000.0);
    if let Some(summary) = &mut alone.summary {
        let busbw = summary.busbw_bytes_per_s;
        summary.busbw_bound_fraction = busbw.map(|busbw| busbw.mean / 12.5e9);
    }
    let gather = point(Collective::Gather, 16);
    let why = "rank 1 on node7: killed by signal 9".to_owned();
    let two = |point: &CollectivePoint, ns: [f64; 2]| {
        let [shm, tcp] = ns;
        vec![
            measured("native:shm", point, shm),
            measured("native:fabric:tcp", point, tcp),
        ]
    };
    let (of_small, mut of_large) = (two(&small, [900.0, 25_000.0]), two(&large, [1.1e6, 4.4e6]));
    let bound = 9.6e9;
    of_large[0].bus_bound = Some(Bound {
        what: "memory copy by 2 of them at once".to_owned(),
        bytes_per_s: bound,
        ci95_bytes_per_s: None,
        links: None,
    });
    if let Some(summary) = &mut of_large[0].summary {
        let busbw = summary.busbw_bytes_per_s;
        summary.busbw_bound_fraction = busbw.map(|busbw| busbw.mean / bound);
    }
    vec![
        in_groups(),
        record(small, of_small, Outcome::Measured),
        record(large, of_large, Outcome::Measured),
        record(broadcast, vec![alone, skipped], Outcome::Measured),
        record(gather, Vec::new(), Outcome::Failed { why }),
    ]
}

/// Two rounds of layers: writes over shm and TCP with their bounds, and the layers above them. MPI is missing.
pub fn layers() -> Vec<Record> {
    [(1, 1.0), (2, 1.1)]
        .into_iter()
        .flat_map(of_round)
        .collect()
}

fn of_round((round, slower): (u32, f64)) -> Vec<Record> {
    const SIZE: u32 = 1 << 20;
    let label = Some(format!("round {round}"));
    let mut records = Vec::new();
    for (engine, ns, bound) in [
        (
            "shm",
            100_000.0,
            ("memory copy by rep movsb, 1 copier", 12e9),
        ),
        (
            "fabric:tcp",
            400_000.0,
            ("socket stream, 1 TCP connection", 3e9),
        ),
    ] {
        let ns = (ns * slower) as u64;
        let written = sample(Pacing::Stream { depth: 1 }, SIZE);
        let written = written.with(|point| {
            (point.engine, point.label) = (engine.to_owned(), label.clone());
        });
        let written = written.trial(&[ns, ns]);
        records.push(written.summarize(LatencyKind::OneWay, Some(bound)).record());
    }
    let backends = ["native:shm", "native:fabric:tcp", "mpi", "torch:gloo"];
    for (op, times) in [
        (
            Collective::SendRecvPairs,
            [110_000.0, 420_000.0, 0.0, 900_000.0],
        ),
        (
            Collective::AllReduce,
            [300_000.0, 700_000.0, 0.0, 2_000_000.0],
        ),
    ] {
        let point = CollectivePoint {
            label: label.clone(),
            backends: backends.map(str::to_owned).into(),
            ..point(op, u64::from(SIZE) / 4)
        };
        let of = |(backend, ns): (&str, f64)| match ns {
            0.0 => lacking(backend, "no mpirun has started the ranks"),
            ns => measured(backend, &point, ns * slower),
        };
        let all = backends.into_iter().zip(times).map(of).collect();
        records.push(record(point, all, Outcome::Measured));
    }
    for record in &mut records {
        record.plan = crate::layers::PLAN.to_owned();
    }
    records
}

/// Collectives of `tonnage verify`. One backend is correct, one has wrong data at two sizes, one lacks an operation,
/// and one is missing.
pub fn verified() -> Vec<Record> {
    let of_size = |op, elements| {
        let point = CollectivePoint {
            backends: vec!["native:shm".to_owned()],
            ..point(op, elements)
        };
        let right = measured("native:shm", &point, 1_000.0);
        record(point, vec![right], Outcome::Measured)
    };
    let ended = |backend: &str, op, elements, outcome: Outcome| {
        let point = CollectivePoint {
            backends: vec![backend.to_owned()],
            ..point(op, elements)
        };
        let backend = BackendResult {
            backend_outcome: outcome.clone(),
            ..lacking(backend, "")
        };
        record(point, vec![backend], outcome)
    };
    let wrong = || failed("wrong results: rank 1, element 7: expected 3, found 1");
    let (reduce, gather) = (Collective::AllReduce, Collective::AllGather);
    let mut records = vec![
        of_size(reduce, 1),
        of_size(reduce, 1025),
        of_size(gather, 17),
        ended("mpi", reduce, 1, wrong()),
        ended("mpi", reduce, 1025, wrong()),
        ended("torch:gloo", reduce, 1, skipped("Invalid scalar type")),
        ended("torch:gloo", gather, 17, skipped("Invalid scalar type")),
    ];
    for record in &mut records {
        record.plan = crate::verify::PLAN.to_owned();
    }
    records
}

fn lacking(backend: &str, why: &str) -> BackendResult {
    BackendResult {
        backend: backend.to_owned(),
        backend_outcome: skipped(why),
        really_in_place: false,
        chosen_algorithm: None,
        chosen_chunk_bytes: None,
        bus_bound: None,
        trials: Vec::new(),
        summary: None,
        histogram: None,
    }
}
