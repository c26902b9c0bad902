//! Records of file experiments with consistent figures, as in a real run.

use serde_json::json;
use tonnage_plan::files::{
    FileLayout, FileOrder, FilePoint, Fsync, Phase, Published, ReadFrom, Stonewall, Striping,
};
use tonnage_plan::point::PointNotes;
use tonnage_plan::testing::file_point;
use tonnage_record::files::{
    CacheState, DirectAlignment, Outlier, PhaseRecord, PhaseSummary, PhaseTrial, RankTimes, Series,
    StonewallFigures, Storage, TransferLatency,
};
use tonnage_record::spread::spread;
use tonnage_record::{Body, Bound, FileBody, HistogramData, Latency, LatencyKind, Record};

use super::builder::{self, measured, skipped};

const MS: u64 = 1_000_000;

fn point(engine: &str) -> FilePoint {
    FilePoint {
        engine: engine.to_owned(),
        layout: FileLayout::PerProcess,
        block_bytes: 4 << 20,
        transfer_bytes: 4 << 20,
        segments: 64,
        fsync: Fsync::End,
        barriers: true,
        ..file_point()
    }
}

fn record(file: FilePoint, engine: serde_json::Value, phases: Vec<PhaseRecord>) -> Record {
    let storage = Storage {
        ranks: "0-1".to_owned(),
        directory: "/data".to_owned(),
        file_system: "ext4".to_owned(),
        source: "/dev/vda1".to_owned(),
        free_bytes: 80_000_000_000,
        direct_alignment: Some(DirectAlignment {
            memory_bytes: 4,
            offset_bytes: 512,
        }),
        striping: None,
    };
    let body = FileBody {
        storage: vec![storage],
        phases,
        ..FileBody::new(file, PointNotes::default())
    };
    let mut record = measured("file", body, engine);
    record.effective[0].sockets.clear();
    record
}

/// Body of a file record.
pub fn body(record: &mut Record) -> &mut FileBody {
    match &mut record.body {
        Body::File(body) => body,
        other => panic!("not of files: {other:?}"),
    }
}

fn times(ns: u64) -> RankTimes {
    RankTimes {
        ns_min: ns - ns / 20,
        ns_mean: ns as f64 * 0.975,
        ns_max: ns,
        slowest: 1,
    }
}

/// A trial of two ranks that takes `transfer_ms`. `reads` is the number of reads among all `transfers`.
fn trial(
    point: &FilePoint,
    number: u32,
    transfers: u64,
    reads: u64,
    transfer_ms: u64,
) -> PhaseTrial {
    let payload_bytes = transfers * point.transfer_bytes;
    let (open_ns, close_ns, transfer_ns) = (MS / 5, MS / 10, transfer_ms * MS);
    let total_ns = open_ns + transfer_ns + close_ns;
    let syncs = reads < transfers && point.fsync != Fsync::None;
    let intervals = (transfer_ms / 10).max(1);
    let mut series = vec![payload_bytes / intervals; intervals as usize];
    if let Some(stalled) = series.get_mut(7) {
        *stalled = 0;
    }
    let rest = payload_bytes - series.iter().sum::<u64>();
    series.push(rest);
    PhaseTrial {
        trial: number,
        operations: transfers,
        reads,
        payload_bytes,
        total_ns,
        bandwidth_bytes_per_s: payload_bytes as f64 * 1e9 / total_ns as f64,
        transfer_ns,
        operations_per_s: transfers as f64 * 1e9 / transfer_ns as f64,
        open_ns,
        close_ns,
        open_of_rank: times(open_ns),
        transfer_of_rank: times(transfer_ns),
        sync_of_rank: syncs.then(|| times(transfer_ns / 4)),
        close_of_rank: times(close_ns),
        outliers: Vec::new(),
        cpu_ns: transfer_ns * 3 / 2 + MS,
        transfer_cpu_ns: transfer_ns * 3 / 2,
        in_flight_max: Some(1),
        first_done_ns: open_ns + transfer_ns * 95 / 100,
        first_done_bytes: payload_bytes / 100 * 97,
        last_done_ns: open_ns + transfer_ns,
        stonewall: None,
        series: Series {
            interval_ns: 10 * MS,
            bytes: series,
        },
        cache: None,
        verified_bytes: None,
        data_seed: (reads < transfers).then_some(0x1234_5678_9abc),
    }
}

