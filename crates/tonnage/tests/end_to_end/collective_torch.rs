//! Collectives of torch.distributed from outside: results, what is missing, and workers that are killed or hang.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::{CollectiveBody, Outcome};

use super::support::processes::Process;
use super::support::{Started, records, tonnage, wait_until};

const ALL: &str =
    "all-reduce,all-gather,all-to-all,broadcast,reduce,gather,scatter,barrier,send-recv-pairs";

/// The operation that has no form in place.
const RING: &str = ",send-recv-ring";

/// A Python that has torch; says how to get one otherwise.
pub(super) fn python() -> Option<String> {
    let named = std::env::var("TONNAGE_TORCH_PYTHON").ok();
    let usual = ["/usr/bin/python3", "python3"].map(str::to_owned);
    // By its path, for runs that are tried have a PATH of their own.
    let look =
        "import importlib.util, sys; importlib.util.find_spec('torch') and print(sys.executable)";
    let with_torch = |python: String| {
        let tried = Command::new(python).args(["-c", look]).output();
        let path = String::from_utf8(tried.ok()?.stdout).ok()?;
        Some(path.trim().to_owned()).filter(|path| !path.is_empty())
    };
    let found = named.into_iter().chain(usual).find_map(with_torch);
    if found.is_none() {
        println!("skip: no Python here has PyTorch (run: apt-get install python3-torch)");
    }
    found
}

fn bodies(path: &Path) -> Vec<CollectiveBody> {
    let text = std::fs::read_to_string(path).unwrap();
    let body = |line: &str| {
        records::allowed(line);
        let record: tonnage_record::Record = serde_json::from_str(line).unwrap();
        record.collective().unwrap().clone()
    };
    text.lines().map(body).collect()
}

#[test]
fn every_result_of_every_operation_is_checked_beside_native_ones() {
    let Some(python) = python() else { return };
    // Types once: what else is varied does not depend on them, but for sums that grow in a small one.
    for (options, dtypes) in [
        ("", "float32,int8"),
        ("--in-place", "float32"),
        ("--align none", "int8"),
        ("--groups div:2", "float32"),
    ] {
        let ring = if options == "--in-place" { "" } else { RING };
        let dir = tempdir().unwrap();
        let line = format!(
            "collective --backend torch:gloo,native:shm --python {python} --op {ALL}{ring} --sizes 4000 --root 1 --dtype {dtypes} \
             --ranks 4 {options} --trials 2 --iters 5 --warmup 0s --verify -o r.jsonl"
        );
        let run = tonnage(dir.path(), &line).succeed();
        let bodies = bodies(&dir.path().join("r.jsonl"));
        let ops = ALL.split(',').count() + usize::from(!ring.is_empty());
        let types = dtypes.split(',').count();
        assert_eq!(bodies.len(), (ops - 1) * types + 1, "a barrier has no type");
        for body in &bodies {
            let shape = body.point.shape();
            let place = |rank| body.point.grouping().seat(rank).place;
            let bytes: u64 = (0..4).map(|rank| shape.output_bytes(place(rank))).sum();
            for backend in &body.backends {
                let summary = backend.summary.as_ref().unwrap();
                // The first call, and the last one of both trials.
                assert_eq!(summary.verified_bytes, bytes * 3, "{body:#?}");
                // Small types in place stop before they overflow.
                let few = options == "--align none" && backend.really_in_place;
                assert!(summary.iterations == 10 || few && summary.iterations > 0);
            }
            let op = shape.op.to_string();
            let always = ["all-reduce", "reduce", "broadcast"].contains(&&*op);
            let never =
                ["all-to-all", "barrier", "send-recv-pairs", "send-recv-ring"].contains(&&*op);
            let asked = options == "--in-place";
            let torch = &body.backends[0];
            assert_eq!(torch.really_in_place, always || (asked && !never), "{op}");
        }
        assert!(run.stdout.contains("PyTorch "), "{}", run.stdout);
        let shown = tonnage(dir.path(), "show r.jsonl").succeed();
        assert_eq!(shown.stdout, run.stdout);
    }
}

#[test]
fn a_worker_that_calls_nothing_has_a_time_and_no_bandwidth() {
    let Some(python) = python() else { return };
    let dir = tempdir().unwrap();
    let line = format!(
        "collective --backend torch:null --python {python} --op all-reduce --sizes 1M --ranks 2 --iters 100 --verify \
         -o r.jsonl"
    );
    tonnage(dir.path(), &line).succeed();
    let body = bodies(&dir.path().join("r.jsonl")).remove(0);
    let summary = body.backends[0].summary.as_ref().unwrap();
    assert!(summary.call_ns.mean > 0.0 && summary.call_ns.min < 1e6);
    let rates = (summary.algbw_bytes_per_s, summary.busbw_bytes_per_s);
    assert_eq!((rates, summary.verified_bytes), ((None, None), 0));
}

