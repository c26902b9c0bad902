//! Slow hosts and pairs found in a matrix.

use serde_json::{Value, json};
use tonnage_record::Record;

use super::super::blame::SlowPaths;
use super::super::entry::{EntryVerdict, judge_entry};
use super::super::reason::reason;
use super::super::step::judge_point;
use super::super::verdict::CheckVerdict;
use super::entry;
use crate::baseline::tests::{build_baseline, request};
use crate::tests::{read, record};

/// A matrix of four hosts with this total bandwidth and these slow ranks.
fn matrix(gigabytes_per_s: f64, slow: Value) -> Value {
    let mut value = record("now", 1 << 20, &[gigabytes_per_s * 1e9]);
    let host = |rank: u32| json!({"name": format!("h{rank}"), "ranks": rank.to_string(), "clock_offset_ns": 0, "clock_uncertainty_ns": 0});
    value["environment"][0]["hosts"] = (0..4).map(host).collect();
    value["summary"]["matrix"] = slow;
    value["summary"]["matrix"]["across_hosts"] =
        json!({"median_bytes_per_s": 1e10, "width_fraction": 0.01});
    value
}

fn sender(rank: u32, of_median: f64) -> Value {
    json!({"slow_senders": [{"rank": rank, "of_median": of_median}]})
}

fn verdict(tries: &[Value]) -> EntryVerdict {
    let records = read(tries);
    let records: Vec<&Record> = records.iter().collect();
    judge_entry(&entry(), &[], &records, tries.len() as u32)
}

#[test]
fn a_slow_host_fails_and_the_others_do_not() {
    // The total is within the baseline: only the host's row shows the fault.
    let found = verdict(&[matrix(9.9, sender(2, 0.5)), matrix(9.9, sender(2, 0.6))]);
    assert_eq!((found.verdict, found.hosts.len()), (CheckVerdict::Fail, 4));
    assert_eq!(found.failed_hosts(), ["h2"]);
    let line = reason(found.verdict, std::slice::from_ref(&found), 0);
    assert_eq!(line, "fail: shm write 1M: h2 sends at 60 % of the median");
    // A second try without slow hosts clears the failure, because a failure needs two failed tries.
    let once = [matrix(9.9, sender(2, 0.5)), matrix(9.9, json!({}))];
    assert_eq!(verdict(&once).verdict, CheckVerdict::Pass);
    // A slowdown within the baseline's threshold is not a failure.
    assert_eq!(
        verdict(&[matrix(9.9, sender(2, 0.95))]).verdict,
        CheckVerdict::Pass
    );
}

#[test]
fn tries_that_blame_different_hosts_are_not_a_failure() {
    let changing = [matrix(9.9, sender(1, 0.5)), matrix(9.9, sender(2, 0.5))];
    let found = verdict(&changing);
    assert_eq!(found.verdict, CheckVerdict::Warn);
    let why = found.why.unwrap();
    assert!(
        why.contains("h1 sends at 50 %") && why.contains("then h2 sends"),
        "{why}"
    );
    // If the total itself fails in every try, all hosts fail.
    let found = verdict(&[matrix(8.0, sender(1, 0.5)), matrix(8.0, sender(2, 0.5))]);
    assert_eq!(
        (found.verdict, found.failed_hosts().len()),
        (CheckVerdict::Fail, 4)
    );
}

#[test]
fn rows_columns_and_pairs_are_named_the_slowest_first() {
    let slow = json!({
        "slow_senders": [{"rank": 3, "of_median": 0.5}],
        "slow_receivers": [{"rank": 3, "of_median": 0.7}, {"rank": 0, "of_median": 0.4, "within_host": true}],
        "slow_pairs": [{"sender": 0, "receiver": 1, "of_median": 0.1}],
    });
    let records = read(&[matrix(9.9, slow)]);
    let blame = SlowPaths::from_record(&records[0], 0.9);
    assert_eq!(
        blame.describe(),
        "h0 to h1 at 10 %, within h0 at 40 %, h3 sends at 50 % of the median, and 1 more"
    );
    assert_eq!(blame.hosts(), ["h0", "h1", "h3"]);
    assert!(SlowPaths::from_record(&records[0], 0.05).is_empty());
}

#[test]
fn a_matrix_that_always_blames_the_same_host_makes_no_baseline() {
    let runs = |slow: usize| -> Vec<Value> {
        let run = |at: usize| {
            let marks = if at < slow { sender(2, 0.5) } else { json!({}) };
            let mut value = matrix(10.0, marks);
            value["run_id"] = format!("r{at}").into();
            value
        };
        (0..5).map(run).collect()
    };
    let error = build_baseline(&runs(3), &request())
        .unwrap_err()
        .to_string();
    assert!(error.contains("h2 sends at 50 % of the median"), "{error}");
    let built = build_baseline(&runs(2), &request()).unwrap();
    let entry = &built.baseline.kinds[0].entries[0];
    let records = read(&[matrix(9.9, sender(2, 0.5))]);
    let found = judge_point(&[entry], &records.iter().collect::<Vec<_>>(), 1);
    assert_eq!(found[0].blamed, ["h2"]);
}
