//! Plans, options of length, memory and place, and other formats.

use std::fs;

use tempfile::tempdir;
use tonnage_plan::point::LimitChoice;
use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_record::{Outcome, Record};

use super::support::{BRIEF, records, tonnage};

const TRANSFER: &str = "transfer --engine shm --op write --ranks 2 --sizes";

/// The records of a transfer with these options after `--sizes`.
fn transfer(options: &str) -> Vec<Record> {
    let dir = tempdir().unwrap();
    let run = tonnage(dir.path(), &format!("{TRANSFER} {options} -o r.jsonl")).succeed();
    records::shown(dir.path(), "r.jsonl", &run, "table")
}

fn points(records: &[Record]) -> Vec<&TransferPoint> {
    records
        .iter()
        .map(|record| &record.transfer().unwrap().point)
        .collect()
}

#[test]
fn a_printed_plan_runs_as_the_command_line_did() {
    let dir = tempdir().unwrap();
    let arguments = format!(
        "{TRANSFER} 8..32,100 --batch 1..4 --addresses random --seed 3 --label mine {BRIEF}"
    );
    let printed = tonnage(dir.path(), &format!("{arguments} --print-plan")).succeed();
    fs::write(dir.path().join("p.toml"), &printed.stdout).unwrap();
    tonnage(dir.path(), &format!("{arguments} -o one.jsonl")).succeed();
    tonnage(dir.path(), "run p.toml -o two.jsonl --ranks 2").succeed();
    let [one, two] =
        ["one", "two"].map(|name| records::read(&dir.path().join(name).with_extension("jsonl")));
    assert_eq!(one.len(), 12);
    assert_eq!(points(&one), points(&two));
    let again = tonnage(dir.path(), "run p.toml --print-plan --ranks 2").succeed();
    assert_eq!(again.stdout, printed.stdout);
}

#[test]
fn a_plan_that_ships_runs_in_a_fraction_of_its_time() {
    let dir = tempdir().unwrap();
    let plan = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../plans/mori-io-write.toml"
    );
    let arguments = format!("run {plan} --engine null --scale 0.01 --format jsonl");
    let run = tonnage(dir.path(), &arguments).succeed();
    let records = records::parse(&run.stdout);
    assert!(records.len() > 50, "{}", records.len());
    assert!(
        records
            .iter()
            .all(|record| record.transfer().unwrap().point.engine == "null"
                && record.plan == "mori-io-write")
    );
}

#[test]
fn every_format_can_be_printed_and_redrawn() {
    let dir = tempdir().unwrap();
    for (format, options) in [
        ("table", "8,64 --window 4"),
        ("csv", "8,64 --batch 4"),
        ("jsonl", "8,64 --ping-pong"),
    ] {
        let file = format!("{format}.jsonl");
        let arguments = format!("{TRANSFER} {options} {BRIEF} --format {format} -o {file}");
        let run = tonnage(dir.path(), &arguments).succeed();
        let records = records::shown(dir.path(), &file, &run, format);
        assert_eq!(records.len(), 2);
        match format {
            "csv" => {
                let lines: Vec<_> = run.stdout.lines().collect();
                assert_eq!(lines.len(), 3, "{run:#?}");
                let commas = |line: &str| line.matches(',').count();
                assert!(commas(lines[0]) > 10, "{run:#?}");
                assert!(lines[0].contains("bandwidth_bytes_per_s"), "{run:#?}");
            }
            "jsonl" => assert_eq!(records::parse(&run.stdout), records),
            _ => assert_eq!(run.rows().len(), 2, "{run:#?}"),
        }
    }
}

#[test]
fn results_are_appended_to_results() {
    let dir = tempdir().unwrap();
    let arguments = format!("{TRANSFER} 8 {BRIEF} -o r.jsonl");
    tonnage(dir.path(), &arguments).succeed();
    tonnage(dir.path(), &arguments).succeed();
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), 2);
    assert_ne!(records[0].run_id, records[1].run_id);
}

#[test]
fn lengths_are_what_was_asked_for() {
    // That operations are as many as these was checked with the records.
    for pacing in ["--window 8", "--batch 16", "--ping-pong", "--rate 100k"] {
        let records = transfer(&format!("64 {pacing} --iters 300 --trials 3 --warmup 0"));
        assert_eq!(records[0].transfer().unwrap().trials.len(), 3);
    }
    let split = transfer("64 --duration 30ms --trials 3");
    assert!(
        split[0]
            .transfer()
            .unwrap()
            .trials
            .iter()
            .all(|trial| trial.window_ns >= 10_000_000)
    );
    // An interval as wide as this is narrow enough at once, and one as narrow never.
    let wide = transfer("64 --until-ci 99% --trials 4 --trial-time 5ms --max-duration 10s");
    assert!(wide[0].transfer().unwrap().trials.len() >= 4);
    let narrow = transfer("64 --until-ci 0.0001% --trials 3 --trial-time 5ms --max-duration 40ms");
    let summary = narrow[0].transfer().unwrap().summary.as_ref().unwrap();
    assert_eq!(summary.converged, Some(false));
    assert!((3..=8).contains(&summary.trials), "{summary:?}");
}

