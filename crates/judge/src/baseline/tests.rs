//! Small baselines with thresholds that were computed by hand, and invalid files.

mod hosts;

use proptest::prelude::*;
use serde_json::{Value, json};
use tonnage_record::Record;

use super::build::{BaselineRequest, BuiltBaseline, SLOW, baseline};
use super::by_hand::HandValue;
use super::drift::{Drift, drift};
use super::order::{fit_budget, fit_budget_at_pace, most_informative_first, next_pace};
use super::{Baseline, BaselineEntry};
use crate::tests::{changed, latency, read, record};

pub(crate) fn request() -> BaselineRequest {
    BaselineRequest {
        metrics: Vec::new(),
        matched: Vec::new(),
        warn: 0.05,
        fail: 0.1,
        runs_min: 5,
        hosts_min: 1,
        leave_out: Vec::new(),
        by_hand: Vec::new(),
    }
}

/// One run of a 1 MiB point on a host, with this bandwidth and a bound of 20e9 bytes/s.
fn run_on(host: &str, run: usize, bandwidth: f64) -> Value {
    let mut value = record(&format!("{host}-{run}"), 1 << 20, &[bandwidth]);
    value["environment"][0]["hosts"][0]["name"] = host.into();
    value["time_unix_ns"] = json!(1_795_651_200_000_000_000_u64 + run as u64);
    value["bound"] = json!({"what": "memory copy", "bytes_per_s": 20e9});
    value
}

/// Runs of a host with these bandwidths, in GB/s.
pub(crate) fn host(name: &str, bandwidths: &[f64]) -> Vec<Value> {
    let each = bandwidths.iter().enumerate();
    each.map(|(run, bandwidth)| run_on(name, run, bandwidth * 1e9))
        .collect()
}

pub(crate) fn build_baseline(
    records: &[Value],
    request: &BaselineRequest,
) -> tonnage_units::Result<BuiltBaseline> {
    let files: Vec<(String, Vec<Record>)> = vec![("a.jsonl".into(), read(records))];
    baseline(&files, request, &|keys| {
        keys.get("size").unwrap_or("").to_owned()
    })
}

fn only(built: &BuiltBaseline) -> &BaselineEntry {
    match built.baseline.kinds.as_slice() {
        [kind] if kind.entries.len() == 1 => &kind.entries[0],
        kinds => panic!("{kinds:?}"),
    }
}

/// The default request with one change.
fn request_with(change: impl FnOnce(&mut BaselineRequest)) -> BaselineRequest {
    let mut asked = request();
    change(&mut asked);
    asked
}

#[track_caller]
fn refused(records: &[Value], request: &BaselineRequest, part: &str) {
    let error = build_baseline(records, request).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains(part), "{error}");
}

const FIVE: [f64; 5] = [10.0, 10.1, 9.9, 10.0, 10.2];

#[test]
fn thresholds_are_those_computed_by_hand() {
    let built = build_baseline(&host("n1", &FIVE), &request()).unwrap();
    let entry = only(&built);
    // The median is 10.0. The distances from it are 0, 0.1, 0.1, 0, 0.2, so the MAD is 0.1. Four MADs are 0.4, less
    // than 5 %, so the margins of 5 % and 10 % decide.
    assert!((entry.median - 10.0e9).abs() < 1.0 && (entry.mad - 0.1e9).abs() < 1.0);
    assert!((entry.warn - 9.5e9).abs() < 1.0 && (entry.fail - 9.0e9).abs() < 1.0);
    assert_eq!(
        (entry.hosts, entry.runs, entry.spans, entry.ranks),
        (1, 5, 1, 2)
    );
    assert_eq!(
        (entry.of_bound, entry.unit.as_str()),
        (Some(0.5), "bytes/s")
    );
    assert_eq!(entry.first.as_deref(), Some("2026-11-26"));
    assert_eq!(entry.files, ["a.jsonl"]);
    // With a wider spread, the MAD decides both thresholds. The distances are 0, 0.3, 0.3, 0, 0.6, so the MAD is 0.3
    // and four MADs are 1.2.
    let built = build_baseline(&host("n1", &[10.0, 10.3, 9.7, 10.0, 10.6]), &request()).unwrap();
    let entry = only(&built);
    assert!((entry.warn - 8.8e9).abs() < 1.0 && (entry.fail - 8.8e9).abs() < 1.0);
}

