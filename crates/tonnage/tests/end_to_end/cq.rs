//! Threads that sleep until there is a completion, instead of polling.

use super::hosts::{self, hosts};
use super::support::BRIEF;
use super::support::records::{are_skipped, body, measured, recorded, transfer};

#[test]
fn sleeping_workers_move_the_same_bytes() {
    for arguments in [
        "write,write-imm,read,send --ranks 2 --sizes 1,64k --depth 8",
        "write,write-imm,read,send --ranks 3 --traffic all-to-all --sizes 4k --batch 5 --threads 2",
        "write-imm,read,send --ranks 3 --traffic fan-in --sizes 4k --ping-pong",
        "write,write-imm,read,send --ranks 3 --traffic in-turn --sizes 4k --depth 3 --queue-pairs 2",
        "write-imm,read --ranks 2 --sizes 5000 --depth 4 --rails stripe --devices lo,lo --chunk 1000",
    ] {
        measured(&format!(
            "--engine fabric:tcp --op {arguments} --cq event --verify"
        ));
    }
}

#[test]
fn sleeping_and_polling_are_compared_with_cpu_times_of_both_ends() {
    let line = "--engine fabric:tcp --op read --ranks 2 --sizes 4k --depth 8 --cq busy,event";
    let (run, _) = transfer(&format!("{line} {BRIEF}"));
    assert_eq!(run.rows().len(), 2, "{run:#?}");
    run.printing(&["  CQ  ", "  Target CPU"]);
}

#[test]
fn engines_without_a_descriptor_cannot_sleep() {
    let line = "transfer --engine shm,null,fabric:shm --op write --ranks 2 --sizes 64 --cq event";
    let (run, records) = recorded(&format!("{line} {BRIEF}"));
    are_skipped(&records, "the engine has no descriptor to sleep on");
    run.with_code(1)
        .saying(&["3 of 3 points failed or were skipped"]);
}

/// The target is nearly idle for seconds. It uses a whole CPU if it polls, and almost none if it sleeps.
#[test]
fn an_idle_target_that_sleeps_needs_no_cpu() {
    let Some(hosts) = hosts(2, "4mbit".parse().ok()) else {
        return;
    };
    let arguments = "transfer --engine fabric:tcp --op write --sizes 512k --depth 1 --cq busy,event --trials 1 --iters 1 \
                     --warmup 0 --bound none";
    let records = hosts::measured(&hosts, arguments);
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
