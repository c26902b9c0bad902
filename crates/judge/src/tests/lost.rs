//! Runs that failed, were left out or measured 0: the remaining runs of a side do not prove *same* or *better*.

use serde_json::{Value, json};

use super::{accepting, by_trials, changed, compared, compared_as, of_metrics, only, record, runs};
use crate::compare::Comparison;
use crate::criteria::{FailOn, PointVerdict};

fn fail(record: &mut Value) {
    record["outcome"] = json!({"status": "failed", "why": "it burns"});
    record["trials"] = json!([]);
    record.as_object_mut().unwrap().remove("summary");
}

fn skip(record: &mut Value) {
    fail(record);
    record["outcome"]["status"] = "skipped".into();
}

/// Applies `change` to the first `count` records.
fn some(mut records: Vec<Value>, count: usize, change: impl Fn(&mut Value)) -> Vec<Value> {
    records.iter_mut().take(count).for_each(change);
    records
}

fn is_failure(comparison: &Comparison, on: FailOn) -> bool {
    comparison.points.iter().any(|it| on.includes(it.verdict))
}

#[test]
fn failed_runs_are_counted_even_if_others_are_left() {
    let a = runs("a", 11, 1e10);
    let eight = |mean: f64, change: fn(&mut Value)| some(runs("b", 11, mean), 8, change);
    for (b, verdict, lost) in [
        (
            eight(1e10, fail),
            PointVerdict::Missing,
            "8 of 11 runs not measured, the last failed: it burns",
        ),
        (
            eight(1.3e10, skip),
            PointVerdict::Missing,
            "8 of 11 runs not measured, the last skipped: it burns",
        ),
        // The verdict is still worse if the remaining runs are worse.
        (eight(0.7e10, fail), PointVerdict::Worse, "8 of 11"),
    ] {
        let comparison = compared(&a, &b);
        let judged = only(&comparison);
        assert_eq!((judged.verdict, judged.b.unwrap().runs), (verdict, 3));
        assert_eq!(judged.why.len(), 1);
        assert!(
            judged.why[0].starts_with("B: ") && judged.why[0].contains(lost),
            "{judged:?}"
        );
        // With the sides swapped, the message names A.
        let back = compared(&b, &a);
        assert!(only(&back).why[0].starts_with("A: 8 of 11"));
        assert!([PointVerdict::Missing, PointVerdict::Worse].contains(&only(&back).verdict));
    }
}

#[test]
fn a_repeated_attempt_replaces_the_failed_one() {
    let a = runs("a", 3, 1e10);
    let repeated = |mut records: Vec<Value>| {
        for (at, record) in records.iter_mut().enumerate() {
            record["repetition"] = at.into();
        }
        records
    };
    let mut again = some(repeated(runs("b", 3, 1e10)), 1, fail);
    assert_eq!(only(&compared(&a, &again)).verdict, PointVerdict::Missing);
    let mut once_more = repeated(runs("c", 1, 1e10));
    again.append(&mut once_more);
    let comparison = compared(&a, &again);
    assert_eq!(only(&comparison).verdict, PointVerdict::Same);
    assert!(only(&comparison).why.is_empty());
    // Without repetitions, a second start replaces the failed one only if no other run measured the point.
    let b = [some(runs("b", 1, 1e10), 1, fail), runs("c", 1, 1e10)].concat();
    let comparison = compared_as(&runs("a", 1, 1e10), &b, &by_trials()).unwrap();
    assert_eq!(only(&comparison).verdict, PointVerdict::Same);
}

#[test]
fn a_canary_does_not_hide_a_failure() {
    let disturb = |record: &mut Value| record["canary"]["changed"] = true.into();
    let comparison = compared(
        &changed(runs("a", 3, 1e10), disturb),
        &changed(runs("b", 3, 1e10), fail),
    );
    let judged = only(&comparison);
    assert_eq!(judged.verdict, PointVerdict::Missing, "{judged:?}");
    assert!(
        judged.why.iter().any(|why| why.contains("it burns")),
        "{judged:?}"
    );
    let some_failed = some(runs("b", 5, 1e10), 1, fail);
    let comparison = compared(&changed(runs("a", 5, 1e10), disturb), &some_failed);
    assert_eq!(only(&comparison).verdict, PointVerdict::Missing);
}

#[test]
fn more_than_a_third_left_out_is_a_choice() {
    let disturb = |record: &mut Value| record["canary"]["changed"] = true.into();
    let a = runs("a", 11, 1e10);
    for (count, verdict) in [
        (3, PointVerdict::Worse),
        (4, PointVerdict::NotComparable),
        (8, PointVerdict::NotComparable),
    ] {
        let b = some(runs("b", 11, 0.8e10), count, disturb);
        let comparison = compared(&a, &b);
        assert_eq!(only(&comparison).verdict, verdict, "{count}");
        let accepted = compared_as(&a, &b, &accepting(&["canary"])).unwrap();
        assert_eq!(only(&accepted).verdict, PointVerdict::Worse);
    }
}

