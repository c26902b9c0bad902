//! Comparisons of records, from two sides to verdicts.

use serde_json::{Value, json};
use tonnage_record::Record;

use crate::compare::{CompareRequest, Comparison, compare};
use crate::criteria::{Criteria, PointVerdict};
use crate::judging::PointJudgement;
use crate::known_answers::NormalSource;
use crate::sides::{sides_of_one_file, sides_of_two_files};

mod lost;
mod random;
mod surroundings;

/// A transfer record as JSON, with operations of `size` bytes and one trial per bandwidth.
pub(crate) fn record(run: &str, size: u64, bandwidths: &[f64]) -> Value {
    let trial = |bandwidth: &f64| {
        json!({
            "window_ns": 1_000_000, "operations": 100, "payload_bytes": 100 * size, "bandwidth_bytes_per_s": bandwidth,
            "message_rate_per_s": bandwidth / size as f64, "initiator_cpu_ns": 1000, "target_cpu_ns": 0,
            "start_skew_ns": 1,
        })
    };
    let trials: Vec<Value> = bandwidths.iter().map(trial).collect();
    let mean = bandwidths.iter().sum::<f64>() / bandwidths.len() as f64;
    let spread = |mean: f64| json!({"mean": mean, "min": mean, "max": mean});
    json!({
        "schema_version": 3, "run_id": run, "plan": "p", "time_unix_ns": 1,
        "tonnage": {"version": "0.1.0", "git_revision": "abc"}, "outcome": {"status": "measured"},
        "kind": "transfer",
        "point": {
            "engine": "shm", "op": "write", "traffic": "pair", "ranks": 2, "threads": 1, "size_bytes": size,
            "pacing": {"kind": "stream", "depth": 16}, "memory": "host", "footprint_bytes": 4096, "stride_bytes": size,
            "access": "sequential", "seed": 1, "latency": false, "verify": false, "bound": {"kind": "auto"},
            "length": {"trials": 3, "trial": {"duration_ns": 1_000_000}, "warmup_ns": 1000},
        },
        "trials": trials,
        "summary": {
            "trials": bandwidths.len(), "operations": 100, "payload_bytes": 1000, "bandwidth_bytes_per_s": spread(mean),
            "message_rate_per_s": spread(mean / size as f64), "initiator_cpu_ns_per_operation": 10.0,
            "target_cpu_ns_per_operation": 0.0,
        },
        "effective": [], "environment": [environment("6.1")],
        "canary": {"status": "measured", "cpus": [0, 1], "before_ns": 50.0, "after_ns": 51.0, "changed": false},
    })
}

fn environment(kernel: &str) -> Value {
    json!({
        "ranks": "0-1", "launcher": "tonnage --ranks",
        "machine": {
            "os": "Debian", "kernel": kernel, "architecture": "x86_64",
            "cpu": {
                "model": "X", "online": "0-7", "allowed": "0-7", "sockets": 1, "cores": 4, "threads_per_core": 2,
                "governor": "performance",
            },
            "memory": {
                "total_bytes": 1u64 << 34, "numa_nodes": "0", "huge_pools": [],
                "transparent": {"enabled": "madvise", "shmem_enabled": "never"},
            },
            "libraries": {"libc": "2.36"}, "variables": {},
        },
        "hosts": [{"name": "n1", "ranks": "0-1", "clock_offset_ns": 0, "clock_uncertainty_ns": 0}],
    })
}

/// `count` runs of one 1 MiB point, with means within 1 % of `mean`.
fn runs(name: &str, count: usize, mean: f64) -> Vec<Value> {
    let factors = [1.0, 1.01, 0.99, 1.005, 0.995, 1.002, 0.998];
    let each = (0..count).map(|at| {
        let mean = mean * factors[at % factors.len()];
        record(
            &format!("{name}{at}"),
            1 << 20,
            &[mean * 0.999, mean, mean * 1.001],
        )
    });
    each.collect()
}

