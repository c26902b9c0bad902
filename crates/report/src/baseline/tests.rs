//! Golden output for a baseline, for the differences between two baselines, and for a check.

use tonnage_judge::baseline::Baseline;
use tonnage_judge::baseline::build::{BuiltBaseline, LeftOutPoint, SlowHost};
use tonnage_judge::baseline::drift::drift;
use tonnage_judge::check::each_host::{EachHostFacts, EachHostReport, HostVerdict};
use tonnage_judge::check::entry::EntryVerdict;
use tonnage_judge::check::of_records::{RecordsCheck, RunsVerdict};
use tonnage_judge::check::{CHECK_FORMAT, CheckReport, CheckVerdict};

use super::{built, checked, checked_each, drifted, of_records};
use crate::tests::fits;

const POINT: &str = r#"{"access":"sequential","engine":"fabric:tcp","footprint_bytes":4096,"kind":"transfer","latency":false,"length":{"trial":{"duration_ns":1000000},"trials":3,"warmup_ns":1000},"bound":{"kind":"auto"},"memory":"host","op":"write","pacing":{"kind":"stream","depth":16},"ranks":2,"seed":1,"size_bytes":1048576,"stride_bytes":1048576,"traffic":"pair","verify":false,"threads":1}"#;

fn baseline(median: f64) -> Baseline {
    let checksum = tonnage_plan::given::checksum(POINT);
    let text = format!(
        "format = 1\nwarn = 0.05\nfail = 0.1\n[[kind]]\nhosts = ['n1', 'n2', 'n3']\n[kind.facts]\ncpu = '2 x X, 64 cores'\n\
         [[kind.point]]\nname = 'fabric:tcp write size=1MiB,depth=16,ranks=2'\nmetric = 'bandwidth'\nunit = 'bytes/s'\n\
         hosts = 3\nruns = 15\nmedian = {median}\nmad = 1e8\nwarn = {warn}\nfail = {fail}\nbound = 25e9\nof-bound = 0.5\n\
         device = 'eth0'\nranks = 2\nspans = 1\ntakes-s = 1.0\npoint = '{POINT}'\nchecksum = '{checksum}'\n\
         [kind.point.part]\nengine = 'fabric:tcp'\nop = 'write'\n",
        warn = median * 0.95,
        fail = median * 0.9,
    );
    Baseline::from_toml(&text, "x").unwrap()
}

#[test]
fn a_baseline_is_shown_with_slow_hosts_and_left_out_points() {
    let page = built(
        &BuiltBaseline {
            baseline: baseline(12.5e9),
            slow: vec![SlowHost {
                host: "n3".into(),
                name: "fabric:tcp write size=1MiB,depth=16,ranks=2".into(),
                metric: "bandwidth",
                value: 10e9,
                median: 12.5e9,
                is_left_out: false,
            }],
            left_out: vec![LeftOutPoint {
                name: "shm read size=64B".into(),
                why: "4 of the 5 runs that it needs: measure more with --runs, or ask for fewer with --min-runs".into(),
            }],
        },
        "fleet.toml",
    );
    fits(&page);
    insta::assert_snapshot!("baseline", page);
}

#[test]
fn two_baselines_are_shown_side_by_side() {
    let found = drift(&baseline(12.5e9), &baseline(11e9)).unwrap();
    let page = drifted(&found, ["old.toml", "new.toml"]);
    fits(&page);
    insta::assert_snapshot!("drift", page);
}

#[test]
fn a_check_ends_with_its_reason() {
    let known = baseline(12.5e9);
    let entry = &known.kinds[0].entries[0];
    let failed = EntryVerdict {
        hosts: vec!["n7".into()],
        verdict: CheckVerdict::Fail,
        value: Some(9.1e9),
        tries: vec![9.0e9, 9.1e9],
        ..EntryVerdict::unmeasured(entry)
    };
    let down = EntryVerdict {
        name: "eth0".into(),
        hosts: vec!["n7".into()],
        verdict: CheckVerdict::Fail,
        why: Some("link of eth0 is down".into()),
        ..EntryVerdict::unmeasured(entry)
    };
    let report = CheckReport {
        format: CHECK_FORMAT,
        program: "0.1.0".into(),
        hosts: vec!["n7".into()],
        baseline: "fleet.toml".into(),
        time_unix_ns: 1,
        budget_s: 20.0,
        took_s: 3.0,
        verdict: CheckVerdict::Fail,
        reason: "fail: fabric:tcp write 1M 9.10 GB/s, fleet 12.50, least 11.25".into(),
        failed_hosts: vec!["n7".into()],
        entries: vec![failed, down],
        not_measured: vec!["shm read size=64B".into(); 7],
        cached_for_s: Some(12.0),
    };
    let page = checked(&report);
    fits(&page);
    assert_eq!(page.lines().last(), Some(report.reason.as_str()));
    insta::assert_snapshot!("check", page);
    // JSON must keep every field of the report.
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<CheckReport>(&text).unwrap(), report);
}

