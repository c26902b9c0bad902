//! Workers that sleep until there is something, in place of polling.

use tempfile::tempdir;
use tonnage_testbed::{HostsSpec, Rate};

use super::hosts::{all_good, end, hosts_of, start};
use super::support::records::{body, measured, transfer};
use super::support::{BRIEF, LONG, records, tonnage};

#[test]
fn whoever_sleeps_moves_the_same_bytes() {
    for (arguments, points) in [
        (
            "--op write,write-imm,read,send --ranks 2 --sizes 1,64k --window 8",
            8,
        ),
        (
            "--op write,write-imm,read,send --ranks 3 --traffic all-to-all --sizes 4k --batch 5 --workers 2",
            4,
        ),
        (
            "--op write-imm,read,send --ranks 3 --traffic fan-in --sizes 4k --ping-pong",
            3,
        ),
        (
            "--op write,write-imm,read,send --ranks 3 --traffic in-turn --sizes 4k --window 3 --qps 2",
            4,
        ),
        (
            "--op write-imm,read --ranks 2 --sizes 5000 --window 4 --rails stripe --devices lo,lo --chunk 1000",
            2,
        ),
    ] {
        let line = format!("--engine fabric:tcp {arguments} --cq event --verify");
        assert_eq!(measured(&line).0.len(), points, "{arguments}");
    }
}

#[test]
fn who_sleeps_stands_beside_who_polls_with_the_cpu_time_of_both_ends() {
    let line = "--engine fabric:tcp --op read --ranks 2 --sizes 4k --window 8 --cq busy,event";
    let (run, _) = transfer(&format!("{line} {BRIEF}"));
    assert_eq!(run.rows().len(), 2, "{run:#?}");
    run.printing(&["  CQ  ", "  Target CPU"]);
}

#[test]
fn engines_without_a_descriptor_cannot_sleep() {
    let dir = tempdir().unwrap();
    let line = "transfer --engine shm,null,fabric:shm --op write --ranks 2 --sizes 64 --cq event -o r.jsonl";
    let run = tonnage(dir.path(), &format!("{line} {BRIEF}"))
        .run()
        .with_code(1);
    for record in records::read(&dir.path().join("r.jsonl")) {
        let why = records::why(&record);
        assert!(
            why.contains("the engine has no descriptor to sleep on"),
            "{why}"
        );
    }
    run.saying(&["3 of 3 points failed or were skipped"]);
}

/// The others sleep when it happens, and hear of it all the same.
#[test]
fn a_rank_that_is_killed_while_others_sleep_ends_the_run() {
    for op in ["write", "send"] {
        let dir = tempdir().unwrap();
        let run = tonnage(
            dir.path(),
            &format!(
                "transfer --engine fabric:tcp --libfabric embedded --op {op} --ranks 3 --traffic fan-in --sizes 64k \
                 --cq event {LONG} --log-level debug"
            ),
        )
        .start();
        run.wait_until_said("rank 2: trial 1 of");
        run.kill_rank(2);
    }
}

/// A target that has next to nothing to do for seconds: it takes its CPU when it polls, and next to none when it
/// sleeps.
#[test]
fn an_idle_target_that_sleeps_needs_no_cpu() {
    let spec = HostsSpec {
        count: 2,
        links: 1,
        rates: "4mbit".parse::<Rate>().unwrap().into(),
    };
    let Some(hosts) = hosts_of(spec) else { return };
    let dir = tempdir().unwrap();
    let arguments = "transfer --engine fabric:tcp --op write --sizes 512k --window 1 --cq busy,event --trials 1 --iters 1 \
                     --warmup 0 --limit none -o r.jsonl";
    all_good(&end(start(&hosts, 1, dir.path(), arguments, |rank| rank)));
    let records = records::read(&dir.path().join("r.jsonl"));
    let trials = records.iter().map(|record| &body(record).trials[0]);
    let shares: Vec<f64> = trials
        .inspect(|trial| assert!(trial.window_ns > 750_000_000, "{trial:?}"))
        .map(|trial| trial.target_cpu_ns as f64 / trial.window_ns as f64)
        .collect();
    let [busy, event] = shares[..] else {
        panic!("{records:#?}")
    };
    assert!(event < 0.05, "{shares:?}");
    if busy < 0.9 {
        let percent = 100.0 * busy;
        println!("skip: the target that polls had {percent:.0} % of a CPU: others took it");
    }
    assert!(busy > 4.0 * event, "{shares:?}");
}
