//! An engine over memory that the CPU cannot access, such as a device's memory. The tests cover the whole path, from
//! filling the memory to the report.
//!
//! The memory keeps its bytes where only its owner can access them ([`Memory::host`] is `None`). Any loop, check or
//! bound that assumes host memory therefore fails here. The engine asks the memories to move bytes, and it supports
//! sleeping. Memory of a GPU takes the same path, over a simulated driver.

#[path = "../../../sys/tests/cuda/double.rs"]
mod double;

use tonnage_engine::memory::Request;
use tonnage_engine::{OpenRequest, WorkerConfig};
use tonnage_machine::CpuChoice;
use tonnage_plan::Planned;
use tonnage_record::{Outcome, Record};
use tonnage_sys::clock::Clock;
use tonnage_units::{Error, Result};

use crate::far::{self, LISTS};
use crate::runs::{Run, over};

fn planned(lines: &str) -> Result<Vec<Planned>> {
    let table = format!(
        "[[transfer]]\nengine = 'far'\nmemory = 'far'\nsizes = [8, 4096]\ntrials = 2\ntrial-time = '20ms'\n\
         warmup = '5ms'\n{lines}"
    );
    pinned().points(2, &table)
}

fn pinned() -> Run {
    Run {
        cpus: CpuChoice::Auto,
        ..over(LISTS)
    }
}

/// Returns rank 0's records in a run of two ranks.
fn records(lines: &str) -> Vec<Record> {
    pinned().records(2, planned(lines).unwrap()).unwrap()
}

fn is_verified(record: &Record) -> bool {
    let mut trials = record.transfer().unwrap().trials.iter();
    trials.all(|trial| trial.verified_bytes > Some(0))
}

#[test]
fn every_byte_is_filled_moved_verified_and_reported() {
    // Plain writes are visible only after the target has flushed them. This must also work over the library.
    for op in [
        "write",
        "write-imm",
        "read",
        "send",
        "write'\napi = 'poll",
        "write-imm'\ncq = 'event",
    ] {
        let records = records(&format!("op = '{op}'\ndepth = 4\nverify = true"));
        assert_eq!(records.len(), 2, "{op}");
        for record in &records {
            assert_eq!(record.outcome, Outcome::Measured, "{op}");
            assert!(is_verified(record), "{op}");
            let memory = &record.effective[0].memory.all()[0];
            assert_eq!(memory.kind, "far");
            assert_eq!(memory.device.as_deref(), Some("far0"));
        }
        let csv = tonnage_report::render(tonnage_report::Format::Csv, &records).unwrap();
        assert!(csv.lines().nth(1).unwrap().contains("far"), "{csv}");
        let table = tonnage_report::render(tonnage_report::Format::Table, &records).unwrap();
        assert!(table.contains("far memory"), "{table}");
    }
}

/// The flush of a target is part of the measured interval, in each trial of plain writes. Other verbs need no flush.
#[test]
fn a_targets_flush_is_in_the_measured_interval_of_plain_writes() {
    for (op, is_flushed) in [("write", true), ("write-imm", false)] {
        let table = format!(
            "[[transfer]]\nengine = 'far'\nmemory = 'far'\nop = '{op}'\nsizes = 8\ndepth = 1\niters = 1\n\
             trials = 3\nwarmup = '1ms'\nbound = 'none'"
        );
        let records = pinned().tables(2, &table).unwrap();
        let trials = &records[0].transfer().unwrap().trials;
        assert_eq!(trials.len(), 3);
        for trial in trials {
            let flush_ns = trial.target_flush_ns.unwrap_or(0);
            assert_eq!(
                flush_ns >= far::LANDING.as_nanos() as u64,
                is_flushed,
                "{trial:?}"
            );
            assert_eq!(trial.target_flush_ns.is_some(), is_flushed, "{trial:?}");
            // The write itself takes a few more microseconds.
            assert!(trial.window_ns > flush_ns, "{trial:?}");
            let seconds = trial.window_ns as f64 / 1e9;
            assert_eq!(trial.bandwidth_bytes_per_s, 8.0 / seconds);
        }
    }
}