#[test]
fn hosts_checked_separately_are_folded() {
    let host = |number: u32, why: Option<&str>| {
        let name = format!("n{number}");
        match why {
            Some(why) => HostVerdict::error(name, why),
            None => HostVerdict {
                verdict: CheckVerdict::Pass,
                reason: "pass: 3 figures within the baseline".into(),
                ..HostVerdict::error(name, "")
            },
        }
    };
    let long = "ssh has not answered in time, and neither has the host's other address";
    let each = vec![host(1, None), host(2, Some(long)), host(3, None)];
    let facts = EachHostFacts {
        program: "0.1.0".into(),
        baseline: "fleet.toml".into(),
        time_unix_ns: 1,
        budget_s: 20.0,
        took_s: 3.0,
    };
    let page = checked_each(&EachHostReport::new(facts, each));
    fits(&page);
    let rows = ["\nn2 ", "\nn[1,3]  pass "].map(|row| page.find(row));
    assert!(rows.is_sorted() && rows[0].is_some(), "{page}");
    let last = page.lines().last().unwrap();
    assert!(
        last.starts_with("error: n2: ssh has not") && last.len() <= 80,
        "{page}"
    );
}

#[test]
fn hosts_of_records_have_a_row_for_each_figure() {
    let known = baseline(12.5e9);
    let kind = &known.kinds[0];
    let of = |host: &str, verdict, values: &[f64], side| RunsVerdict {
        kind: kind.title(),
        side,
        entry: EntryVerdict {
            hosts: vec![host.into()],
            verdict,
            value: values.get(values.len() / 2).copied(),
            tries: values.to_vec(),
            ..EntryVerdict::unmeasured(&kind.entries[0])
        },
    };
    let mut skipped = of("n4", CheckVerdict::Skip, &[], None);
    skipped.entry.why = Some("no record of it".into());
    let parts = of_records(&RecordsCheck {
        verdict: CheckVerdict::Fail,
        reason: "fail: fabric:tcp write 1M 9.10 GB/s, fleet 12.50, least 11.25".into(),
        failed_hosts: ["n7".to_owned()].into(),
        entries: vec![
            of("n7", CheckVerdict::Fail, &[9.0e9, 9.1e9, 13e9], None),
            of("n2", CheckVerdict::Warn, &[11.5e9], Some("B")),
            of("n2", CheckVerdict::Pass, &[12.5e9], Some("A")),
            skipped,
        ],
        unknown_kinds: vec![("1 x Z, 4 cores".into(), ["z1".to_owned()].into())],
        absent_kinds: vec!["1 x Y, 8 cores".into()],
        points_without_entry: 3,
    });
    assert_eq!(parts.kinds.len(), 1);
    assert_eq!(parts.totals, "1 pass, 1 warn, 1 fail, 1 skip; failed: n7");
    let rows = parts.kinds[0].rows();
    let cells = rows
        .iter()
        .map(|row| (row[0].as_str(), row[3].as_str(), row[8].as_str()));
    assert_eq!(
        cells.collect::<Vec<_>>(),
        [
            ("Host", "Measured", "Verdict"),
            ("n7", "9.10 GB/s", "fail"),
            ("n2, side B", "11.50 GB/s", "warn"),
            ("n2, side A", "12.50 GB/s", "pass"),
            ("n4", "-", "skip"),
        ]
    );
    let notes = parts.notes.join("\n");
    for words in ["3 points", "kind of z1 (1 x Z, 4 cores)", "1 x Y, 8 cores"] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
}
