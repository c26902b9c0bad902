//! Records for tests. One builder makes them with consistent figures, as in a real run.

mod atomics;
mod builder;
pub mod collective;
pub mod connect;
mod engines;
pub mod files;
mod loaded;
mod network;
pub mod stress;
pub mod tune;

pub use builder::sample;
use builder::{COPY, Sample, failed, skipped, three_trials};
use tonnage_engine::Verb;
use tonnage_plan::point::Traffic;
use tonnage_plan::published::PublishedCell;
use tonnage_plan::transfer::{Pacing, PairLoads, Rate, TrialLength, Verification};
use tonnage_record::spread::spread;
use tonnage_record::transfer::{
    BrokenOff, ClientSeries, Directions, InitiatorFigures, PairDirection, PairRate, Standstill,
    TrialSeries, judge,
};
use tonnage_record::{Body, Canary, HostGroup, LatencyKind, PublishedRow, Record, TransferBody};

pub use atomics::atomics;
pub use engines::engines;
pub use loaded::loaded;
pub use network::{fabric, paths, proven_paths, side_by_side};

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
        broken(1 << 20).without_result(skipped(why)).record(),
        broken(1 << 21).without_result(skipped(why)).record(),
        broken(1 << 22)
            .without_result(failed("rank 1 on node7: killed by signal 9"))
            .record(),
    ]
}

/// Batches compared with two published tables, and a point that may be unsupported on the machine.
pub fn published() -> Vec<Record> {
    let beside = |what: &str, columns: &[&str], row: &[f64]| PublishedRow {
        what: what.to_owned(),
        columns: columns.iter().map(|&name| name.to_owned()).collect(),
        row: row
            .iter()
            .map(|&value| PublishedCell::Number(value))
            .collect(),
    };
    let of_table = [
        "MsgSize (B)",
        "BatchSize",
        "Max BW (GB/s)",
        "Avg BW (GB/s)",
        "Min Lat (us)",
        "Avg Lat (us)",
    ];
    let cell = |size_bytes: u32| sample(Pacing::Batch { batch: 128 }, size_bytes);
    let rows = |size_bytes: u32| {
        let table = [size_bytes.into(), 128.0, 49.36, 49.34, 1359.46, 1360.09];
        let rate = [size_bytes.into(), 33.4];
        vec![
            beside("a page, ConnectX-7", &of_table, &table),
            beside("a paper", &["MsgSize (B)", "Msg rate (Mop/s)"], &rate),
        ]
    };
    let measured = three_trials(cell(1 << 20), 3_000_000).summarize(LatencyKind::Batch, COPY);
    let lacking = cell(1 << 26).without_result(skipped("memory \"cuda\" cannot be used here"));
    vec![
        measured.record_with(|record| record.published_rows = rows(1 << 20)),
        lacking.record_with(|record| {
            record.optional = true;
            record.published_rows = rows(1 << 26);
        }),
    ]
}

