//! Every operation with every pacing and every pattern, on several ranks and threads. Every byte is checked.

use super::support::BRIEF;
use super::support::records::{body, succeeded, summary, transfer};

const OPS: &str = "write,write-imm,read,send";

/// Runs one point for each operation. Bytes are checked unless the engine moves none.
fn every(engine: &str, traffic: &str, pacing: &str, ops: &str) {
    let verify = if engine == "null" { "" } else { "--verify" };
    let line = format!(
        "transfer --engine {engine} --op {ops} --traffic {traffic} --sizes 3001 {pacing} {verify} {BRIEF}"
    );
    let (_, records) = succeeded(&line);
    let workers = if pacing.contains("--threads 1,2") {
        2
    } else {
        1
    };
    assert_eq!(records.len(), workers * ops.split(',').count(), "{line}");
}

/// Runs every pacing, both with one thread and with two.
fn every_pacing(engine: &str, traffic: &str) {
    for pacing in [
        "--depth 16",
        "--batch 8",
        "--ping-pong",
        "--rate 20k --depth 4",
    ] {
        // In a ping-pong between all ranks, no rank would answer. Without bytes, the last byte of a write never
        // appears.
        let ops = match (pacing, engine) {
            ("--ping-pong", _) if traffic.starts_with("all-to-all") => "read",
            ("--ping-pong", "null") => "write-imm,read,send",
            _ => OPS,
        };
        every(engine, traffic, &format!("{pacing} --threads 1,2"), ops);
    }
}

#[test]
fn pairs() {
    every_pacing("shm", "pair --ranks 2");
    every("shm", "pair --ranks 4", "--depth 16", OPS);
}

#[test]
fn one_to_many() {
    every_pacing("shm", "fan-out --ranks 3");
}

#[test]
fn many_to_one() {
    every_pacing("shm", "fan-in --ranks 3");
}

#[test]
fn all_to_all() {
    every_pacing("shm", "all-to-all --ranks 3");
}

/// Ranks change words atomically, alone and concurrently. Every change must count exactly once.
#[test]
fn words() {
    for (is_shared, traffic) in [
        (false, "--ranks 2 --depth 1,16"),
        (
            true,
            "--ranks 3 --traffic fan-in --target-footprint shared --footprint 16 --depth 16",
        ),
        (
            false,
            "--ranks 3 --traffic all-to-all --batch 8 --threads 2 --access random",
        ),
        (false, "--ranks 2 --bidirectional --depth 4 --stride 64"),
        (false, "--ranks 3 --traffic in-turn --ping-pong"),
    ] {
        let (_, records) = transfer(&format!(
            "--engine shm --op fetch-add,compare-swap {traffic} --sizes 8 --verify {BRIEF}"
        ));
        for record in &records {
            let swapped = summary(record).swapped_fraction;
            assert_eq!(
                swapped.is_some(),
                body(record).point.op.name() == "compare-swap"
            );
            // If two ranks change the same words, some of the compare-swaps fail.
            let expected = if is_shared { 0.3..=0.95 } else { 1.0..=1.0 };
            assert!(
                swapped.is_none_or(|part| expected.contains(&part)),
                "{swapped:?}"
            );
        }
    }
}

#[test]
fn no_bytes_at_all() {
    every_pacing("null", "fan-out --ranks 3");
}

/// Footprints with more slots than operations in flight, in different orders and with a larger stride.
#[test]
fn footprints_strides_and_orders() {
    for access in ["sequential", "random", "fixed"] {
        let pacing = format!("--depth 16 --footprint 256k --stride 4k --access {access} --seed 7");
        every("shm", "pair --ranks 2", &pacing, OPS);
    }
}

/// With an engine that completes at once, the loop must not serve one peer and starve the others.
#[test]
fn every_flow_of_a_window_moves() {
    for (traffic, flows) in [("fan-out", 3), ("fan-in", 3), ("all-to-all", 12)] {
        let (_, records) = transfer(&format!(
            "--engine shm --op write --ranks 4 --traffic {traffic} --sizes 8 --depth 1,4,64 --iters 2000 --trials 2 \
             --warmup 1ms --bound none --verify"
        ));
        assert_eq!(records.len(), 3);
        for body in records.iter().map(body) {
            let all = flows * body.point.slots.footprint_bytes;
            let checked = body.trials.iter().map(|trial| trial.verified_bytes);
            assert!(checked.eq([Some(all); 2]), "{traffic}: {body:#?}");
        }
    }
}

/// Opening an engine pins threads. The next engine must still see the original set of CPUs.
#[test]
fn a_second_engine_has_as_many_cpus_as_the_first() {
    let line = format!("--engine null,shm --op write --ranks 2 --sizes 8 --depth 4 {BRIEF}");
    let (_, records) = transfer(&line);
    let placed = |index: usize| {
        let all = records[index].effective.iter();
        all.map(|effective| (effective.cpus.clone(), effective.yielding))
            .collect::<Vec<_>>()
    };
    assert_eq!(placed(0), placed(1));
}
