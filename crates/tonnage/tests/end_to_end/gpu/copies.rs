//! Copies by a GPU within one process: over the simulated driver, on NVIDIA GPUs with `make test-gpu`, and without any
//! GPU.

use std::path::Path;

use tempfile::tempdir;
use tonnage_record::{Outcome, Record};

use super::drivers::TriedDriver;
use super::{Double, cuda, with};
use crate::support::records::{all_verified, are_skipped, body, summary, transfer, why_failed};
use crate::support::{BRIEF, records, rows, tonnage};

fn read(dir: &Path) -> Vec<Record> {
    records::read(&dir.join("r.jsonl"))
}

/// Tests copies between host and GPU (pageable and pinned), within one GPU, and between two GPUs. They use the copy
/// engines and the kernel. The number of ranks is the default.
#[test]
fn copies_between_all_sorts_of_memory_are_verified() {
    let Some(double) = Double::with("gpus 2") else {
        return;
    };
    for (arguments, points) in [
        (
            "cuda-pinned,host,cuda --target-memory cuda:1 --sizes 5003 --depth 4",
            6,
        ),
        (
            "cuda-pinned,cuda:1 --target-memory cuda --memory-option alloc=vmm --engine-option by=sm --sizes 777 --batch 3",
            4,
        ),
        (
            "cuda-pinned --target-memory cuda --sizes 4k --bidirectional --engine-option streams=3 --depth 7",
            2,
        ),
    ] {
        let line = format!("--engine cuda --op write,read --memory {arguments} --verify {BRIEF}");
        let (run, records) = transfer(&format!("{line} --library {}", cuda(&double)));
        assert_eq!(records.len(), points, "{arguments}");
        all_verified(&records);
        let is_mapped = arguments.contains("alloc=vmm");
        assert_eq!(run.stdout.contains("alloc=vmm"), is_mapped);
        for record in &records {
            let run_id = &records[0].run_id;
            assert_eq!(
                (body(record).point.roles.ranks, &record.run_id),
                (2, run_id)
            );
            let text = serde_json::to_string(&record.effective).unwrap();
            let are_threads = text.contains("\"ranks_are\":\"threads of one process\"");
            assert!(are_threads, "{text}");
            assert_eq!(text.contains("\"vmm: cuMemCreate"), is_mapped, "{text}");
        }
    }
}

/// The bound of two GPUs with NVLink is the link's nominal speed, if the management library reports it. The bound of
/// one GPU is its own copies. Tested in one process, and in two processes that share their GPUs. The driver starts only
/// once.
#[test]
fn copies_between_linked_gpus_are_bounded_by_their_links() {
    let links = "gpu 0000:1b:00.0\ngpu 0000:1c:00.0\nlinks 0 1 4\nlinks 1 0 4\nspeed 25000";
    let (Some(double), Some(management)) = (Double::with("gpus 2\nstarts 20"), Double::nvml(links))
    else {
        return;
    };
    for (engine, gpus) in [("cuda", "1,0"), ("cuda-ipc", "1,0"), ("cuda-ipc", "1")] {
        let dir = tempdir().unwrap();
        let arguments = format!(
            "transfer --engine {engine} --op write --ranks 2 --memory cuda --gpus {gpus} --sizes 512 --trials 2 \
             --trial-time 2ms --warmup 0s"
        );
        let run = tonnage(
            dir.path(),
            &format!("{arguments} --library {} -o r.jsonl", cuda(&double)),
        )
        .env("TONNAGE_LIBNVML", management.path())
        .succeed();
        let record = &read(dir.path())[0];
        assert!(
            body(record).driver_start_ns >= Some(20_000_000),
            "{record:?}"
        );
        let told = "ms, once in a process and outside of every measured interval";
        assert_eq!(run.stdout.matches(told).count(), 1, "{}", run.stdout);
        let bound = record.bound.as_ref().unwrap();
        let what = bound.what.as_str();
        if gpus == "1" {
            assert!(
                what.starts_with("memory copy by the GPU's cuMemcpyAsync"),
                "{what}"
            );
            continue;
        }
        // Both GPUs have the same number of links, so the text may name either.
        assert!(what.starts_with("link speed of cuda:"), "{what}");
        assert!(what.contains("), by NVLink, 4 links to cuda:"), "{what}");
        assert_eq!(bound.bytes_per_s, 100e9);
        let effective = serde_json::to_string(&record.effective).unwrap();
        let links = "\"bound_of_links\":\"NVLink, 4 links to cuda:0 (0000:1b:00.0)";
        assert!(effective.contains(links), "{effective}");
    }
}

