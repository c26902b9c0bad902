//! Tests with workers of an installed torch. The ranks are threads.

mod calls;
mod faults;
mod missing;

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use tonnage_collective::{Collective, Dtype, Reduction, Shape};
use tonnage_ranks::Rank;
use tonnage_ranks::testing::run;

use super::{TorchBackend, TorchCall, TorchWorker, WorkerFailure, WorkerSettings};

/// Timeout for a call that is not meant to hang.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Python code that succeeds if torch is installed. It does not load torch, because loading takes seconds.
const LOOK: &str =
    "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)";

/// Returns a Python that has torch: from `TONNAGE_TORCH_PYTHON`, the system's Python, or the first one in PATH.
fn python() -> Option<String> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let found = FOUND.get_or_init(find_python).clone();
    if found.is_none() {
        println!("skip: no Python here has PyTorch (run: apt-get install python3-torch)");
    }
    found
}

fn find_python() -> Option<String> {
    let named = std::env::var("TONNAGE_TORCH_PYTHON").ok();
    let usual = ["/usr/bin/python3", "python3"].map(str::to_owned);
    let has_torch = |python: &String| {
        let tried = Command::new(python).args(["-c", LOOK]).output();
        tried.is_ok_and(|done| done.status.success())
    };
    named.into_iter().chain(usual).find(has_torch)
}

fn settings(python: &str, backend: TorchBackend) -> WorkerSettings {
    WorkerSettings {
        python: python.into(),
        backend,
        cpus: Vec::new(),
        gpu: None,
        interface: Some("lo".into()),
        timeout: TIMEOUT,
    }
}

/// Starts a worker and connects it to the other workers. All ranks call this.
fn connected(rank: &mut Rank, settings: WorkerSettings) -> TorchWorker {
    let mut worker = TorchWorker::start(rank, settings, &|_| None).unwrap();
    worker.init(rank).unwrap();
    worker
}

fn call(op: Collective, ranks: u32, block: u64) -> TorchCall {
    TorchCall {
        shape: Shape {
            op,
            ranks,
            root: if op.is_rooted() { ranks - 1 } else { 0 },
            dtype: Dtype::Int32,
            block,
        },
        reduction: Reduction::Sum,
        in_place: false,
        groups: vec![(0..ranks).collect()],
    }
}

fn text(failure: WorkerFailure) -> String {
    failure.error.to_string()
}

/// Runs `size` ranks, each with a connected worker of gloo. Returns `None` if torch is not installed.
fn with_workers<T: Send + 'static>(
    size: u32,
    timeout: Duration,
    body: impl Fn(&mut Rank, TorchWorker) -> T + Clone + Send + 'static,
) -> Option<Vec<T>> {
    let python = python()?;
    Some(run(size, move |mut rank| {
        let settings = WorkerSettings {
            timeout,
            ..settings(&python, TorchBackend::Gloo)
        };
        let worker = connected(&mut rank, settings);
        let result = body(&mut rank, worker);
        rank.close().unwrap();
        result
    }))
}