/// One run for each value of the CPU time per operation, where 0 is the best value.
fn idle(name: &str, values: &[f64]) -> Vec<Value> {
    let each = values.iter().enumerate().map(|(at, value)| {
        let mut run = record(&format!("{name}{at}"), 64, &[1e9, 1e9]);
        run["summary"]["initiator_cpu_ns_per_operation"] = (*value).into();
        run
    });
    each.collect()
}

#[test]
fn values_of_0_are_values() {
    let request = of_metrics(&["cpu-per-op"]);
    let judged = |a: &[f64], b: &[f64]| {
        let comparison = compared_as(&idle("a", a), &idle("b", b), &request).unwrap();
        only(&comparison).clone()
    };
    let one = judged(&[0.0; 3], &[0.4, 0.5, 0.4]);
    assert_eq!((one.verdict, one.ratio), (PointVerdict::Unclear, None));
    assert_eq!(one.a.unwrap().value, 0.0);
    assert_eq!(one.why, ["A: runs of 0, which no ratio can take"]);
    let some = judged(&[5.0, 6.0, 7.0], &[0.0, 0.0, 0.0, 0.0, 5.0, 6.0, 7.0]);
    assert_eq!(
        (some.verdict, some.b.unwrap().runs),
        (PointVerdict::Unclear, 7)
    );
    assert!(
        (some.b.unwrap().value - 18.0 / 7.0).abs() < 1e-12,
        "{some:?}"
    );
    let none = judged(&[0.0; 3], &[0.0; 3]);
    assert_eq!(
        (none.verdict, none.of_these_runs_only),
        (PointVerdict::Same, false)
    );
    // With `--by-trials`, a trial without progress makes the verdict unclear.
    let a = vec![record("a", 64, &[1e9, 1.1e9, 1e9])];
    let b = vec![record("b", 64, &[1e9, 0.0, 1e9])];
    let comparison = compared_as(&a, &b, &by_trials()).unwrap();
    let stalled = only(&comparison);
    assert_eq!(stalled.verdict, PointVerdict::Unclear);
    assert_eq!(stalled.why, ["B: trials of 0, which no ratio can take"]);
}

#[test]
fn unmeasured_points_are_listed_once_and_are_not_a_failure() {
    let with_skipped = |name: &str| {
        let skipped = (0..3).map(|at| record(&format!("{name}{at}"), 64, &[1e9]));
        [runs(name, 3, 1e10), changed(skipped.collect(), skip)].concat()
    };
    let request = of_metrics(&["bandwidth", "time"]);
    let comparison = compared_as(&with_skipped("a"), &with_skipped("b"), &request).unwrap();
    let verdicts: Vec<_> = comparison.points.iter().map(|it| it.verdict).collect();
    assert_eq!(verdicts, [PointVerdict::Same, PointVerdict::NotMeasured]);
    assert_eq!(comparison.points[1].why.len(), 2, "{comparison:#?}");
    for on in FailOn::ALL {
        assert!(!is_failure(&comparison, on), "{on}");
    }
    // A point that was skipped on one side and has no value on the other is not a failure, but one with a value is.
    let comparison = compared_as(&runs("a", 3, 1e10), &with_skipped("b"), &request).unwrap();
    assert!(!is_failure(&comparison, FailOn::Missing), "{comparison:#?}");
    assert!(comparison.points[1].why[1].contains("B skipped: it burns"));
    let comparison = compared_as(
        &with_skipped("a"),
        &[runs("b", 3, 1e10), idle("b", &[1.0; 3])].concat(),
        &request,
    );
    assert!(is_failure(&comparison.unwrap(), FailOn::Missing));
}

#[test]
fn values_that_do_not_vary_are_remarked_on() {
    let same = |name: &str, runs: usize, mean: f64| -> Vec<Value> {
        (0..runs)
            .map(|at| record(&format!("{name}{at}"), 64, &[mean, mean]))
            .collect()
    };
    // If no value varies, only the order of the values is evidence: three runs may be chance, five are not.
    for (runs, verdict) in [(3, PointVerdict::Unclear), (5, PointVerdict::Better)] {
        let comparison = compared(&same("a", runs, 1e9), &same("b", runs, 2e9));
        assert_eq!(only(&comparison).verdict, verdict);
        assert!(only(&comparison).ratio.unwrap().p > 0.0);
        assert!(only(&comparison).why[0].contains("no value varies"));
    }
}

/// If trials replace runs, the displayed values and the ratio come from the same trials.
#[test]
fn the_ratio_matches_the_displayed_values() {
    let a = vec![
        record("a0", 64, &[1e9, 3e9]),
        record("a1", 64, &[2e9, 2e9, 2e9, 2e9]),
    ];
    let b = vec![record("b0", 64, &[2e9, 2.1e9])];
    let comparison = compared_as(&a, &b, &by_trials()).unwrap();
    let judged = only(&comparison);
    let [a, b] = [judged.a, judged.b].map(|side| side.unwrap().value);
    assert!(
        (judged.ratio.unwrap().value - b / a).abs() < 1e-12,
        "{judged:?}"
    );
}