/// With one pair at a time, the bound is one GPU's links to the switches, and not their total.
#[test]
fn pairs_that_take_turns_are_bounded_by_one_bundle_of_links() {
    let gpus = ["0000:1b:00.0", "0000:1c:00.0", "0000:1d:00.0"];
    let lines: Vec<String> = (0..)
        .zip(gpus)
        .map(|(n, at)| format!("gpu {at}\nswitch {n} 6"))
        .collect();
    let links = format!("{}\nspeed 25000", lines.join("\n"));
    let (Some(double), Some(management)) = (Double::with("gpus 3"), Double::nvml(&links)) else {
        return;
    };
    for (traffic, bytes_per_s) in [
        ("in-turn", 150e9),
        ("matrix", 150e9),
        ("fan-out", 150e9),
        ("all-to-all", 450e9),
    ] {
        let dir = tempdir().unwrap();
        let arguments = format!(
            "transfer --engine cuda --op write --memory cuda --gpus 0-2 --ranks 3 --traffic {traffic} --sizes 512 --trials 1 \
             --trial-time 1ms --warmup 0s"
        );
        tonnage(
            dir.path(),
            &format!("{arguments} --library {} -o r.jsonl", cuda(&double)),
        )
        .env("TONNAGE_LIBNVML", management.path())
        .succeed();
        let record = read(dir.path()).remove(0);
        let bound = record.bound.as_ref().map(|bound| bound.bytes_per_s);
        assert_eq!(bound, Some(bytes_per_s), "{traffic}: {record:#?}");
    }
}

/// The ranks that are processes wait during the points within one process. The next engine uses them.
#[test]
fn a_run_of_processes_has_points_within_one() {
    let Some(double) = Double::with("gpus 2") else {
        return;
    };
    let dir = tempdir().unwrap();
    let line =
        "verify --engine cuda,shm --op write,read --ranks 2 --sizes 1,4099 --gpus 1,0 -o r.jsonl";
    let line = format!("{line} --library {}", cuda(&double));
    tonnage(dir.path(), &line).succeed();
    let records = read(dir.path());
    assert_eq!(records.len(), 12);
    all_verified(&records);
    let (by_copies, by_shm): (Vec<_>, Vec<_>) = records
        .iter()
        .partition(|record| body(record).point.engine == "cuda");
    assert_eq!((by_copies.len(), by_shm.len()), (8, 4));
    for record in &by_copies {
        let own = match body(record).point.memories.memory.as_str() {
            "cuda" => "cuda:1 (0000:1c:00.0)",
            _ => "memory of the host, to cuda:0 (0000:1b:00.0)",
        };
        let devices = record
            .effective
            .iter()
            .map(|part| part.engine.device.as_deref());
        assert!(
            devices.eq([Some(own), Some("cuda:0 (0000:1b:00.0)")]),
            "{record:#?}"
        );
    }
    let pinned = by_copies
        .iter()
        .filter(|it| body(it).point.memories.memory == "cuda-pinned");
    assert_eq!(pinned.count(), 4);
}

/// Returns the wrong bytes that an error lists: offset, expected and found.
fn wrong_bytes(why: &str) -> Vec<(u64, u64, u64)> {
    let parts = why.split("at offset ").skip(1);
    let words = parts.map(|part| {
        let (offset, rest) = part.split_once(": expected ").unwrap();
        let (expected, found) = rest.split_once(", found ").unwrap();
        let word = |text: &str| u64::from_str_radix(&text[..16], 16).unwrap();
        (offset.parse().unwrap(), word(expected), word(found))
    });
    words.collect()
}

/// The second copy of the first batch goes wrong in one of three ways. A byte in its middle is flipped, its first two
/// blocks of 64 bytes are swapped, or nothing arrives. The message must name the offset.
#[test]
fn bytes_that_a_gpu_spoils_are_named_by_their_offset() {
    for (how, bytes, first, told_of) in [
        ("flip", 1, 4096 + 2048, 1),
        ("swap", 128, 4096, 4),
        ("stale", 4096, 4096, 4),
    ] {
        let Some(double) = Double::with(&format!("spoil {how} 2")) else {
            return;
        };
        let arguments = "transfer --engine cuda --op write --memory cuda-pinned --target-memory cuda --sizes 4096 --batch 4 \
                         --iters 1 --trials 1 --warmup 0s --bound none --verify";
        let (run, records) = with(&double, arguments);
        run.with_code(1);
        let why = why_failed(&records[0]);
        let words = wrong_bytes(why);
        let count = format!("{bytes} of 16384 bytes are wrong");
        assert!(why.contains(&count), "{how}: {why}");
        assert_eq!((words.len(), words[0].0), (told_of, first), "{how}: {why}");
        for (index, (offset, expected, found)) in (0..).zip(&words) {
            assert_eq!(*offset, first + 8 * index, "{how}: {why}");
            // If nothing arrived, the memory still has the filler, which is the inverted pattern.
            let as_it_is = match how {
                "flip" => (expected ^ found).count_ones() == 1,
                "swap" => (expected ^ found).count_ones() > 1 && *found != !expected,
                _ => *found == !expected,
            };
            assert!(as_it_is, "{how}: {why}");
        }
    }
}

