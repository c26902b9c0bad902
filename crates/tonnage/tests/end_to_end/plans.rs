//! Plans, options for duration, memory and placement, and output formats.

use std::fs;

use tempfile::tempdir;
use tonnage_plan::point::BoundChoice;
use tonnage_plan::transfer::{Pacing, Rate, TransferPoint};
use tonnage_record::{Outcome, Record};
use tonnage_report::Format;

use super::support::records::{body, summary, why};
use super::support::{BRIEF, records, tonnage};

const TRANSFER: &str = "--engine shm --op write --ranks 2 --sizes";

/// Returns the records of a transfer with these options after `--sizes`.
fn transfer(options: &str) -> Vec<Record> {
    records::transfer(&format!("{TRANSFER} {options}")).1
}

fn points(records: &[Record]) -> Vec<&TransferPoint> {
    records.iter().map(|record| &body(record).point).collect()
}

#[test]
fn a_printed_plan_runs_as_the_command_line_did() {
    let dir = tempdir().unwrap();
    let arguments = format!(
        "transfer {TRANSFER} 8..32,100 --batch 1..4 --access random --seed 3 --label mine {BRIEF}"
    );
    let printed = tonnage(dir.path(), &format!("{arguments} --print-plan")).succeed();
    fs::write(dir.path().join("p.toml"), &printed.stdout).unwrap();
    tonnage(dir.path(), &format!("{arguments} -o one.jsonl")).succeed();
    tonnage(dir.path(), "run p.toml -o two.jsonl --ranks 2").succeed();
    let [one, two] = ["one.jsonl", "two.jsonl"].map(|name| records::read(&dir.path().join(name)));
    assert_eq!(one.len(), 12);
    assert_eq!(points(&one), points(&two));
    let again = tonnage(dir.path(), "run p.toml --print-plan --ranks 2").succeed();
    assert_eq!(again.stdout, printed.stdout);
}

#[test]
fn a_plan_that_ships_runs_in_a_fraction_of_its_time() {
    let dir = tempdir().unwrap();
    let plans = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans");
    let arguments =
        format!("run {plans}/mori-io-write.toml --engine null --scale 0.01 --format jsonl");
    let run = tonnage(dir.path(), &arguments).succeed();
    let records = records::parse(&run.stdout);
    assert!(records.len() > 50, "{}", records.len());
    let is_its = |it: &Record| body(it).point.engine == "null" && it.plan == "mori-io-write";
    assert!(records.iter().all(is_its));
}

/// The run can print results in each format, and `show` must print the same from the file.
#[test]
fn every_format_can_be_printed_and_redrawn() {
    let dir = tempdir().unwrap();
    for (format, options) in [
        (Format::Table, "8,64 --depth 4"),
        (Format::Csv, "8,64 --batch 4"),
        (Format::Jsonl, "8,64 --ping-pong"),
    ] {
        let file = format!("{format}.jsonl");
        let arguments =
            format!("transfer {TRANSFER} {options} {BRIEF} --format {format} -o {file}");
        let run = tonnage(dir.path(), &arguments).succeed();
        let again = tonnage(dir.path(), &format!("show {file} --format {format}")).succeed();
        assert_eq!(again.stdout, run.stdout);
        let records = records::shown_as(&dir.path().join(&file), &run, format);
        assert_eq!(records.len(), 2);
        match format {
            Format::Csv => {
                assert_eq!(run.stdout.lines().count(), 3, "{run:#?}");
                let row = records::first_row(&run.stdout);
                assert!(row.contains_key("bandwidth_bytes_per_s_mean"), "{row:#?}");
            }
            Format::Jsonl => assert_eq!(records::parse(&run.stdout), records),
            Format::Table => assert_eq!(run.rows().len(), 2, "{run:#?}"),
        }
    }
}

#[test]
fn results_are_appended_to_results() {
    let dir = tempdir().unwrap();
    let arguments = format!("transfer {TRANSFER} 8 {BRIEF} -o r.jsonl");
    tonnage(dir.path(), &arguments).succeed();
    tonnage(dir.path(), &arguments).succeed();
    let records = records::read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), 2);
    assert_ne!(records[0].run_id, records[1].run_id);
}

#[test]
fn durations_and_counts_are_as_requested() {
    // Reading the records has checked that each trial has this many operations.
    for pacing in ["--depth 8", "--batch 16", "--ping-pong", "--rate 100k"] {
        let records = transfer(&format!("64 {pacing} --iters 300 --trials 3 --warmup 0"));
        assert_eq!(body(&records[0]).trials.len(), 3);
    }
    let split = transfer("64 --duration 30ms --trials 3");
    let mut trials = body(&split[0]).trials.iter();
    assert!(trials.all(|trial| trial.window_ns >= 10_000_000));
    // With a very wide interval the run can stop at the minimum, and with a very narrow one it stops only at the time
    // limit.
    let wide = transfer("64 --until-ci 99% --trials 4 --trial-time 5ms --max-duration 10s");
    assert!(body(&wide[0]).trials.len() >= 4);
    let narrow = transfer("64 --until-ci 0.0001% --trials 3 --trial-time 5ms --max-duration 40ms");
    let summary = summary(&narrow[0]);
    assert_eq!(summary.converged, Some(false));
    assert!((3..=8).contains(&summary.trials), "{summary:?}");
}

