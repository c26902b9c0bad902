//! Memories and engines of AMD GPUs, over a simulated runtime that executes the kernels' source, and messages without a
//! runtime. None of this has run on a real GPU.

use std::collections::BTreeSet;

use tempfile::tempdir;
use tonnage_record::Outcome;

use super::{Double, amd, brief, cuda, json, way};
use crate::support::records::{all_verified, are_skipped, body};
use crate::support::{has, records, tonnage};

/// Tests copies by copy engines and by the kernel, between all kinds of memory. Memory that another vendor's driver has
/// pinned must count as host memory. Memory of another vendor's GPUs must be refused.
#[test]
fn copies_of_amds_gpus_are_verified() {
    let (Some(double), Some(other)) = (Double::hip("gpus 2"), Double::with("")) else {
        return;
    };
    let (amd, cuda) = (amd(&double), cuda(&other));
    let by_engines = brief(
        &amd,
        &format!(
            "--engine hip --op write,read --memory hip-pinned,host,hip,cuda-pinned,cuda --target-memory hip:1 \
             --sizes 5003 --depth 4 --verify --optional --library {cuda}"
        ),
    );
    let (skipped, copied): (Vec<_>, Vec<_>) = by_engines
        .into_iter()
        .partition(|record| matches!(record.outcome, Outcome::Skipped { .. }));
    all_verified(&copied);
    assert_eq!((copied.len(), skipped.len()), (8, 2));
    are_skipped(
        &skipped,
        "memory cuda with engine hip | Choose --memory hip, hip-pinned or",
    );
    // This runtime may copy with other means than copy engines.
    has(&json(&copied), "\"hipMemcpyAsync, whose runtime chooses");
    // Copies by CUDA GPUs must refuse AMD's memories too.
    let line = "--engine cuda --op write --memory hip --target-memory cuda --sizes 64 --optional";
    let others = brief(&amd, &format!("{line} --library {cuda}"));
    are_skipped(&others, "memory hip with engine cuda");
    let by_kernel = brief(
        &amd,
        "--engine hip --op write,read --memory hip-pinned,hip --target-memory hip --gpus 0,1 --sizes 777 \
         --engine-option by=sm --bidirectional --memory-option alloc=vmm --verify",
    );
    all_verified(&by_kernel);
    assert_eq!(by_kernel.len(), 4);
    let told = json(&by_kernel);
    has(
        &told,
        "\"version\":\"HIP 6.3\" | a kernel of the GPU | \"device\":\"hip:1 (0000:1c:00.0)\"",
    );
    has(
        &told,
        "vmm: hipMemCreate and hipMemMap, in granules of 2097152 bytes",
    );
}

/// A flag behind data needs an order that the runtime does not guarantee. The CPU therefore reports arrivals.
#[test]
fn memory_of_another_process_is_reached_by_amds_gpus() {
    let Some(double) = Double::hip("gpus 2") else {
        return;
    };
    let line = "--engine hip-ipc --op write-imm,read --ranks 2 --memory hip --target-memory hip:1 --sizes 7001 --depth 4";
    let records = brief(&amd(&double), &format!("{line} --verify"));
    assert_eq!(records.len(), 2);
    all_verified(&records);
    let told = json(&records);
    has(
        &told,
        "hip:0 (Double of a GPU, 0000:1b:00.0) and GPU bbbbbbbbbbbbbbbb | reported by the CPU, when it sees",
    );
    has(
        &told,
        "the copy done: HIP's hipStreamWriteValue64 is not used: it is marked beta",
    );
}

/// When memory is opened, the runtime does not check whether the GPUs are connected. The engines check this first, and
/// refuse with their own message. If connected GPUs still cannot open memory, the error code must come with advice.
#[test]
fn gpus_of_amd_without_a_way_between_them_are_refused() {
    let no_way =
        "hipDeviceCanAccessPeer: hip:0 cannot reach the memory of hip:1 | rocm-smi --showtopo";
    let refused = "hipIpcOpenMemHandle: hipErrorInvalidDevicePointer (17) | rocm-smi --showtopo";
    for (peers, engines, count, why) in [
        ("peers 0", "hip,hip-ipc", 2, no_way),
        ("peers 2", "hip-ipc", 1, refused),
    ] {
        let Some(double) = Double::hip(&format!("gpus 2\n{peers}")) else {
            return;
        };
        let line = "--op write --ranks 2 --memory hip --target-memory hip:1 --sizes 64 --optional";
        let records = brief(&amd(&double), &format!("--engine {engines} {line}"));
        assert_eq!(records.len(), count);
        are_skipped(&records, why);
    }
}

/// With an AMD engine, `verify` must test memories of AMD GPUs.
#[test]
fn verify_takes_the_memory_of_amds_gpus() {
    let Some(double) = Double::hip("memory 268435456\ngpus 2") else {
        return;
    };
    let dir = tempdir().unwrap();
    let run = tonnage(
        dir.path(),
        "verify --engine hip,hip-ipc --op write,read --ranks 2 --sizes 4097 -o r.jsonl",
    );
    run.env("TONNAGE_LIBAMDHIP64", double.path()).succeed();
    let records = records::read(&dir.path().join("r.jsonl"));
    all_verified(&records);
    let memories = records
        .iter()
        .map(|record| body(record).point.memories.memory.as_str());
    let memories: BTreeSet<&str> = memories.collect();
    assert_eq!(memories, BTreeSet::from(["hip", "hip-pinned"]));
}

/// On a queue error, the runtime aborts the process. The rank's death must be reported, and records of earlier points
/// must be kept, even if there is only one process.
#[test]
fn a_gpu_of_amd_that_falls_off_ends_the_run_and_leaves_the_records() {
    // With the engine `hip`, ranks are threads of one process.
    for (engine, ranks) in [("hip-ipc", "--ranks 2"), ("hip", "")] {
        let Some(double) = Double::hip("fail hipMemcpyAsync -6 100") else {
            return;
        };
        let dir = tempdir().unwrap();
        let arguments = format!(
            "transfer --engine {engine} --op write {ranks} --memory hip --sizes 64,128,256 --depth 4 --iters 40 --trials 2 \
             --warmup 0s --bound none --library {} -o r.jsonl",
            amd(&double)
        );
        let run = tonnage(dir.path(), &arguments).run().with_code(1);
        run.saying(&["rank 0 on", "killed by signal 6"]);
        let records = records::read(&dir.path().join("r.jsonl"));
        assert_eq!(records[0].outcome, Outcome::Measured, "{engine}");
    }
}

#[test]
fn amds_gpus_are_listed_by_name() {
    let dir = tempdir().unwrap();
    let Some(double) = Double::hip("gpus 2") else {
        return;
    };
    let asked = tonnage(dir.path(), "devices").env("TONNAGE_LIBAMDHIP64", double.path());
    let page = asked.succeed().stdout;
    let row = page.split("\n  hip:1  ").nth(1);
    let row = row.unwrap_or_else(|| panic!("{page}"));
    // A row of the page may continue on the next line.
    let line = row.lines().take(2).collect::<String>();
    has(
        &line,
        "Double of a GPU | 64 MiB | gfx90a | 0000:1c:00.0 | HIP 6.3",
    );
    assert_eq!(way(&page, "hip:0", "hip:0"), "-");
    assert_ne!(way(&page, "hip:0", "hip:1"), "-");
}
