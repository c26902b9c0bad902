//! Records of network engines and libraries: paths, providers, completions.

use std::collections::BTreeMap;

use serde_json::json;
use tonnage_engine::{EngineReport, Verb};
use tonnage_plan::point::BoundChoice;
use tonnage_plan::transfer::{Pacing, Rate};
use tonnage_record::wire_proof::{DevicePath, TcpPath};
use tonnage_record::{LatencyKind, Record, WireProof};
use tonnage_units::WireKind;

use super::builder::{COPY, Sample, account, sample, skipped, three_trials};

/// Streams through network interfaces. One point has errors on its path, and one took an unexpected path.
pub fn paths() -> Vec<Record> {
    let stream = |depth, change: fn(&mut WireProof)| {
        let sample = sample(Pacing::Stream { depth }, 65536).with(|point| {
            point.engine = "fabric:tcp".to_owned();
            point.bound = BoundChoice::None;
        });
        let payload_bytes = 3 * 2000 * 65536;
        let device = |rank: u32, sent, received, errors: &[(&str, u64)]| {
            let mut counters: BTreeMap<String, u64> = errors
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect();
            counters.extend([("tx_bytes".into(), sent), ("rx_bytes".into(), received)]);
            DevicePath {
                host: format!("node{rank}"),
                ranks: rank.to_string(),
                kind: WireKind::Interface,
                name: "eth0".to_owned(),
                port: None,
                sent_bytes_expected: if rank == 0 { payload_bytes } else { 0 },
                received_bytes_expected: if rank == 1 { payload_bytes } else { 0 },
                sent_bytes: Some(sent),
                received_bytes: Some(received),
                crossed: true,
                counters,
            }
        };
        let tcp = |rank: u32, segments: u64| TcpPath {
            host: format!("node{rank}"),
            ranks: rank.to_string(),
            counters: BTreeMap::from([("OutSegs".into(), 9000), ("RetransSegs".into(), segments)]),
        };
        let (data_bytes, answer_bytes) = (payload_bytes * 26 / 25, payload_bytes / 50);
        let mut path = WireProof {
            crossed: true,
            devices_named: 2,
            devices_crossed: 2,
            devices: vec![
                device(0, data_bytes, answer_bytes, &[]),
                device(1, answer_bytes, data_bytes, &[("rx_dropped", 3)]),
            ],
            tcp: vec![tcp(0, 12), tcp(1, 0)],
            why: Vec::new(),
        };
        change(&mut path);
        three_trials(sample, 30_000)
            .summarize(LatencyKind::Operation, None)
            .record_with(|record| record.wire_proof = Some(path))
    };
    let calm = |path: &mut WireProof| {
        path.tcp.clear();
        path.devices[1].counters.remove("rx_dropped");
    };
    let elsewhere = |path: &mut WireProof| {
        (path.crossed, path.devices_crossed) = (false, 1);
        path.devices[0].crossed = false;
        path.devices[0].kind = WireKind::RdmaPort;
        (path.devices[0].name, path.devices[0].port) = ("mlx5_0".to_owned(), Some(1));
        let why = "the payload did not cross mlx5_0 port 1 of node0: rank 0 sent 375 MiB and received 0 B, and the \
                   counters show 312 B and 10.0 B; eth0 carried that much meanwhile: look at the routes and addresses \
                   of the hosts, or ask for eth0";
        path.why.push(why.to_owned());
    };
    vec![stream(1, |_| {}), stream(16, calm), stream(64, elsewhere)]
}

/// Streams with a proven path and no trouble.
pub fn proven_paths() -> Vec<Record> {
    paths().split_off(1)[..1].to_vec()
}

/// Report of an engine on libfabric.
fn over_libfabric(provider: &str, domain: &str) -> EngineReport {
    account(json!({
        "name": "fabric", "provider": provider, "provider_version": "117.0", "version": "libfabric 1.17",
        "library": "/usr/lib/libfabric.so.1", "device": domain,
    }))
}

/// Writes over a fabric: streams with local completions, the same streams with an engine option, and batches with
/// delivery completions.
pub fn fabric() -> Vec<Record> {
    let stream_bound = "socket stream, 1 TCP connection, polling, blocks of 1048576 B";
    let writes = |pacing, kind, delivered, bound: Option<f64>| {
        let sample = sample(pacing, 65536).with(|point| point.engine = "fabric:tcp".to_owned());
        let bound = bound.map(|bytes_per_s| (stream_bound, bytes_per_s));
        three_trials(sample, 30_000)
            .summarize(kind, bound)
            .body_with(|body| {
                let summary = body.summary.as_mut();
                if let Some(latency) = summary.and_then(|summary| summary.latency.as_mut()) {
                    latency.delivered = Some(delivered);
                }
            })
    };
    let plain = |sample: Sample| {
        sample.record_with(|record| {
            record.effective[0].engine = over_libfabric("tcp;ofi_rxm", "eth0");
        })
    };
    let transmit = |sample: Sample| {
        let options = [("completion", "transmit"), ("inject", "off")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        plain(sample.body_with(|body| body.point.engine_options = options.into()))
    };
    let stream = Pacing::Stream { depth: 16 };
    let batch = Pacing::Batch { batch: 16 };
    let paced = Pacing::Paced {
        depth: 64,
        rate: Rate::per_s(20_000.0),
    };
    vec![
        plain(writes(stream, LatencyKind::Operation, false, Some(2.5e9))),
        transmit(writes(stream, LatencyKind::Operation, false, Some(1.9e9))),
        plain(writes(batch, LatencyKind::Batch, true, None)),
        transmit(writes(batch, LatencyKind::Batch, false, None)),
        transmit(writes(paced, LatencyKind::Response, false, None)),
    ]
}

/// Three engines in one experiment, as in the tour. One of them could not measure one operation.
pub fn side_by_side() -> Vec<Record> {
    let stream = |engine: &str, size_bytes, middle_ns, bound| {
        let sample = sample(Pacing::Stream { depth: 16 }, size_bytes)
            .with(|point| (point.engine, point.op) = (engine.to_owned(), Verb::Read));
        three_trials(sample, middle_ns)
            .summarize(LatencyKind::Operation, bound)
            .record()
    };
    let streams = Some((
        "socket stream, 1 TCP connection, polling, blocks of 1048576 B",
        3.1e9,
    ));
    let mut records = Vec::new();
    for size_bytes in [64, 65536] {
        records.push(stream(
            "shm",
            size_bytes,
            40 + u64::from(size_bytes) / 6,
            COPY,
        ));
        let mut shm = stream(
            "fabric:shm",
            size_bytes,
            100 + u64::from(size_bytes) / 5,
            COPY,
        );
        shm.effective[0].engine = over_libfabric("shm", "shm");
        records.push(shm);
        let mut tcp = stream(
            "fabric:tcp",
            size_bytes,
            5000 + u64::from(size_bytes) / 3,
            streams,
        );
        tcp.effective[0].engine = over_libfabric("tcp;ofi_rxm", "lo");
        records.push(tcp);
    }
    let absent = |size_bytes| {
        let why = "fabric:efa cannot be used here: there is no device for it. Use a host with one";
        sample(Pacing::Stream { depth: 16 }, size_bytes)
            .with(|point| point.engine = "fabric:efa".to_owned())
            .without_result(skipped(why))
            .record()
    };
    records.extend([absent(64), absent(65536)]);
    records
}
