//! Memories and engines of AMD's GPUs, over the double of their runtime, which carries out the kernels' own text; and
//! what is said where there is no runtime. Nothing here has seen a GPU.

use std::path::Path;

use tempfile::tempdir;
use tonnage_record::{Outcome, Record};

use super::gpu_ipc::all_verified;
use super::gpu_memory::{Double, reason};
use super::support::{BRIEF, records, tonnage};

/// The records of a transfer with a library of AMD's runtime.
fn measured(arguments: &str, library: &Path) -> Vec<Record> {
    let dir = tempdir().unwrap();
    let library = library.display();
    let arguments =
        format!("transfer {arguments} --library libamdhip64={library} {BRIEF} -o r.jsonl");
    let run = tonnage(dir.path(), &arguments).succeed();
    records::shown(dir.path(), "r.jsonl", &run, "table")
}

/// By copy engines and by the kernel, between all sorts of memory. What another maker's driver has pinned is memory of
/// the host to this one; memory of its GPUs is refused.
#[test]
fn copies_of_amds_gpus_are_verified() {
    let (Some(double), Some(other)) = (Double::hip("gpus 2"), Double::with("")) else {
        return;
    };
    let by_engines = measured(
        &format!(
            "--engine hip --op write,read --memory hip-pinned,host,hip,cuda-pinned,cuda --target-memory hip:1 \
             --sizes 5003 --window 4 --verify --optional --library libcuda={}",
            other.path().display()
        ),
        &double.path(),
    );
    let (skipped, copied): (Vec<_>, Vec<_>) = by_engines
        .into_iter()
        .partition(|record| matches!(record.outcome, Outcome::Skipped { .. }));
    all_verified(&copied);
    assert_eq!((copied.len(), skipped.len()), (8, 2));
    // Copies of this runtime are not those of copy engines alone.
    let told = serde_json::to_string(&copied).unwrap();
    assert!(
        told.contains("\"hipMemcpyAsync, whose runtime chooses"),
        "{told}"
    );
    for record in &skipped {
        let why = reason(record);
        assert!(why.contains("memory cuda with engine hip"), "{why}");
        assert!(why.contains("Choose --memory hip, hip-pinned or"), "{why}");
    }
    let by_kernel = measured(
        "--engine hip --op write,read --memory hip-pinned --target-memory hip --gpus 0,1 --sizes 777 \
         --engine-option by=sm --bidirectional --verify",
        &double.path(),
    );
    all_verified(&by_kernel);
    let told = serde_json::to_string(&by_kernel).unwrap();
    for part in [
        "\"version\":\"HIP 6.3\"",
        "a kernel of the GPU",
        "\"device\":\"hip:1 (0000:1c:00.0)\"",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// The runtime does not promise the order that words behind data need, so that the CPU tells what arrived.
#[test]
fn memory_of_another_process_is_reached_by_amds_gpus() {
    let Some(double) = Double::hip("gpus 2") else {
        return;
    };
    let records = measured(
        "--engine hip-ipc --op write-imm,read --ranks 2 --memory hip --target-memory hip:1 --sizes 7001 --window 4 --verify",
        &double.path(),
    );
    assert_eq!(records.len(), 2);
    all_verified(&records);
    let told = serde_json::to_string(&records).unwrap();
    for part in [
        "hip:0 (Double of a GPU, 0000:1b:00.0) and GPU bbbbbbbbbbbbbbbb",
        "told by the CPU, when it sees the copy done: HIP has nothing in the place of cuStreamWriteValue64_v2",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn amds_gpus_are_listed_or_missed_by_name() {
    let dir = tempdir().unwrap();
    if let Some(double) = Double::hip("gpus 2") {
        let asked = tonnage(dir.path(), "devices").env("TONNAGE_LIBAMDHIP64", double.path());
        let page = asked.succeed().stdout;
        let row = page.split("\n  hip:1  ").nth(1);
        let row = row.unwrap_or_else(|| panic!("{page}"));
        // A row of the page may go on below.
        let line = row.lines().take(2).collect::<String>();
        for part in [
            "Double of a GPU",
            "64 MiB",
            "gfx90a",
            "0000:1c:00.0",
            "HIP 6.3",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    let missing = Path::new("/nonexistent/libamdhip64.so.6");
    let engines = "--engine hip,hip-ipc --op write --ranks 2 --sizes 8 --memory hip --optional";
    for record in measured(engines, missing) {
        let why = reason(&record);
        assert!(why.contains("the driver library cannot be loaded"), "{why}");
        assert!(why.contains("--library libamdhip64=PATH"), "{why}");
    }
}
