//! Tables per initiator rank, with the columns of MORI-IO's published report.

use std::collections::BTreeSet;

use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_record::TransferRecord;
use tonnage_record::figures::{Row, figure_by_field};
use tonnage_record::transfer::InitiatorFigures;
use tonnage_units::quantity::human::{at_least, number};

use crate::table::{TitledTable, format_value};

/// The tables, in rank order. `varying` are the columns that identify rows.
pub fn tables(records: &[TransferRecord<'_>], varying: &[&str]) -> Vec<TitledTable> {
    let ranks: BTreeSet<u32> = records
        .iter()
        .flat_map(|record| initiators(record).iter().map(|one| one.rank))
        .collect();
    let table = |rank| one(records, varying, rank);
    ranks.into_iter().map(table).collect()
}

fn initiators<'a>(record: &TransferRecord<'a>) -> &'a [InitiatorFigures] {
    // Records of traffic files always have them, even if not requested.
    let is_file = record.body.point.loads.is_some();
    let summary = record.body.summary.as_ref();
    let summary = summary.filter(|_| !is_file || record.body.point.per_rank);
    summary.map_or(&[], |summary| &summary.initiators)
}

fn one(records: &[TransferRecord<'_>], varying: &[&str], rank: u32) -> TitledTable {
    let depth = records.first().map(|record| record.body.point.pacing);
    let depth: &[&str] = match depth {
        Some(Pacing::Batch { .. }) => &["BatchSize", "TotalSize\n(MB)"],
        Some(Pacing::Stream { .. } | Pacing::Paced { .. }) => &["Depth"],
        Some(Pacing::PingPong) | None => &[],
    };
    let figures: Vec<_> = varying
        .iter()
        .filter_map(|field| figure_by_field(field))
        .collect();
    let mut head = vec!["MsgSize\n(B)".to_owned()];
    head.extend(depth.iter().map(|name| (*name).to_owned()));
    head.extend(
        figures
            .iter()
            .map(|figure| figure.name.replacen(" (", "\n(", 1)),
    );
    head.extend(
        [
            "Max BW\n(GB/s)",
            "Avg BW\n(GB/s)",
            "Min Lat\n(us)",
            "Avg Lat\n(us)",
        ]
        .map(str::to_owned),
    );
    let mut rows = vec![head];
    for record in records {
        let Some(own) = initiators(record).iter().find(|one| one.rank == rank) else {
            continue;
        };
        let point = &record.body.point;
        let mut cells = vec![point.slots.size_bytes.to_string()];
        cells.extend(depth_cells(point));
        let row = Row::all_of_record(record.record).into_iter().next();
        cells.extend(figures.iter().map(|figure| {
            let value = row.as_ref().map(|row| (figure.value)(row));
            value.map_or_else(String::new, |value| {
                format_value(value, figure.style, "n/a")
            })
        }));
        let micro = |ns: Option<f64>| ns.map(|ns| number(ns * 1e-3));
        let giga = |rate: Option<f64>| rate.map(|rate| number(rate * 1e-9));
        let measured = [
            giga(fastest_batch_bytes_per_s(point, own)),
            giga(Some(own.bandwidth_bytes_per_s)),
            micro(own.latency_ns_min.map(|ns| ns as f64)),
            micro(own.latency_ns_mean).map(|mean| at_least(mean, own.unfinished > 0)),
        ];
        cells.extend(measured.map(|cell| cell.unwrap_or_else(|| "n/a".to_owned())));
        rows.push(cells);
    }
    TitledTable::new(rows, |_| true).with_title(format!("initiator rank {rank}:"))
}

fn depth_cells(point: &TransferPoint) -> Vec<String> {
    match point.pacing {
        Pacing::Batch { batch } => vec![
            batch.to_string(),
            number(f64::from(batch) * f64::from(point.slots.size_bytes) * 1e-6),
        ],
        Pacing::Stream { depth } | Pacing::Paced { depth, .. } => vec![depth.to_string()],
        Pacing::PingPong => Vec::new(),
    }
}

/// Bandwidth of the rank's fastest batch; `None` if it has several batches in flight.
fn fastest_batch_bytes_per_s(point: &TransferPoint, own: &InitiatorFigures) -> Option<f64> {
    let Pacing::Batch { batch } = point.pacing else {
        return None;
    };
    let roles = point.roles;
    let at_once = roles.flows_in_round(own.rank, 0).len() * point.batches_to_a_peer() as usize;
    let latency_ns = own.latency_ns_min.filter(|&ns| ns > 0 && at_once == 1)?;
    Some(f64::from(batch) * f64::from(point.slots.size_bytes) * 1e9 / latency_ns as f64)
}
