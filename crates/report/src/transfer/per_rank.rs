//! Tables per initiator rank, with the columns of MORI-IO's published report.

use std::collections::BTreeSet;

use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_record::TransferRecord;
use tonnage_record::figures::{Row, Value};
use tonnage_record::transfer::InitiatorFigures;

use crate::column::Column;
use crate::table::{Line, TableBuilder, TitledTable};

/// The tables, in rank order. `varying` are the columns that identify rows.
pub fn tables(records: &[TransferRecord<'_>], varying: &[&str]) -> Vec<TitledTable> {
    let ranks: BTreeSet<u32> = records
        .iter()
        .flat_map(|record| initiators(record).iter().map(|one| one.rank))
        .collect();
    let table = |rank| one(records, varying, rank);
    ranks.into_iter().filter_map(table).collect()
}

fn initiators<'a>(record: &TransferRecord<'a>) -> &'a [InitiatorFigures] {
    // Records of traffic files always have figures per rank, even if the user did not request them.
    let is_file = record.body.point.loads.is_some();
    let summary = record.body.summary.as_ref();
    let summary = summary.filter(|_| !is_file || record.body.point.per_rank);
    summary.map_or(&[], |summary| &summary.initiators)
}

fn one(records: &[TransferRecord<'_>], varying: &[&str], rank: u32) -> Option<TitledTable> {
    let rows = records.iter().filter_map(|record| {
        let own = initiators(record).iter().find(|one| one.rank == rank)?;
        let row = Row::all_of_record(record.record).into_iter().next()?;
        Some((row, &record.body.point, own))
    });
    let rows: Vec<_> = rows.collect();
    let depth: &[&str] = match records.first().map(|record| record.body.point.pacing) {
        Some(Pacing::Batch { .. }) => &["batch", "batch_payload_bytes"],
        Some(Pacing::Stream { .. } | Pacing::Paced { .. }) => &["depth"],
        Some(Pacing::PingPong) | None => &[],
    };
    let lines = rows.iter().map(|(row, _, _)| Line::from(*row)).collect();
    let asked = [&["size_bytes"], depth, varying].concat();
    let numbers = |header, scale, value: fn(&TransferPoint, &InitiatorFigures) -> Value| {
        let values = rows.iter().map(|(_, point, own)| value(point, own));
        Column::numbers(header, scale, values)
    };
    let table = TableBuilder::new(lines)
        .keyed_by(&asked)
        .always(&asked)
        .column(numbers("Max BW (GB/s)", 1e-9, |point, own| {
            fastest_batch_bytes_per_s(point, own).into()
        }))
        .column(numbers("Avg BW (GB/s)", 1e-9, |_, own| {
            own.bandwidth_bytes_per_s.into()
        }))
        .column(numbers("Min Lat (us)", 1e-3, |_, own| {
            own.latency_ns_min.into()
        }))
        .column(numbers("Avg Lat (us)", 1e-3, |_, own| {
            match (own.latency_ns_mean, own.unfinished) {
                (Some(mean), 1..) => Value::AtLeast(mean),
                (mean, _) => mean.into(),
            }
        }))
        .table()?;
    Some(table.with_title(format!("initiator rank {rank}:")))
}

/// Bandwidth of the rank's fastest batch; `None` if the rank keeps several batches in flight.
fn fastest_batch_bytes_per_s(point: &TransferPoint, own: &InitiatorFigures) -> Option<f64> {
    let Pacing::Batch { batch } = point.pacing else {
        return None;
    };
    let roles = point.roles;
    let at_once = roles.flows_in_round(own.rank, 0).len() * point.batches_to_a_peer() as usize;
    let latency_ns = own.latency_ns_min.filter(|&ns| ns > 0 && at_once == 1)?;
    Some(f64::from(batch) * f64::from(point.slots.size_bytes) * 1e9 / latency_ns as f64)
}
