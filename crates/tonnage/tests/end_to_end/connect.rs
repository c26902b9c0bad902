//! Connections: set up over every engine, counted at both ends, and refused where there is no room for them.

use std::fs;
use std::path::Path;

use tempfile::tempdir;
use tonnage_record::connect::Step;
use tonnage_record::read::read_records;
use tonnage_record::{Outcome, Record};

use super::support::{records, tonnage, under};

/// The records of a file, each allowed by the schema.
fn read(path: &Path) -> Vec<Record> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().for_each(|line| drop(records::allowed(line)));
    read_records(path).unwrap().records
}

#[test]
fn connections_over_every_engine() {
    let dir = tempdir().unwrap();
    let arguments = "connect --engine null,shm,fabric:tcp,fabric:shm --ranks 2 --workers 1,2 --duration 100ms \
                     --trials 2 --libfabric embedded -o r.jsonl";
    let run = tonnage(dir.path(), arguments).succeed();
    let records = read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), 8);
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
        let body = record.connect().unwrap();
        let summary = body.summary.as_ref().unwrap();
        assert!(summary.connections_per_s.mean > 0.0);
        let mean = |step| {
            let found = body.steps.iter().find(|record| record.step == step);
            found.unwrap().latency.latency_ns_mean
        };
        let steps = Step::ALL.into_iter();
        let set_up = steps.filter(|step| !matches!(step, Step::Close | Step::Total));
        let parts: f64 = set_up.map(mean).sum();
        assert!(parts <= mean(Step::Total) * 1.001, "{body:#?}");
    }
    for word in [
        "open",
        "register",
        "exchange",
        "connect",
        "first_byte",
        "total",
        "close",
    ] {
        let mut lines = run.stdout.lines();
        let row = lines.any(|line| line.split_whitespace().nth(2) == Some(word));
        assert!(row, "no row of {word} in {run:#?}");
    }
    let shown = tonnage(dir.path(), "show r.jsonl").succeed();
    assert_eq!(shown.stdout, run.stdout);
}

#[test]
fn several_ranks_connect_to_one() {
    let dir = tempdir().unwrap();
    let arguments = "connect --engine null,shm,fabric:tcp --ranks 3 --traffic fan-in --duration 50ms --trials 1 \
                     --libfabric embedded -o r.jsonl";
    tonnage(dir.path(), arguments).succeed();
    let records = read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), 3);
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
        let connections = record.connect().unwrap().trials[0].connections;
        assert!(
            connections > 0 && connections.is_multiple_of(2),
            "two ranks connect: {record:#?}"
        );
    }
}

/// Huge pages that are not to be had are reported: in the record if something lesser was taken, else as a skip.
#[test]
fn memory_of_every_page_size_is_registered() {
    let dir = tempdir().unwrap();
    let arguments = "connect --engine shm --ranks 2 --memory small,huge --register 64k --duration 50ms --trials 1 \
                     -o r.jsonl";
    let run = tonnage(dir.path(), arguments).run();
    let records = read(&dir.path().join("r.jsonl"));
    assert_eq!(records.len(), 2);
    let pages = |record: &Record| {
        let all = record.effective.iter();
        let all = all.map(|part| part.memory.all()[0].pages.clone().unwrap());
        all.collect::<Vec<_>>()
    };
    assert_eq!(records[0].outcome, Outcome::Measured, "{run:#?}");
    assert!(pages(&records[0]).iter().all(|pages| pages == "normal"));
    match &records[1].outcome {
        Outcome::Measured => {
            assert_eq!(run.code, Some(0), "{run:#?}");
            assert!(pages(&records[1]).iter().all(|pages| pages != "normal"));
        }
        Outcome::Skipped { why } => {
            assert_eq!(run.code, Some(1), "{run:#?}");
            assert!(
                why.contains("--memory huge") && why.contains("nr_hugepages"),
                "{why}"
            );
            assert!(run.stdout.contains("skipped"), "{run:#?}");
            println!("skip: huge pages were not measured: {why}");
        }
        Outcome::Failed { why } => panic!("{why}"),
    }
}

#[test]
fn traffic_of_other_kinds_is_refused() {
    let dir = tempdir().unwrap();
    let arguments = "connect --engine shm --ranks 4 --traffic all-to-all";
    tonnage(dir.path(), arguments)
        .run()
        .with_code(2)
        .with_one_error(&["all-to-all", "fan-in"]);
}

#[test]
fn more_connections_than_descriptors_are_skipped_with_the_number_that_fits() {
    for (engine, library) in [("fabric:tcp", "--libfabric embedded"), ("shm", "")] {
        let dir = tempdir().unwrap();
        let limited = |workers: &str| {
            let arguments = format!(
                "connect --engine {engine} --ranks 2 --workers {workers} --duration 50ms --trials 1 {library} -o {workers}.jsonl"
            );
            under(dir.path(), "prlimit --nofile=128", &arguments).run()
        };
        let ended = limited("64").with_code(1);
        let records = read(&dir.path().join("64.jsonl"));
        let Outcome::Skipped { why } = &records[0].outcome else {
            panic!("{ended:#?}");
        };
        assert!(why.contains("workers fit"), "{why}");
        let fit = why
            .split("--workers ")
            .nth(1)
            .and_then(|rest| rest.split(',').next());
        let fit = fit.unwrap_or_else(|| panic!("{why}"));
        assert!((8..=32).contains(&fit.parse::<u32>().unwrap()), "{why}");
        limited(fit).with_code(0);
    }
}

#[test]
fn registrations_beyond_memory_are_skipped_with_what_there_is() {
    let dir = tempdir().unwrap();
    let arguments =
        "connect --engine shm --ranks 2 --register 4k,512G --duration 20ms --trials 1 -o r.jsonl";
    tonnage(dir.path(), arguments).run().with_code(1);
    let records = read(&dir.path().join("r.jsonl"));
    assert_eq!(records[0].outcome, Outcome::Measured);
    let Outcome::Skipped { why } = &records[1].outcome else {
        panic!("{:#?}", records[1]);
    };
    assert!(why.contains("bytes of memory available"), "{why}");
    let fits = why
        .split("--register ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let fits = fits
        .and_then(|fits| fits.strip_suffix('M'))
        .unwrap_or_else(|| panic!("{why}"));
    assert!(
        (16..512 << 10).contains(&fits.parse::<u64>().unwrap()),
        "{why}"
    );
}