pub(crate) fn changed(mut records: Vec<Value>, change: impl Fn(&mut Value)) -> Vec<Value> {
    records.iter_mut().for_each(change);
    records
}

pub(crate) fn read(records: &[Value]) -> Vec<Record> {
    let read = |value: &Value| serde_json::from_value(value.clone()).unwrap();
    records.iter().map(read).collect()
}

fn compared_as(
    a: &[Value],
    b: &[Value],
    request: &CompareRequest,
) -> tonnage_units::Result<Comparison> {
    let (a, b) = (read(a), read(b));
    compare(&sides_of_two_files([(&a, "a"), (&b, "b")])?, request)
}

/// Marks records as one side of `tonnage ab`.
fn side(name: &'static str) -> impl Fn(&mut Value) {
    move |record: &mut Value| record["side"] = json!({"name": name, "turn": 0})
}

fn compared_by_turns(records: &[Value]) -> Comparison {
    let records = read(records);
    let sides = sides_of_one_file(&records, "ab").unwrap();
    compare(&sides, &CompareRequest::default()).unwrap()
}

fn compared(a: &[Value], b: &[Value]) -> Comparison {
    compared_as(a, b, &CompareRequest::default()).unwrap()
}

#[track_caller]
fn only(comparison: &Comparison) -> &PointJudgement {
    let [judged] = comparison.points.as_slice() else {
        panic!("{comparison:#?}")
    };
    judged
}

