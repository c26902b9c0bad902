//! Workers that sleep until there is something, in place of polling.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::tempdir;
use tonnage_record::Record;
use tonnage_testbed::{HostsSpec, Rate};

use super::hosts::{all_good, end, hosts_of, start};
use super::support::{BRIEF, LONG, records, tonnage, wait_until};

fn measured(arguments: &str) -> Vec<Record> {
    let dir = tempdir().unwrap();
    let brief = BRIEF.replace("--trial-time 5ms", "--iters 40");
    let arguments =
        format!("transfer --engine fabric:tcp {arguments} --cq event --verify {brief} -o r.jsonl");
    let run = tonnage(dir.path(), &arguments).succeed();
    records::shown(dir.path(), "r.jsonl", &run, "table")
}

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
        assert_eq!(measured(arguments).len(), points, "{arguments}");
    }
}

#[test]
fn who_sleeps_stands_beside_who_polls_with_the_cpu_time_of_both_ends() {
    let dir = tempdir().unwrap();
    let arguments = format!(
        "transfer --engine fabric:tcp --op read --ranks 2 --sizes 4k --window 8 --cq busy,event {BRIEF}"
    );
    let run = tonnage(dir.path(), &arguments).succeed();
    assert_eq!(run.rows().len(), 2, "{run:#?}");
    assert!(
        run.stdout.contains("  CQ  ") && run.stdout.contains("  Target CPU"),
        "{run:#?}"
    );
}

#[test]
fn sleeping_is_refused_where_it_cannot_be() {
    let dir = tempdir().unwrap();
    for (more, said) in [
        (
            "--op write --rate 100",
            "cq event and rate 100 contradict each other",
        ),
        ("--op write --ping-pong", "use op write-imm, or cq busy"),
    ] {
        let arguments =
            format!("transfer --engine fabric:tcp --ranks 2 --sizes 64 --cq event {more}");
        let run = tonnage(dir.path(), &arguments).run().with_code(2);
        assert!(run.stderr.contains(said), "{more}: {run:#?}");
    }
    for engine in ["shm", "null", "fabric:shm"] {
        let arguments = format!(
            "transfer --engine {engine} --op write --ranks 2 --sizes 64 --cq event {BRIEF}"
        );
        let run = tonnage(dir.path(), &arguments).run().with_code(1);
        let said = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("the engine has no descriptor to sleep on"),
            "{run:#?}"
        );
    }
}

/// The others sleep when it happens, and hear of it all the same.
#[test]
fn a_rank_that_is_killed_while_others_sleep_ends_the_run() {
    for op in ["write", "send"] {
        let dir = tempdir().unwrap();
        let arguments = format!(
            "transfer --engine fabric:tcp --libfabric embedded --op {op} --ranks 3 --traffic fan-in --sizes 64k --cq event {LONG}"
        );
        let run = tonnage(dir.path(), &arguments).start();
        wait_until("ranks run", || run.processes().len() == 3 + 1);
        std::thread::sleep(Duration::from_millis(700));
        run.signal_rank(2, Signal::KILL);
        let killed = Instant::now();
        let ended = run.end();
        assert!(killed.elapsed() < Duration::from_secs(5), "{ended:#?}");
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        assert!(ended.stderr.contains("rank 2"), "{ended:#?}");
    }
}

/// A target that has next to nothing to do for seconds: it takes its CPU when it polls, and next to none when it
/// sleeps.
#[test]
fn an_idle_target_that_sleeps_needs_no_cpu() {
    let spec = HostsSpec {
        count: 2,
        links: 1,
        rates: "2mbit".parse::<Rate>().unwrap().into(),
    };
    let Some(hosts) = hosts_of(spec) else { return };
    let dir = tempdir().unwrap();
    let arguments = "transfer --engine fabric:tcp --op write --sizes 512k --window 1 --cq busy,event --trials 1 --iters 1 \
                     --warmup 0 --limit none -o r.jsonl";
    all_good(&end(start(&hosts, 1, dir.path(), arguments, |rank| rank)));
    let records = records::read(&dir.path().join("r.jsonl"));
    let shares: Vec<f64> = records
        .iter()
        .map(|record| &record.transfer().unwrap().trials[0])
        .inspect(|trial| assert!(trial.window_ns > 1_500_000_000, "{trial:?}"))
        .map(|trial| trial.target_cpu_ns as f64 / trial.window_ns as f64)
        .collect();
    let [busy, event] = shares[..] else {
        panic!("{records:#?}")
    };
    assert!(event < 0.05, "{shares:?}");
    if busy < 0.9 {
        println!(
            "skip: the target that polls had {:.0} % of a CPU: others took it",
            100.0 * busy
        );
    }
    assert!(busy > 4.0 * event, "{shares:?}");
}