/// Batches of four pairs with two threads each, and batches for which no latencies were recorded.
pub fn batches_without_max() -> Vec<Record> {
    let several = three_trials(
        sample(Pacing::Batch { batch: 16 }, 4096)
            .with(|point| (point.roles.ranks, point.threads) = (8, 2)),
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

/// Depths of a labelled, verified stream (one did not converge in time), then a fan-in with one trial.
pub fn streams() -> Vec<Record> {
    let stream = |depth, middle_ns| {
        let sample = sample(Pacing::Stream { depth }, 4096).with(|point| {
            point.label = Some("4 KiB over depths".to_owned());
            point.verify = Verification::Last;
            point.slots.footprint_bytes = 1 << 26;
            point.length.until_ci = Some(0.02);
            point.length.max_duration_ns = Some(5_000_000_000);
        });
        three_trials(sample, middle_ns).summarize(LatencyKind::Operation, COPY)
    };
    let fan_in = sample(Pacing::Stream { depth: 64 }, 64).with(|point| {
        (point.roles.traffic, point.roles.ranks, point.op) = (Traffic::FanIn, 5, Verb::WriteImm);
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

/// One, four and eight clients of one rank; pairs with more initiators than targets, shifted; and pairs with one and
/// two threads.
pub fn clients() -> Vec<Record> {
    let measured = |sample: Sample, middle_ns| {
        three_trials(sample, middle_ns)
            .summarize(LatencyKind::Operation, None)
            .record()
    };
    let read = |initiators| {
        sample(Pacing::Stream { depth: 12 }, 64).with(|point| {
            (point.roles.traffic, point.roles.ranks, point.op) = (Traffic::FanIn, 9, Verb::Read);
            point.roles.initiators = Some(initiators);
        })
    };
    let pairs = sample(Pacing::Stream { depth: 12 }, 64).with(|point| {
        (
            point.roles.ranks,
            point.roles.initiators,
            point.roles.target_shift,
        ) = (5, Some(3), 1)
    });
    let threads =
        |threads| sample(Pacing::Stream { depth: 12 }, 64).with(|point| point.threads = threads);
    let mut records = vec![
        measured(pairs, 210),
        measured(threads(1), 210),
        three_trials(threads(2), 190)
            .summarize(LatencyKind::Operation, None)
            .record_with(|record| record.effective[0].yielding = true),
    ];
    records.push(both_ways());
    let fan_in = [(1, 150), (4, 190), (8, 400)];
    records.splice(
        ..0,
        fan_in.map(|(initiators, middle_ns)| measured(read(initiators), middle_ns)),
    );
    records
}

/// Record of a pair that moves data in both directions: 40 % forward and 60 % back.
fn both_ways() -> Record {
    let pair =
        sample(Pacing::Stream { depth: 12 }, 64).with(|point| point.roles.bidirectional = true);
    let summarized = three_trials(pair, 210).summarize(LatencyKind::Operation, None);
    let with_directions = summarized.body_with(|body| {
        let Some(summary) = &mut body.summary else {
            return;
        };
        let part = |part: f64| PairDirection {
            operations: (summary.operations as f64 * part) as u64,
            payload_bytes: (summary.payload_bytes as f64 * part) as u64,
            bandwidth_bytes_per_s: spread(&[part * summary.bandwidth_bytes_per_s.mean]),
            latency_ns_mean: Some(210.0),
            unfinished: 0,
        };
        summary.initiators = [0, 1].map(initiator).into();
        summary.directions = Some(Directions {
            forward: part(0.4),
            back: part(0.6),
        });
    });
    with_directions.record()
}

fn initiator(rank: u32) -> InitiatorFigures {
    InitiatorFigures {
        rank,
        operations: 1000,
        payload_bytes: 64_000,
        bandwidth_bytes_per_s: 1.2e8 + f64::from(rank) * 3e7,
        latency_ns_min: Some(200),
        latency_ns_mean: (rank == 0).then_some(211.5),
        unfinished: 0,
    }
}

/// Trials with intervals: three clients, one of them stalled; two trials of a pair; and an aborted one.
pub fn intervals() -> Vec<Record> {
    let clients = [(1, 90), (2, 260), (3, 100)];
    let gap = |at: usize, rank: u32| rank == 2 && (20..25).contains(&at);
    let of = |(rank, count): (u32, u64)| ClientSeries {
        rank,
        operations: (0..130)
            .map(|at| {
                if gap(at, rank) {
                    0
                } else {
                    count + at as u64 % 7
                }
            })
            .collect(),
    };
    let clients: Vec<ClientSeries> = clients.into_iter().map(of).collect();
    let sum = |at: usize| clients.iter().map(|client| client.operations[at]).sum();
    let stood = Standstill {
        rank: 2,
        begin_ns: 2_000_000_000,
        end_ns: 2_500_000_000,
    };
    let whole = TrialSeries {
        interval_ns: 100_000_000,
        operations: (0..130).map(sum).collect(),
        standstills: vec![stood; 6],
        clients,
        ..TrialSeries::default()
    };
    let short = TrialSeries {
        interval_ns: 1_000_000_000,
        operations: vec![2_600_000, 2_700_000, 900_000],
        ..TrialSeries::default()
    };
    let with = |change: fn(&mut TransferBody, TrialSeries), series: TrialSeries| {
        let sample = sample(Pacing::Stream { depth: 12 }, 64)
            .with(|point| point.length.interval_ns = Some(series.interval_ns));
        let summarized = three_trials(sample, 210).summarize(LatencyKind::Operation, None);
        summarized.body_with(|body| change(body, series)).record()
    };
    let one = with(
        |body, series| {
            body.trials.truncate(1);
            body.trials[0].window_ns = 13_000_000_000;
            body.trials[0].series = Some(series);
        },
        whole,
    );
    let several = with(
        |body, series| {
            for trial in &mut body.trials {
                trial.window_ns = 2_500_000_000;
                trial.series = Some(series.clone());
            }
        },
        short.clone(),
    );
    let broken_off = with(
        |body, series| {
            (body.trials, body.summary) = (Vec::new(), None);
            body.broken_off = Some(BrokenOff { trial: 1, series });
        },
        short,
    );
    vec![one, several, broken_off]
}

/// Matrices: one with a slow sender and a slow receiver, one with a single slow pair, and one too large for a grid in
/// GB/s.
pub fn matrices() -> Vec<Record> {
    [4, 6, 16].map(matrix).into()
}

fn matrix(ranks: u32) -> Record {
    let rate = |from: u32, to: u32| match (from, to) {
        (1, _) if ranks == 6 => 1.21e7,
        (_, 3) if ranks == 6 => 1.19e7,
        (2, 0) if ranks != 4 => 3e7,
        _ => 1.19e8 + f64::from(from * 7 + to) * 1e4,
    };
    let all = (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to)));
    let pairs = all
        .filter(|(from, to)| from != to)
        .map(|(from, to)| PairRate {
            bandwidth_bytes_per_s: rate(from, to) * 0.98,
            ..pair(from, to, 1000, rate(from, to))
        });
    let pairs: Vec<PairRate> = pairs.collect();
    let sample = sample(Pacing::Stream { depth: 12 }, 64)
        .with(|point| (point.roles.traffic, point.roles.ranks) = (Traffic::Matrix, ranks));
    let summarized = three_trials(sample, 210).summarize(LatencyKind::Operation, None);
    let with_pairs = summarized.body_with(|body| {
        if let Some(summary) = &mut body.summary {
            summary.matrix = judge(ranks, &pairs, false);
            summary.pairs = pairs;
        }
    });
    with_pairs.record()
}

fn pair(initiator: u32, target: u32, payload_bytes: u64, bandwidth_bytes_per_s: f64) -> PairRate {
    PairRate {
        initiator,
        target,
        payload_bytes,
        bandwidth_bytes_per_s,
        bandwidth_bytes_per_s_max: bandwidth_bytes_per_s,
        ..PairRate::default()
    }
}

/// Traffic files: one small enough that all pairs are printed, and one so large that only the slowest pairs are
/// printed.
pub fn traffic_files() -> Vec<Record> {
    [(4, 1), (9, 4)].map(traffic_file).into()
}

/// Loads from each rank to the next `targets` ranks.
fn traffic_file((ranks, targets): (u32, u32)) -> Record {
    let load = |from: u32, to: u32| {
        let is_target = (1..=targets).contains(&((to + ranks - from) % ranks));
        u64::from(is_target) * u64::from(from + 1) * 64_000
    };
    let row = |from| (0..ranks).map(|to| load(from, to)).collect();
    let rows: Vec<Vec<u64>> = (0..ranks).map(row).collect();
    let Ok(loads) = PairLoads::try_from(rows) else {
        unreachable!("loads of pairs");
    };
    let loaded = |((initiator, target), bytes)| {
        let alone_ns = bytes as f64 * 10.0;
        let together_ns = alone_ns * (1.0 + f64::from(initiator * 3 + target) / 10.0);
        PairRate {
            time_ns_alone: Some(alone_ns),
            time_ns_together: Some(together_ns),
            ..pair(
                initiator,
                target,
                3 * bytes,
                bytes as f64 * 1e9 / together_ns,
            )
        }
    };
    let pairs: Vec<PairRate> = loads.pairs().map(loaded).collect();
    let sample = sample(Pacing::Stream { depth: 64 }, 64_000).with(|point| {
        (point.roles.traffic, point.roles.ranks) = (Traffic::File, ranks);
        point.length.trial = TrialLength::Iterations(1);
        point.loads = Some(loads);
    });
    let summarized = three_trials(sample, 210).summarize(LatencyKind::Operation, None);
    let with_pairs = summarized.body_with(|body| {
        if let Some(summary) = &mut body.summary {
            summary.pairs = pairs;
            summary.initiators = vec![initiator(0)];
        }
    });
    with_pairs.record()
}

/// Ping-pongs timed one way, and a read timed as a whole operation.
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
                depth: 64,
                rate: Rate::per_s(rate_per_s),
            },
            64,
        );
        three_trials(sample, middle_ns)
            .summarize(LatencyKind::Response, None)
            .record()
    };
    vec![at(200_000.0, 4900), at(5e6, 150_000)]
}