#[track_caller]
fn refusal(a: &[Value], b: &[Value], request: &CompareRequest, parts: &[&str]) {
    let error = compared_as(a, b, request).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

fn ignoring(keys: &[&str]) -> CompareRequest {
    CompareRequest {
        ignore: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..CompareRequest::default()
    }
}

fn accepting(keys: &[&str]) -> CompareRequest {
    CompareRequest {
        accept: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..CompareRequest::default()
    }
}

fn of_metrics(names: &[&str]) -> CompareRequest {
    CompareRequest {
        metrics: names.iter().map(|name| name.parse().unwrap()).collect(),
        ..CompareRequest::default()
    }
}

#[test]
fn the_run_is_the_unit_from_three_a_side_on() {
    let comparison = compared(&runs("a", 3, 1e10), &runs("b", 3, 0.8e10));
    let judged = only(&comparison);
    assert_eq!(
        (judged.verdict, judged.of_these_runs_only),
        (PointVerdict::Worse, false)
    );
    let ratio = judged.ratio.unwrap();
    assert!((ratio.value - 0.8).abs() < 1e-9 && ratio.low < 0.8 && ratio.high > 0.8);
    let (a, b) = (judged.a.unwrap(), judged.b.unwrap());
    assert_eq!((a.runs, a.trials, b.runs), (3, 9, 3));
    assert_eq!(comparison.runs, [3, 3]);
    for (runs_of_a, mean, verdict) in [
        (3, 1.2e10, PointVerdict::Better),
        (5, 1e10, PointVerdict::Same),
    ] {
        let comparison = compared(&runs("a", runs_of_a, 1e10), &runs("b", 5, mean));
        assert_eq!(only(&comparison).verdict, verdict);
    }
}

fn by_trials() -> CompareRequest {
    let criteria = Criteria {
        by_trials: true,
        ..Criteria::default()
    };
    CompareRequest {
        criteria,
        ..CompareRequest::default()
    }
}

/// This holds however different the sides are, and for two files as for `tonnage ab`.
#[test]
fn fewer_than_three_runs_a_side_are_unclear() {
    for (a, b, said, more) in [
        (1, 1, "1 run a side", 2),
        (2, 2, "2 runs a side", 1),
        (1, 7, "1 run of A and 7 of B", 2),
        (7, 2, "7 runs of A and 2 of B", 1),
    ] {
        for mean in [0.1e10, 1e10, 5e10] {
            let (a, b) = (runs("a", a, 1e10), runs("b", b, mean));
            let turns = [changed(a.clone(), side("a")), changed(b.clone(), side("b"))];
            for comparison in [compared(&a, &b), compared_by_turns(&turns.concat())] {
                let judged = only(&comparison);
                let found = (judged.verdict, judged.ratio, judged.of_these_runs_only);
                assert_eq!(found, (PointVerdict::Unclear, None, false));
                assert_eq!(judged.more_runs, Some(more));
                let why = format!("{said}; use `--runs 5`");
                assert!(judged.why[0].starts_with(&why), "{judged:?}");
            }
        }
    }
    // Two runs of 0 are not *same* either. Trials hardly vary, but they are not used unless requested.
    let idle = |name: &str| {
        changed(runs(name, 2, 1e10), |run: &mut Value| {
            run["summary"]["initiator_cpu_ns_per_operation"] = 0.0.into();
        })
    };
    let request = of_metrics(&["cpu-per-op"]);
    let comparison = compared_as(&idle("a"), &idle("b"), &request).unwrap();
    assert_eq!(only(&comparison).verdict, PointVerdict::Unclear);
}

/// Separate starts of the same program differ by 3 to 8 %, and their trials by less. This difference must never be
/// called worse or better.
#[test]
fn equal_starts_are_never_worse() {
    let mut source = NormalSource(41);
    for (starts, trials) in [(0.03, 0.005), (0.05, 0.01), (0.08, 0.02)] {
        let mut pooled = 0;
        for _ in 0..60 {
            let mut one = |name: &str| {
                let mean = source.runs(1, 1e10, starts)[0];
                vec![record(name, 64, &source.runs(5, mean, trials))]
            };
            let (a, b) = (one("a"), one("b"));
            assert_eq!(only(&compared(&a, &b)).verdict, PointVerdict::Unclear);
            let pooling = compared_as(&a, &b, &by_trials()).unwrap();
            pooled += usize::from(only(&pooling).verdict == PointVerdict::Worse);
        }
        // With `--by-trials`, the same values would be called worse, so the test can fail.
        assert!(pooled >= 2, "{pooled} of 60 at {starts}");
    }
}

#[test]
fn trials_replace_too_few_runs_if_requested() {
    for (a, b) in [(1, 1), (2, 7), (7, 2)] {
        let (a, b) = (runs("a", a, 1e10), runs("b", b, 0.5e10));
        let comparison = compared_as(&a, &b, &by_trials()).unwrap();
        let judged = only(&comparison);
        assert_eq!(
            (judged.verdict, judged.of_these_runs_only),
            (PointVerdict::Worse, true)
        );
    }
    // With enough runs, `--by-trials` has no effect.
    let (a, b) = (runs("a", 3, 1e10), runs("b", 3, 0.8e10));
    let comparison = compared_as(&a, &b, &by_trials()).unwrap();
    assert!(!only(&comparison).of_these_runs_only);
    // A single trial has no spread, so there is no estimate.
    let one = |run: &str| vec![record(run, 64, &[1e10])];
    let comparison = compared_as(&one("a"), &one("b"), &by_trials()).unwrap();
    let judged = only(&comparison);
    assert_eq!(
        (judged.verdict, judged.ratio, judged.more_runs),
        (PointVerdict::Unclear, None, Some(2))
    );
    assert!(judged.why[0].contains("too few trials"), "{judged:?}");
}

#[test]
fn unclear_points_report_how_many_more_runs_are_needed() {
    let comparison = compared(&runs("a", 3, 1e10), &runs("b", 3, 0.965e10));
    let judged = only(&comparison);
    assert_eq!(judged.verdict, PointVerdict::Unclear);
    let more = judged.more_runs.unwrap();
    assert!((1..20).contains(&more), "{more}");
}

#[test]
fn a_changed_canary_leaves_its_run_out() {
    let disturb = |records: &mut Vec<Value>, count: usize| {
        for record in records.iter_mut().take(count) {
            record["canary"]["changed"] = true.into();
        }
    };
    let mut b = runs("b", 5, 0.8e10);
    disturb(&mut b, 1);
    let comparison = compared(&runs("a", 5, 1e10), &b);
    let judged = only(&comparison);
    assert_eq!(
        (judged.verdict, judged.b.unwrap().runs),
        (PointVerdict::Worse, 4)
    );
    assert!(judged.why[0].contains("1 run left out"), "{judged:?}");
    for count in [3, 5] {
        disturb(&mut b, count);
        let judged = only(&compared(&runs("a", 5, 1e10), &b)).clone();
        assert_eq!(judged.verdict, PointVerdict::NotComparable, "{judged:?}");
        let accepted = compared_as(&runs("a", 5, 1e10), &b, &accepting(&["canary"])).unwrap();
        assert_eq!(only(&accepted).verdict, PointVerdict::Worse);
    }
}

#[test]
fn points_without_a_partner_name_the_nearest() {
    let mut b = runs("b", 3, 1e10);
    b.extend((0..3).map(|at| record(&format!("b{at}"), 64, &[1e9, 1.1e9])));
    let comparison = compared(&runs("a", 3, 1e10), &b);
    assert_eq!(comparison.count(PointVerdict::Missing), 1);
    let missing = &comparison.points[1];
    assert!(missing.why[0].starts_with("only B has it"), "{missing:?}");
    assert!(missing.why[0].contains("size (1 MiB, 64 B)"), "{missing:?}");
    // A failed point is on the side, but has no value.
    let failed = |record: &mut Value| {
        record["outcome"] = json!({"status": "failed", "why": "it burns"});
        record["trials"] = json!([]);
        record.as_object_mut().unwrap().remove("summary");
    };
    let comparison = compared(&runs("a", 3, 1e10), &changed(runs("b", 3, 1e10), failed));
    let judged = only(&comparison);
    assert_eq!(judged.verdict, PointVerdict::Missing);
    assert!(judged.why[0].contains("it burns"), "{judged:?}");
    // If neither side measured anything, there is nothing to compare.
    let (a, b) = (runs("a", 3, 1e10), runs("b", 3, 1e10));
    let parts = ["nothing was measured"];
    refusal(
        &changed(a, failed),
        &changed(b, failed),
        &CompareRequest::default(),
        &parts,
    );
}

#[test]
fn ignored_keys_join_points_that_differ_in_them_alone() {
    let null = |record: &mut Value| record["point"]["engine"] = "null".into();
    let (a, b) = (runs("a", 3, 1e10), changed(runs("b", 3, 1e10), null));
    refusal(
        &a,
        &b,
        &CompareRequest::default(),
        &[
            "no points in common",
            "engine (shm, null)",
            "--ignore engine",
        ],
    );
    // The suggestion repeats the keys that are already ignored.
    let larger = |record: &mut Value| record["point"]["size_bytes"] = 64.into();
    let b_larger = changed(b.clone(), larger);
    refusal(
        &a,
        &b_larger,
        &ignoring(&["engine"]),
        &["--ignore engine,size to"],
    );
    let comparison = compared_as(&a, &b, &ignoring(&["engine"])).unwrap();
    let judged = only(&comparison);
    assert_eq!(
        (judged.verdict, judged.differing[0].key.as_str()),
        (PointVerdict::Same, "engine")
    );
    // A point that has an exact partner keeps it.
    let both = [a.clone(), changed(runs("a", 3, 0.5e10), null)].concat();
    let comparison = compared_as(&both, &b, &ignoring(&["engine"])).unwrap();
    assert_eq!(
        comparison.count(PointVerdict::Better) + comparison.count(PointVerdict::Missing),
        2
    );
    // The error if ignoring a key would merge several points of a side.
    let third = |record: &mut Value| record["point"]["engine"] = "fabric:tcp".into();
    let b = changed(runs("b", 3, 1e10), third);
    refusal(
        &both,
        &b,
        &ignoring(&["engine"]),
        &["side A", "engine (shm, null, …)"],
    );
    refusal(&a, &b, &ignoring(&["engin"]), &["--ignore", "\"engine\""]);
}

#[test]
fn sides_are_two_files_or_marked_in_one() {
    let records = read(&runs("a", 3, 1e10));
    let error = sides_of_two_files([(&records, "a"), (&records, "copy")]).unwrap_err();
    assert!(error.to_string().contains("run a0"), "{error}");
    let error = sides_of_one_file(&records, "a").unwrap_err();
    assert!(error.to_string().contains("belong to no side"), "{error}");
    let marked = read(&changed(runs("a", 3, 1e10), side("a")));
    let error = sides_of_one_file(&marked, "a").unwrap_err();
    assert!(error.to_string().contains("side B"), "{error}");
    let mixed = [marked.clone(), records.clone()].concat();
    let error = sides_of_one_file(&mixed, "a").unwrap_err();
    assert!(error.to_string().contains("3 of its records"), "{error}");
    // A file with both sides cannot serve as one side.
    let both = [
        marked.clone(),
        read(&changed(runs("c", 3, 1e10), side("b"))),
    ]
    .concat();
    for files in [
        [(&both[..], "ab"), (&records[..], "b")],
        [(&records[..], "b"), (&both[..], "ab")],
    ] {
        let error = sides_of_two_files(files).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("ab holds both sides"), "{error}");
    }
    let other = read(&runs("d", 3, 1e10));
    assert!(sides_of_two_files([(&marked, "a"), (&other, "d")]).is_ok());
}

