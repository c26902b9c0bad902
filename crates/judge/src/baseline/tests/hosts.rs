//! Slow hosts, lost hardware, and bytes that took another path.

use serde_json::{Value, json};

use super::super::Baseline;
use super::super::build::SLOW;
use super::super::by_hand::HandValue;
use super::super::lost::lost_hardware;
use super::{FIVE, build_baseline, host, only, refused, request, request_with};
use crate::tests::changed;

#[test]
fn a_host_that_lost_hardware_is_known() {
    let baseline = {
        let records = changed(host("n1", &FIVE), |record| {
            record["environment"][0]["machine"]["gpus"] = json!(["H100", "H100"]);
        });
        build_baseline(&records, &request()).unwrap().baseline
    };
    let facts = |gpu: &str, cpu: &str| {
        let mut facts = baseline.kinds[0].facts.clone();
        facts.insert("gpu".into(), gpu.into());
        facts.retain(|_, value| !value.is_empty());
        if !cpu.is_empty() {
            facts.insert("cpu".into(), cpu.into());
        }
        facts
    };
    let lost = |gpu: &str, cpu: &str, host: &str| {
        lost_hardware(&baseline, &facts(gpu, cpu), host).map(|lost| lost.why)
    };
    let fewer = Some("gpu 1 x H100, fleet 2 x H100".to_owned());
    assert_eq!(lost("1 x H100", "", "n1"), fewer);
    assert_eq!(lost("1 x H100", "", "n2"), fewer);
    assert_eq!(
        lost("", "", "n1").as_deref(),
        Some("gpu none, fleet 2 x H100")
    );
    assert!(
        lost("2 x H100", "Y", "n1")
            .unwrap()
            .starts_with("cpu Y, fleet 1 x X")
    );
    // An unlisted host that matches no kind has lost nothing.
    for (gpu, cpu) in [("", ""), ("1 x H100", "Y"), ("3 x H100", "")] {
        assert_eq!(lost(gpu, cpu, "n2"), None, "{gpu} {cpu}");
    }
}

/// A written baseline never has a threshold above its bound, even if the bound was measured badly.
#[test]
fn a_written_baseline_can_be_read() {
    let limited = |bound: f64| {
        let bound = |record: &mut Value| record["bound"]["bytes_per_s"] = bound.into();
        changed(host("n1", &FIVE), bound)
    };
    refused(&limited(9e9), &request(), "lies above the bound");
    let built = build_baseline(&limited(9.6e9), &request()).unwrap();
    Baseline::from_toml(&built.baseline.to_toml().unwrap(), "x").unwrap();
}

/// Sources, times and the bound come only from hosts that were kept.
#[test]
fn hosts_that_are_left_out_leave_nothing_behind() {
    let mut records = host("n1", &FIVE);
    let mut slow = host("n2", &FIVE);
    for record in &mut slow {
        record["bound"]["bytes_per_s"] = 90e9.into();
        record["time_unix_ns"] = json!(1_700_000_000_000_000_000_u64);
    }
    records.extend(slow);
    let asked = request_with(|it| it.leave_out = vec!["n2".into()]);
    let built = build_baseline(&records, &asked).unwrap();
    let entry = only(&built);
    assert_eq!(
        (entry.bound, entry.first.as_deref()),
        (Some(20e9), Some("2026-11-26"))
    );
}

/// Records of a transfer over a device with this link speed. If `crossed`, the device's counters show the payload.
fn over(mut records: Vec<Value>, link: f64, crossed: bool) -> Vec<Value> {
    for record in &mut records {
        record["bound"] = json!({
            "what": "links", "bytes_per_s": link,
            "links": {"used": 1, "used_bytes_per_s": link, "all": 1, "all_bytes_per_s": link},
        });
        record["wire_proof"] = json!({
            "crossed": crossed, "devices_named": 1, "devices_crossed": 1, "tcp": [],
            "why": ["the payload did not cross eth1 of n1"],
            "devices": [{
                "host": "n1", "ranks": "0", "kind": "interface", "name": "eth1", "sent_bytes_expected": 1,
                "received_bytes_expected": 1, "sent_bytes": 1, "received_bytes": 1, "crossed": crossed,
                "counters": {},
            }],
        });
    }
    records
}

#[test]
fn hosts_on_slower_links_are_slow_and_runs_off_path_are_left_out() {
    let mut records = over(host("n1", &FIVE), 12.5e9, true);
    records.extend(over(host("n2", &FIVE.map(|it| it / 10.0)), 1.25e9, true));
    let built = build_baseline(&records, &request()).unwrap();
    let slow: Vec<(&str, f64)> = built
        .slow
        .iter()
        .map(|one| (one.host.as_str(), one.median / 1e9))
        .collect();
    assert_eq!(slow, [("n2", 10.0)]);
    let asked = request_with(|it| it.leave_out = vec![SLOW.into()]);
    assert_eq!(
        only(&build_baseline(&records, &asked).unwrap()).link_bytes_per_s,
        Some(12.5e9)
    );
    let astray = build_baseline(&over(host("n1", &FIVE), 12.5e9, false), &request());
    let error = astray.unwrap_err().to_string();
    assert!(
        error.contains("off path") && error.contains("did not cross eth1"),
        "{error}"
    );
}

#[test]
fn a_data_sheet_has_several_metrics_of_a_point() {
    let one = |metric: &str, value: &str| {
        format!(
            "[[value]]\npoint = {{ engine = 'shm' }}\nmetric = '{metric}'\nvalue = {value}\nsource = 's'\n"
        )
    };
    let text = one("bandwidth", "12e9") + &one("cpu-per-op", "9.0");
    let asked = request_with(|it| {
        it.metrics = ["bandwidth", "cpu-per-op"]
            .map(|name| name.parse().unwrap())
            .into();
        it.by_hand = HandValue::read_all(&text, "x").unwrap();
    });
    let built = build_baseline(&host("n1", &FIVE), &asked).unwrap();
    let medians: Vec<f64> = built.baseline.kinds[0]
        .entries
        .iter()
        .map(|it| it.median)
        .collect();
    assert_eq!(medians, [12e9, 9.0]);
}
