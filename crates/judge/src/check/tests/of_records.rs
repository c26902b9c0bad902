//! Compares records with a baseline. Its median is 10 GB/s; it warns below 9.5 and fails below 9.

use serde_json::{Value, json};
use tonnage_units::Result;

use super::super::CheckVerdict::{self, Error, Fail, Pass, Skip, Warn};
use super::super::of_records::{RecordsCheck, RunsVerdict, check_records};
use crate::baseline::Baseline;
use crate::baseline::tests::{build_baseline, host, request};
use crate::tests::read;

fn baseline() -> Baseline {
    build_baseline(&host("n1", &[10.0; 5]), &request())
        .unwrap()
        .baseline
}

fn checked(records: &[Value]) -> Result<RecordsCheck> {
    check_records(&baseline(), &read(records))
}

/// Returns host, verdict and figure (in GB/s) of each entry.
fn summary(check: &RecordsCheck) -> Vec<(String, CheckVerdict, Option<f64>)> {
    let one = |it: &RunsVerdict| {
        let value = it.entry.value.map(|value| (value / 1e7).round() / 1e2);
        (it.entry.hosts.join(","), it.entry.verdict, value)
    };
    check.entries.iter().map(one).collect()
}

fn of_kind(model: &str, mut records: Vec<Value>) -> Vec<Value> {
    let machines = records.iter_mut().map(|it| &mut it["environment"][0]);
    machines.for_each(|it| it["machine"]["cpu"]["model"] = model.into());
    records
}

#[test]
fn the_run_in_the_middle_counts_and_the_worst_host_comes_first() {
    let hosts = [
        host("n1", &[10.0, 10.1, 9.9]),
        // More than half of the runs fail, so one very good run does not help.
        host("n2", &[8.7, 11.0, 8.9]),
        // Only half of the runs fail, so the verdict is not a failure.
        host("n3", &[8.9, 10.0]),
        host("n4", &[9.4]),
        host("n5", &[8.9, 8.8, 9.4, 9.3]),
        host("n6", &[8.8, 8.9]),
    ];
    let check = checked(&hosts.concat()).unwrap();
    let name = |name: &str| name.to_owned();
    assert_eq!(
        summary(&check),
        [
            (name("n2"), Fail, Some(8.9)),
            (name("n6"), Fail, Some(8.9)),
            (name("n4"), Warn, Some(9.4)),
            (name("n5"), Warn, Some(9.3)),
            (name("n1"), Pass, Some(10.0)),
            (name("n3"), Pass, Some(10.0)),
        ]
    );
    assert_eq!(check.verdict, Fail);
    assert_eq!(Vec::from_iter(&check.failed_hosts), ["n2", "n6"]);
    assert_eq!(check.entries[0].entry.tries.len(), 3);
    assert!(
        check.reason.starts_with("fail: shm write 1M 8.90 GB/s"),
        "{}",
        check.reason
    );
}

/// A single failed run is a warning. A check too repeats a failed measurement before it reports a failure.
#[test]
fn one_run_alone_fails_nothing() {
    let check = checked(&host("n1", &[8.0])).unwrap();
    assert_eq!(summary(&check), [("n1".to_owned(), Warn, Some(8.0))]);
    let why = check.entries[0].entry.why.as_deref();
    assert!(why.unwrap().contains("the only run"), "{why:?}");
    assert!(check.failed_hosts.is_empty());
    assert_eq!(checked(&host("n1", &[8.0; 2])).unwrap().verdict, Fail);
}

#[test]
fn an_unmeasured_run_is_an_error_unless_another_has_a_figure() {
    let failed = |name: &str| {
        let mut all = host(name, &[10.0]);
        all[0]["outcome"] = json!({"status": "skipped", "why": "no library"});
        all
    };
    let both = [failed("n1"), failed("n2"), host("n2", &[10.0])].concat();
    let check = checked(&both).unwrap();
    let verdicts: Vec<_> = summary(&check).into_iter().map(|it| it.1).collect();
    assert_eq!(verdicts, [Error, Pass]);
    assert_eq!(check.entries[0].entry.why.as_deref(), Some("no library"));
    assert_eq!(check.verdict, Error, "no failure of the host");
}

#[test]
fn a_figure_without_a_record_is_skipped_and_a_point_without_a_figure_is_counted() {
    let mut other = host("n1", &[1.0]);
    other[0]["point"]["pacing"]["depth"] = 17.into();
    let check = checked(&other).unwrap();
    assert_eq!(summary(&check), [("n1".to_owned(), Skip, None)]);
    assert_eq!((check.verdict, check.points_without_entry), (Skip, 1));
}

#[test]
fn kinds_of_hosts_are_judged_by_their_own_figures() {
    let (old, new) = (host("n1", &[10.0; 5]), of_kind("Y", host("m1", &[20.0; 5])));
    let both = build_baseline(&[old, new].concat(), &request())
        .unwrap()
        .baseline;
    let of = |records: Vec<Value>| check_records(&both, &read(&records));
    // The same figure passes on one kind of host and fails on the other.
    let twice = [host("n2", &[10.0; 2]), of_kind("Y", host("m2", &[10.0; 2]))];
    let check = of(twice.concat()).unwrap();
    let verdicts: Vec<_> = summary(&check).into_iter().map(|it| (it.0, it.1)).collect();
    assert_eq!(verdicts, [("m2".to_owned(), Fail), ("n2".to_owned(), Pass)]);
    let check = of([host("n2", &[10.0]), of_kind("Z", host("z1", &[1.0]))].concat()).unwrap();
    assert_eq!(check.verdict, Pass);
    assert_eq!(check.absent_kinds.len(), 1);
    assert!(check.absent_kinds[0].contains('Y'));
    let (kind, hosts) = &check.unknown_kinds[0];
    assert!(kind.contains('Z') && hosts.contains("z1"), "{kind}");
    let refused = of(of_kind("Z", host("z1", &[1.0]))).unwrap_err();
    let said = refused.to_string();
    assert!(
        refused.exit_code() == 2 && said.contains("nothing for this kind of host"),
        "{said}"
    );
}

#[test]
fn sides_of_a_comparison_are_judged_apart() {
    let of_side = |name: &str, bandwidth: f64| {
        let mut all = host("n1", &[bandwidth; 3]);
        let sides = all.iter_mut().map(|it| &mut it["side"]);
        sides.for_each(|it| *it = json!({"name": name, "turn": 0}));
        all
    };
    let check = checked(&[of_side("a", 10.0), of_side("b", 8.0)].concat()).unwrap();
    let verdicts = check.entries.iter();
    let verdicts = verdicts.map(|it| (it.side, it.entry.verdict));
    assert_eq!(
        verdicts.collect::<Vec<_>>(),
        [(Some("B"), Fail), (Some("A"), Pass)]
    );
}