#[test]
fn the_bound_is_measured_by_the_memory_itself() {
    let records = records("op = 'write'\ndepth = 4");
    let bounds = records.iter().filter_map(|record| record.bound.as_ref());
    let bounds: Vec<_> = bounds.map(|bound| bound.what.as_str()).collect();
    // If workers share CPUs, there is no bound.
    let yielding = records[0].effective.iter().any(|ranks| ranks.yielding);
    if yielding {
        println!(
            "skip: the bound is not measured where threads share CPUs; run this on two CPUs or more"
        );
    }
    let expected = if yielding { 0 } else { 2 };
    assert_eq!(bounds.len(), expected, "{bounds:?}");
    assert!(
        bounds
            .iter()
            .all(|what| what.starts_with("memory copy by far copy"))
    );
}

/// Returns a run over a simulated GPU driver.
fn with_driver(double: &double::Double) -> Run {
    Run {
        libraries: [("libcuda".to_owned(), double.path())].into(),
        ..over(LISTS)
    }
}

/// First one end has GPU memory, then both. Kernels of the GPU fill and verify the bytes.
#[test]
fn memory_of_a_gpu_takes_the_whole_path() {
    let Some(double) = double::Double::with("gpus 2") else {
        return;
    };
    let table = "[[transfer]]\nengine = 'far'\nmemory = ['cuda:1', 'host']\ntarget-memory = 'cuda'\n\
                op = ['write', 'write-imm', 'read', 'send']\nsizes = [8, 5000]\ndepth = 4\nverify = true\n\
                trials = 2\ntrial-time = '10ms'\nwarmup = '2ms'";
    let records = with_driver(&double).tables(2, table).unwrap();
    assert_eq!(records.len(), 16);
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured);
        assert!(is_verified(record));
        let memories = record.effective.iter().flat_map(|part| part.memory.all());
        let gpus = memories.filter(|memory| memory.kind == "cuda");
        let gpus: Vec<_> = gpus.collect();
        assert!(!gpus.is_empty() && gpus.iter().all(|gpu| gpu.why_filled_by_copies.is_none()));
    }
    let table = tonnage_report::render(tonnage_report::Format::Table, &records).unwrap();
    assert!(table.contains("cuda:1 memory"), "{table}");
}

/// The simulated driver rejects kernels. Bytes must nevertheless be right, and the table must name the method that was
/// used instead.
#[test]
fn a_gpu_that_is_filled_by_copies_is_named_below_the_table() {
    let Some(double) = double::Double::with("ptx 0") else {
        return;
    };
    let table = "[[transfer]]\nengine = 'far'\nmemory = 'host'\ntarget-memory = 'cuda'\nop = 'write'\n\
                sizes = [8, 5000]\ndepth = 4\nverify = true\ntrials = 2\ntrial-time = '5ms'\nwarmup = '1ms'";
    let records = with_driver(&double).tables(2, table).unwrap();
    let measured = records
        .iter()
        .all(|record| record.outcome == Outcome::Measured);
    assert!(measured && records.len() == 2, "{records:?}");
    let table = tonnage_report::render(tonnage_report::Format::Table, &records).unwrap();
    let words: Vec<_> = table.split_whitespace().collect();
    let said = "memory of cuda:0 (Double of a GPU, 0000:1b:00.0) is filled and verified by copies through the host";
    assert_eq!(words.join(" ").matches(said).count(), 1, "{table}");
    assert!(table.contains("CUDA_ERROR_INVALID_PTX"), "{table}");
}

#[test]
fn an_operation_that_the_cpu_must_watch_is_refused() {
    let refused = planned("op = 'write'\nping-pong = true").unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("the CPU cannot read memory far"), "{said}");
    let answered = records("op = 'write-imm'\nping-pong = true");
    assert!(
        answered
            .iter()
            .all(|record| record.outcome == Outcome::Measured)
    );
    let request = Request {
        bytes: 4096,
        ..Request::default()
    };
    let memory = (LISTS.memories[0].allocate)(&request).unwrap();
    let config = WorkerConfig {
        rank: 0,
        worker: 0,
        peers_max: 1,
        depth: 8,
        queue_pairs: 1,
        sleeps: false,
        clock: Clock::new(),
    };
    let shm = (tonnage_engines::shm::ENTRY.open)(&OpenRequest::default()).unwrap();
    let error = shm[0]
        .worker(&config)
        .unwrap()
        .register(&memory)
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("--memory host"), "{error}");
}