/// A verify run: two correct operations, one with wrong data at one size, an engine without data to check, and a
/// missing engine.
pub fn verifies() -> Vec<Record> {
    let point = |engine: &str, op, size_bytes| {
        let engine = engine.to_owned();
        sample(Pacing::Batch { batch: 1 }, size_bytes).with(|point| {
            (point.engine, point.op, point.verify, point.latency) =
                (engine, op, Verification::Last, false);
        })
    };
    let right = |op, size_bytes| {
        point("shm", op, size_bytes)
            .trial(&[500])
            .summarize(LatencyKind::Batch, None)
    };
    let mismatch = "rank 1 on node7: trial 0, offset 4096 of thread 0: expected 0x5a, found 0x00. 1 of 1048577 bytes \
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
    records.push(wrong.without_result(failed(mismatch)).record());
    let silent = point("shm", Verb::WriteImm, 8)
        .with(|point| point.verify = Verification::Off)
        .trial(&[5]);
    records.push(silent.summarize(LatencyKind::Batch, None).record());
    let why = "null moves no bytes, so there is nothing to check";
    let null = point("null", Verb::Write, 8);
    records.push(null.without_result(skipped(why)).record());
    records
        .iter_mut()
        .for_each(|record| record.plan = super::verify::PLAN.to_owned());
    records
}