#[test]
fn of_latencies_thresholds_lie_above() {
    let asked = request_with(|it| it.metrics = vec!["cpu-per-op".parse().unwrap()]);
    let built = build_baseline(&host("n1", &FIVE), &asked).unwrap();
    let entry = only(&built);
    // All runs have 10 ns, so there is no spread.
    assert_eq!((entry.median, entry.mad), (10.0, 0.0));
    assert_eq!((entry.warn, entry.fail), (10.5, 11.0));
    assert!(entry.is_beyond(11.5, entry.fail) && !entry.is_beyond(9.0, entry.warn));
    // The default metric of a ping-pong is a latency.
    let ping_pong = changed(host("n1", &FIVE), |record| {
        record["point"]["pacing"] = json!({"kind": "ping-pong"});
        record["summary"]["latency"] = latency(700);
    });
    let built = build_baseline(&ping_pong, &request()).unwrap();
    assert_eq!(only(&built).metric, "latency-p50");
}

#[test]
fn points_without_enough_runs_are_left_out_with_a_reason() {
    let five = host("n1", &FIVE);
    let wide = host("n1", &[10.0, 12.0, 8.0, 10.0, 14.0]);
    let failed = json!({"status": "failed", "why": "x"});
    let failed = changed(five.clone(), |record| record["outcome"] = failed.clone());
    refused(&five[..4], &request(), "4 of the 5 runs");
    refused(
        &wide,
        &request(),
        "spread by 20.0 %, as wide as --fail 10.0 %",
    );
    refused(
        &five,
        &request_with(|it| it.hosts_min = 2),
        "1 of the 2 hosts",
    );
    refused(&failed, &request(), "no run has measured it");
    for (part, change) in [
        ("--fail", (|it| it.fail = 0.04) as fn(&mut BaselineRequest)),
        ("--warn", |it| it.warn = 0.0),
        ("kernal", |it| it.matched = vec!["kernal".into()]),
        ("n9", |it| it.leave_out = vec!["n9".into()]),
    ] {
        refused(&five, &request_with(change), part);
    }
}

/// Eight hosts. One of them reaches 0.8 of the other hosts' bandwidth.
fn eight() -> Vec<Value> {
    let of = |at: usize| {
        let factor = if at == 3 { 0.8 } else { 1.0 };
        host(&format!("n{at}"), &FIVE.map(|bandwidth| bandwidth * factor))
    };
    (0..8).flat_map(of).collect()
}

#[test]
fn a_slow_host_of_eight_is_listed_and_left_out_when_asked() {
    let built = build_baseline(&eight(), &request()).unwrap();
    let slow: Vec<&str> = built.slow.iter().map(|one| one.host.as_str()).collect();
    assert_eq!(slow, ["n3"]);
    assert!((built.slow[0].value - 8.0e9).abs() < 1.0 && !built.slow[0].is_left_out);
    assert_eq!((only(&built).hosts, only(&built).runs), (8, 40));
    let without = request_with(|it| it.leave_out = vec![SLOW.into()]);
    let built = build_baseline(&eight(), &without).unwrap();
    assert_eq!((only(&built).hosts, only(&built).runs), (7, 35));
    assert!(built.slow[0].is_left_out);
    assert!(!built.baseline.kinds[0].hosts.contains(&"n3".to_owned()));
    let named = request_with(|it| it.leave_out = vec!["n0".into()]);
    assert_eq!(only(&build_baseline(&eight(), &named).unwrap()).hosts, 7);
}