#[test]
fn a_paced_run_reports_the_offered_and_the_reached_rate() {
    let records = transfer("64 --rate 20k --depth 8 --trials 2 --trial-time 20ms");
    let pace = summary(&records[0]).pace.as_ref().unwrap();
    assert_eq!(pace.offered_per_s, 20_000.0);
    assert!(
        pace.reached_per_s > 0.0 && pace.reached_per_s < 40_000.0,
        "{pace:?}"
    );
    assert!((0.0..=1.0).contains(&pace.late_fraction), "{pace:?}");
    let expected = Pacing::Paced {
        depth: 8,
        rate: Rate::per_s(20_000.0),
    };
    assert_eq!(body(&records[0]).point.pacing, expected);
}

/// A rate of 1 Mb/s with operations of 125 bytes must equal 1,000 operations per second.
#[test]
fn a_rate_in_bits_is_one_in_operations_and_bursts_do_not_change_it() {
    let records = transfer("125 --rate 1Mb/s --burst 8 --threads 2 --trials 2 --trial-time 40ms");
    let pace = summary(&records[0]).pace.as_ref().unwrap();
    assert_eq!(pace.offered_per_s, 1000.0);
    for trial in &body(&records[0]).trials {
        // In whole bursts of 8, each thread issues 24 operations, although 20 would be due.
        assert_eq!(trial.operations, 48, "{trial:#?}");
        // Both threads together issue 1,000 operations per second.
        assert!(trial.window_ns >= 48_000_000, "{trial:#?}");
    }
}

/// Missing huge pages must be reported: in the record if smaller pages were used, otherwise as a skip.
#[test]
fn huge_pages_are_never_silently_normal() {
    let dir = tempdir().unwrap();
    let arguments = format!("transfer {TRANSFER} 4k --memory huge {BRIEF} -o r.jsonl");
    let run = tonnage(dir.path(), &arguments).run();
    let record = &records::read(&dir.path().join("r.jsonl"))[0];
    if record.outcome == Outcome::Measured {
        assert_eq!(run.code, Some(0), "{run:#?}");
        for part in &record.effective {
            let pages = part.memory.all()[0].pages.as_deref().unwrap();
            assert_ne!(pages, "normal", "{:?}", part.memory);
        }
    } else {
        let why = why(record);
        assert!(
            why.contains("--memory huge") && why.contains("nr_hugepages"),
            "{why}"
        );
        run.with_code(2).saying(&["--memory huge"]);
    }
}

#[test]
fn workers_are_placed_as_requested() {
    let cpus = tonnage_machine::Topology::read().allowed;
    let default = transfer(&format!("8 {BRIEF}"));
    for part in &default[0].effective {
        let mut own = part.cpus.iter().flatten();
        assert!(
            own.all(|cpu| cpus.contains(cpu)) && !part.cpus.contains(&None),
            "{part:?}"
        );
        assert_eq!(part.yielding, cpus.len() < 2);
    }
    let unpinned = transfer(&format!("8 --cpus none --numa none {BRIEF}"));
    for part in &unpinned[0].effective {
        assert_eq!(
            (&part.cpus[..], part.memory.all()[0].numa_asked),
            (&[None][..], None)
        );
    }
    let last = cpus.last().copied();
    let one = transfer(&format!("8 --cpus {} {BRIEF}", last.unwrap()));
    for part in &one[0].effective {
        assert_eq!((&part.cpus[..], part.yielding), (&[last][..], true));
    }
    let node = transfer(&format!("8 --numa 0 {BRIEF}"));
    let memory = &node[0].effective[0].memory.all()[0];
    assert_eq!((memory.numa_asked, memory.numa_node), (Some(0), Some(0)));
}

#[test]
fn bandwidth_is_compared_with_a_bound() {
    let brief = "--trials 2 --trial-time 5ms --warmup 1ms";
    let stated = transfer(&format!("4k {brief} --bound 100Gb/s"));
    let expected = BoundChoice::Stated {
        bytes_per_s: 12.5e9,
    };
    assert_eq!(body(&stated[0]).point.bound, expected);
    assert!(summary(&stated[0]).utilization.is_some());
    let measured = transfer(&format!("4k {brief}"));
    let bound = measured[0].bound.as_ref().unwrap();
    assert!(bound.what.contains("memory copy"), "{bound:?}");
}

#[test]
fn latency_can_be_left_out() {
    let records = transfer(&format!("8 --latency off {BRIEF}"));
    assert!(body(&records[0]).histogram.is_none());
}
