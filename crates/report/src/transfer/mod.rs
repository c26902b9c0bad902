//! Reports on transfers. Records with the same configuration share a table with one row per point, followed by bound,
//! canary and remarks.

mod background;
mod footers;
mod knee;
mod loads;
mod matrix;
pub(crate) mod notes;
mod paced;
mod per_rank;
mod ranking;
mod series;
mod title;

use std::collections::BTreeMap;

use tonnage_plan::transfer::{CqMode, Pacing};
use tonnage_record::figures::Row;
use tonnage_record::{TransferBody, TransferRecord};

use crate::column::Column;
use crate::derived::{BIT_RATE, NOTE, TO_FIRST};
use crate::engine;
use crate::layout::Report;
use crate::published;
use crate::remarks::TableRemarks;
use crate::table::{Line, TableBuilder, TitledTable};

pub use notes::{CPU_SHARE_LEAST, canary_doubt};
use title::differ;
pub use title::latency;

/// Report on transfers: one table per configuration.
pub struct Transfers;

impl Report for Transfers {
    type Body = TransferBody;

    fn same_section(left: TransferRecord<'_>, right: TransferRecord<'_>) -> bool {
        title::same_table(left, right)
    }

    fn configuration(first: TransferRecord<'_>, records: &[TransferRecord<'_>]) -> Vec<String> {
        title::configuration(&first.body.point, records)
    }

    fn tables(records: &[TransferRecord<'_>]) -> Vec<TitledTable> {
        let rows = records
            .iter()
            .flat_map(|record| Row::all_of_record(record.record));
        let lines: Vec<Line<'_>> = rows.map(Line::from).collect();
        let layout = layout(records);
        let footprint: &[&str] = match same_size_other_footprint(records) {
            true => &[FOOTPRINT],
            false => &[],
        };
        let varying = varying(records);
        let builder = TableBuilder::new(lines)
            .keyed_by(&keys(&varying))
            .always(layout.always)
            .always(&varying)
            .always(footprint)
            .if_known(layout.known)
            .after(MEAN, bit_rate(records))
            .if_known(both_ends(records, &layout))
            .in_title_if_same(DEPTH)
            .text_column(TO_FIRST.name, ratios_to_first(records, &varying))
            .marks(
                NOTE.name,
                notes::remarks(records, &distinguishing(&varying)).marks,
            );
        let beside = published::tables(records.iter().map(|record| record.record));
        let grids = matrix::grids(records, &distinguishing(&varying));
        let loads = loads::tables(records, &distinguishing(&varying));
        let per_rank = per_rank::tables(records, &varying);
        let rows_of_phases = [&varying[..], footprint].concat();
        let tables = builder.table().into_iter();
        let tables = tables
            .chain(phases(records, &rows_of_phases))
            .chain(background::table(records, &rows_of_phases));
        tables
            .chain(grids)
            .chain(loads)
            .chain(per_rank)
            .chain(beside)
            .collect()
    }

    fn remarks(records: &[TransferRecord<'_>]) -> TableRemarks {
        notes::remarks(records, &distinguishing(&varying(records)))
    }

    fn footers(records: &[TransferRecord<'_>]) -> Vec<String> {
        let distinguishing = distinguishing(&varying(records));
        let mut lines: Vec<String> = ranking::best(records, &distinguishing)
            .into_iter()
            .collect();
        lines.extend(knee::lines(records, &distinguishing));
        lines.extend(background::lines(records, &distinguishing));
        lines.extend(matrix::verdicts(records, &distinguishing));
        lines.extend(series::lines(records, &distinguishing));
        lines.extend(footers::lines(records, &distinguishing));
        lines
    }
}

/// Lines about one transfer for use in another report: engine, canary, verification, path and doubts.
pub fn about(record: TransferRecord<'_>) -> Vec<String> {
    let mut lines = footers::lines(&[record], &[]);
    let remarks = notes::of_record(record).into_iter();
    lines.extend(remarks.map(|remark| remark.full));
    lines
}

/// Bandwidth in Gb/s, the unit of link speeds; `None` if no row crosses a network.
fn bit_rate(records: &[TransferRecord<'_>]) -> Option<Column> {
    let mut all = records.iter();
    if !all.any(|record| engine::may_cross_a_network(record.record)) {
        return None;
    }
    let rates = records.iter().map(|record| {
        let summary = record.body.summary.as_ref();
        summary.map(|summary| summary.bandwidth_bytes_per_s.mean)
    });
    let mut column = Column::numbers(BIT_RATE.name, 8e-9, rates);
    column.keep = Some(BIT_RATE_KEEP);
    column.is_in_another_unit = true;
    Some(column)
}

/// [`Column::keep`] of the bandwidth in bits. It is low, because the bandwidth in bytes has the same information.
const BIT_RATE_KEEP: u8 = 30;

/// Columns of a table.
struct TableColumns {
    /// Always shown.
    always: &'static [&'static str],
    /// Shown if any row has a value.
    known: &'static [&'static str],
}

const SIZE: &str = "size_bytes";
const PHASES: [&str; 6] = [
    "batch_prepare_ns_p50",
    "batch_prepare_ns_p99",
    "batch_post_ns_p50",
    "batch_post_ns_p99",
    "batch_complete_ns_p50",
    "batch_complete_ns_p99",
];
const BATCH_OF: &str = "batch_of";
const FOOTPRINT: &str = "footprint_bytes";
const ENGINE: &str = "engine";
const THREADS: &str = "threads";
const GAP: &str = "gap_bytes";
const CQ: &str = "cq";
const CPU: &str = "cpu_ns_per_operation";
const TARGET_CPU: &str = "target_cpu_ns_per_operation";
const RAILS: &str = "rails";
const QUEUE_PAIRS: &str = "queue_pairs";
const CHUNK: &str = "chunk_bytes";
const IN_FLIGHT: &str = "batches_in_flight";
const CALL: &str = "batch_call";
const MERGE: &str = "merge";
const API: &str = "api";
const SESSION: &str = "session";
const LOAD: &str = "background_rate_per_s";
const DEPTH: &str = "depth";
const BOUND: &str = "bound_bytes_per_s";
const MEAN: &str = "bandwidth_bytes_per_s_mean";
const FORWARD: &str = "forward_bandwidth_bytes_per_s_mean";
const BACK: &str = "back_bandwidth_bytes_per_s_mean";

/// Columns that identify rows.
fn keys(varying: &[&'static str]) -> Vec<&'static str> {
    [&[SIZE], &distinguishing(varying)[..]].concat()
}

/// Columns that distinguish rows of the same size.
fn distinguishing(varying: &[&'static str]) -> Vec<&'static str> {
    [&AXES[..], varying, &[FOOTPRINT]].concat()
}

/// Table of batch phases, if they were timed.
fn phases(records: &[TransferRecord<'_>], varying: &[&'static str]) -> Option<TitledTable> {
    let timed = |record: &&TransferRecord<'_>| {
        let summary = record.body.summary.as_ref();
        summary.is_some_and(|summary| summary.batch_phases.is_some())
    };
    let timed = records.iter().filter(timed);
    let rows = timed.flat_map(|record| Row::all_of_record(record.record));
    let builder = TableBuilder::new(rows.map(Line::from).collect())
        .keyed_by(&keys(varying))
        .always(&[SIZE, "batch"])
        .always(varying)
        .if_known(&["initiators"])
        .if_known(&PHASES);
    let table = builder.table()?;
    Some(table.with_title("phases of a batch:"))
}

/// Columns, in addition to the size, that may vary between rows in every table.
const AXES: [&str; 4] = ["batch", "depth", "initiators", "offered_per_s"];

/// CPU time of initiator and target, shown if any thread sleeps while it waits for completions.
fn both_ends(records: &[TransferRecord<'_>], layout: &TableColumns) -> &'static [&'static str] {
    let sleeps = |record: &TransferRecord<'_>| record.body.point.cq == CqMode::Event;
    match (records.iter().any(sleeps), layout.known.contains(&CPU)) {
        (true, true) => &[TARGET_CPU],
        (true, false) => &[CPU, TARGET_CPU],
        (false, _) => &[],
    }
}

/// Rate of each row relative to the first row. Compares rows that differ in options, but not in slot gaps or background
/// load.
fn ratios_to_first(records: &[TransferRecord<'_>], varying: &[&'static str]) -> Vec<String> {
    let compared = varying
        .iter()
        .copied()
        .filter(|field| ![GAP, LOAD].contains(field));
    let compared: Vec<_> = compared.collect();
    let fields = [&[SIZE, FOOTPRINT], &AXES[..], varying].concat();
    ranking::ratios_to_first(records, &compared, &fields)
}

/// Columns for values that vary; if all rows agree, the title has the value.
fn varying(records: &[TransferRecord<'_>]) -> Vec<&'static str> {
    let varies = [
        (ENGINE, differ(records, |it| it.engine.clone())),
        (THREADS, differ(records, |it| it.threads)),
        (CQ, differ(records, |it| it.cq)),
        (RAILS, differ(records, |it| it.division.rails)),
        (QUEUE_PAIRS, differ(records, |it| it.division.queue_pairs)),
        (CHUNK, differ(records, |it| it.division.cut)),
        (BATCH_OF, differ(records, |it| it.batching.of)),
        (IN_FLIGHT, differ(records, |it| it.batching.in_flight)),
        (CALL, differ(records, |it| it.batching.call)),
        (MERGE, differ(records, |it| it.batching.merge)),
        (API, differ(records, |it| it.api)),
        (SESSION, differ(records, |it| it.session)),
        (LOAD, differ(records, |it| it.background)),
        (GAP, title::has_different_gaps(records)),
    ];
    let varying = varies.into_iter().filter(|(_, varies)| *varies);
    varying.map(|(field, _)| field).collect()
}

const BATCH: TableColumns = TableColumns {
    always: &[
        "size_bytes",
        "batch",
        "batch_payload_bytes",
        "bandwidth_bytes_per_s_max_batch",
    ],
    known: &[
        "initiators",
        "bandwidth_bytes_per_s_mean",
        FORWARD,
        BACK,
        "latency_ns_min",
        "latency_ns_mean",
        "latency_ns_p50",
        "latency_ns_p99",
        "latency_ns_p999",
        "message_rate_per_s_mean",
        BOUND,
        "utilization",
        "busbw_fraction",
        "busbw_all_fraction",
    ],
};

const STREAM: TableColumns = TableColumns {
    always: &["size_bytes", DEPTH],
    known: &[
        "initiators",
        "bandwidth_bytes_per_s_mean",
        FORWARD,
        BACK,
        "bandwidth_ci95_fraction",
        "bandwidth_bytes_per_s_max",
        "message_rate_per_s_mean",
        "latency_ns_p50",
        "latency_ns_p99",
        "latency_ns_p999",
        "latency_ns_max",
        BOUND,
        "utilization",
        "busbw_fraction",
        "busbw_all_fraction",
        "cpu_ns_per_operation",
    ],
};

/// Columns for streams and batches of atomic operations. The table omits their bandwidth, which means little; CSV and
/// JSON have it.
const ATOMIC: TableColumns = TableColumns {
    always: &["size_bytes"],
    known: &[
        "depth",
        "batch",
        "initiators",
        "message_rate_per_s_mean",
        "bandwidth_ci95_fraction",
        FORWARD,
        BACK,
        "swapped_fraction",
        "latency_ns_min",
        "latency_ns_p50",
        "latency_ns_p99",
        "latency_ns_p999",
        "latency_ns_max",
        "cpu_ns_per_operation",
    ],
};

const PING_PONG: TableColumns = TableColumns {
    always: &["size_bytes"],
    known: &[
        "initiators",
        "latency_ns_min",
        "latency_ns_mean",
        "latency_ns_p50",
        "latency_ns_p90",
        "latency_ns_p99",
        "latency_ns_p999",
        "latency_ns_max",
        "message_rate_per_s_mean",
        "swapped_fraction",
    ],
};

fn layout(records: &[TransferRecord<'_>]) -> TableColumns {
    let point = records.first().map(|record| &record.body.point);
    let is_atomic = point.is_some_and(|point| point.op.is_atomic());
    match point.map(|point| point.pacing) {
        Some(Pacing::Batch { .. } | Pacing::Stream { .. }) if is_atomic => ATOMIC,
        Some(Pacing::Batch { .. }) => BATCH,
        Some(Pacing::PingPong) => PING_PONG,
        Some(Pacing::Paced { .. }) => paced::COLUMNS,
        Some(Pacing::Stream { .. }) | None => STREAM,
    }
}

/// Whether rows of equal size differ only in footprint.
fn same_size_other_footprint(records: &[TransferRecord<'_>]) -> bool {
    let mut footprints = BTreeMap::new();
    let mut points = records.iter().map(|record| &record.body.point);
    points.any(|point| {
        let first = footprints
            .entry(point.slots.size_bytes)
            .or_insert(point.slots.footprint_bytes);
        *first != point.slots.footprint_bytes
    })
}
