use super::*;
use crate::fixture::{Holds, LISTS, Refused, SHIPPED, cases};
use crate::{Experiment, Plan, Point};
use tonnage_units::PairPlace;

/// A plan of one experiment with the engine shm and these lines.
fn plan(lines: &str) -> Plan {
    let text = format!("name = 'test'\n[[connect]]\nengine = 'shm'\n{lines}");
    Plan::from_toml(&text, "test.toml").unwrap()
}

fn points(lines: &str) -> Vec<ConnectPoint> {
    let planned = plan(lines).points(2, &LISTS).unwrap();
    let points = planned.into_iter().map(|planned| match planned.point {
        Point::Connect(point) => point,
        other => panic!("{other:?}"),
    });
    points.collect()
}

/// The ranks of these kinds are processes, but the engine needs ranks that are threads of one process.
#[test]
fn an_engine_within_one_process_is_refused() {
    for (kind, lines) in [
        ("connect", ""),
        ("stress", ""),
        ("tune", "op = 'write'\nsizes = '64k'"),
    ] {
        let text = format!("name = 'test'\n[[{kind}]]\nengine = 'cuda'\n{lines}");
        let plan = Plan::from_toml(&text, "test.toml").unwrap();
        let refused = plan.points(2, &SHIPPED).unwrap_err().to_string();
        refused.holds("engine cuda moves bytes within one process");
        refused.holds("use `tonnage transfer`");
    }
}

#[test]
fn given_options_are_in_the_point_and_others_have_their_defaults() {
    let default = ConnectPoint {
        label: None,
        engine: "shm".into(),
        engine_options: EngineOptions::new(),
        traffic: Traffic::Pair,
        ranks: 2,
        threads: 1,
        place: None,
        register_bytes: 4096,
        memory: "host".to_owned(),
        trials: 5,
        trial_ns: 200_000_000,
    };
    assert_eq!(points(""), std::slice::from_ref(&default));
    let lines = "label = \"mine\"\ntraffic = \"fan-in\"\nthreads = 3\nplace = \"far\"\nregister = \"1G\"\nmemory = \"huge\"\n\
                 duration = \"3s\"\ntrials = 2\n";
    let expected = ConnectPoint {
        label: Some("mine".into()),
        traffic: Traffic::FanIn,
        threads: 3,
        place: Some(PairPlace::Far),
        register_bytes: 1 << 30,
        memory: "huge".to_owned(),
        trials: 2,
        trial_ns: 1_500_000_000,
        ..default
    };
    assert_eq!(points(lines), [expected]);
}

#[test]
fn sweeps_multiply_with_the_registered_bytes_varying_fastest() {
    let points = points("threads = '1,2'\nregister = '4k..1M*16'\nmemory = ['host', 'huge']");
    assert_eq!(points.len(), 2 * 2 * 3);
    let cell = |at: usize| {
        (
            points[at].memory.as_str(),
            points[at].threads,
            points[at].register_bytes,
        )
    };
    assert_eq!(cell(0), ("host", 1, 4 << 10));
    assert_eq!(cell(1), ("host", 1, 64 << 10));
    assert_eq!(cell(3), ("host", 2, 4 << 10));
    assert_eq!(cell(6), ("huge", 1, 4 << 10));
}

#[test]
fn connections_are_counted_once() {
    let point = |lines: &str, ranks| {
        let planned = plan(lines).points(ranks, &LISTS).unwrap();
        match &planned[0].point {
            Point::Connect(point) => point.connections(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(point("", 8), 4);
    assert_eq!(point("traffic = 'fan-in'\nthreads = 3", 8), 21);
}

#[test]
fn impossible_values_are_refused_with_the_nearest_choice() {
    for (lines, part) in cases([
        "traffic = 'fan-out' => use traffic pair or fan-in",
        "traffic = 'all-to-all' => use traffic pair or fan-in",
        "threads = 0 => use threads 1 to threads 1024",
        "threads = 2000 => use threads 1 to threads 1024",
        "register = 0 => the smallest is register 1",
        "register = '2T' => the most is register 1T",
        "register = '1T'; threads = 2 => the most is register 512G",
        "memory = [] => memory is empty",
        "trials = 0 => use trials 1 to trials 100000",
        "duration = '1ms' => the shortest is duration 50ms",
        "duration = '1000h' => the longest is duration 120h",
        "engine-options = { a = 'b' } => has no option",
    ]) {
        plan(lines).points(2, &LISTS).refused(part);
    }
    plan("")
        .points(3, &LISTS)
        .refused("use --ranks 4, or traffic fan-in");
    plan("").points(1, &LISTS).refused("use --ranks 2");
    assert_eq!(points("traffic = 'fan-in'").len(), 1);
}

#[test]
fn scaling_changes_the_time_within_its_bounds() {
    let trial_ns = |lines: &str, factor| {
        let mut plan = plan(lines);
        plan.scale(factor, 2).unwrap();
        match &plan.experiments[0] {
            Experiment::Connect(connect) => length(&connect.length).map(|(_, ns)| ns),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(trial_ns("", 0.5).unwrap(), 100_000_000);
    assert_eq!(trial_ns("", 1e-6).unwrap(), TRIAL_NS_MIN);
    assert!(trial_ns("duration = '1ms'", 1000.0).is_err());
}
