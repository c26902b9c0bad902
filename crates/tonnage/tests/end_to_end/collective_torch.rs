//! Collectives of torch.distributed as a user runs them: results, missing software, and workers that are killed or
//! hang.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::{CollectiveBody, Outcome, Record};

use super::support::processes::Process;
use super::support::{Started, records, tonnage, wait_until, words};

/// Returns a Python with torch. If there is none, prints how to get one.
pub(super) fn python() -> Option<String> {
    let named = std::env::var("TONNAGE_TORCH_PYTHON").ok();
    let usual = ["/usr/bin/python3", "python3"].map(str::to_owned);
    // Returns the path, because the tested runs have a different PATH.
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

/// Returns the bodies of a file's records.
fn bodies(path: &Path) -> Vec<CollectiveBody> {
    let records = records::read(path).into_iter();
    records
        .map(|record| record.collective().unwrap().clone())
        .collect()
}

/// Operations that every backend supports. The last one cannot work in place.
const ALL: &str = "all-reduce,reduce-scatter,all-gather,all-to-all,broadcast,reduce,gather,scatter,barrier,send-recv-pairs,\
                   send-recv-ring";

/// Operations that a library supports with these plan keys.
fn operations(library: &str, keys: &str) -> Vec<&'static str> {
    let is_there = |op: &&str| match *op {
        "reduce-scatter" => !library.starts_with("torch"),
        "send-recv-ring" => !keys.contains("in-place"),
        _ => true,
    };
    ALL.split(',').filter(is_there).collect()
}

/// Writes p.toml, a plan of every operation by a library and by native calls, all verified. Each case (plan keys and
/// types) is one experiment.
pub(super) fn plan_every_operation(dir: &Path, library: &str, cases: &[(&str, &str)]) {
    // MPICH 4.0 can reduce in place only to rank 0.
    let root = if library == "mpi" { 0 } else { 1 };
    let experiment = |(keys, dtypes): &(&str, &str)| {
        let ops = operations(library, keys).join("', '");
        let dtypes = dtypes.replace(',', "', '");
        format!(
            "[[collective]]\nbackend = ['{library}', 'native:shm']\nop = ['{ops}']\nsizes = 4000\nroot = {root}\n\
             dtype = ['{dtypes}']\ntrials = 2\niters = 5\nwarmup = '0s'\nverify = true\n{keys}\n"
        )
    };
    let experiments: String = cases.iter().map(experiment).collect();
    std::fs::write(dir.join("p.toml"), format!("name = 'p'\n{experiments}")).unwrap();
}

