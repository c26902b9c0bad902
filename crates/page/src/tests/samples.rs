//! Test records: one real record with modified values.

use serde_json::{Value, json};
use tonnage_record::Record;

const RECORD: &str = include_str!("record.json");

pub(super) const SIZES: [u64; 4] = [64, 1024, 65536, 1 << 20];

/// A record of operations of this size, modified by `change`.
pub(super) fn record(size_bytes: u64, change: impl FnOnce(&mut Value)) -> Record {
    let mut value: Value = serde_json::from_str(RECORD).unwrap();
    value["point"]["size_bytes"] = size_bytes.into();
    value["point"]["stride_bytes"] = size_bytes.into();
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

/// Bandwidths of four sizes, each with an interval, a bound and a published figure.
pub(super) fn sweep() -> Vec<Record> {
    let each = SIZES.iter().zip(1u32..);
    let each = each.map(|(size, at)| {
        record(*size, |it| {
            let mean = 1.234e9 * f64::from(at * at);
            let bandwidth = &mut it["summary"]["bandwidth_bytes_per_s"];
            bandwidth["mean"] = mean.into();
            bandwidth["ci95"] = (mean * 0.1).into();
            it["published_rows"] = json!([{
                "what": "a page, a card",
                "columns": ["MsgSize (B)", "Avg BW (GB/s)"],
                "row": [size, mean * 1.5e-9],
            }]);
        })
    });
    each.collect()
}

/// A trial of four intervals. Rank 0 moves nothing in one of them.
pub(super) fn series() -> Record {
    record(65536, |it| {
        let trial = &mut it["trials"][0];
        trial["window_ns"] = 4_000_000_000u64.into();
        trial["series"] = json!({
            "interval_ns": 1_000_000_000u64,
            "operations": [5000, 0, 7000, 6000],
            "standstills": [{"rank": 0, "begin_ns": 1_000_000_000u64, "end_ns": 2_000_000_000u64}],
        });
        it["trials"] = json!([it["trials"][0]]);
    })
}

/// A matrix with one slow sender, one slow receiver, and one slow pair.
pub(super) fn matrix(ranks: u32, sender: u32, receiver: u32, pair: (u32, u32)) -> Record {
    let all = (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to)));
    let pairs = all.filter(|(from, to)| from != to).map(|(from, to)| {
        let noise = 1.0 + f64::from((from * 7 + to * 3) % 5) * 0.002;
        let slow = |is: bool, part: f64| if is { part } else { 1.0 };
        let part =
            slow(from == sender, 0.5) * slow(to == receiver, 0.6) * slow((from, to) == pair, 0.2);
        let rate = 1e10 * noise * part;
        json!({
            "initiator": from, "target": to, "payload_bytes": 1000,
            "bandwidth_bytes_per_s": rate, "bandwidth_bytes_per_s_max": rate,
        })
    });
    let pairs: Vec<Value> = pairs.collect();
    let rates = serde_json::from_value::<Vec<_>>(json!(pairs)).unwrap();
    let verdict = tonnage_record::transfer::judge(ranks, &rates, false).unwrap();
    record(65536, |it| {
        it["point"]["traffic"] = "matrix".into();
        it["point"]["ranks"] = ranks.into();
        it["summary"]["pairs"] = json!(pairs);
        it["summary"]["matrix"] = json!(verdict);
    })
}
