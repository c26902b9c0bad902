//! An engine over memory that the CPU cannot address, as that of a device: the whole path from filling to the report.
//!
//! The memory keeps its bytes where nobody outside can reach them ([`Memory::host`] is `None`), so that a loop, a check
//! or a limit that takes host memory for granted fails here. The engine moves bytes between such memories by asking
//! them, and can be slept for. Memory of a GPU goes the same way, over the double of its driver.
#![cfg(test)]

#[path = "../../sys/tests/cuda/double.rs"]
mod double;
mod far;
mod runs;

use std::os::fd::BorrowedFd;

use far::{ENGINES, LISTS};
use tonnage_engine::memory::Request;
use tonnage_engine::{
    Arm, Completion, Ending, LaneKind, LaneSpec, Neighbor, Op, OpenRequest, Verb, WorkerConfig,
};
use tonnage_machine::CpuChoice;
use tonnage_plan::{Plan, Planned};
use tonnage_record::{Body, Outcome, Record};
use tonnage_sys::clock::Clock;
use tonnage_units::{Error, Result};

/// Sleeps until a descriptor is readable.
fn sleep(descriptor: BorrowedFd<'_>) -> Result<()> {
    let mut wait = [rustix::event::PollFd::new(
        &descriptor,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut wait, None)
        .map(|_| ())
        .map_err(|error| Error::Failed(error.to_string()))
}

fn planned(lines: &str) -> Result<Vec<Planned>> {
    let text = format!(
        "name = 'far'\n[[transfer]]\nengine = 'far'\nmemory = 'far'\nranks = 2\nsizes = [8, 4096]\n\
         trials = 2\ntrial-time = '20ms'\nwarmup = '5ms'\n{lines}"
    );
    Plan::from_toml(&text.replace("ranks = 2\n", ""), "far.toml")?.points(2, &LISTS)
}

/// Records of rank 0 of two.
fn records(lines: &str) -> Result<Vec<Record>> {
    runs::records(2, planned(lines)?, LISTS, CpuChoice::Auto)
}

#[test]
fn every_byte_is_filled_moved_verified_and_reported() {
    // Plain writes land when their target flushes them, and no sooner; the library over the engine does it, too.
    for op in ["write", "write-imm", "read", "send", "write'\napi = 'poll"] {
        let records = records(&format!("op = '{op}'\nwindow = 4\nverify = true")).unwrap();
        assert_eq!(records.len(), 2, "{op}");
        for record in &records {
            assert_eq!(record.outcome, Outcome::Measured, "{op}");
            let Body::Transfer(body) = &record.body else {
                panic!("{op}: {:?}", record.body);
            };
            let trials = &body.trials;
            let verified = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes > 0);
            assert!(
                trials.iter().all(|trial| verified(trial.verified_bytes)),
                "{op}"
            );
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

/// A target's wait is part of the window, in each trial of plain writes and in none of another verb.
#[test]
fn a_flush_at_the_target_is_in_the_window_of_plain_writes() {
    for (op, is_flushed) in [("write", true), ("write-imm", false)] {
        let text = format!(
            "name = 'far'\n[[transfer]]\nengine = 'far'\nmemory = 'far'\nop = '{op}'\nsizes = 8\nwindow = 1\niters = 1\n\
             trials = 3\nwarmup = '1ms'\nlimit = 'none'"
        );
        let planned = Plan::from_toml(&text, "far.toml")
            .unwrap()
            .points(2, &LISTS);
        let records = runs::records(2, planned.unwrap(), LISTS, CpuChoice::Auto).unwrap();
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
            // The write itself is a few microseconds of it.
            assert!(trial.window_ns > flush_ns, "{trial:?}");
            let seconds = trial.window_ns as f64 / 1e9;
            assert_eq!(trial.bandwidth_bytes_per_s, 8.0 / seconds);
        }
    }
}

#[test]
fn the_limit_is_what_the_memory_says_of_itself() {
    let records = records("op = 'write'\nwindow = 4").unwrap();
    let limits = records.iter().filter_map(|record| record.limit.as_ref());
    let limits: Vec<_> = limits.map(|limit| limit.what.as_str()).collect();
    // Workers that share CPUs have none.
    let yielding = records[0].effective.iter().any(|ranks| ranks.yielding);
    if yielding {
        println!(
            "skip: the limit is not measured where workers share CPUs; run this on two CPUs or more"
        );
    }
    let expected = if yielding { 0 } else { 2 };
    assert_eq!(limits.len(), expected, "{limits:?}");
    assert!(
        limits
            .iter()
            .all(|what| what.starts_with("memory copy by far copy"))
    );
}

/// A run over a double of the driver of GPUs.
fn over(double: &double::Double) -> runs::Run {
    runs::Run {
        libraries: [("libcuda".to_owned(), double.path())].into(),
        ..runs::Run::default()
    }
}

/// Memory of a GPU at one end and at both, whose bytes its kernels fill and verify.
#[test]
fn memory_of_a_gpu_goes_the_whole_path() {
    let Some(double) = double::Double::with("gpus 2") else {
        return;
    };
    let text = "name = 'gpu'\n[[transfer]]\nengine = 'far'\nmemory = ['cuda:1', 'host']\ntarget-memory = 'cuda'\n\
                op = ['write', 'write-imm', 'read', 'send']\nsizes = [8, 5000]\nwindow = 4\nverify = true\n\
                trials = 2\ntrial-time = '10ms'\nwarmup = '2ms'";
    let planned = Plan::from_toml(text, "gpu.toml").unwrap().points(2, &LISTS);
    let records = over(&double).records(2, planned.unwrap(), LISTS).unwrap();
    assert_eq!(records.len(), 16);
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured);
        let Body::Transfer(body) = &record.body else {
            panic!("{:?}", record.body);
        };
        let verified = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes > 0);
        assert!(
            body.trials
                .iter()
                .all(|trial| verified(trial.verified_bytes))
        );
        let memories = record.effective.iter().flat_map(|part| part.memory.all());
        let gpus = memories.filter(|memory| memory.kind == "cuda");
        let gpus: Vec<_> = gpus.collect();
        assert!(!gpus.is_empty() && gpus.iter().all(|gpu| gpu.why_filled_by_copies.is_none()));
    }
    let table = tonnage_report::render(tonnage_report::Format::Table, &records).unwrap();
    assert!(table.contains("cuda:1 memory"), "{table}");
}