fn latencies(write: bool, middle_ns: u64) -> TransferLatency {
    let histogram = builder::latencies(middle_ns);
    TransferLatency {
        write,
        latency: Latency::summarize(&histogram, LatencyKind::Operation).unwrap(),
        histogram: HistogramData::from_histogram(&histogram),
    }
}

fn phase(
    phase: Phase,
    trials: Vec<PhaseTrial>,
    latencies: Vec<TransferLatency>,
    bound: Option<f64>,
) -> PhaseRecord {
    let of = |value: fn(&PhaseTrial) -> f64| spread(&trials.iter().map(value).collect::<Vec<_>>());
    let sum = |value: fn(&PhaseTrial) -> u64| trials.iter().map(value).sum::<u64>();
    let bandwidth = of(|trial| trial.bandwidth_bytes_per_s);
    let (operations, payload_bytes) = (
        sum(|trial| trial.operations),
        sum(|trial| trial.payload_bytes),
    );
    let gib = payload_bytes as f64 / f64::from(1 << 30);
    let summary = PhaseSummary {
        trials: trials.len() as u32,
        operations,
        payload_bytes,
        bandwidth_bytes_per_s: bandwidth,
        operations_per_s: of(|trial| trial.operations_per_s),
        cpu_ns_per_operation: sum(|trial| trial.transfer_cpu_ns) as f64 / operations as f64,
        cpu_ns_per_gib: sum(|trial| trial.cpu_ns) as f64 / gib,
        bound: bound.map(|bytes_per_s| Bound {
            what: "one sequential direct stream on /dev/vda1".to_owned(),
            bytes_per_s,
            ci95_bytes_per_s: None,
            links: None,
        }),
        utilization: bound.map(|bytes_per_s| bandwidth.mean / bytes_per_s),
    };
    PhaseRecord {
        phase,
        trials,
        summary,
        latencies,
    }
}

fn written(trials: Vec<PhaseTrial>) -> PhaseRecord {
    let latencies = vec![latencies(true, 1_900_000)];
    phase(Phase::Write, trials, latencies, Some(2.4e9))
}

fn cache(bytes: u64, resident_bytes: u64) -> CacheState {
    CacheState {
        bytes,
        resident_bytes,
        how: "cachestat".to_owned(),
        known: true,
        dropped: false,
        direct: false,
    }
}

fn posix() -> serde_json::Value {
    json!({"name": "posix", "calls": "pread, pwrite, fsync", "clock": "tsc"})
}

/// Buffered write and read, verified, with a warm cache.
pub fn buffered() -> Record {
    let mut point = point("posix");
    point.verify_after = vec![Phase::Read];
    point.read_from = ReadFrom::Shift { ranks: 1 };
    let write = trial(&point, 0, 128, 0, 250);
    let mut read = trial(&point, 0, 128, 128, 60);
    read.cache = Some(cache(512 << 20, 512 << 20));
    read.verified_bytes = Some(512 << 20);
    read.data_seed = Some(0x1234_5678_9abc);
    let write = written(vec![write]);
    let quick = vec![latencies(false, 450_000)];
    let read = phase(Phase::Read, vec![read], quick, Some(2.6e9));
    let mut record = record(point, posix(), vec![write, read]);
    record.remarks.push(
        "--read-shift 1 on one host reads what another process wrote, but from the same page cache"
            .to_owned(),
    );
    record
}

/// Small direct reads and writes in shuffled order for a fixed time, at a high depth.
pub fn stonewalled() -> Record {
    let mut point = point("uring");
    point.label = Some("IOPS".to_owned());
    point.layout = FileLayout::Shared;
    (point.block_bytes, point.transfer_bytes, point.segments) = (256 << 20, 4096, 1);
    (point.order, point.direct, point.depth) = (FileOrder::Shuffled, true, 32);
    (point.fsync, point.barriers, point.prefill) = (Fsync::None, false, true);
    (point.phases, point.read_percent) = (vec![Phase::Mixed], Some(70));
    point.stonewall = Some(Stonewall {
        after_ns: 5000 * MS,
        wear_out: true,
        transfers_min: 0,
    });
    let mut mixed = trial(&point, 0, 120_000, 84_000, 5100);
    mixed.stonewall = Some(StonewallFigures {
        after_ns: 5000 * MS,
        operations: 118_000,
        payload_bytes: 118_000 * 4096,
        rank_bytes_min: 58_000 * 4096,
        rank_bytes_max: 60_000 * 4096,
        bandwidth_bytes_per_s: 118_000.0 * 4096.0 / 5.0,
        worn_out_transfers: Some(60_000),
    });
    mixed.outliers.push(Outlier {
        rank: 1,
        host: "node7".to_owned(),
        ns: 5100 * MS,
    });
    let mut cached = cache(512 << 20, 0);
    cached.direct = true;
    mixed.cache = Some(cached);
    let both = vec![latencies(false, 640_000), latencies(true, 820_000)];
    let engine = json!({
        "name": "uring", "depth": 32, "submit_batch": 8, "direct": {"memory_bytes": 4, "offset_bytes": 512},
        "flags": ["COOP_TASKRUN", "SINGLE_ISSUER", "DEFER_TASKRUN"], "fixed_buffers": true, "fixed_files": true,
    });
    record(
        point,
        engine,
        vec![phase(Phase::Mixed, vec![mixed], both, None)],
    )
}