#[test]
fn a_metric_that_no_point_has_is_refused_with_those_that_there_are() {
    let request = of_metrics(&["latency-p99"]);
    refusal(
        &runs("a", 3, 1e10),
        &runs("b", 3, 1e10),
        &request,
        &["latency-p99", "bandwidth, message-rate"],
    );
    let request = of_metrics(&["message-rate", "cpu-per-op"]);
    let comparison = compared_as(&runs("a", 3, 1e10), &runs("b", 3, 0.5e10), &request).unwrap();
    let verdicts: Vec<_> = comparison
        .points
        .iter()
        .map(|judged| (judged.metric, judged.verdict))
        .collect();
    assert_eq!(
        verdicts,
        [
            (Some("message-rate"), PointVerdict::Worse),
            (Some("cpu-per-op"), PointVerdict::Same)
        ]
    );
}

/// A resumed run does not increase any point's number of runs.
#[test]
fn runs_are_counted_by_point() {
    let mut b = runs("b", 3, 1e10);
    let run = |name: &'static str| {
        (0..3).map(move |at| record(&format!("{name}{at}"), 64, &[1e9, 1.1e9]))
    };
    b.extend(run("resumed"));
    let a: Vec<Value> = runs("a", 3, 1e10).into_iter().chain(run("a")).collect();
    assert_eq!(compared(&a, &b).runs, [3, 3]);
}

