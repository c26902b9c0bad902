//! Transfers into GPU memory of another process, and through pinned memory. They run over the simulated driver and,
//! with `make test-gpu`, on NVIDIA GPUs. Messages are also tested without a driver.

use std::fs;

use tempfile::tempdir;
use tonnage_record::Outcome;

use super::drivers::TriedDriver;
use super::{Double, brief, cuda, json};
use crate::killing::{nothing_new, pids};
use crate::support::records::{all_verified, are_skipped, body};
use crate::support::{BRIEF, LONG, has, records, shared_memory, tonnage, wait_until};

/// Every verb must reach pinned memory and the memory of a GPU other than the initiator's. If memory is freed while a
/// peer has it open, the simulated driver reports this on standard error.
#[test]
fn every_verb_reaches_memory_of_another_process() {
    for driver in TriedDriver::all("") {
        let dir = tempdir().unwrap();
        let arguments = driver.with(&format!(
            "transfer --engine cuda-ipc --op write,write-imm,read,send --ranks 2 --memory cuda,cuda-pinned --target-memory {} \
             --sizes 7001 --depth 4 --verify {BRIEF} -o r.jsonl",
            driver.far()
        ));
        let run = driver.run(tonnage(dir.path(), &arguments));
        let records = records::shown(dir.path(), &run);
        assert_eq!(records.len(), 8);
        let records = driver.reached(records);
        all_verified(&records);
        let told = serde_json::to_string(&records).unwrap();
        let tells = told.contains("\"arrivals\":\"reported by the ");
        assert!(tells || records.is_empty(), "{told}");
        let of_double = [
            "GPU d1d1d1d1-d1d1-d1d1-d1d1-d1d1d1d1d1d1",
            "reported by the GPU, after the data",
            // The memory belongs to the GPU that owns the bytes, which is not the first one.
            "pinned memory of the host and cuda:1 (Double of a GPU, 0000:1c:00.0)",
            "\"device\":\"cuda:0 (0000:1b:00.0)\"",
            // For transfers from pinned host memory, the link of the same GPU is the bound.
            "\"device\":\"memory of the host, to cuda:1 (0000:1c:00.0)\"",
            "\"version\":\"CUDA 12.4\"",
        ];
        for part in of_double.iter().filter(|_| driver.is_double()) {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}

/// This driver cannot write flags, so the CPU reports arrivals. The record must show that.
#[test]
fn arrivals_that_the_cpu_tells_are_recorded_as_such() {
    let Some(double) = Double::with("words 0") else {
        return;
    };
    let records = brief(
        &cuda(&double),
        "--engine cuda-ipc --op write-imm --ping-pong --ranks 2 --memory cuda --target-memory cuda,cuda-pinned --sizes 8 \
         --verify",
    );
    all_verified(&records);
    let told = json(&records);
    has(
        &told,
        "reported by the CPU, when it sees the copy done | this GPU cannot write 64-bit words",
    );
    has(
        &told,
        "within cuda:0 (Double of a GPU, 0000:1b:00.0) | and pinned memory of the host",
    );
}

#[test]
fn verify_takes_the_memory_that_the_engine_is_for() {
    for driver in TriedDriver::all("memory 268435456") {
        let dir = tempdir().unwrap();
        let arguments = "verify --engine cuda-ipc --ranks 2 --sizes 1,4097 -o r.jsonl";
        let mut run = tonnage(dir.path(), arguments);
        if let Some(library) = driver.library() {
            run = run.env("TONNAGE_LIBCUDA", library);
        }
        run.succeed();
        let records = records::read(&dir.path().join("r.jsonl"));
        assert_eq!(records.len(), 16);
        all_verified(&records);
        let points = || records.iter().map(|record| &body(record).point);
        let of = |memory| {
            points()
                .filter(|point| point.memories.memory == memory)
                .count()
        };
        assert_eq!((of("cuda"), of("cuda-pinned")), (8, 8));
        let mut targets = points().filter_map(|point| point.memories.target_memory.as_deref());
        assert!(targets.all(|memory| memory == "cuda"));
    }
}

/// Tests GPUs that cannot reach each other, host memory, and a check for which the CPU would have to read the memory.
#[test]
fn unsupported_ipc_transfers_are_refused_by_name() {
    let (Some(double), Some(refusing)) = (
        Double::with("gpus 2\npeers 0"),
        Double::with("gpus 2\npeers 2"),
    ) else {
        return;
    };
    let write = "--engine cuda-ipc --op write --ranks 2 --sizes 8 --optional";
    let line = format!("{write} --memory cuda,host --target-memory cuda:1,host");
    let records = brief(&cuda(&double), &line);
    let (no_way, of_host) = records.split_at(1);
    let peers = "cuda-ipc between ranks 0 and 1 | cuDeviceCanAccessPeer: cuda:0 cannot reach the memory of cuda:1";
    are_skipped(no_way, &format!("{peers} | nvidia-smi topo -p2p r"));
    assert_eq!(of_host.len(), 3);
    let others = "memory host with engine cuda-ipc | --memory cuda, cuda:N or cuda-pinned";
    are_skipped(of_host, others);
    // The GPUs are connected but cannot open memory. The error code must come with advice.
    let line = format!("{write} --memory cuda --target-memory cuda:1");
    let records = brief(&cuda(&refusing), &line);
    assert_eq!(records.len(), 1);
    let refused = "cuIpcOpenMemHandle_v2: CUDA_ERROR_PEER_ACCESS_UNSUPPORTED (217)";
    are_skipped(&records, &format!("{refused} | nvidia-smi topo -p2p r"));
}

/// Rank 0's GPU cannot reach rank 1's GPU, but the reverse works. Neither rank may free memory that the other has open.
#[test]
fn a_rank_that_cannot_open_its_peers_memory_keeps_its_own_while_that_is_open() {
    let Some(double) = Double::with("gpus 2\nblind 0") else {
        return;
    };
    let write = "--engine cuda-ipc --op write --ranks 2 --sizes 8 --memory cuda";
    // If memory is freed while a peer has it open, the simulated driver reports that on standard error.
    let line = format!("{write} --traffic all-to-all --gpus 0,1 --optional");
    let records = brief(&cuda(&double), &line);
    are_skipped(
        &records[..1],
        "cuda:0 (Double of a GPU, 0000:1b:00.0) cannot open memory of",
    );
    // A rank that initiates nothing opens no memory, so only the working direction is used.
    all_verified(&brief(
        &cuda(&double),
        &format!("{write} --gpus 1,0 --verify"),
    ));
}

/// A killed rank must leave no files, even with a peer's memory open or with data in the staging ring.
#[test]
fn a_killed_rank_leaves_nothing_though_its_memory_is_open() {
    let Some(double) = Double::with("") else {
        return;
    };
    // In the simulated driver, memory is a file. The rank has a file for its own memory and, with `cuda-ipc`, one for
    // the peer's.
    for (engine, files) in [
        ("cuda-ipc", 2),
        ("fabric:tcp --engine-option staging=pinned", 1),
    ] {
        let dir = tempdir().unwrap();
        let before = shared_memory();
        let arguments = format!(
            "transfer --engine {engine} --op write --ranks 2 --memory cuda --sizes 4096 {LONG} --library {} -o r.jsonl",
            cuda(&double)
        );
        let run = tonnage(dir.path(), &arguments).start();
        let rank = run.rank(1);
        wait_until("the rank has memory of a GPU", || {
            let maps = fs::read_to_string(format!("/proc/{}/maps", rank.pid)).unwrap_or_default();
            maps.matches("memfd:tonnage-double").count() >= files
        });
        let pids = pids(&run);
        run.kill_rank(1);
        nothing_new(&before, &pids);
    }
}

/// With `staging=pinned`, transfers over sockets must copy GPU memory through pinned host memory.
#[test]
fn bytes_of_a_gpu_are_staged_where_that_is_asked_for() {
    for driver in TriedDriver::all("") {
        let dir = tempdir().unwrap();
        let arguments = driver.with(&format!(
            "transfer --engine fabric:tcp --op write,write-imm,read,send --ranks 2 --memory {} --engine-option staging=pinned \
             --sizes 8,300001 --depth 4 --verify {BRIEF} -o r.jsonl",
            driver.far()
        ));
        let run = tonnage(dir.path(), &arguments).succeed();
        let run = run.printing(&["staging=pinned"]);
        let records = records::shown(dir.path(), &run);
        assert_eq!(records.len(), 8);
        all_verified(&records);
        let told = serde_json::to_string(&records).unwrap();
        assert!(
            told.contains("copied through the host at both ends"),
            "{told}"
        );
    }
}

/// The link from the GPU to the rest of the machine must be the bound, if the management library reports that link.
#[test]
fn bytes_of_a_gpu_go_no_faster_than_its_own_link() {
    // The GPU has two links of one megabyte per second each, which are slower than any socket.
    let links = "gpu 0000:1b:00.0\ngpu 0000:1c:00.0\nc2c 2 1";
    let (Some(double), Some(management)) = (Double::with("gpus 2"), Double::nvml(links)) else {
        return;
    };
    let dir = tempdir().unwrap();
    let arguments = format!(
        "transfer --engine fabric:tcp,fabric:shm --op write --ranks 2 --memory cuda:1 --engine-option staging=pinned \
         --sizes 4096 --trials 1 --trial-time 2ms --warmup 0s --library {} -o r.jsonl",
        cuda(&double)
    );
    tonnage(dir.path(), &arguments)
        .env("TONNAGE_LIBNVML", management.path())
        .succeed();
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), 2);
    for record in records {
        assert_eq!(record.outcome, Outcome::Measured);
        if record.effective.iter().any(|ranks| ranks.yielding) {
            println!("skip: no bound is measured where threads share CPUs");
            continue;
        }
        let bound = record.bound.as_ref().unwrap();
        let what = "NVLink-C2C, 2 links of cuda:1 (0000:1c:00.0), by which bytes leave and reach its memory";
        assert_eq!((bound.what.as_str(), bound.bytes_per_s), (what, 2e6));
    }
}