#[test]
fn kinds_of_hosts_have_figures_of_their_own() {
    let mut records = host("n1", &FIVE);
    let others = host("n2", &FIVE.map(|bandwidth| bandwidth / 2.0));
    records.extend(changed(others, |record| {
        record["environment"][0]["machine"]["cpu"]["model"] = "Y".into();
        record["environment"][0]["machine"]["gpus"] = json!(["H100", "H100"]);
    }));
    let built = build_baseline(&records, &request()).unwrap();
    let medians: Vec<f64> = built
        .baseline
        .kinds
        .iter()
        .map(|kind| kind.entries[0].median)
        .collect();
    assert_eq!(medians, [10e9, 5e9]);
    assert_eq!(built.baseline.kinds[1].facts["gpu"], "2 x H100");
    assert!(built.slow.is_empty());
    for record in &mut records[..5] {
        record["environment"][0]["machine"]["kernel"] = "5.0".into();
    }
    let asked = request_with(|it| it.matched = vec!["kernel".into()]);
    let built = build_baseline(&records, &asked).unwrap();
    assert_eq!(built.baseline.kinds[0].facts["kernel"], "5.0");
}

#[test]
fn a_data_sheet_replaces_runs() {
    let text = "[[value]]\npoint = { engine = 'shm', size = '1 MiB' }\nmetric = 'bandwidth'\nvalue = 12e9\nsource = 'sheet 7'\n";
    let by_hand = |text: &str| {
        let read = HandValue::read_all(text, "hand.toml").unwrap();
        request_with(|it| it.by_hand = read)
    };
    // With a figure from a data sheet, one run is enough, because it only identifies the point.
    let built = build_baseline(&host("n1", &[11.0]), &by_hand(text)).unwrap();
    let entry = only(&built);
    assert_eq!((entry.median, entry.fail), (12e9, 10.8e9));
    assert_eq!(entry.source.as_deref(), Some("sheet 7"));
    for (change, part) in [
        (("12e9", "-1.0"), "hand.toml:1: value -1"),
        (("12e9", "nan"), "not a number above 0"),
        (
            ("source = 'sheet 7'\n", ""),
            "hand.toml:1: missing field `source`",
        ),
        (("'sheet 7'", "' '"), "source is empty"),
        (("metric", "metrik"), "hand.toml:3"),
        (
            ("{ engine = 'shm', size = '1 MiB' }", "{}"),
            "names no keys",
        ),
    ] {
        let wrong = text.replace(change.0, change.1);
        let error = HandValue::read_all(&wrong, "hand.toml").unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    let five = host("n1", &FIVE);
    let other = by_hand(&text.replace("1 MiB", "2 MiB"));
    refused(&five, &other, "no record matches these keys");
    refused(
        &five,
        &by_hand(&text.replace("12e9", "30e9")),
        "above the bound",
    );
}

fn text() -> String {
    build_baseline(&host("n1", &FIVE), &request())
        .unwrap()
        .baseline
        .to_toml()
        .unwrap()
}

#[test]
fn a_baseline_reads_back_as_it_was_written() {
    let built = build_baseline(&eight(), &request()).unwrap();
    let text = built.baseline.to_toml().unwrap();
    assert_eq!(Baseline::from_toml(&text, "x").unwrap(), built.baseline);
}

/// Text in a valid file, its replacement, and part of the message.
const WRONG: &[(&str, &str, &str)] = &[
    ("mad = ", "mud = ", "unknown field `mud`"),
    (
        "warn = 9500000000.0",
        "warn = nan",
        "warn NaN is not a number above 0",
    ),
    (
        "warn = 9500000000.0",
        "warn = -9500000000.0",
        "warn -9500000000 is not a number above 0",
    ),
    (
        "warn = 9500000000.0",
        "warn = 10500000000.0",
        "have to lie below the median",
    ),
    (
        "fail = 9000000000.0",
        "fail = 9600000000.0",
        "fail no nearer than warn",
    ),
    (
        "bound = 20000000000.0",
        "bound = 9400000000.0",
        "lies above the bound",
    ),
    ("mad = 1", "mad = -1", "mad -1"),
    (
        "unit = \"bytes/s\"",
        "unit = \"GB/s\"",
        "unit \"GB/s\" is not that of bandwidth",
    ),
    (
        "metric = \"bandwidth\"",
        "metric = \"bandwith\"",
        "did you mean \"bandwidth\"?",
    ),
    ("runs = 5", "runs = 0", "names no source"),
    ("\"ranks\":2", "\"ranks\":3", "was changed by hand"),
    ("ranks = 2", "ranks = 4", "ranks are not those of its point"),
    ("spans = 1", "spans = 0", "2 ranks on 0 hosts"),
    ("format = 1", "format = 2", "which reads 1"),
    (
        "warn = 0.05",
        "warn = 1.5",
        "warn 1.5 is not a fraction of the median",
    ),
    (
        "[kind.facts]\ncpu = \"1 x X, 4 cores\"",
        "[kind.facts]",
        "a kind needs facts",
    ),
    ("format = 1", "format = ", ":4: "),
];

#[test]
fn wrong_files_are_refused_with_their_line() {
    let good = text();
    let line_of = |part: &str| good[..good.find(part).unwrap()].lines().count() + 1;
    for (from, to, part) in WRONG {
        assert!(good.contains(from), "{from}\n{good}");
        let error = Baseline::from_toml(&good.replacen(from, to, 1), "b.toml").unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains(part) && message.starts_with("b.toml:"),
            "{from} -> {to}: {message}"
        );
        assert_eq!(error.exit_code(), 2);
    }
    let error = Baseline::from_toml(&good.replacen("mad = ", "mud = ", 1), "b.toml").unwrap_err();
    let line = format!("b.toml:{}: ", line_of("mad = "));
    assert!(error.to_string().starts_with(&line), "{error}");
}

