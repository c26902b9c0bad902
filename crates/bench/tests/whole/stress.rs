//! Stress runs with threads as ranks: over an engine that lies about one operation, and over several real engines at
//! the same time.

use std::time::Duration;

use tonnage_bench::kinds::transfer::open::EngineKey;
use tonnage_engine::{Lists, Verb};
use tonnage_plan::{Experiment, KINDS, Plan, Point};
use tonnage_record::stress::StressRow;
use tonnage_record::{Outcome, Record, StressBody};

use crate::far;
use crate::runs::{Run, over};

/// Returns the record of a stress run, with its body.
fn stressed(text: &str, ranks: u32, lists: Lists) -> (Record, StressBody) {
    let table = format!("[[stress]]\n{text}");
    let record = over(lists).tables(ranks, &table).unwrap().remove(0);
    let body = record.stress().unwrap().clone();
    (record, body)
}

/// Runs the transfer of a command line, without the options of a run, and returns its outcome.
fn repeated(command: &str, ranks: u32, lists: Lists) -> Outcome {
    let (asked, run) = command.split_once(" --ranks ").unwrap();
    assert!(run.starts_with(&ranks.to_string()), "{command}");
    let mut kinds = KINDS.iter();
    let transfer = kinds.find(|kind| kind.key == "transfer").unwrap();
    let words = asked.split(' ').skip(1);
    let matches = (transfer.command)().try_get_matches_from(words).unwrap();
    let experiment: Experiment = (transfer.asked)(&matches).unwrap();
    let plan = Plan {
        name: "again".to_owned(),
        experiments: vec![experiment],
        ..Plan::default()
    };
    let planned = plan.points(ranks, &lists).unwrap();
    assert_eq!(planned.len(), 1, "{command}");
    let mut records = over(lists).records(ranks, planned).unwrap();
    records.remove(0).outcome
}

/// The engine lies once each time it is opened, so the lie is found within the two seconds of the run.
#[test]
fn a_lie_is_caught_within_two_seconds_and_its_command_line_repeats_it() {
    for (lie, op, ranks) in [("truncate", "send", 3), ("flip", "write-imm", 4)] {
        let text = format!(
            "engine = 'far'\nop = '{op}'\nmemory = ['far', 'host']\nduration = '2s'\nmax-size = '64k'\n\
             engine-options = {{ lie = '{lie}' }}"
        );
        let (record, body) = stressed(&text, ranks, far::LISTS);
        let failure = body.first_failure.as_ref().unwrap();
        assert!(failure.why.contains("bytes are wrong"), "{failure:?}");
        let Outcome::Failed { why } = &record.outcome else {
            panic!("{record:#?}");
        };
        assert!(why.contains("transfers failed; the first of them"), "{why}");
        // The run continues until its time is over. Each time the engine is opened, it lies again.
        let failures = body.sum(|row| row.failures);
        assert!(failures > 1, "{body:#?}");
        assert!(Duration::from_nanos(body.elapsed_ns) >= Duration::from_secs(2));
        let again = repeated(&failure.command, ranks, far::LISTS);
        let Outcome::Failed { why } = again else {
            panic!("{again:?} of {}", failure.command);
        };
        assert!(why.contains("bytes are wrong"), "{why}");
    }
}

/// Checks every row of a stress run without failures.
fn check(record: &Record, body: &StressBody, rows: usize) {
    assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
    assert_eq!(body.first_failure, None);
    assert_eq!(body.rows.len(), rows, "{body:#?}");
    for row in &body.rows {
        let StressRow {
            draws,
            skipped,
            operations,
            ..
        } = *row;
        assert_eq!(row.failures, 0, "{row:?}");
        assert!(operations >= draws, "{row:?}");
        assert!(draws == 0 || row.verified_bytes > 0, "{row:?}");
        assert_eq!(skipped > 0, row.skipped_why.is_some(), "{row:?}");
        let latency = row.latency.as_ref();
        assert!(
            latency.is_none_or(|latency| latency.samples <= operations),
            "{row:?}"
        );
    }
}

#[test]
fn an_honest_engine_is_right_in_every_draw() {
    let text =
        "engine = 'far'\nmemory = 'far,host'\nthreads = [1, 2]\nduration = '1s'\nmax-size = '16k'";
    let (record, body) = stressed(text, 3, far::LISTS);
    check(&record, &body, 4);
    assert!(body.sum(|row| row.draws) >= 1);
}

#[test]
fn engines_take_turns() {
    let text = "engine = 'shm,fabric:tcp'\nmemory = 'host,small'\nduration = '1s'\nmax-size = '64k'\nseed = 5";
    let (record, body) = stressed(text, 3, tonnage_engines::LISTS);
    check(&record, &body, 8);
    let of = |engine: &str| {
        let rows = body.rows.iter().filter(|row| row.engine == engine);
        rows.map(|row| row.draws + row.skipped).sum::<u64>()
    };
    let (shm, tcp) = (of("shm"), of("fabric:tcp"));
    assert!(tcp >= 1 && shm.abs_diff(tcp) <= 8, "{shm} {tcp}");
}

#[test]
fn transfers_of_a_group_can_share_an_open_engine() {
    let table = "[[stress]]\nengine = 'shm,fabric:tcp'\nmemory = 'host,small'\nthreads = [1, 3]";
    let lists = tonnage_engines::LISTS;
    let Point::Stress(point) = Run::default().points(4, table).unwrap().remove(0).point else {
        panic!("no stress");
    };
    for engine in point.engines() {
        assert_eq!(point.ops_of(engine, &lists).unwrap(), Verb::COPYING);
        for number in 0..100 {
            let draws = point.draw_group(engine, number, &lists).unwrap();
            let first = EngineKey::new(&draws[0].point);
            let mut others = draws.iter().map(|draw| EngineKey::new(&draw.point));
            assert!(others.all(|key| key == first), "{engine} {number}");
        }
    }
}
