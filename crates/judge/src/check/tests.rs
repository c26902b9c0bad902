//! Verdicts on single entries, and on several entries together.

mod blame;
mod of_records;

use serde_json::{Value, json};
use tonnage_record::Record;

use super::device::{DeviceState, HostDevices, device_failures};
use super::entry::{EntryVerdict, judge_entry};
use super::reason::{REASON_BYTES_MAX, reason, truncate, truncate_before};
use super::{CheckVerdict, ExitStyle};
use crate::baseline::BaselineEntry;
use crate::baseline::tests::{build_baseline, host, request};
use crate::known_answers::NormalSource;
use crate::tests::{read, record};

/// An entry with a median of 10 GB/s, a warning below 9.5 and a failure below 9.
fn entry() -> BaselineEntry {
    let runs: Vec<Value> = (0..5)
        .map(|run| record(&format!("r{run}"), 1 << 20, &[10e9]))
        .collect();
    build_baseline(&runs, &request()).unwrap().baseline.kinds[0].entries[0].clone()
}

fn tries(bandwidths: &[f64]) -> Vec<Record> {
    let all: Vec<Value> = bandwidths
        .iter()
        .map(|bandwidth| record("now", 1 << 20, &[bandwidth * 1e9]))
        .collect();
    read(&all)
}

/// Judges a baseline entry by these tries.
fn judge_tries(known: &BaselineEntry, tries: &[Record], tries_min: u32) -> EntryVerdict {
    judge_entry(known, &[], &tries.iter().collect::<Vec<_>>(), tries_min)
}

fn verdict(bandwidths: &[f64], tries_min: u32) -> EntryVerdict {
    judge_tries(&entry(), &tries(bandwidths), tries_min)
}

#[test]
fn a_failure_counts_when_it_fails_again() {
    for (bandwidths, tries_min, expected) in [
        (&[10.0][..], 2, CheckVerdict::Pass),
        (&[9.4], 2, CheckVerdict::Warn),
        (&[8.9, 8.8], 2, CheckVerdict::Fail),
        (&[8.9], 1, CheckVerdict::Fail),
        // A failed first try is a warning if there was no time for a second one.
        (&[8.9], 2, CheckVerdict::Warn),
        (&[8.9, 10.0], 2, CheckVerdict::Pass),
        (&[8.9, 9.4], 2, CheckVerdict::Warn),
        (&[], 2, CheckVerdict::Error),
    ] {
        assert_eq!(
            verdict(bandwidths, tries_min).verdict,
            expected,
            "{bandwidths:?}"
        );
    }
    let failed = verdict(&[8.9, 8.8], 2);
    assert_eq!((failed.value, failed.tries.len()), (Some(8.9e9), 2));
}

/// Fewer runs than a verdict needs (`--min-runs 1`) do not show the spread behind a threshold. A data sheet states it.
#[test]
fn a_baseline_of_too_few_runs_fails_nothing() {
    for (runs, source, expected) in [
        (1, None, CheckVerdict::Warn),
        (2, None, CheckVerdict::Warn),
        (3, None, CheckVerdict::Fail),
        (0, Some("data sheet".to_owned()), CheckVerdict::Fail),
    ] {
        let known = BaselineEntry {
            runs,
            source,
            ..entry()
        };
        let found = judge_tries(&known, &tries(&[5.0, 5.0]), 2);
        assert_eq!(found.verdict, expected, "{runs}");
        let named = found.why.is_some_and(|why| why.contains("fewer than 3"));
        assert_eq!(named, expected == CheckVerdict::Warn, "{runs}");
    }
}

/// A check compares one run with a threshold, and repeats the run after a failure. Hosts equal to those of the baseline
/// must hardly ever fail, even if separate starts differ widely.
#[test]
fn an_equal_host_hardly_ever_fails() {
    for (spread, most) in [(0.03, 0.002), (0.05, 0.01), (0.08, 0.02)] {
        let mut source = NormalSource(41);
        let (mut checks, mut failed) = (0.0, 0.0);
        while checks < 300.0 {
            let Ok(built) = build_baseline(&host("n1", &source.runs(5, 10.0, spread)), &request())
            else {
                continue;
            };
            let entry = &built.baseline.kinds[0].entries[0];
            let found = judge_tries(entry, &tries(&source.runs(2, 10.0, spread)), 2);
            checks += 1.0;
            failed += f64::from(u8::from(found.verdict == CheckVerdict::Fail));
        }
        assert!(failed / checks <= most, "{} at {spread}", failed / checks);
    }
}

