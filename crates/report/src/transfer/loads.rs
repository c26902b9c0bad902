//! Table of the pairs of a traffic file: bytes and times of each, alone and together with the others.

use tonnage_engine::Verb;
use tonnage_record::TransferRecord;
use tonnage_record::transfer::PairRate;
use tonnage_units::quantity::human::{number, size};

use super::footers::row_name;
use crate::derived::{ALONE, SLOWDOWN, TOGETHER, TOGETHER_RATE};
use crate::table::TitledTable;

/// Maximum number of pairs for which all are printed.
const PAIRS_PRINTED_MAX: usize = 32;

/// Number of most-slowed pairs to print if there are more.
const PAIRS_SLOWED: usize = 16;

/// One table for each row of the transfer table that used a traffic file.
pub fn tables(records: &[TransferRecord<'_>], distinguishing: &[&str]) -> Vec<TitledTable> {
    let table = |record: &TransferRecord<'_>| {
        record.body.point.loads.as_ref()?;
        let pairs = &record.body.summary.as_ref()?.pairs;
        let name = row_name(record, records, distinguishing);
        (!pairs.is_empty()).then(|| one(record, pairs, &name))
    };
    records.iter().filter_map(table).collect()
}

fn one(record: &TransferRecord<'_>, pairs: &[PairRate], name: &str) -> TitledTable {
    let point = &record.body.point;
    let (from, to) = match point.op {
        Verb::Read => ("Initiator", "Target"),
        _ => ("From", "To"),
    };
    let head = [
        from,
        to,
        "Bytes",
        ALONE.name,
        TOGETHER.name,
        SLOWDOWN.name,
        TOGETHER_RATE.name,
    ];
    let all = pairs.len();
    let mut shown: Vec<&PairRate> = pairs.iter().collect();
    let which = match all > PAIRS_PRINTED_MAX {
        true => {
            let slowdown = |pair: &PairRate| pair.slowdown().unwrap_or(0.0);
            shown.sort_by(|one, other| slowdown(other).total_cmp(&slowdown(one)));
            shown.truncate(PAIRS_SLOWED);
            format!(
                "the {PAIRS_SLOWED} most slowed of {all} pairs at {name}; {} more in the record",
                all - PAIRS_SLOWED
            )
        }
        false => format!("pairs at {name}"),
    };
    let row = |pair: &&PairRate| {
        let load = point.loads.as_ref();
        let load = load.map_or(0, |loads| {
            loads.operations_of_pair(pair.initiator, pair.target)
        });
        let milli = |ns: Option<f64>| ns.map_or_else(missing, |ns| number(ns * 1e-6));
        vec![
            pair.initiator.to_string(),
            pair.target.to_string(),
            size(load),
            milli(pair.time_ns_alone),
            milli(pair.time_ns_together),
            pair.slowdown().map_or_else(missing, number),
            number(pair.bandwidth_bytes_per_s * 1e-9),
        ]
    };
    let rows = shown.iter().map(row);
    let head = head.map(|name| name.replacen(" (", "\n(", 1)).to_vec();
    let rows = std::iter::once(head).chain(rows).collect();
    TitledTable::new(rows, |_| true).with_title(which + ":")
}

fn missing() -> String {
    "n/a".to_owned()
}