/// The driver of this double takes no kernels: the bytes are right all the same, and the table says what was done.
#[test]
fn a_gpu_that_is_filled_by_copies_is_named_below_the_table() {
    let Some(double) = double::Double::with("ptx 0") else {
        return;
    };
    let text = "name = 'gpu'\n[[transfer]]\nengine = 'far'\nmemory = 'host'\ntarget-memory = 'cuda'\nop = 'write'\n\
                sizes = [8, 5000]\nwindow = 4\nverify = true\ntrials = 2\ntrial-time = '5ms'\nwarmup = '1ms'";
    let planned = Plan::from_toml(text, "gpu.toml").unwrap().points(2, &LISTS);
    let records = over(&double).records(2, planned.unwrap(), LISTS).unwrap();
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
fn what_needs_the_cpu_to_look_is_refused() {
    let refused = planned("op = 'write'\nping-pong = true").unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("the CPU cannot look at memory far"), "{said}");
    let answered = records("op = 'write-imm'\nping-pong = true").unwrap();
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
    let config = config(0);
    let shm = (tonnage_engines::shm::ENTRY.open)(&OpenRequest::default()).unwrap();
    let error = shm[0]
        .worker(&config)
        .unwrap()
        .register(&memory)
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("--memory host"), "{error}");
}

fn config(rank: u32) -> WorkerConfig {
    WorkerConfig {
        rank,
        worker: 0,
        peers_max: 1,
        depth: 8,
        queue_pairs: 1,
        sleeps: true,
        clock: Clock::new(),
    }
}

/// The sleeper is woken by what arrives, and never sleeps over what is there already.
#[test]
fn an_engine_that_can_sleep_is_slept_for() {
    let domain = (ENGINES[0].open)(&OpenRequest::default())
        .unwrap()
        .remove(0);
    let request = Request {
        bytes: 4096,
        ..Request::default()
    };
    let sides = [0, 1].map(|rank| {
        let memory = (LISTS.memories[0].allocate)(&request).unwrap();
        memory.write(0, b"a payload").unwrap();
        let mut engine = domain.worker(&config(rank)).unwrap();
        let region = engine.register(&memory).unwrap();
        (engine, region)
    });
    let [(mut one, own), (mut other, far)] = sides;
    let (card, back) = (one.cards(&[1]).unwrap(), other.cards(&[0]).unwrap());
    one.connect(&[Neighbor::beside(1, back[0].clone())])
        .unwrap();
    other
        .connect(&[Neighbor::beside(0, card[0].clone())])
        .unwrap();
    let kind = LaneKind::Initiate(Verb::WriteImm);
    let lane = one.lane(&LaneSpec::new(kind, 1, own.id, &far.descriptor));
    let op = Op {
        lane: lane.unwrap(),
        tag: 1,
        local: 0,
        remote: 0,
        len: 8,
        imm: 5,
    };
    let woken = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut done = [Completion::EMPTY; 4];
            loop {
                let count = other.poll(&mut done).unwrap();
                if count > 0 {
                    return done[0];
                }
                match other.arm().unwrap() {
                    Arm::Ready => {}
                    Arm::Sleep(descriptor) => sleep(descriptor).unwrap(),
                    Arm::Unsupported => panic!("this engine can sleep"),
                }
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(one.post(&[op]).unwrap(), 1);
        sleeper.join().unwrap()
    });
    assert_eq!((woken.ending, woken.imm), (Ending::Arrived, 5));
    // Its own completion is there, so that nobody sleeps.
    assert!(matches!(one.arm().unwrap(), Arm::Ready));
}