/// Below saturation, the bandwidth of a paced point equals the offered rate on any path. The bandwidth of a ping-pong
/// is just the inverse of its latency.
#[test]
fn points_are_compared_by_the_metric_of_their_pacing() {
    let issued = |pacing: &Value, name: &str, latency_ns: u64| {
        changed(runs(name, 5, 1e10), |record: &mut Value| {
            record["point"]["pacing"] = pacing.clone();
            record["point"]["latency"] = true.into();
            record["summary"]["latency"] = latency(latency_ns);
        })
    };
    let without = |record: &mut Value| {
        record["summary"].as_object_mut().unwrap().remove("latency");
    };
    for (pacing, metric) in [
        (
            json!({"kind": "paced", "depth": 16, "rate_per_s": 100}),
            "latency-p99",
        ),
        (json!({"kind": "ping-pong"}), "latency-p50"),
    ] {
        let comparison = compared(&issued(&pacing, "a", 1000), &issued(&pacing, "b", 5000));
        let judged = only(&comparison);
        assert_eq!(
            (judged.metric, judged.verdict),
            (Some(metric), PointVerdict::Worse)
        );
        // Without latencies, the points are compared by bandwidth.
        let [a, b] = ["a", "b"].map(|name| changed(issued(&pacing, name, 1), without));
        assert_eq!(only(&compared(&a, &b)).metric, Some("bandwidth"));
    }
}