/// Samples of all transfer reports.
pub fn all() -> Vec<Record> {
    [
        batches(),
        batches_without_max(),
        streams(),
        ping_pongs(),
        paced(),
        loaded(),
        paths(),
        fabric(),
        verifies(),
    ]
    .concat()
}

/// Body of a transfer record.
pub fn transfer(record: &mut Record) -> &mut TransferBody {
    match &mut record.body {
        Body::Transfer(body) => body,
        other => panic!("not of transfers: {other:?}"),
    }
}

/// Samples of all kinds except transfers.
pub fn of_other_kinds() -> Vec<Record> {
    [
        files::all(),
        connect::connections(),
        stress::stresses(),
        tune::searches(),
        collective::collectives(),
    ]
    .concat()
}

/// All samples, grouped by report.
pub fn all_tables() -> Vec<Vec<Record>> {
    let intervals = intervals().into_iter().map(|record| vec![record]);
    let transfers = [
        batches(),
        batches_without_max(),
        streams(),
        ping_pongs(),
        clients(),
        atomics(),
        matrices(),
        traffic_files(),
        paced(),
        loaded(),
        paths(),
        proven_paths(),
        fabric(),
        published(),
        verifies(),
        engines(),
    ];
    let others = [
        files::all(),
        connect::connections(),
        stress::stresses(),
        tune::searches(),
        collective::collectives(),
        collective::layers(),
    ];
    transfers
        .into_iter()
        .chain(intervals)
        .chain(others)
        .collect()
}

/// Samples of every kind.
pub fn of_all_kinds() -> Vec<Record> {
    [all(), of_other_kinds()].concat()
}

/// A host with this name that runs all ranks.
pub fn on_host(name: &str) -> HostGroup {
    let machine = serde_json::json!({
        "os": "Debian", "kernel": "6.1", "architecture": "x86_64",
        "cpu": {"model": "X", "online": "0-7", "allowed": "0-7", "sockets": 1, "cores": 4, "threads_per_core": 2,
            "governor": "performance"},
        "memory": {"total_bytes": 1, "numa_nodes": "0", "huge_pools": [],
            "transparent": {"enabled": "madvise", "shmem_enabled": "never"}},
        "libraries": {}, "variables": {},
    });
    let host = serde_json::json!({"name": name, "ranks": "0-1", "clock_offset_ns": 0, "clock_uncertainty_ns": 0});
    let group =
        serde_json::json!({"ranks": "0-1", "launcher": "", "machine": machine, "hosts": [host]});
    serde_json::from_value(group).unwrap()
}