#[test]
fn drift_lists_slower_added_and_gone_entries() {
    let old = build_baseline(&host("n1", &FIVE), &request())
        .unwrap()
        .baseline;
    let drifted = |factor: f64| {
        let new = host("n1", &FIVE.map(|bandwidth| bandwidth * factor));
        let new = build_baseline(&new, &request()).unwrap().baseline;
        drift(&old, &new).unwrap()[0].drift
    };
    assert_eq!(
        [1.0, 0.96, 0.94, 0.89, 1.04, 1.06].map(drifted),
        [
            Drift::Same,
            Drift::Same,
            Drift::Slower,
            Drift::Failing,
            Drift::Same,
            Drift::Faster,
        ]
    );
    // If either side has a single run, the result is unclear.
    let few = request_with(|it| it.runs_min = 1);
    let one = build_baseline(&host("n1", &[5.0]), &few).unwrap().baseline;
    for [old, new] in [[&old, &one], [&one, &old]] {
        assert_eq!(drift(old, new).unwrap()[0].drift, Drift::Unclear);
    }
    let mut other = old.clone();
    other.kinds[0].facts.insert("cpu".into(), "Y".into());
    assert!(
        drift(&old, &other)
            .unwrap_err()
            .to_string()
            .contains("no point in common")
    );
    let mut more = old.clone();
    let mut added = more.kinds[0].entries[0].clone();
    added.metric = "message-rate".into();
    more.kinds[0].entries.push(added);
    let drifts = |found: Vec<super::drift::DriftedEntry>| {
        found.iter().map(|it| it.drift).collect::<Vec<_>>()
    };
    assert_eq!(
        drifts(drift(&old, &more).unwrap()),
        [Drift::Same, Drift::Added]
    );
    assert_eq!(
        drifts(drift(&more, &old).unwrap()),
        [Drift::Same, Drift::Gone]
    );
}

fn entry(name: &str, engine: &str, of_bound: f64, takes_s: f64, ranks: u32) -> BaselineEntry {
    let mut entry = only(&build_baseline(&host("n1", &FIVE), &request()).unwrap()).clone();
    entry.name = name.to_owned();
    entry.point = name.to_owned();
    entry.part.insert("engine".into(), engine.into());
    entry.of_bound = Some(of_bound);
    entry.takes_s = takes_s;
    entry.ranks = ranks;
    entry
}