/// Filling that takes longer than a whole trial, and is no part of it.
#[test]
fn filling_before_a_trial_takes_none_of_its_calls() {
    let Some(python) = python() else { return };
    let dir = tempdir().unwrap();
    let line = format!(
        "collective --backend torch:null --python {python} --op all-reduce --sizes 32M --ranks 1 --refill trial \
         --trials 2 --trial-time 10ms --warmup 1ms -o r.jsonl"
    );
    tonnage(dir.path(), &line).succeed();
    let body = bodies(&dir.path().join("r.jsonl")).remove(0);
    let trials = &body.backends[0].trials;
    assert!(
        trials.iter().all(|trial| trial.iterations > 50),
        "{trials:?}"
    );
}

/// The plan of the published benchmark, whose rows are those of the same number of ranks.
#[test]
fn the_published_plan_runs_whether_torch_is_there_or_not() {
    let dir = tempdir().unwrap();
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../plans/torch-distributed.toml"
    );
    let text = std::fs::read_to_string(shipped).unwrap();
    let named = python().unwrap_or_else(|| "/no/such/python".to_owned());
    let named = format!("optional = true\npython = '{named}'");
    let changed = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    let text = changed(&text, "optional = true", &named);
    let text = changed(&text, "trials = 3", "trials = 1");
    // The others compete with it in the warm-up, with 100 MB each.
    let ring = "op = \"all-reduce\"\nalgorithm = 'ring'";
    let text = changed(&text, "op = \"all-reduce\"", ring);
    // Four ranks share the CPUs: they move less, and the published rows are of as much. To check 100 MB takes seconds.
    let unchecked = changed(&text, "verify = true", "verify = false");
    let checked = changed(&text, "100MB", "4MB");
    for (ranks, text, tables) in [(2, unchecked, [4, 4]), (4, checked, [4, 0])] {
        std::fs::write(dir.path().join("p.toml"), text).unwrap();
        let line = format!("run p.toml --ranks {ranks} --scale 0.02 -o {ranks}.jsonl");
        let run = tonnage(dir.path(), &line).succeed();
        let text = std::fs::read_to_string(dir.path().join(format!("{ranks}.jsonl"))).unwrap();
        let rows: Vec<usize> = text
            .lines()
            .map(|line| {
                records::allowed(line);
                let record: tonnage_record::Record = serde_json::from_str(line).unwrap();
                assert!(record.is_fine(), "{record:#?}");
                record.published_rows.len()
            })
            .collect();
        assert_eq!(rows, tables);
        let beside = run.stdout.matches("beside torch.distributed").count();
        assert_eq!(beside, tables.iter().sum::<usize>(), "{}", run.stdout);
    }
}

/// A line for each call and rank, in the words of the scripts that tables of torch.distributed come from.
#[test]
fn each_call_of_each_rank_has_a_line() {
    let dir = tempdir().unwrap();
    let line = |options: &str| {
        format!(
            "collective --sizes 100kB --ranks 2 --iters 3 --trials 2 --warmup 0s --each {options}"
        )
    };
    let options = "--backend native:shm --op send-recv-pairs,barrier";
    let said = tonnage(dir.path(), &line(options))
        .run()
        .with_code(0)
        .stderr;
    for rank in [0, 1] {
        let begin = format!("Process {rank} transferred 0.1 MB in ");
        let calls = said.lines().filter(|line| line.starts_with(&begin));
        assert_eq!(calls.filter(|line| line.ends_with(" MB/sec)")).count(), 6);
        let begin = format!("Process {rank} took ");
        let calls = said.lines().filter(|line| line.starts_with(&begin));
        assert_eq!(calls.filter(|line| line.ends_with(" ms")).count(), 6);
    }
    let is_call = |line: &&str| line.starts_with("Process ");
    let (before, moved) = said
        .split_once("point 1 of 2: native:shm send-recv-pairs 100000\n")
        .unwrap();
    let (moved, took) = moved
        .split_once("point 2 of 2: native:shm barrier\n")
        .unwrap();
    let of = |lines: &str, part: &str| {
        let calls = lines.lines().filter(is_call);
        calls.map(|line| line.contains(part)).collect::<Vec<_>>()
    };
    assert!(before.lines().filter(is_call).count() == 0, "{said}");
    assert_eq!(of(moved, " transferred "), [true; 12], "{said}");
    assert_eq!(of(took, " took "), [true; 12], "{said}");
    let Some(python) = python() else { return };
    let options = format!("--backend torch:gloo,native:shm --op all-reduce --python {python}");
    let said = tonnage(dir.path(), &line(&options))
        .run()
        .with_code(0)
        .stderr;
    for backend in ["torch:gloo", "native:shm"] {
        let begin = format!("{backend}: Process ");
        let calls = said.lines().filter(|line| line.starts_with(&begin));
        assert_eq!(calls.count(), 2 * 2 * 3, "{said}");
    }
}