/// An experiment whose disk was full in the second trial, and an experiment that could not start.
pub fn failed() -> Vec<Record> {
    let mut point = point("posix");
    point.trials = 2;
    let write = trial(&point, 0, 128, 0, 250);
    let write = written(vec![write]);
    let mut full = record(point.clone(), posix(), vec![write]);
    full.outcome = builder::failed(
        "rank 1 on node7: /data/t.dat.00000001: writing 4194304 bytes at offset 88080384: no space left on device \
              (ext4 on /dev/vda1). Make room, or name another directory with --path",
    );
    let mut absent = record(point, json!({}), Vec::new());
    absent.effective.clear();
    body(&mut absent).point.engine = "mpiio".to_owned();
    absent.outcome = skipped("no MPI library is here: name one with --mpi");
    vec![full, absent]
}

/// Collective MPI-IO with hints, striped, over three trials, compared with published figures.
pub fn collective() -> Record {
    let mut point = point("mpiio");
    point.label = Some("Lustre I, MPI-IO, shared file".to_owned());
    (point.layout, point.collective, point.trials) = (FileLayout::Shared, true, 3);
    (point.block_bytes, point.transfer_bytes, point.segments) = (8 << 20, 8 << 20, 32);
    point.keep = true;
    point.drop_caches = true;
    point.striping = Some(Striping {
        count: None,
        size_bytes: Some(8 << 20),
    });
    for (name, value) in [("romio_cb_read", "disable"), ("romio_cb_write", "disable")] {
        point.hints.insert(name.to_owned(), value.to_owned());
    }
    let trials = |reads: u64, times: [u64; 3]| -> Vec<PhaseTrial> {
        let numbered = (0..).zip(times);
        numbered
            .map(|(number, ms)| trial(&point, number, 64, reads, ms))
            .collect()
    };
    let write = trials(0, [310, 290, 330]);
    let mut read = trials(64, [150, 148, 161]);
    for (at, trial) in read.iter_mut().enumerate() {
        let mut state = cache(512 << 20, at as u64 * (100 << 20));
        state.dropped = true;
        trial.cache = Some(state);
    }
    let slow = vec![latencies(true, 8_000_000)];
    let write = phase(Phase::Write, write, slow, Some(2.4e9));
    let slow = vec![latencies(false, 4_000_000)];
    let read = phase(Phase::Read, read, slow, Some(2.6e9));
    let engine = json!({
        "name": "mpiio", "library": "/usr/lib/libmpi.so.40", "version": "Open MPI v4.1.4", "calls": "collective",
        "hints": {"romio_cb_read": "disable", "romio_cb_write": "disable"},
    });
    let mut record = record(point, engine, vec![write, read]);
    let of_files = body(&mut record);
    let storage = &mut of_files.storage[0];
    storage.file_system = "lustre".to_owned();
    storage.source = "mds:/scratch".to_owned();
    storage.direct_alignment = None;
    storage.striping = Some("24 stripes of 8 MiB".to_owned());
    of_files.published = vec![
        Published {
            phase: Phase::Write,
            bandwidth_mib_per_s: Some(716_886.15),
            operations_per_s: None,
            ranks: Some(3840),
            percent_of_earlier: Some(66.0),
            what: "Cori, Lustre, acceptance test".to_owned(),
        },
        Published {
            phase: Phase::Read,
            bandwidth_mib_per_s: None,
            operations_per_s: Some(8.2e6),
            ranks: None,
            percent_of_earlier: None,
            what: "Cori, Lustre, acceptance test".to_owned(),
        },
    ];
    record
}

/// All samples of file experiments.
pub fn all() -> Vec<Record> {
    let mut all = vec![buffered(), stonewalled()];
    all.extend(failed());
    all.push(collective());
    all
}
