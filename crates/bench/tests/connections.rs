//! Connections set up over real engines, from the conductor to the record, with threads as ranks.
#![cfg(test)]

use std::path::PathBuf;
use std::sync::Arc;

use tonnage_bench::conductor::run;
use tonnage_bench::observer::{Observer, Progress};
use tonnage_bench::settings::{Numa, Settings};
use tonnage_engine::{Caps, Domain, Engine, EngineReport, Entry, Libraries, Lists, WorkerConfig};
use tonnage_engines::LISTS;
use tonnage_machine::Choice;
use tonnage_plan::connect::ConnectPoint;
use tonnage_plan::point::Traffic;
use tonnage_plan::{Planned, Point};
use tonnage_ranks::testing::run_with;
use tonnage_record::connect::Step;
use tonnage_record::{Body, ConnectBody, Outcome, Program, Record};
use tonnage_sys::clock::Clock;
use tonnage_units::{Error, Result};

#[derive(Default)]
struct Kept(Vec<Record>);

impl Observer for Kept {
    fn begin(&mut self, _: usize, _: usize, _: &Point) {}

    fn progress(&mut self, _: &Progress) {}

    fn record(&mut self, record: Record) -> Result<()> {
        self.0.push(record);
        Ok(())
    }
}

fn point(engine: &str, traffic: Traffic, ranks: u32, workers: u32) -> ConnectPoint {
    ConnectPoint {
        label: None,
        engine: engine.into(),
        engine_options: Default::default(),
        traffic,
        ranks,
        workers,
        register_bytes: 4096,
        memory: "host".into(),
        trials: 2,
        trial_ns: 20_000_000,
    }
}

/// The record of rank 0, with its body.
fn measured(point: &ConnectPoint) -> (Record, ConnectBody) {
    measured_by(point, LISTS)
}

/// Measures over engines of a list.
fn measured_by(point: &ConnectPoint, lists: Lists) -> (Record, ConnectBody) {
    let planned = [Planned::from(Point::Connect(point.clone()))];
    let body = move |rank: Result<tonnage_ranks::Rank>| {
        let (mut rank, mut kept) = (rank.unwrap(), Kept::default());
        let settings = Settings {
            lists,
            plan: "test".into(),
            cpus: Choice::None,
            numa: Numa::None,
            devices: Vec::new(),
            libraries: Libraries::from([("libfabric".to_owned(), PathBuf::from("embedded"))]),
            clock: Clock::new(),
            program: Program {
                version: "0".into(),
                git_revision: "none".into(),
            },
        };
        run(&planned, &mut rank, &settings, &mut kept).unwrap();
        rank.close().unwrap();
        kept.0
    };
    let mut all = run_with(point.ranks, |_, options| options.host = "here".into(), body);
    let record = all.swap_remove(0).remove(0);
    let Body::Connect(body) = &record.body else {
        panic!("{record:#?}");
    };
    let body = (**body).clone();
    (record, body)
}

fn check(point: &ConnectPoint) {
    let (record, body) = measured(point);
    assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
    assert_eq!(body.point, *point);
    assert_eq!(body.trials.len(), 2);
    let at_once = point.connections();
    for trial in &body.trials {
        assert!(trial.connections > 0, "{trial:?}");
        assert!(
            trial.connections.is_multiple_of(at_once),
            "whole rounds: {trial:?}"
        );
    }
    let summary = body.summary.as_ref().unwrap();
    let sum: u64 = body.trials.iter().map(|trial| trial.connections).sum();
    assert_eq!(summary.connections, sum);
    let step = |step| body.steps.iter().find(|record| record.step == step);
    let total = &step(Step::Total).unwrap().latency;
    // Every worker of every rank that has a peer takes every step once in a round.
    let workers = u64::from(point.ranks * point.workers);
    assert_eq!(total.samples, sum / at_once * workers);
    let mut parts = 0.0;
    let set_up = Step::ALL.into_iter();
    let set_up = set_up.filter(|step| !matches!(step, Step::Close | Step::Total));
    for part in set_up {
        let latency = &step(part).unwrap().latency;
        assert_eq!(latency.samples, total.samples, "{part:?}");
        parts += latency.latency_ns_mean;
    }
    assert!(
        parts <= total.latency_ns_mean * 1.001,
        "steps of {parts} ns are more than {total:?}"
    );
    assert_eq!(step(Step::Close).unwrap().latency.samples, total.samples);
}

#[test]
fn pairs_connect_over_every_engine() {
    for engine in ["null", "shm", "fabric:tcp", "fabric:shm"] {
        check(&point(engine, Traffic::Pair, 2, 2));
    }
}

#[test]
fn all_connect_to_one_rank() {
    for engine in ["null", "shm", "fabric:tcp"] {
        check(&point(engine, Traffic::FanIn, 3, 1));
    }
}

#[test]
fn memory_that_there_is_not_is_said_with_what_there_is() {
    let much = ConnectPoint {
        register_bytes: 1 << 50,
        ..point("shm", Traffic::Pair, 2, 1)
    };
    let (record, body) = measured(&much);
    let Outcome::Skipped { why } = &record.outcome else {
        panic!("{record:#?}");
    };
    assert!(
        why.contains("bytes of memory available") && why.contains("--register"),
        "{why}"
    );
    assert!(body.trials.is_empty() && body.summary.is_none());
}

/// A device of engine null that has queues for three workers of a rank and no more.
struct Few(Arc<dyn Domain>);

impl Domain for Few {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn report(&self) -> EngineReport {
        self.0.report()
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine>> {
        match config.worker {
            0..3 => self.0.worker(config),
            _ => Err(Error::Failed("there are no more queue pairs".into())),
        }
    }
}

#[test]
fn more_workers_than_queues_are_skipped_with_the_number_that_fits() {
    static FEW: [Entry; 1] = [Entry {
        open: |request| {
            let domains = (tonnage_engines::null::ENTRY.open)(request)?;
            let few = domains
                .into_iter()
                .map(|domain| Arc::new(Few(domain)) as Arc<dyn Domain>);
            Ok(few.collect())
        },
        ..tonnage_engines::null::ENTRY
    }];
    let lists = Lists {
        engines: &FEW,
        ..LISTS
    };
    let (record, body) = measured_by(&point("null", Traffic::Pair, 2, 8), lists);
    let Outcome::Skipped { why } = &record.outcome else {
        panic!("{record:#?}");
    };
    assert!(
        why.contains("no more queue pairs") && why.contains("--workers 3"),
        "{why}"
    );
    assert!(body.trials.is_empty());
    let (record, _) = measured_by(&point("null", Traffic::Pair, 2, 3), lists);
    assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
}