/// An error is not evidence about the host, and does not hide a failed figure in the same check.
#[test]
fn an_error_is_not_a_failure() {
    let mut record = record("now", 1 << 20, &[10e9]);
    record["outcome"] = json!({"status": "skipped", "why": "no library"});
    let found = judge_tries(&entry(), &read(&[record]), 2);
    assert_eq!(
        (found.verdict, found.why.as_deref()),
        (CheckVerdict::Error, Some("no library"))
    );
    use CheckVerdict::{Error, Fail, Pass, Skip, Warn};
    for (all, expected) in [
        (&[Pass, Error][..], Error),
        (&[Error, Fail], Fail),
        (&[Warn, Error], Error),
        (&[Pass, Skip], Pass),
        (&[Pass, Warn], Warn),
        (&[], Skip),
    ] {
        assert_eq!(CheckVerdict::combine(all.iter().copied()), expected);
    }
}

#[test]
fn bytes_that_went_another_way_fail() {
    let mut known = entry();
    known.device = Some("eth1".into());
    known.link_bytes_per_s = Some(12.5e9);
    let measured = |device: &str,
                    crossed: bool,
                    link: f64,
                    counts: bool,
                    others: &[&BaselineEntry]| {
        let mut value = record("now", 1 << 20, &[10e9]);
        value["bound"] = json!({
            "what": "links", "bytes_per_s": link,
            "links": {"used": 1, "used_bytes_per_s": link, "all": 1, "all_bytes_per_s": link},
        });
        value["wire_proof"] = json!({
            "crossed": crossed, "devices_named": 1, "devices_crossed": 1, "tcp": [], "why": ["h0 eth1 carried nothing"],
            "devices": [{
                "host": "n1", "ranks": "0", "kind": "interface", "name": device, "sent_bytes_expected": 1,
                "received_bytes_expected": 1, "crossed": crossed, "counters": {},
            }],
        });
        if counts {
            value["wire_proof"]["devices"][0]["sent_bytes"] = 0.into();
            value["wire_proof"]["devices"][0]["received_bytes"] = 0.into();
        }
        let records = read(&[value]);
        let known = others.first().copied().unwrap_or(&known);
        let found = judge_entry(known, others, &records.iter().collect::<Vec<_>>(), 1);
        (found.verdict, found.why.unwrap_or_default())
    };
    let over = |device: &str, crossed, link| measured(device, crossed, link, true, &[]);
    assert_eq!(over("eth1", true, 12.5e9).0, CheckVerdict::Pass);
    // Unreadable counters prove nothing about the path, so the figure decides.
    let blind = measured("eth1", false, 12.5e9, false, &[]);
    assert_eq!(blind, (CheckVerdict::Pass, String::new()));
    // The baseline has another entry for hosts with a slower link, but a slower link still fails.
    let slower = BaselineEntry {
        link_bytes_per_s: Some(1.25e9),
        ..known.clone()
    };
    assert_eq!(
        measured("eth1", true, 1.25e9, true, &[&slower, &known]).1,
        "link 10 Gb/s, fleet 100"
    );
    assert_eq!(
        over("eth1", true, 1.25e9),
        (CheckVerdict::Fail, "link 10 Gb/s, fleet 100".into())
    );
    let (verdict, why) = over("eth0", true, 12.5e9);
    assert!(
        verdict == CheckVerdict::Fail && why.contains("over eth0, fleet over eth1"),
        "{why}"
    );
    let (verdict, why) = over("eth1", false, 12.5e9);
    assert!(
        verdict == CheckVerdict::Fail && why.starts_with("off path: h0 eth1"),
        "{why}"
    );
}

#[test]
fn devices_that_are_gone_or_down_fail_once() {
    let with = |device: &str| BaselineEntry {
        device: Some(device.into()),
        ..entry()
    };
    let state = |name: &str, state: &str| DeviceState {
        name: name.into(),
        state: state.into(),
    };
    let failures = |entries: &[&BaselineEntry], devices: &[DeviceState]| {
        let own = HostDevices {
            devices: devices.to_vec(),
            gap: None,
        };
        let found = device_failures(entries, &own, "n1");
        found
            .into_iter()
            .map(|it| it.why.unwrap())
            .collect::<Vec<_>>()
    };
    let [first, second, rails] = ["eth1", "eth2", "eth1,eth2"].map(with);
    // An entry of two hosts that measured together and name their devices differently.
    let both = with("ens3 and eth0");
    let up = |name: &str| state(name, "up");
    for (entries, devices, expected) in [
        (&[&first, &first][..], &[][..], "eth1 is gone"),
        (&[&first], &[state("eth1", "down")], "link of eth1 is down"),
        (
            &[&first],
            &[state("eth1", "lowerlayerdown")],
            "link of eth1 is lowerlayerdown",
        ),
        (&[&first], &[up("eth1")], ""),
        (&[&first], &[state("eth1", "unknown")], ""),
        // The second entry is of another host of this kind. Its device has a different name.
        (&[&first, &second], &[up("eth2")], ""),
        (&[&entry()], &[], ""),
        (&[&both], &[up("eth0")], ""),
        (&[&both], &[up("ens3"), state("eth0", "down")], ""),
        (&[&both], &[state("eth0", "down")], "link of eth0 is down"),
        (&[&rails], &[up("eth1")], "eth2 is gone"),
    ] {
        assert_eq!(failures(entries, devices).join("; "), expected);
    }
}