#[test]
fn a_paced_run_says_what_it_offered_and_reached() {
    let records = transfer("64 --rate 20k --window 8 --trials 2 --trial-time 20ms");
    let pace = records[0]
        .transfer()
        .unwrap()
        .summary
        .as_ref()
        .unwrap()
        .pace
        .as_ref()
        .unwrap();
    assert_eq!(pace.offered_per_s, 20_000.0);
    assert!(
        pace.reached_per_s > 0.0 && pace.reached_per_s < 40_000.0,
        "{pace:?}"
    );
    assert!((0.0..=1.0).contains(&pace.late_fraction), "{pace:?}");
    assert_eq!(
        records[0].transfer().unwrap().point.pacing,
        Pacing::Paced {
            window: 8,
            rate_per_s: 20_000.0
        }
    );
}

/// Memory that is not to be had is reported: in the record if something lesser was taken, else as a skip.
#[test]
fn huge_pages_are_never_silently_normal() {
    let dir = tempdir().unwrap();
    let arguments = format!("{TRANSFER} 4k --memory huge {BRIEF} -o r.jsonl");
    let run = tonnage(dir.path(), &arguments).run();
    let records = records::read(&dir.path().join("r.jsonl"));
    match &records[0].outcome {
        Outcome::Measured => {
            assert_eq!(run.code, Some(0), "{run:#?}");
            for part in &records[0].effective {
                let pages = part.memory.all()[0].pages.as_deref().unwrap();
                assert_ne!(pages, "normal", "{:?}", part.memory);
            }
        }
        Outcome::Skipped { why } => {
            assert_eq!(run.code, Some(1), "{run:#?}");
            assert!(
                why.contains("--memory huge") && why.contains("nr_hugepages"),
                "{why}"
            );
            assert!(run.stdout.contains("skipped"), "{run:#?}");
        }
        Outcome::Failed { why } => panic!("{why}"),
    }
}

#[test]
fn workers_go_where_they_are_told() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpus: Vec<u32> = (0..1024)
        .filter(|&cpu| allowed.is_set(cpu as usize))
        .collect();
    let default = transfer(&format!("8 {BRIEF}"));
    for part in &default[0].effective {
        assert!(
            part.cpus
                .iter()
                .all(|cpu| cpu.is_some_and(|cpu| cpus.contains(&cpu))),
            "{part:?}"
        );
        assert_eq!(part.yielding, cpus.len() < 2);
    }
    let unpinned = transfer(&format!("8 --cpus none --numa none {BRIEF}"));
    for part in &unpinned[0].effective {
        assert_eq!(part.cpus, [None]);
        assert!(
            part.memory.all()[0].numa_asked.is_none(),
            "{:?}",
            part.memory
        );
    }
    let last = *cpus.last().unwrap();
    let one = transfer(&format!("8 --cpus {last} {BRIEF}"));
    for part in &one[0].effective {
        assert_eq!(
            (part.cpus.as_slice(), part.yielding),
            (&[Some(last)][..], true)
        );
    }
    let node = transfer(&format!("8 --numa 0 {BRIEF}"));
    let memory = &node[0].effective[0].memory.all()[0];
    assert_eq!((memory.numa_asked, memory.numa_node), (Some(0), Some(0)));
}

#[test]
fn what_bandwidth_is_set_beside() {
    let brief = "--trials 2 --trial-time 5ms --warmup 1ms";
    let stated = transfer(&format!("4k {brief} --limit 100Gb/s"));
    assert_eq!(
        stated[0].transfer().unwrap().point.limit,
        LimitChoice::Stated {
            bytes_per_s: 12.5e9
        }
    );
    assert!(
        stated[0]
            .transfer()
            .unwrap()
            .summary
            .as_ref()
            .unwrap()
            .utilization
            .is_some()
    );
    let measured = transfer(&format!("4k {brief}"));
    let limit = measured[0].limit.as_ref().unwrap();
    assert!(limit.what.contains("memory copy"), "{limit:?}");
}

#[test]
fn latency_can_be_left_out() {
    let records = transfer(&format!("8 --latency off {BRIEF}"));
    assert!(records[0].transfer().unwrap().histogram.is_none());
}