/// Two processes share a GPU in turn. Each one's rate counts only its own turns, so the rates must not be added.
#[test]
fn a_gpu_that_two_processes_share_is_one_copier() {
    for driver in TriedDriver::all("") {
        let dir = tempdir().unwrap();
        let arguments = driver.with(
            "transfer --engine cuda-ipc --op write --ranks 2 --memory cuda --gpus 0 --sizes 4k --bidirectional --trials 2 \
             --trial-time 2ms --warmup 0s -o r.jsonl",
        );
        driver.run(tonnage(dir.path(), &arguments));
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        assert_eq!(record.outcome, Outcome::Measured);
        if record.effective.iter().any(|ranks| ranks.yielding) {
            println!("skip: no bound is measured where threads share CPUs");
            continue;
        }
        let bound = record.bound.as_ref().unwrap();
        assert!(bound.what.ends_with(", 1 copier"), "{bound:?}");
        let begin = "ranks 0-1 are processes that share cuda:0 (";
        let is_told = |it: &String| it.starts_with(begin) && it.contains(" in time slices");
        assert!(record.remarks.iter().any(is_told), "{:?}", record.remarks);
    }
}

/// Without `staging=pinned`, bytes must not be staged.
#[test]
fn bytes_of_a_gpu_are_not_staged_where_nobody_asked_for_it() {
    let Some(double) = Double::with("gpus 2") else {
        return;
    };
    let line = "--op write --ranks 2 --memory cuda --memory-option alloc=vmm --sizes 8 --optional";
    let records = brief(
        &cuda(&double),
        &format!("--engine fabric:tcp,cuda-ipc {line}"),
    );
    assert_eq!(records.len(), 2, "{records:#?}");
    are_skipped(&records[..1], "--engine-option staging=pinned");
    // The driver cannot share this memory between processes.
    are_skipped(&records[1..], "alloc=malloc is shared between processes");
}
