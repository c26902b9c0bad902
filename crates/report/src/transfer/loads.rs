//! Table of the pairs of a traffic file: bytes and times of each pair, alone and together with the other pairs.

use tonnage_engine::Verb;
use tonnage_record::TransferRecord;
use tonnage_record::transfer::PairRate;
use tonnage_units::quantity::human::size;

use super::footers::row_name;
use crate::column::Column;
use crate::derived::{ALONE, SLOWDOWN, TOGETHER, TOGETHER_RATE};
use crate::table::TitledTable;

/// All pairs are printed if there are at most this many.
const PAIRS_PRINTED_MAX: usize = 32;

/// Number of pairs to print if there are more than [`PAIRS_PRINTED_MAX`]: those that others slowed down most.
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
    let of_pairs = |value: fn(&PairRate) -> Option<f64>| shown.iter().map(move |pair| value(pair));
    let load = |pair: &&PairRate| {
        let loads = point.loads.as_ref();
        size(loads.map_or(0, |loads| {
            loads.operations_of_pair(pair.initiator, pair.target)
        }))
    };
    let columns = vec![
        Column::numbers(from, 1.0, shown.iter().map(|pair| pair.initiator)).identifying(),
        Column::numbers(to, 1.0, shown.iter().map(|pair| pair.target)).identifying(),
        Column::words("Bytes", shown.iter().map(load).collect(), true).droppable(),
        Column::numbers(ALONE.name, 1e-6, of_pairs(|pair| pair.time_ns_alone)),
        Column::numbers(TOGETHER.name, 1e-6, of_pairs(|pair| pair.time_ns_together)),
        Column::numbers(SLOWDOWN.name, 1.0, of_pairs(PairRate::slowdown)),
        Column::numbers(
            TOGETHER_RATE.name,
            1e-9,
            of_pairs(|pair| Some(pair.bandwidth_bytes_per_s)),
        ),
    ];
    TitledTable::of_columns(columns).with_title(which + ":")
}