/// If the device list may be incomplete, a missing device is an error and not a failure.
#[test]
fn a_device_that_may_be_elsewhere_is_an_error() {
    let known = BaselineEntry {
        device: Some("eth1".into()),
        ..entry()
    };
    let unseen = HostDevices {
        gap: Some("nothing is listed".into()),
        ..HostDevices::default()
    };
    let found = device_failures(&[&known], &unseen, "n1");
    assert_eq!(found[0].verdict, CheckVerdict::Error);
    assert_eq!(
        reason(CheckVerdict::Error, &found, 0),
        "error: eth1 is not seen: nothing is listed"
    );
}

#[test]
fn an_error_in_the_second_try_is_reported() {
    let mut records = vec![
        record("now", 1 << 20, &[8.9e9]),
        record("now", 1 << 20, &[8.9e9]),
    ];
    records[1]["outcome"] = json!({"status": "failed", "why": "rank 1 is lost"});
    let found = judge_tries(&entry(), &read(&records), 2);
    assert_eq!(
        (found.verdict, found.why.as_deref()),
        (
            CheckVerdict::Warn,
            Some("failed 1 of 2 times; then: rank 1 is lost")
        )
    );
}

#[test]
fn exit_codes_are_those_of_the_table() {
    use CheckVerdict::{Error, Fail, Pass, Skip, Warn};
    let codes =
        |style: ExitStyle| [Pass, Warn, Fail, Skip, Error].map(|verdict| style.code(verdict));
    assert_eq!(codes(ExitStyle::Plain), [0, 0, 1, 1, 1]);
    assert_eq!(codes(ExitStyle::Nagios), [0, 1, 2, 3, 3]);
    assert_eq!(codes(ExitStyle::Prolog), [0, 0, 1, 0, 0]);
    assert_eq!(
        ExitStyle::ALL.map(ExitStyle::code_of_wrong_request),
        [2, 3, 0]
    );
}

#[test]
fn the_reason_is_one_short_line() {
    let failed = verdict(&[8.9, 8.8], 2);
    let one = |verdict, entry: &EntryVerdict| reason(verdict, std::slice::from_ref(entry), 0);
    assert_eq!(
        one(CheckVerdict::Fail, &failed),
        "fail: shm write 1M 8.90 GB/s, fleet 10.00, least 9.00"
    );
    let warned = verdict(&[9.4], 2);
    assert_eq!(
        one(CheckVerdict::Warn, &warned),
        "warn: shm write 1M 9.40 GB/s, fleet 10.00, least 9.50"
    );
    let mut pair = failed.clone();
    pair.hosts = vec!["h0".into(), "h1".into()];
    assert!(one(CheckVerdict::Fail, &pair).starts_with("fail: h0,h1 shm write 1M 8.90"));
    let passed = verdict(&[10.0], 2);
    assert_eq!(
        reason(CheckVerdict::Pass, &[passed], 3),
        "pass: 1 figure within the baseline, 3 left out for time"
    );
    assert_eq!(
        reason(CheckVerdict::Skip, &[], 0),
        "skip: nothing to compare with the baseline"
    );
    let told = truncate_before(&"x".repeat(78), ", 12 s ago");
    assert!(
        told.ends_with("…, 12 s ago") && told.len() == REASON_BYTES_MAX,
        "{told}"
    );
    // The worst entry is reported. Long text is cut between characters, not within one.
    let worse = verdict(&[5.0, 5.0], 2);
    assert!(reason(CheckVerdict::Fail, &[failed, worse], 0).contains("5.00 GB/s"));
    let long = truncate(&"ü\n".repeat(60));
    assert!(
        long.len() <= REASON_BYTES_MAX && long.ends_with('…') && !long.contains('\n'),
        "{long}"
    );
}
