//! Connections over every engine, counted at both ends, and refused if a limit leaves no room for them.

use tempfile::tempdir;
use tonnage_record::connect::Step;
use tonnage_record::{Outcome, Record};

use super::support::records::{are_skipped, recorded, why};
use super::support::{Ended, records, under};

/// Runs the command, and returns the ended run and its records.
fn connect(arguments: &str) -> (Ended, Vec<Record>) {
    recorded(&format!("connect {arguments}"))
}

#[test]
fn connections_over_every_engine() {
    let (run, records) = connect(
        "--engine null,shm,fabric:tcp,fabric:shm --ranks 2 --threads 1,2 --duration 100ms --trials 2 --libfabric embedded",
    );
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
    for word in "open register exchange connect first_byte total close".split(' ') {
        let mut lines = run.stdout.lines();
        let row = lines.any(|line| line.split_whitespace().nth(3) == Some(word));
        assert!(row, "no row of {word} in {run:#?}");
    }
}

#[test]
fn several_ranks_connect_to_one() {
    let (_, records) = connect(
        "--engine null,shm,fabric:tcp --ranks 3 --traffic fan-in --duration 50ms --trials 1 --libfabric embedded",
    );
    assert_eq!(records.len(), 3);
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
        let connections = record.connect().unwrap().trials[0].connections;
        let are_of_two = connections > 0 && connections.is_multiple_of(2);
        assert!(are_of_two, "two ranks connect: {record:#?}");
    }
}

/// Missing huge pages must be reported: in the record if smaller pages were used, otherwise as a skip.
#[test]
fn memory_of_every_page_size_is_registered() {
    let (run, records) = connect(
        "--engine shm --ranks 2 --memory small,huge --register 64k --duration 50ms --trials 1",
    );
    let [small, huge] = &records[..] else {
        panic!("{run:#?}")
    };
    let is_normal = |record: &Record| {
        let all = record.effective.iter();
        let all = all.map(|part| part.memory.all()[0].pages.as_deref().unwrap() == "normal");
        all.collect::<Vec<_>>()
    };
    assert_eq!(small.outcome, Outcome::Measured, "{run:#?}");
    assert!(is_normal(small).iter().all(|&is_so| is_so));
    if huge.outcome == Outcome::Measured {
        assert_eq!(run.code, Some(0), "{run:#?}");
        assert!(!is_normal(huge).contains(&true));
    } else {
        let why = why(huge);
        assert!(
            why.contains("--memory huge") && why.contains("nr_hugepages"),
            "{why}"
        );
        println!("skip: huge pages were not measured: {why}");
        run.with_code(1).printing(&["skipped"]);
    }
}

/// Returns the option value that the reason of a skipped point recommends.
fn advised<'a>(why: &'a str, option: &str) -> &'a str {
    let rest = why.split(option).nth(1).unwrap_or_else(|| panic!("{why}"));
    rest.trim_start().split([',', ' ']).next().unwrap()
}

#[test]
fn more_connections_than_descriptors_are_skipped_with_the_number_that_fits() {
    for engine in ["fabric:tcp --libfabric embedded", "shm"] {
        let dir = tempdir().unwrap();
        let limited = |workers: &str| {
            let line = format!("connect --engine {engine} --ranks 2 --threads {workers}");
            let line = format!("{line} --duration 50ms --trials 1 -o {workers}.jsonl");
            under(dir.path(), "prlimit --nofile=128", &line).run()
        };
        limited("64").with_code(2);
        let records = records::read(&dir.path().join("64.jsonl"));
        are_skipped(&records, "threads fit");
        let why = why(&records[0]);
        let fit = advised(why, "--threads");
        assert!((8..=32).contains(&fit.parse::<u32>().unwrap()), "{why}");
        limited(fit).with_code(0);
    }
}

#[test]
fn registrations_beyond_memory_are_skipped_with_what_there_is() {
    let (run, records) =
        connect("--engine shm --ranks 2 --register 4k,512G --duration 20ms --trials 1");
    run.with_code(1);
    assert_eq!(records[0].outcome, Outcome::Measured);
    are_skipped(&records[1..], "bytes of memory available");
    let why = why(&records[1]);
    let fits = advised(why, "--register").strip_suffix('M');
    assert!(
        (16..512 << 10).contains(&fits.unwrap().parse::<u64>().unwrap()),
        "{why}"
    );
}
