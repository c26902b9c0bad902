//! Connections over real engines, from the conductor to the record, with threads as ranks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use tonnage_engine::testing::TestDomain;
use tonnage_engine::{Domains, Entry, Lists, OpenRequest, Verb, WorkerConfig};
use tonnage_engines::LISTS;
use tonnage_plan::connect::ConnectPoint;
use tonnage_plan::point::Traffic;
use tonnage_plan::{Planned, Point};
use tonnage_record::connect::Step;
use tonnage_record::{Body, ConnectBody, Outcome, Record};
use tonnage_units::{Error, Result};

use crate::far;
use crate::runs::{over, why_failed, why_skipped};

fn point(engine: &str, traffic: Traffic, ranks: u32, workers: u32) -> ConnectPoint {
    ConnectPoint {
        label: None,
        engine: engine.into(),
        engine_options: Default::default(),
        traffic,
        ranks,
        threads: workers,
        place: None,
        register_bytes: 4096,
        memory: "host".into(),
        trials: 2,
        trial_ns: 5_000_000,
    }
}

/// Measures a point over the program's own engines. Returns rank 0's record, and its body.
fn measured(point: &ConnectPoint) -> (Record, ConnectBody) {
    measured_by(point, LISTS)
}

/// Measures a point over the engines of `lists`. Returns rank 0's record, and its body.
fn measured_by(point: &ConnectPoint, lists: Lists) -> (Record, ConnectBody) {
    let record = measured_all(std::slice::from_ref(point), lists).remove(0);
    let Body::Connect(body) = &record.body else {
        panic!("{record:#?}");
    };
    let body = (**body).clone();
    (record, body)
}