/// A latency that is a lower bound can prove only that it is worse than a smaller latency.
#[test]
fn lower_bounds_bear_out_no_verdict_that_a_higher_value_would_change() {
    let of = |name: &str, ns: u64, is_bound: bool| {
        let factors = [1000, 1010, 990];
        let mut all = runs(name, 3, 1e9);
        for (record, factor) in all.iter_mut().zip(factors) {
            let ns = ns * factor / 1000;
            record["point"]["pacing"] = json!({"kind": "paced", "depth": 4, "rate_per_s": 1000.0});
            record["point"]["latency"] = true.into();
            record["summary"]["latency"] = latency(ns);
            if is_bound {
                record["summary"]["latency"]["lower_bounds"] =
                    json!({"unfinished": 9, "from_ns": ns});
            }
        }
        all
    };
    const MS: u64 = 1_000_000;
    for (a, b, expected) in [
        ((MS, false), (2 * MS, false), PointVerdict::Worse),
        ((MS, false), (2 * MS, true), PointVerdict::Worse),
        ((MS, true), (2 * MS, false), PointVerdict::Unclear),
        ((MS, true), (2 * MS, true), PointVerdict::Unclear),
        ((2 * MS, true), (MS, false), PointVerdict::Better),
        ((2 * MS, false), (MS, true), PointVerdict::Unclear),
        ((MS, false), (MS, true), PointVerdict::Unclear),
        ((MS, true), (MS, false), PointVerdict::Unclear),
    ] {
        let comparison = compared(&of("a", a.0, a.1), &of("b", b.0, b.1));
        let judged = only(&comparison);
        assert_eq!(judged.metric, Some("latency-p99"));
        assert_eq!(judged.verdict, expected, "{a:?} {b:?}: {judged:?}");
        let bounds = [judged.a, judged.b].map(|side| side.unwrap().is_lower_bound);
        assert_eq!(bounds, [a.1, b.1]);
        let says = judged.why.iter().any(|why| why.contains("lower bound"));
        assert_eq!(says, expected == PointVerdict::Unclear, "{judged:?}");
    }
    // A failed run is still reported if values are lower bounds.
    let mut failed = of("b", MS, true);
    let extra = failed[0].clone();
    failed.push(extra);
    failed[3]["run_id"] = "b3".into();
    failed[3]["trials"] = json!([]);
    failed[3].as_object_mut().unwrap().remove("summary");
    failed[3]["outcome"] = json!({"status": "failed", "why": "it burns"});
    let comparison = compared(&of("a", MS, false), &failed);
    assert_eq!(only(&comparison).verdict, PointVerdict::Missing);
}

/// Latencies that all have this value.
pub(crate) fn latency(ns: u64) -> Value {
    json!({
        "kind": "operation", "samples": 100_000, "latency_ns_min": ns, "latency_ns_mean": ns as f64,
        "latency_ns_p50": ns, "latency_ns_p90": ns, "latency_ns_p99": ns, "latency_ns_p999": ns, "latency_ns_max": ns,
    })
}

#[test]
fn many_points_are_corrected_for() {
    // One of 40 points differs a little; the others are identical.
    let side = |name: &str, factor: f64| -> Vec<Value> {
        let run = |at: usize| {
            let own = [0.97, 1.0, 1.03][at];
            (1..=40).map(move |size| {
                let mean = if size == 1 { own * factor } else { own };
                record(&format!("{name}{at}"), size, &[1e9 * mean, 1e9 * mean])
            })
        };
        (0..3).flat_map(run).collect()
    };
    let (a, b) = (side("a", 1.0), side("b", 0.88));
    let comparison = compared(&a, &b);
    let first = &comparison.points[0];
    let ratio = first.ratio.unwrap();
    assert!(ratio.p < 0.05 && ratio.p_adjusted > 0.05, "{ratio:?}");
    assert_eq!(first.verdict, PointVerdict::Unclear);
    assert_eq!(comparison.points.len(), 40);
}