#[test]
fn what_is_missing_is_a_skip_that_says_how_to_get_it() {
    let dir = tempdir().unwrap();
    let line = |options: &str| {
        format!("collective --op all-reduce --sizes 8 --ranks 2 --iters 2 --trials 1 {options}")
    };
    let absent = "--backend torch:gloo,native:shm --python /no/such/python -o r.jsonl";
    // As with engines of transfers, what was named is missed, and --optional says that it may be.
    let optional = tonnage(
        dir.path(),
        &line(absent).replace("r.jsonl", "o.jsonl --optional"),
    );
    optional.succeed();
    let run = tonnage(dir.path(), &line(absent)).run().with_code(1);
    let said = run.stdout.replace("\n    ", " ");
    for part in ["skipped", "/no/such/python cannot be started", "--python"] {
        assert!(said.contains(part), "{said}");
    }
    let body = bodies(&dir.path().join("r.jsonl")).remove(0);
    let [torch, native] = &body.backends[..] else {
        panic!("{body:#?}")
    };
    assert!(matches!(torch.backend_outcome, Outcome::Skipped { .. }));
    assert_eq!(native.backend_outcome, Outcome::Measured);
    for (options, reason) in [
        ("--backend torch", "gloo, nccl, mpi, null"),
        ("--backend torch:glo", "did you mean \"gloo\""),
        ("--backend native:shm --python python3", "without a torch"),
        (
            "--backend torch:gloo --each --align none",
            "contradict each other",
        ),
        (
            "--backend torch:gloo --algorithm ring",
            "without a native backend",
        ),
    ] {
        let ended = tonnage(dir.path(), &line(options)).run();
        ended.with_code(2).saying(&[reason]);
    }
    if let Some(python) = python() {
        let nccl = format!("--backend torch:nccl --python {python}");
        let run = tonnage(dir.path(), &line(&nccl)).run().with_code(1);
        let said = run.stdout.replace("\n    ", " ");
        let reasons = ["was built without it", "sees 0 GPUs"];
        assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
    }
}

/// Starts a run of points that have these lengths, whose messages go to a file, and waits until the second of them is
/// measured. Gives the run and its worker of rank 1.
fn in_the_second_point(
    dir: &Path,
    (python, timeout): (&str, &str),
    lengths: &[&str],
) -> (Started, Process) {
    let experiment = |length: &&str| {
        format!(
            "[[collective]]\nbackend = 'torch:gloo'\npython = '{python}'\nop = 'all-reduce'\nsizes = '1M'\ntrials = 1\n\
             timeout = '{timeout}'\n{length}\n"
        )
    };
    let experiments: String = lengths.iter().map(experiment).collect();
    std::fs::write(dir.join("p.toml"), format!("name = 'p'\n{experiments}")).unwrap();
    let messages = dir.join("messages");
    let run = tonnage(dir, "run p.toml --ranks 2 -o r.jsonl --log-level debug")
        .stderr(File::create(&messages).unwrap().into())
        .start();
    let step = "step of rank 1: a trial of";
    wait_until("rank 1 is in the second trial", || {
        let text = std::fs::read_to_string(&messages).unwrap();
        text.matches(step).count() == 2
    });
    let mut processes = run.processes().into_iter();
    let worker = processes.find(|it| it.rank == Some(1) && it.command_line.starts_with(python));
    (run, worker.unwrap())
}

/// A worker that is killed, or stopped, ends the point in time, by the rank's name and with nothing left running.
#[test]
fn a_worker_that_ends_or_hangs_is_named() {
    let Some(python) = python() else { return };
    for (signal, words) in [
        (Signal::KILL, "was killed by signal 9 (SIGKILL"),
        (Signal::STOP, "has been stopped by a signal"),
    ] {
        let dir = tempdir().unwrap();
        let lengths = ["iters = 1", "trial-time = '60s'"];
        let (run, worker) = in_the_second_point(dir.path(), (&python, "3s"), &lengths);
        let since = Instant::now();
        assert!(run.signal_process(&worker, signal));
        let ended = run.end();
        let took = since.elapsed();
        assert!(took < Duration::from_secs(8), "{took:?}: {ended:#?}");
        let messages = std::fs::read_to_string(dir.path().join("messages")).unwrap();
        let said = format!("{}{messages}", ended.stdout).replace("\n    ", " ");
        assert_eq!(ended.code, Some(1), "{said}");
        assert!(said.contains("rank 1 on"), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

/// Workers that were ended after a failure are started anew for the next point.
#[test]
fn points_after_a_killed_worker_are_measured() {
    let Some(python) = python() else { return };
    let dir = tempdir().unwrap();
    let lengths = ["iters = 1", "trial-time = '60s'", "iters = 5", "iters = 6"];
    let (run, worker) = in_the_second_point(dir.path(), (&python, "10s"), &lengths);
    assert!(run.signal_process(&worker, Signal::KILL));
    let ended = run.end();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let text = std::fs::read_to_string(dir.path().join("r.jsonl")).unwrap();
    let end = |line: &str| {
        records::allowed(line);
        let record: tonnage_record::Record = serde_json::from_str(line).unwrap();
        record.outcome
    };
    let ends: Vec<Outcome> = text.lines().map(end).collect();
    let [
        Outcome::Measured,
        Outcome::Failed { why },
        Outcome::Measured,
        Outcome::Measured,
    ] = &ends[..]
    else {
        panic!("{ends:?}")
    };
    assert!(why.contains("was killed by signal 9"), "{why}");
}
