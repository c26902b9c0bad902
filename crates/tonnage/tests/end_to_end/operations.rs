//! Every operation with every pacing and every pattern, on several ranks and workers, every byte checked.

use tempfile::tempdir;
use tonnage_plan::point::LimitChoice;
use tonnage_record::Outcome;

use super::support::{BRIEF, records, tonnage};

const OPS: [&str; 4] = ["write", "write-imm", "read", "send"];

/// One point for each operation and size, with the bytes checked where the engine moves any.
fn transfer(engine: &str, traffic: &str, ranks: u32, pacing: &str, workers: u32, ops: &str) {
    let dir = tempdir().unwrap();
    let verify = if engine == "null" { "" } else { "--verify" };
    let arguments = format!(
        "transfer --engine {engine} --op {ops} --ranks {ranks} --traffic {traffic} --sizes 8,3001 --workers {workers} \
         {pacing} {verify} {BRIEF} -o r.jsonl"
    );
    let run = tonnage(dir.path(), &arguments).run();
    assert_eq!(run.code, Some(0), "{arguments}: {run:#?}");
    let records = records::shown(dir.path(), "r.jsonl", &run, "table");
    assert_eq!(records.len(), 2 * ops.split(',').count(), "{arguments}");
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured, "{arguments}");
        assert_eq!(record.transfer().unwrap().point.limit, LimitChoice::None);
    }
}

fn every_pacing(engine: &str, traffic: &str, ranks: u32) {
    let ops = OPS.join(",");
    for workers in [1, 2] {
        for pacing in [
            "--window 16",
            "--batch 8",
            "--ping-pong",
            "--rate 20k --window 4",
        ] {
            // In a ping-pong between all ranks nobody would answer, and without bytes no last byte appears.
            let ops = match (pacing, traffic, engine) {
                ("--ping-pong", "all-to-all", _) => "read",
                ("--ping-pong", _, "null") => "write-imm,read,send",
                _ => &ops,
            };
            transfer(engine, traffic, ranks, pacing, workers, ops);
        }
    }
}

#[test]
fn pairs() {
    every_pacing("shm", "pair", 2);
}

#[test]
fn one_to_many() {
    every_pacing("shm", "fan-out", 3);
}

#[test]
fn many_to_one() {
    every_pacing("shm", "fan-in", 3);
}

#[test]
fn all_to_all() {
    every_pacing("shm", "all-to-all", 3);
}

#[test]
fn four_ranks() {
    for (traffic, pacing) in [
        ("pair", "--window 16"),
        ("fan-out", "--batch 8"),
        ("fan-in", "--ping-pong"),
        ("all-to-all", "--rate 5k --window 4"),
    ] {
        transfer("shm", traffic, 4, pacing, 1, &OPS.join(","));
    }
}

/// Words that ranks change in one step, alone and against each other: every step is there once.
#[test]
fn words() {
    let dir = tempdir().unwrap();
    for (number, (traffic, pacing)) in (0..).zip([
        ("--ranks 2", "--window 1,16"),
        (
            "--ranks 3 --traffic fan-in --target-footprint shared --footprint 16",
            "--window 16",
        ),
        (
            "--ranks 3 --traffic all-to-all",
            "--batch 8 --workers 2 --addresses random",
        ),
        ("--ranks 2 --bidirectional", "--window 4 --stride 64"),
        ("--ranks 3 --traffic in-turn", "--ping-pong"),
    ]) {
        let file = format!("r{number}.jsonl");
        let arguments = format!(
            "transfer --engine shm --op fetch-add,compare-swap {traffic} --sizes 8 {pacing} --verify {BRIEF} -o {file}"
        );
        let run = tonnage(dir.path(), &arguments).run();
        assert_eq!(run.code, Some(0), "{arguments}: {run:#?}");
        for record in records::shown(dir.path(), &file, &run, "table") {
            let body = record.transfer().unwrap();
            let summary = body.summary.as_ref().unwrap();
            let swapped = summary.swapped_fraction;
            assert_eq!(swapped.is_some(), body.point.op.name() == "compare-swap");
            match number {
                // Two that share words share the successes.
                1 => assert!(
                    swapped.is_none_or(|part| part > 0.3 && part < 0.95),
                    "{swapped:?}"
                ),
                _ => assert!(swapped.is_none_or(|part| part == 1.0), "{swapped:?}"),
            }
        }
    }
}

#[test]
fn no_bytes_at_all() {
    every_pacing("null", "pair", 2);
    transfer("null", "fan-out", 3, "--window 16", 1, &OPS.join(","));
}

/// Walks over more slots than operations in flight, in another order, at another distance.
#[test]
fn footprints_strides_and_orders() {
    for addresses in ["sequential", "random", "fixed"] {
        let pacing =
            format!("--window 16 --footprint 256k --stride 4k --addresses {addresses} --seed 7");
        transfer("shm", "pair", 2, &pacing, 1, &OPS.join(","));
    }
}

/// An engine that completes at once must not make the loop serve one peer and forget the others.
#[test]
fn every_flow_of_a_window_moves() {
    for (traffic, flows) in [("fan-out", 3), ("fan-in", 3), ("all-to-all", 12)] {
        for window in [1, 4, 64] {
            let dir = tempdir().unwrap();
            let run = tonnage(
                dir.path(),
                &format!(
                    "transfer --engine shm --op write --ranks 4 --traffic {traffic} --sizes 8 --window {window} \
                     --iters 2000 --trials 2 --warmup 1ms --limit none --verify -o r.jsonl"
                ),
            )
            .run();
            assert_eq!(run.code, Some(0), "{traffic} {window}: {run:#?}");
            for record in records::shown(dir.path(), "r.jsonl", &run, "table") {
                let all = flows * record.transfer().unwrap().point.footprint_bytes;
                for trial in &record.transfer().unwrap().trials {
                    assert_eq!(trial.verified_bytes, Some(all), "{traffic} {window}");
                }
            }
        }
    }
}

/// Opening an engine pins threads; the next engine must see the CPUs as they were before.
#[test]
fn a_second_engine_has_as_many_cpus_as_the_first() {
    let dir = tempdir().unwrap();
    let arguments = format!(
        "transfer --engine null,shm --op write --ranks 2 --sizes 8 --window 4 {BRIEF} -o r.jsonl"
    );
    let run = tonnage(dir.path(), &arguments).run();
    assert_eq!(run.code, Some(0), "{run:#?}");
    let records = records::shown(dir.path(), "r.jsonl", &run, "table");
    let placed = |index: usize| {
        let all = records[index].effective.iter();
        all.map(|effective| (effective.cpus.clone(), effective.yielding))
            .collect::<Vec<_>>()
    };
    assert_eq!(placed(0), placed(1));
}