/// Measures points with equal numbers of ranks one after the other. Returns rank 0's records.
fn measured_all(points: &[ConnectPoint], lists: Lists) -> Vec<Record> {
    let planned = points.iter().cloned().map(Point::Connect);
    let planned: Vec<Planned> = planned.map(Planned::from).collect();
    over(lists).records(points[0].ranks, planned).unwrap()
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
    // In a round, every worker of every rank takes every step once.
    let workers = u64::from(point.ranks * point.threads);
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
fn pairs_and_fan_in_connect_over_every_engine() {
    for engine in ["null", "shm", "fabric:tcp", "fabric:shm"] {
        check(&point(engine, Traffic::Pair, 2, 2));
        check(&point(engine, Traffic::FanIn, 3, 1));
    }
}

/// Verbs of a device that cannot send messages.
static ONE_SIDED: [Verb; 2] = [Verb::Write, Verb::Read];
static WRITES_ONLY: [Verb; 1] = [Verb::Write];

#[test]
fn a_device_without_messages_is_read_from() {
    static FEW: [Entry; 1] = [Entry {
        open: |request| offering(request, &ONE_SIDED),
        ..tonnage_engines::shm::ENTRY
    }];
    let (record, body) = measured_by(&point("shm", Traffic::FanIn, 3, 2), only(&FEW));
    assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
    assert!(body.summary.unwrap().connections > 0);
    let verbs = |record: &Record| record.effective[0].engine.facts.get("first_byte").cloned();
    assert_eq!(verbs(&record), Some("read".into()));
    let (record, _) = measured(&point("shm", Traffic::Pair, 2, 1));
    assert_eq!(verbs(&record), Some("write-imm".into()));
}

#[test]
fn a_device_without_a_verb_for_the_first_byte_is_skipped() {
    static NONE: [Entry; 1] = [Entry {
        open: |request| offering(request, &WRITES_ONLY),
        ..tonnage_engines::shm::ENTRY
    }];
    let (record, _) = measured_by(&point("shm", Traffic::Pair, 2, 1), only(&NONE));
    let why = why_skipped(&record);
    assert!(why.contains("write-imm or read on shm"), "{why}");
}

/// Opens the engine `shm` with only these verbs.
fn offering(request: &OpenRequest<'_>, verbs: &'static [Verb]) -> Result<Domains> {
    TestDomain::wrap_all((tonnage_engines::shm::ENTRY.open)(request), |domain| {
        domain.caps.verbs = verbs;
    })
}

#[test]
fn too_much_memory_is_refused_with_the_available_amount() {
    let much = ConnectPoint {
        register_bytes: 1 << 50,
        ..point("shm", Traffic::Pair, 2, 1)
    };
    let (record, body) = measured(&much);
    let why = why_skipped(&record);
    assert!(
        why.contains("bytes of memory available") && why.contains("--register"),
        "{why}"
    );
    assert!(body.trials.is_empty() && body.summary.is_none());
}

/// Opens `devices` devices of the engine `null`. `refuse` may return an error for a worker. It gets the worker's
/// configuration, and the number of workers that this device has opened before.
fn refusing(
    request: &OpenRequest<'_>,
    devices: usize,
    refuse: fn(&WorkerConfig, u32) -> Option<Error>,
) -> Result<Domains> {
    let opened: Result<Vec<_>> = (0..devices)
        .map(|_| (tonnage_engines::null::ENTRY.open)(request))
        .collect();
    let opened: Domains = opened?.into_iter().flatten().collect();
    TestDomain::wrap_all(Ok(opened), |domain| {
        let (opened, inner) = (AtomicU32::new(0), Arc::clone(&domain.workers));
        domain.workers = Arc::new(move |config| {
            let before = opened.fetch_add(1, Ordering::Relaxed);
            refuse(config, before).map_or_else(|| inner(config), Err)
        });
    })
}

/// Returns lists that contain only these engines.
const fn only(engines: &'static [Entry]) -> Lists {
    Lists { engines, ..LISTS }
}

#[test]
fn more_workers_than_queues_are_skipped_with_the_number_that_fits_and_broken_ones_fail() {
    const fn over(open: fn(&OpenRequest<'_>) -> Result<Domains>) -> Entry {
        Entry {
            open,
            ..tonnage_engines::null::ENTRY
        }
    }
    static FEW: [Entry; 1] = [over(|request| {
        refusing(request, 1, |config, _| {
            let none = || Error::io("there are no more queue pairs", Errno::NOMEM);
            (config.worker >= 3).then(none)
        })
    })];
    static BROKEN: [Entry; 1] = [over(|request| {
        refusing(request, 1, |config, _| {
            (config.worker >= 3).then(|| Error::Failed("the device is broken".into()))
        })
    })];
    let all = point("null", Traffic::Pair, 2, 8);
    let (record, body) = measured_by(&all, only(&FEW));
    let why = why_skipped(&record);
    assert!(
        why.contains("no more queue pairs") && why.contains("--threads 3"),
        "{why}"
    );
    assert!(
        !why.contains("ulimit -l"),
        "no memory was pinned, so its limit is not the cause: {why}"
    );
    assert!(body.trials.is_empty());
    let (record, _) = measured_by(&point("null", Traffic::Pair, 2, 3), only(&FEW));
    assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
    let (record, _) = measured_by(&all, only(&BROKEN));
    let why = why_failed(&record);
    assert!(
        why.contains("the device is broken") && !why.contains("--threads"),
        "{why}"
    );
}

#[test]
fn a_later_round_that_fails_ends_its_point_and_not_the_run() {
    static LATER: [Entry; 2] = [
        Entry {
            open: |request| {
                refusing(request, 1, |config, before| {
                    // The rehearsal opens three workers, so this fails in a later round.
                    (config.rank == 1 && before >= 7).then(|| Error::Failed("worn out".into()))
                })
            },
            ..tonnage_engines::null::ENTRY
        },
        tonnage_engines::shm::ENTRY,
    ];
    let points = ["null", "shm"].map(|engine| point(engine, Traffic::Pair, 2, 2));
    let records = measured_all(&points, only(&LATER));
    let why = why_failed(&records[0]);
    assert!(
        why.contains("rank 1") && why.contains("worn out"),
        "the reason names the rank and the error: {why}"
    );
    assert_eq!(records[1].outcome, Outcome::Measured, "{records:#?}");
}

/// Each worker lies about its first operation of a round. The byte arrives twice at once, a second time after the
/// round, or under the name of another rank.
#[test]
fn a_byte_that_arrives_twice_or_from_another_peer_ends_the_point() {
    let lies = [
        ("none", ""),
        ("double", "arrived 2 times"),
        ("echo", "arrived 2 times"),
        ("stranger", "arrived as one of rank"),
    ];
    for (traffic, ranks) in [(Traffic::Pair, 2), (Traffic::FanIn, 3)] {
        for (lie, expected) in lies {
            let engine_options = [("lie".to_owned(), lie.to_owned())].into_iter().collect();
            let point = ConnectPoint {
                engine_options,
                ..point("far", traffic, ranks, 2)
            };
            let (record, body) = measured_by(&point, far::LISTS);
            match &record.outcome {
                Outcome::Measured => assert_eq!(lie, "none", "{traffic:?} {body:#?}"),
                Outcome::Failed { why } if lie != "none" => {
                    assert!(why.contains(expected), "{traffic:?} {lie}: {why}");
                }
                other => panic!("{traffic:?} {lie}: {other:?}"),
            }
        }
    }
}

#[test]
fn each_device_is_in_the_record() {
    static TWO: [Entry; 1] = [Entry {
        open: |request| refusing(request, 2, |_, _| None),
        ..tonnage_engines::null::ENTRY
    }];
    let (record, _) = measured_by(&point("null", Traffic::Pair, 2, 2), only(&TWO));
    assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
    for part in &record.effective {
        assert_eq!(part.engine.devices.len(), 2, "{part:#?}");
    }
    let (record, _) = measured(&point("null", Traffic::Pair, 2, 2));
    assert!(record.effective[0].engine.devices.is_empty());
}
