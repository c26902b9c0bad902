//! Memories of GPUs: over the double of the driver that is beside the tests of `tonnage-sys`, and where there is none.

use std::fs;

use tempfile::tempdir;
use tonnage_record::{Outcome, Record};
use tonnage_report::Format;

use super::support::records::{body, why};
use super::support::{BRIEF, records, tonnage};

#[path = "../../../sys/tests/cuda/double.rs"]
pub mod double;

pub use double::Double;

/// Arguments of a transfer with a library of the driver.
pub fn transfer(arguments: &str, library: &str) -> String {
    format!("transfer {arguments} --library libcuda={library} {BRIEF} -o r.jsonl")
}

/// The point was skipped for want of a driver, and it says what to do.
pub fn lacks_its_driver(record: &Record, library: &str) {
    let why = why(record);
    assert!(why.contains("the driver library cannot be loaded"), "{why}");
    assert!(why.contains(&format!("--library {library}=PATH")), "{why}");
}

/// The way from one GPU to another on the page of devices, where this machine's own stand beside those of a double.
pub fn way(page: &str, from: &str, to: &str) -> String {
    let table = page.split("\nGPU to GPU\n").nth(1);
    let table = table.unwrap_or_else(|| panic!("{page}"));
    let cells = |line: &'_ str| -> Vec<String> {
        let cells = line.split("  ").map(str::trim);
        let cells = cells.filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect()
    };
    let mut rows = table.lines().map(cells);
    let heads = rows.next().unwrap_or_default();
    let column = heads.iter().position(|head| head == to);
    let row = rows.find(|row| row.first().is_some_and(|head| head == from));
    let cell = column
        .zip(row)
        .and_then(|(column, row)| row.get(column + 1).cloned());
    cell.unwrap_or_else(|| panic!("{from} {to}: {page}"))
}

#[test]
fn memory_that_a_driver_pinned_is_moved_and_verified() {
    let Some(double) = Double::with("") else {
        return;
    };
    let dir = tempdir().unwrap();
    let library = double.path();
    let arguments = transfer(
        "--engine shm,fabric:tcp --op write,read --ranks 2 --sizes 5000 --memory cuda-pinned --target-memory host \
         --window 4 --verify",
        library.to_str().unwrap(),
    );
    let run = tonnage(dir.path(), &arguments).succeed();
    let records = records::shown(dir.path(), "r.jsonl", &run, Format::Table);
    assert_eq!(records.len(), 4);
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured);
        let mut verified = body(record).trials.iter().map(|trial| trial.verified_bytes);
        assert!(verified.all(|bytes| bytes > Some(0)), "{record:#?}");
        let text = serde_json::to_string(&record.effective).unwrap();
        for part in [
            "\"kind\":\"cuda-pinned\"",
            "\"device\":\"cuda:0 (Double of a GPU, 0000:1b:00.0)\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn devices_are_listed_by_the_names_that_memory_takes() {
    let (Some(double), Some(old)) = (Double::with("gpus 2"), Double::old("version 10020")) else {
        return;
    };
    let links = "gpu 0000:1b:00.0\ngpu 0000:1c:00.0\nlinks 0 1 4\nlinks 1 0 4\nspeed 25000";
    let Some(management) = Double::nvml(links) else {
        return;
    };
    let dir = tempdir().unwrap();
    let asked = |arguments: &str, double: &Double| {
        let run = tonnage(dir.path(), arguments)
            .env("TONNAGE_LIBCUDA", double.path())
            .env("TONNAGE_LIBNVML", management.path());
        run.succeed().stdout
    };
    let page = asked("devices", &double);
    let row = page.split("\n  cuda:1  ").nth(1);
    let row = row.unwrap_or_else(|| panic!("{page}"));
    // A row of the page may go on below.
    let line = row.lines().take(2).collect::<String>();
    for part in [
        "Double of a GPU",
        "64 MiB",
        "compute 9.0",
        "0000:1c:00.0",
        "CUDA 12.4",
        "d1d1d1d1-",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    // The GPUs of the double are on no bus here.
    for part in [
        "4 links, 100.0 GB/s in each direction; peer access with native atomics, rank 0\n",
        "cuda:0, cuda:1: the driver does not know the question, which came with CUDA 11.7",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for (from, to, expected) in [
        ("cuda:0", "cuda:0", "-"),
        ("cuda:0", "cuda:1", "NVLink x4"),
        ("cuda:1", "cuda:0", "NVLink x4"),
    ] {
        assert_eq!(way(&page, from, to), expected, "{page}");
    }
    let json: serde_json::Value = serde_json::from_str(&asked("devices --json", &double)).unwrap();
    assert_eq!(json["cuda"][0]["memory_bytes"], 64 << 20);
    // Those of this machine may come first.
    let pairs = json["gpu_pairs"].as_array().unwrap();
    let is_first =
        |pair: &&serde_json::Value| pair["from"] == "0000:1b:00.0" && !pair["links"].is_null();
    let pair = pairs.iter().find(is_first).unwrap();
    assert_eq!(pair["pci"], "unknown");
    assert_eq!(pair["links"]["bytes_per_s"], 100_000_000_000_u64);
    let page = asked("devices", &old);
    assert!(page.contains("the driver serves CUDA 10.2"), "{page}");
}

#[test]
fn memory_of_a_gpu_is_refused_by_engines_of_the_cpu() {
    let Some(double) = Double::with("") else {
        return;
    };
    let dir = tempdir().unwrap();
    let library = double.path();
    let arguments = transfer(
        "--engine shm,fabric:tcp --op write --ranks 2 --sizes 8 --memory cuda:1 --optional",
        library.to_str().unwrap(),
    );
    tonnage(dir.path(), &arguments).succeed();
    for record in records::read(&dir.path().join("r.jsonl")) {
        let why = why(&record);
        let is_shm = why.contains("memory cuda with engine shm")
            && why.contains("the CPU, which cannot address this memory");
        let is_fabric = why.contains("memory cuda:1 with engine fabric:tcp")
            && why.contains("does not register memory of devices (FI_HMEM)")
            && why.contains("staging=pinned");
        assert!(is_shm || is_fabric, "{why}");
    }
}

#[test]
fn a_machine_without_a_driver_says_what_to_install() {
    let dir = tempdir().unwrap();
    for memory in ["cuda", "cuda-pinned"] {
        let arguments = transfer(
            &format!("--engine shm --op write --ranks 2 --sizes 8 --memory {memory} --optional"),
            "/nonexistent/libcuda.so.1",
        );
        tonnage(dir.path(), &arguments).succeed();
        let record = records::read(&dir.path().join("r.jsonl")).remove(0);
        lacks_its_driver(&record, "libcuda");
        fs::remove_file(dir.path().join("r.jsonl")).unwrap();
    }
}