/// Returns the bodies of the plan's records, each with the plan keys of its case. Checks that all results were
/// verified.
pub(super) fn every_result<'a>(
    dir: &Path,
    cases: &[(&'a str, &str)],
) -> Vec<(&'a str, CollectiveBody)> {
    let bodies = bodies(&dir.join("r.jsonl"));
    let library = bodies[0].backends[0].backend.clone();
    let keys = cases.iter().flat_map(|(keys, dtypes)| {
        let ops = operations(&library, keys).len();
        // A barrier has no type.
        std::iter::repeat_n(*keys, (ops - 1) * dtypes.split(',').count() + 1)
    });
    let keys: Vec<_> = keys.collect();
    assert_eq!(bodies.len(), keys.len());
    for body in &bodies {
        let shape = body.point.shape();
        let place = |rank| body.point.grouping().position(rank).place;
        let bytes: u64 = (0..4).map(|rank| shape.output_bytes(place(rank))).sum();
        for backend in &body.backends {
            // Checked are the first call and the last call of both trials.
            let verified = backend.summary.as_ref().unwrap().verified_bytes;
            assert_eq!(verified, bytes * 3, "{body:#?}");
        }
    }
    keys.into_iter().zip(bodies).collect()
}

#[test]
fn every_result_of_every_operation_is_checked_beside_native_ones() {
    let Some(python) = python() else { return };
    // Types are varied only in the first case and for sums that grow in a small type. The other options do not depend
    // on types.
    let cases = [
        ("", "float32,int8"),
        ("in-place = true", "float32"),
        ("align = 'none'", "int8"),
        ("groups = 'div:2'", "float32"),
    ];
    let with_python = cases.map(|(keys, dtypes)| (format!("{keys}\npython = '{python}'"), dtypes));
    let cases = with_python
        .each_ref()
        .map(|(keys, dtypes)| (keys.as_str(), *dtypes));
    let dir = tempdir().unwrap();
    plan_every_operation(dir.path(), "torch:gloo", &cases);
    let run = tonnage(dir.path(), "run p.toml --ranks 4 -o r.jsonl").succeed();
    records::shown(dir.path(), &run);
    run.printing(&["PyTorch "]);
    for (keys, body) in every_result(dir.path(), &cases) {
        for backend in &body.backends {
            // With small types in place, trials stop before the sums overflow.
            let few = keys.starts_with("align") && backend.really_in_place;
            let iterations = backend.summary.as_ref().unwrap().iterations;
            assert!(iterations == 10 || few && iterations > 0, "{body:#?}");
        }
        let op = body.point.op.name();
        let always = ["all-reduce", "reduce", "broadcast"].contains(&op);
        let never = ["all-to-all", "barrier", "send-recv-pairs", "send-recv-ring"].contains(&op);
        let in_place = always || keys.starts_with("in-place") && !never;
        assert_eq!(body.backends[0].really_in_place, in_place, "{op}");
    }
}

/// Measures a point with workers that make no calls, and returns the record's body.
fn by_null(arguments: &str) -> Option<CollectiveBody> {
    let python = python()?;
    let dir = tempdir().unwrap();
    let line = format!("collective --backend torch:null --python {python} --op all-reduce");
    tonnage(dir.path(), &format!("{line} {arguments} -o r.jsonl")).succeed();
    Some(bodies(&dir.path().join("r.jsonl")).remove(0))
}

#[test]
fn a_worker_that_calls_nothing_has_a_time_and_no_bandwidth() {
    let Some(body) = by_null("--sizes 1M --ranks 2 --iters 100 --verify") else {
        return;
    };
    let summary = body.backends[0].summary.as_ref().unwrap();
    assert!(summary.call_ns.mean > 0.0 && summary.call_ns.min < 1e6);
    let rates = (summary.algbw_bytes_per_s, summary.busbw_bytes_per_s);
    assert_eq!((rates, summary.verified_bytes), ((None, None), 0));
}

/// Filling the inputs takes longer than a whole trial. Its time must not count as part of the trial.
#[test]
fn filling_before_a_trial_takes_none_of_its_calls() {
    let line = "--sizes 32M --ranks 1 --refill trial --trials 2 --trial-time 10ms --warmup 1ms";
    let Some(body) = by_null(line) else { return };
    let mut trials = body.backends[0].trials.iter();
    assert!(trials.all(|trial| trial.iterations > 50), "{body:?}");
}

/// Runs the shipped plan with and without torch. The report must show the published rows for this number of ranks.
#[test]
fn the_published_plan_runs_whether_torch_is_there_or_not() {
    let dir = tempdir().unwrap();
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../plans/torch-distributed.toml"
    );
    let mut text = std::fs::read_to_string(shipped).unwrap();
    let mut change = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
        text.clone()
    };
    let named = python().unwrap_or_else(|| "/no/such/python".to_owned());
    change(
        "optional = true",
        &format!("optional = true\npython = '{named}'"),
    );
    change("trials = 3", "trials = 1");
    // Without a fixed algorithm, all algorithms would compete in the warm-up, with 100 MB each.
    let whole = change(
        "op = \"all-reduce\"",
        "op = \"all-reduce\"\nalgorithm = 'ring'",
    );
    // Checking 100 MB takes seconds.
    let unchecked = whole.replace("verify = true", "verify = false");
    std::fs::write(dir.path().join("p.toml"), unchecked).unwrap();
    let run = tonnage(dir.path(), "run p.toml --ranks 2 --scale 0.02 -o r.jsonl").succeed();
    let records = records::read(&dir.path().join("r.jsonl"));
    assert!(records.iter().all(Record::is_fine), "{records:#?}");
    let tables = records.iter().map(|it| it.published_rows.len());
    assert!(tables.eq([4, 4]));
    let beside = run.stdout.matches("beside torch.distributed").count();
    assert_eq!(beside, 8, "{}", run.stdout);
}

/// Each call of each rank prints a line, in the format of scripts that make tables of torch.distributed.
#[test]
fn each_call_of_each_rank_has_a_line() {
    let dir = tempdir().unwrap();
    let said = |options: &str| {
        let line =
            "collective --sizes 100kB --ranks 2 --iters 3 --trials 2 --warmup 0s --print-calls";
        tonnage(dir.path(), &format!("{line} {options}"))
            .run()
            .with_code(0)
            .stderr
    };
    let all = said("--backend native:shm --op send-recv-pairs,barrier");
    let calls = |text: &str| {
        let calls = text.lines().filter(|line| line.starts_with("Process "));
        calls.map(str::to_owned).collect::<Vec<_>>()
    };
    let (before, moved) = all
        .split_once("point 1 of 2: native:shm send-recv-pairs 100000\n")
        .unwrap();
    let (moved, took) = moved
        .split_once("point 2 of 2: native:shm barrier\n")
        .unwrap();
    assert!(calls(before).is_empty(), "{all}");
    for (text, words, end) in [
        (moved, "transferred 0.1 MB in ", " MB/sec)"),
        (took, "took ", " ms"),
    ] {
        let calls = calls(text);
        assert!(calls.iter().all(|line| line.ends_with(end)), "{text}");
        for rank in [0, 1] {
            let begin = format!("Process {rank} {words}");
            let own = calls.iter().filter(|line| line.starts_with(&begin));
            assert_eq!((own.count(), calls.len()), (6, 12), "{text}");
        }
    }
    let Some(python) = python() else { return };
    let all = said(&format!(
        "--backend torch:gloo,native:shm --op all-reduce --python {python}"
    ));
    for backend in ["torch:gloo", "native:shm"] {
        let begin = format!("{backend}: Process ");
        let calls = all.lines().filter(|line| line.starts_with(&begin));
        assert_eq!(calls.count(), 2 * 2 * 3, "{all}");
    }
}