/// A GPU fails in the second point. The error must name the GPU and the error code, and the record of the first point
/// must be kept.
#[test]
fn a_gpu_that_falls_off_ends_the_run_and_leaves_the_records() {
    let Some(double) = Double::with("fail cuMemcpyAsync 719 100") else {
        return;
    };
    let arguments = "transfer --engine cuda --op write --memory cuda-pinned --target-memory cuda --sizes 64,128,256 --depth 4 \
                     --iters 40 --trials 2 --warmup 0s --bound none";
    let (run, records) = with(&double, arguments);
    let error = "cuda:0 (Double of a GPU, 0000:1b:00.0): cuMemcpyAsync: an error (719)";
    run.with_code(1).saying(&[error, "Xid"]);
    assert_eq!(records[0].outcome, Outcome::Measured);
    assert!(why_failed(&records[1]).contains("(719)"), "{records:#?}");
}

/// A refusal must be a record that gives the reason and a solution.
#[test]
fn what_cannot_be_copied_is_skipped_by_name() {
    let refused = "
        gpus 2         => host,cuda-pinned                            => neither end | --target-memory cuda
        gpus 2         => host --target-memory cuda --engine-option by=sm => only if the driver has pinned it | by=ce
        gpus 2         => cuda --gpus 5,0                             => memory cuda on rank 0 | sees 2 GPUs
        peers 0        => cuda --gpus 0,1                             => cuda:0 cannot reach the memory of cuda:1 | nvidia-smi topo
        memory 2097152 => cuda --footprint 4M                         => bytes were requested | of 2097152 are free
    ";
    for [lines, memory, reason] in rows(refused) {
        let Some(double) = Double::with(lines) else {
            return;
        };
        let line = format!("--engine cuda --op write --sizes 64 --memory {memory} --optional");
        are_skipped(&super::brief(&cuda(&double), &line), reason);
    }
}

/// Returns the number of points of a plan in which only verbs and sizes are lists.
fn points(plan: &str) -> usize {
    let listed = |table: &str, key: &str| {
        let of_key = |line: &&str| line.starts_with(key);
        let line = table.lines().find(of_key).unwrap();
        line.matches(',').count() + 1
    };
    let tables = plan.split("[[transfer]]\n").skip(1);
    tables
        .map(|table| listed(table, "op = ") * listed(table, "sizes = "))
        .sum()
}

/// Runs the shipped plan. It is unmodified on a real GPU, but has smaller copies on the simulated driver, which has
/// little memory.
#[test]
fn the_page_of_a_node_is_measured_whole() {
    for driver in TriedDriver::all("") {
        let dir = tempdir().unwrap();
        let shipped = include_str!("../../../../../plans/gpu-node.toml");
        let brief = shipped
            .replace("\"64k,1M,16M,256M\"", "1024")
            .replace("\"16M,256M\"", "1024")
            .replace("\"64M\"", "1024")
            .replace("trial-time = \"200ms\"", "trials = 1\ntrial-time = \"1ms\"")
            .replace("trial-time = \"100ms\"", "trials = 1\ntrial-time = \"1ms\"");
        let plan = if driver.is_double() { &brief } else { shipped };
        std::fs::write(dir.path().join("p.toml"), plan).unwrap();
        let (ranks, last) = (driver.gpus + 1, driver.gpus - 1);
        let gpus = match last {
            0 => "0,0".to_owned(),
            last => format!("0,0-{last}"),
        };
        let arguments = format!("run p.toml --ranks {ranks} --gpus {gpus} -o r.jsonl");
        let run = driver.run(tonnage(dir.path(), &driver.with(&arguments)));
        let records = read(dir.path());
        assert_eq!(records.len(), points(plan));
        for record in &driver.reached(records) {
            assert_eq!(record.outcome, Outcome::Measured, "{run:#?}");
            assert_eq!(body(record).point.roles.ranks, ranks);
            assert!(body(record).driver_start_ns > Some(0), "{record:?}");
            // The bound must hold on a real GPU. With the simulated driver, it means nothing.
            let used = summary(record).utilization;
            assert!(
                driver.is_double() || used.is_none_or(|used| used <= 1.02),
                "{record:#?}"
            );
        }
        let has_grid = run.stdout.contains("matrix at ");
        assert!(has_grid || !driver.is_double(), "{run:#?}");
        let lines = [
            "  ranks 0-1  cuda:0 (0000:1b:00.0)\n",
            "  rank 2     cuda:1 (0000:1c:00.0)\n",
        ];
        for line in lines.iter().filter(|_| driver.is_double()) {
            assert!(run.stdout.contains(line), "{line}: {run:#?}");
        }
    }
}
