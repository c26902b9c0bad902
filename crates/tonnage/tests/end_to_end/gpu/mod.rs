//! Tests of GPUs: over the simulated drivers of `tonnage-sys`, on NVIDIA GPUs with `make test-gpu`, and without any
//! GPU.

use tempfile::tempdir;
use tonnage_record::Record;

use crate::support::records::{all_verified, are_skipped, recorded, transfer};
use crate::support::{BRIEF, Ended, has, tonnage};

mod copies;
#[path = "../../../../sys/tests/cuda/double.rs"]
mod double;
mod drivers;
mod hip;
mod ipc;

use double::Double;

/// Runs a transfer with a simulated driver or another library. It must succeed, but points may be skipped.
fn brief(library: &str, arguments: &str) -> Vec<Record> {
    transfer(&format!("{arguments} --library {library} {BRIEF}")).1
}

/// Runs a command with a simulated driver. Returns the ended run and its records.
fn with(double: &Double, arguments: &str) -> (Ended, Vec<Record>) {
    recorded(&format!("{arguments} --library {}", cuda(double)))
}

/// Returns the option for a simulated CUDA driver. The option for a simulated AMD runtime is [`amd`].
fn cuda(double: &Double) -> String {
    format!("libcuda={}", double.path().display())
}

fn amd(double: &Double) -> String {
    format!("libamdhip64={}", double.path().display())
}

/// Returns parts of the message about a missing driver, including how to get it.
fn lacking(library: &str) -> String {
    format!("the driver library cannot be loaded | --library {library}=PATH")
}

/// Returns the records as JSON.
fn json(records: &[Record]) -> String {
    serde_json::to_string(records).unwrap()
}

/// Returns the connection between two GPUs according to the page of devices. The page lists the machine's own GPUs as
/// well as simulated ones.
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
    let records = brief(
        &cuda(&double),
        "--engine shm,fabric:tcp --op write,read --ranks 2 --sizes 5000 --memory cuda-pinned --target-memory host \
         --depth 4 --verify",
    );
    assert_eq!(records.len(), 4);
    all_verified(&records);
    for record in &records {
        let text = serde_json::to_string(&record.effective).unwrap();
        has(
            &text,
            "\"kind\":\"cuda-pinned\" | \"device\":\"cuda:0 (Double of a GPU, 0000:1b:00.0)\"",
        );
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
    // A row of the page may continue on the next line.
    let line = row.lines().take(2).collect::<String>();
    let row = "Double of a GPU | 64 MiB | compute 9.0 | 0000:1c:00.0 | CUDA 12.4 | d1d1d1d1-";
    has(&line, row);
    // The simulated GPUs are not on a bus of this machine.
    // Lines of the page are wrapped.
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    has(
        &words,
        "4 links, 100.0 GB/s in each direction; peer access with native atomics, rank 0",
    );
    has(
        &words,
        "cuda:0, cuda:1: the driver does not know the question, which came with CUDA 11.7",
    );
    assert_eq!(way(&page, "cuda:0", "cuda:0"), "-", "{page}");
    for (from, to) in [("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")] {
        assert_eq!(way(&page, from, to), "NVLink x4", "{page}");
    }
    let json: serde_json::Value = serde_json::from_str(&asked("devices --json", &double)).unwrap();
    assert_eq!(json["cuda"][0]["memory_bytes"], 64 << 20);
    // Pairs of this machine's own GPUs may come first.
    let pairs = json["gpu_pairs"].as_array().unwrap();
    let is_first =
        |pair: &&serde_json::Value| pair["from"] == "0000:1b:00.0" && !pair["links"].is_null();
    let pair = pairs.iter().find(is_first).unwrap();
    assert_eq!(pair["pci"], "unknown");
    assert_eq!(pair["links"]["bytes_per_s"], 100_000_000_000_u64);
    let page = asked("devices", &old);
    assert!(page.contains("the driver supports CUDA 10.2"), "{page}");
}

#[test]
fn memory_of_a_gpu_is_refused_by_engines_of_the_cpu() {
    let Some(double) = Double::with("") else {
        return;
    };
    let records = brief(
        &cuda(&double),
        "--engine shm,fabric:tcp --op write --ranks 2 --sizes 8 --memory cuda:1 --optional",
    );
    let of_shm = "memory cuda with engine shm | the CPU, which cannot address this memory";
    are_skipped(&records[..1], of_shm);
    let of_fabric = "memory cuda:1 with engine fabric:tcp | does not register device memory (FI_HMEM) | staging=pinned";
    are_skipped(&records[1..], of_fabric);
}

/// Each point must be one skip that names the software to install. A missing driver must be one issue for all points.
#[test]
fn a_machine_without_a_driver_reports_what_to_install() {
    let nowhere = "/nonexistent/lib.so.1";
    for engine in [
        "shm --memory cuda",
        "shm --memory cuda-pinned",
        "cuda-ipc --memory cuda",
        "fabric:tcp --engine-option staging=pinned --memory cuda",
    ] {
        let line = format!("--engine {engine} --op write --ranks 2 --sizes 8 --optional");
        let records = brief(&format!("libcuda={nowhere}"), &line);
        are_skipped(&records, &lacking("libcuda"));
    }
    let engines = "--engine hip,hip-ipc --op write --ranks 2 --sizes 8 --memory hip --optional";
    let records = brief(&format!("libamdhip64={nowhere}"), engines);
    are_skipped(&records, &lacking("libamdhip64"));
    let (run, records) = recorded(&format!(
        "transfer --engine cuda --op write,read --memory cuda-pinned --target-memory cuda --sizes 64..256M*16 \
         --library libcuda={nowhere}"
    ));
    run.with_code(2).saying(&["Install NVIDIA's driver"]);
    // The run has two operations at six sizes.
    assert_eq!(records.len(), 12);
    are_skipped(&records, "");
}