#[test]
fn what_is_missing_is_a_skip_that_says_how_to_get_it() {
    let dir = tempdir().unwrap();
    let run = |options: &str| {
        let line = "collective --op all-reduce --sizes 8 --ranks 2 --iters 2 --trials 1";
        tonnage(dir.path(), &format!("{line} {options}")).run()
    };
    let absent = "--backend torch:gloo,native:shm --python /no/such/python";
    // A named backend that is missing is an error, unless --optional is given. The same holds for engines of transfers.
    run(&format!("{absent} --optional")).with_code(0);
    let missed = run(&format!("{absent} -o r.jsonl")).with_code(1);
    missed.printing(&["skipped", "/no/such/python cannot be started", "--python"]);
    let body = bodies(&dir.path().join("r.jsonl")).remove(0);
    let [torch, native] = &body.backends[..] else {
        panic!("{body:#?}")
    };
    assert!(matches!(torch.backend_outcome, Outcome::Skipped { .. }));
    assert_eq!(native.backend_outcome, Outcome::Measured);
    if let Some(python) = python() {
        // Nothing else was requested.
        let nccl = run(&format!("--backend torch:nccl --python {python}")).with_code(2);
        let said = words(&nccl.stderr);
        let reasons = ["was built without it", "sees 0 GPUs"];
        assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
    }
}

/// Starts a run with a point for each of these lengths, and waits until it measures the second point. Returns the run
/// and the worker of rank 1.
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
    let run = tonnage(dir, "run p.toml --ranks 2 -o r.jsonl --log-level debug").start();
    let step = "step of rank 1: a trial of";
    wait_until("rank 1 is in the second trial", || {
        run.said().matches(step).count() == 2
    });
    let mut processes = run.processes().into_iter();
    let worker = processes.find(|it| it.rank == Some(1) && it.command_line.starts_with(python));
    (run, worker.unwrap())
}

/// A stopped worker must end the point in time, with an error that names the rank. No process may be left.
#[test]
fn a_worker_that_hangs_is_named() {
    let Some(python) = python() else { return };
    let dir = tempdir().unwrap();
    let lengths = ["iters = 1", "trial-time = '60s'"];
    let (run, worker) = in_the_second_point(dir.path(), (&python, "2s"), &lengths);
    let since = Instant::now();
    assert!(run.signal_process(&worker, Signal::STOP));
    let ended = run.end().with_code(1);
    assert!(since.elapsed() < Duration::from_secs(8), "{ended:#?}");
    let said = words(&format!("{}{}", ended.stdout, ended.stderr));
    for part in ["rank 1 on", "has been stopped by a signal"] {
        assert!(said.contains(part), "{said}");
    }
}

/// A killed worker must end its point soon, with an error that names the rank. New workers must measure the next
/// points.
#[test]
fn a_worker_that_is_killed_is_named_and_the_next_points_are_measured() {
    let Some(python) = python() else { return };
    let dir = tempdir().unwrap();
    let lengths = ["iters = 1", "trial-time = '60s'", "iters = 5", "iters = 6"];
    let (run, worker) = in_the_second_point(dir.path(), (&python, "10s"), &lengths);
    let since = Instant::now();
    assert!(run.signal_process(&worker, Signal::KILL));
    let ended = run.end().with_code(1);
    assert!(since.elapsed() < Duration::from_secs(30), "{ended:#?}");
    let records = records::read(&dir.path().join("r.jsonl"));
    let is_measured = records
        .iter()
        .map(|record| record.outcome == Outcome::Measured);
    assert!(is_measured.eq([true, false, true, true]), "{records:#?}");
    let why = records::why_failed(&records[1]);
    for part in ["rank 1 on", "was killed by signal 9 (SIGKILL"] {
        assert!(why.contains(part), "{why}");
    }
}