#[test]
fn the_most_informative_point_of_each_engine_comes_first() {
    let entries = [
        entry("a", "shm", 0.5, 1.0, 2),
        entry("b", "shm", 0.9, 1.0, 2),
        entry("c", "tcp", 0.7, 4.0, 2),
        entry("d", "tcp", 0.6, 1.0, 4),
    ];
    let names = |steps: &[super::order::CheckStep<'_>]| {
        steps
            .iter()
            .map(|step| step.name().to_owned())
            .collect::<Vec<_>>()
    };
    let steps = most_informative_first(&entries);
    assert_eq!(names(&steps), ["b", "c", "d", "a"]);
    // A start takes 0.5 s, and every point but c takes 1 s. c takes 4 s and does not fit into 3.5 s; d needs its own
    // start.
    let found = fit_budget(steps.clone(), 3.5, 0.5, 0);
    assert_eq!(
        (names(&found.chosen), names(&found.left)),
        (vec!["b".into(), "d".into()], vec!["c".into(), "a".into()])
    );
    // One retest doubles the cost: 0.5 s for a start and 1 s for the point.
    assert_eq!(names(&fit_budget(steps.clone(), 3.0, 0.5, 1).chosen), ["b"]);
    assert_eq!(
        names(&fit_budget(steps.clone(), 2.9, 0.5, 1).chosen).len(),
        0
    );
    assert_eq!(super::order::shortest_s(&steps, 0.5, 1), Some(3.0));
    // Points took a tenth of their stated time. With the safety factor, a pace of 0.15 is assumed, and all points fit
    // into 2.05 s.
    let at = |time_s, pace| fit_budget_at_pace(steps.clone(), time_s, 0.5, 0, next_pace(pace));
    assert_eq!(names(&at(1.99, 0.1).left), ["a"]);
    assert_eq!(names(&at(2.06, 0.1).left), [""; 0]);
    // The first line assumes points that took no time, the second one points that took twice their stated time.
    assert_eq!(names(&at(1.4, 0.0).left).len(), 0);
    assert_eq!(names(&at(3.6, 2.0).chosen), ["b"]);
}

proptest! {
    /// Any file that parses has valid figures, and thresholds on the worse side of the median.
    #[test]
    fn any_file_that_parses_is_valid(at in any::<prop::sample::Index>(), put in "[0-9a-z.\"=\\-]{0,4}", cut in 0usize..4) {
        let good = text();
        let at = at.index(good.len() - 4);
        prop_assume!(good.is_char_boundary(at) && good.is_char_boundary(at + cut));
        let changed = format!("{}{put}{}", &good[..at], &good[at + cut..]);
        if let Ok(read) = Baseline::from_toml(&changed, "x") {
            for entry in read.kinds.iter().flat_map(|kind| &kind.entries) {
                prop_assert!(entry.is_beyond(entry.fail * 0.99, entry.fail) || !entry.is_high_better());
                prop_assert!(!entry.is_beyond(entry.median, entry.warn));
            }
        }
    }
}

/// A check compares points as text, so a baseline of an earlier version must get the current keys.
#[test]
fn a_baseline_with_the_keys_of_schema_2_is_that_of_today() {
    const RENAMED: [(&str, &str); 4] = [
        ("\"threads\"", "\"workers\""),
        ("\"access\"", "\"addresses\""),
        ("\"bound\"", "\"limit\""),
        ("\"depth\"", "\"window\""),
    ];
    let built = build_baseline(&host("n1", &[10.0; 5]), &request()).unwrap();
    let now = built.baseline.to_toml().unwrap();
    let mut old = built.baseline.clone();
    for entry in old.kinds.iter_mut().flat_map(|kind| &mut kind.entries) {
        let with_old_key = |json: String, (new, old): &(&str, &str)| {
            assert!(json.contains(new), "{json}");
            json.replace(new, old)
        };
        let json = RENAMED.iter().fold(entry.point.clone(), with_old_key);
        let given = tonnage_plan::given::GivenPoint::new(json);
        (entry.point, entry.checksum) = (given.json, given.checksum);
    }
    let old = old.to_toml().unwrap();
    let old = old
        .replace("\nbound = ", "\nlimit = ")
        .replace("\nof-bound = ", "\nof-limit = ");
    assert_ne!(old, now);
    let read = |text: &str| Baseline::from_toml(text, "b.toml").unwrap();
    assert_eq!(read(&old), read(&now));
}
