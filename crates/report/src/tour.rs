//! Draws the final page of a tour: this machine's hardware, its upper bounds, and how close measured paths come to
//! them.
//!
//! Drawing is a pure function: the caller reads and measures its input.

use std::path::Path;

use tonnage_engine::{Fact, Verb, fact_names};
use tonnage_machine::devices::Inventory;
use tonnage_plan::transfer::Pacing;
use tonnage_record::{Canary, Outcome, Placed, Record, TransferRecord};
use tonnage_units::quantity::human::{exact_size, number, whole_percent};

use tonnage_record::figures::engine::transport_of_record;
use tonnage_record::host_bounds::HostBounds;

use crate::column::NO_VALUE;
use crate::cpu_loss;
use crate::derived::{
    ABOVE, BANDWIDTH, BOUND, CACHE_LINE, DerivedColumn, INTERVAL, MEASURED, OF_BOUND, OPERATION,
    P50, P99, TIMED, VALUE,
};
use crate::place;
use crate::table::draw;
use crate::text::{distinct, entry, wrap};
use crate::transfer::CPU_SHARE_LEAST;

/// Maximum line width of the page.
const WIDTH: usize = 100;

/// Data from which the page is drawn.
pub struct Tour<'a> {
    /// Inventory of this host.
    pub inventory: &'a Inventory,
    /// Upper bounds of this host.
    pub bounds: &'a HostBounds,
    /// Records of measurements between the ranks.
    pub records: &'a [Record],
    /// File with the records.
    pub output: &'a Path,
    /// Program name as invoked, so that the commands can be copied.
    pub program: &'a str,
}

/// Draws the page.
pub fn page(tour: &Tour) -> String {
    let records: Vec<_> = tour
        .records
        .iter()
        .filter_map(Record::as_transfer)
        .collect();
    let mut page = this_machine(tour);
    page += &bounds(tour.bounds);
    page += &harness_overhead(&records);
    page += &latency(&records);
    page += &bandwidth(&records);
    page += &notes(&records);
    page += &next_steps(tour.output, tour.program);
    page
}

fn heading(text: &str) -> String {
    format!("\n{text}\n{}\n", "─".repeat(text.chars().count()))
}

fn header(columns: &[DerivedColumn]) -> Vec<String> {
    columns
        .iter()
        .map(|column| column.name.to_owned())
        .collect()
}

fn this_machine(tour: &Tour) -> String {
    let mut text = heading(&format!("This machine: {}", tour.inventory.host.name));
    for (name, line) in crate::devices::summary(tour.inventory) {
        text += &entry(name, 10, &line);
    }
    text
}

fn bounds(bounds: &HostBounds) -> String {
    let copy = |name: &str, (bound, footprint): &(tonnage_record::Bound, u64)| {
        vec![
            format!(
                "{name} ({} to {})",
                exact_size(*footprint),
                exact_size(*footprint)
            ),
            format!("{} GB/s", number(bound.bytes_per_s / 1e9)),
            bound.what.clone(),
        ]
    };
    let socket = vec![
        "one TCP stream over loopback".to_owned(),
        format!("{} GB/s", number(bounds.socket_bytes_per_s / 1e9)),
        "as the receiver sees it, 1 MiB blocks".to_owned(),
    ];
    let line = match &bounds.cache_line_ns {
        Ok((cpus, ns)) => vec![
            format!("cache line, CPU {} to CPU {}", cpus[0], cpus[1]),
            format!("{} ns", number(*ns)),
            "one way, median".to_owned(),
        ],
        Err(why) => vec![
            "cache line between two CPUs".to_owned(),
            NO_VALUE.to_owned(),
            why.clone(),
        ],
    };
    let rows = vec![
        header(&[BOUND, VALUE, MEASURED]),
        copy("memory copy in cache", &bounds.copy_in_cache),
        copy("memory copy in DRAM", &bounds.copy_in_dram),
        socket,
        line,
    ];
    heading("Upper bounds of this machine") + &draw(rows, |column| column == 1) + "\n"
}

/// Whether a record comes from an engine that moves no data. Its figures are the overhead of the harness.
fn moves_nothing(record: TransferRecord<'_>) -> bool {
    let still = Fact::Flag(false);
    let mut engines = record.effective.iter().map(|ranks| &ranks.engine);
    engines.any(|engine| engine.facts.get(fact_names::MOVES_BYTES) == Some(&still))
}

/// Describes the overhead of the harness, which is part of every figure below.
fn harness_overhead(records: &[TransferRecord<'_>]) -> String {
    let lines = records.iter().filter(|record| moves_nothing(**record)).filter_map(|record| {
        let rate = record.body.summary.as_ref()?.message_rate_per_s.mean;
        Some(format!(
            "The harness itself takes {} ns for each operation (engine {}, {}). It is part of every figure below.\n",
            number(1e9 / rate),
            record.body.point.engine,
            record.body.point.pacing,
        ))
    });
    lines.map(|line| format!("\n{line}")).collect()
}

/// Table of ping-pong latencies. One-way latencies are compared with the transfer of a cache line.
fn latency(records: &[TransferRecord<'_>]) -> String {
    let mut rows = vec![header(&[OPERATION, TIMED, P50, P99, CACHE_LINE, ABOVE])];
    let several = places(records).len() > 1;
    for record in records
        .iter()
        .filter(|record| record.body.point.pacing == Pacing::PingPong)
    {
        let Some(latency) = record
            .body
            .summary
            .as_ref()
            .and_then(|summary| summary.latency.as_ref())
        else {
            continue;
        };
        let what = if record.body.point.op == Verb::Read {
            "post to completion"
        } else {
            "one way, seen by the peer"
        };
        let line = match &record.canary {
            // A read is not one-way, so a cache-line transfer is not a reference for its latency.
            _ if record.body.point.op == Verb::Read => None,
            Some(Canary::Measured {
                before_ns,
                after_ns,
                ..
            }) => Some(f64::midpoint(*before_ns, *after_ns)),
            _ => None,
        };
        rows.push(vec![
            format!(
                "{} {} {}{}",
                record.body.point.engine,
                record.body.point.op.name(),
                exact_size(u64::from(record.body.point.slots.size_bytes)),
                match record.placement().filter(|_| several) {
                    Some(place) => format!(", {place}"),
                    None => String::new(),
                }
            ),
            what.to_owned(),
            number(latency.latency_ns_p50 as f64),
            number(latency.latency_ns_p99 as f64),
            line.map_or(NO_VALUE.to_owned(), number),
            line.map_or(NO_VALUE.to_owned(), |line| {
                number(latency.latency_ns_p50 as f64 - line)
            }),
        ]);
    }
    if rows.len() == 1 {
        return String::new();
    }
    heading("Latency of a few bytes between two ranks") + &draw(rows, |column| column >= 2) + "\n"
}

/// Known placements of peers.
fn places(records: &[TransferRecord<'_>]) -> Vec<Placed> {
    distinct(records.iter().filter_map(|record| record.placement()))
}

/// Memories of initiator and target, if they differ.
fn memories<'a>(record: &TransferRecord<'a>) -> Option<(&'a str, &'a str)> {
    let point = &record.body.point;
    let target = point.memories.target_memory.as_deref()?;
    Some((&point.memories.memory, target))
}

/// One table per operation, placement (if there are several) and pair of memories. Each row is a size, with bandwidth
/// and utilization per engine.
fn bandwidth(records: &[TransferRecord<'_>]) -> String {
    let is_shown = |record: &TransferRecord<'_>| {
        let streams = matches!(record.body.point.pacing, Pacing::Stream { .. });
        streams && !moves_nothing(*record) && record.body.summary.is_some()
    };
    let streams: Vec<TransferRecord<'_>> = records.iter().copied().filter(is_shown).collect();
    if streams.is_empty() {
        return String::new();
    }
    let several = places(&streams).len() > 1;
    let place = |record: &TransferRecord<'_>| record.placement().filter(|_| several);
    let tables = distinct(
        streams
            .iter()
            .map(|record| (record.body.point.op, place(record), memories(record))),
    );
    let mut text = heading("Bandwidth between two ranks");
    for table in tables {
        let same: Vec<TransferRecord<'_>> = streams
            .iter()
            .copied()
            .filter(|record| (record.body.point.op, place(record), memories(record)) == table)
            .collect();
        let pacings = distinct(same.iter().map(|record| record.body.point.pacing));
        let pacings: Vec<_> = pacings.iter().map(ToString::to_string).collect();
        let (op, place, memories) = table;
        let place = place.map_or(String::new(), |place| {
            format!(", {}", place::describe(place))
        });
        let memories = memories.map_or(String::new(), |(own, target)| {
            format!(", memory {own} and memory {target}")
        });
        let what = format!("{}, {}{place}{memories}", op.name(), pacings.join(" and "));
        text += &format!("{what}\n{}\n\n", by_size(&same));
    }
    text += &wrap(&describe_bounds(&streams), WIDTH, 0);
    text.push('\n');
    for engine in distinct(streams.iter().map(|record| &*record.body.point.engine)) {
        let same = streams
            .iter()
            .filter(|record| record.body.point.engine == engine);
        for means in distinct(same.map(|record| transport_of_record(record.record))) {
            if !means.is_empty() {
                text += &wrap(&format!("{engine}: {means}."), WIDTH, 2);
                text.push('\n');
            }
        }
    }
    text
}

fn by_size(records: &[TransferRecord<'_>]) -> String {
    let engines = distinct(records.iter().map(|record| &*record.body.point.engine));
    let mut head = vec!["MsgSize".to_owned()];
    for engine in &engines {
        head.push(BANDWIDTH.name.replace("ENGINE ", &format!("{engine}\n")));
        head.extend(header(&[INTERVAL, OF_BOUND]));
    }
    let mut rows = vec![head];
    for size in distinct(
        records
            .iter()
            .map(|record| record.body.point.slots.size_bytes),
    ) {
        let mut row = vec![exact_size(u64::from(size))];
        for engine in &engines {
            let same = |record: &&TransferRecord<'_>| {
                record.body.point.engine == *engine && record.body.point.slots.size_bytes == size
            };
            let summary = records
                .iter()
                .find(same)
                .and_then(|record| record.body.summary.as_ref());
            let Some(summary) = summary else {
                row.extend([NO_VALUE; 3].map(str::to_owned));
                continue;
            };
            let spread = &summary.bandwidth_bytes_per_s;
            row.push(number(spread.mean / 1e9));
            row.push(
                spread
                    .ci95_fraction()
                    .map_or(NO_VALUE.to_owned(), whole_percent),
            );
            row.push(
                summary
                    .utilization
                    .map_or(NO_VALUE.to_owned(), whole_percent),
            );
        }
        rows.push(row);
    }
    draw(rows, |_| true)
}

/// Describes the upper bound of each engine's bandwidth. Exact values per point are in the records.
fn describe_bounds(records: &[TransferRecord<'_>]) -> String {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for record in records {
        let Some(bound) = &record.bound else { continue };
        let words = match bound.what.split([' ', ',']).next() {
            Some("memory") => "the fastest memory copy over the same footprint".to_owned(),
            Some("socket") => {
                "the bandwidth of a plain TCP stream between the same ranks".to_owned()
            }
            _ => bound.what.clone(),
        };
        let engine = &*record.body.point.engine;
        match kinds.iter_mut().find(|(known, _)| *known == words) {
            Some((_, engines)) if engines.contains(&engine) => {}
            Some((_, engines)) => engines.push(engine),
            None => kinds.push((words, vec![engine])),
        }
    }
    let bounds = kinds
        .iter()
        .map(|(words, engines)| format!("the bound of {} is {words}", engines.join(" and ")));
    let bounds = bounds.collect::<Vec<_>>().join("; ");
    if bounds.is_empty() {
        return bounds;
    }
    format!(
        "{}{}. It is measured just before and after each point; small messages stay below it because of what each \
         operation costs.",
        bounds[..1].to_uppercase(),
        &bounds[1..]
    )
}

/// Lists points that could not be measured, once per reason.
fn not_measured(records: &[TransferRecord<'_>]) -> String {
    let why = |record: &TransferRecord<'_>| match &record.outcome {
        Outcome::Skipped { why } | Outcome::Failed { why } => Some(why.clone()),
        Outcome::Measured => None,
    };
    let mut text = String::new();
    for reason in distinct(records.iter().filter_map(why)) {
        let same = records
            .iter()
            .filter(|record| why(record).as_ref() == Some(&reason));
        let what = same.clone().map(|record| {
            let point = &record.body.point;
            let place = point
                .place
                .map_or(String::new(), |place| format!(", {place}"));
            format!("{} {}{place}", point.engine, point.op.name())
        });
        let what = distinct(what).join(", ");
        let points = match same.count() {
            1 => String::new(),
            several => format!(" ({several} points)"),
        };
        text += &wrap(&format!("Not measured: {what}{points}: {reason}"), WIDTH, 2);
        text.push('\n');
    }
    text
}

/// Describes failures and possible disturbances.
fn notes(records: &[TransferRecord<'_>]) -> String {
    let mut text = not_measured(records);
    let changed = records
        .iter()
        .filter(|record| record.canary_doubt().is_some())
        .count();
    if changed > 0 {
        let note = format!(
            "The way between two CPUs changed around {changed} of {} points: the time of a cache line before and after \
             differs by more than a fifth, and so do the trials by more than a tenth. Do not read much into small \
             differences.",
            records.len()
        );
        text += &wrap(&note, WIDTH, 0);
        text.push('\n');
    }
    for line in cpu_loss::lines(records.iter().map(|record| record.record)) {
        text += &wrap(&line, WIDTH, 0);
        text.push('\n');
    }
    let unexplained = |record: &&TransferRecord<'_>| record.worst_cpu_loss().is_none();
    let disturbed: Vec<f64> = records
        .iter()
        .filter(unexplained)
        .filter_map(|record| record.cpu_share())
        .filter(|share| *share < CPU_SHARE_LEAST)
        .collect();
    if let Some(worst) = disturbed.iter().copied().reduce(f64::min) {
        let note = format!(
            "The threads lacked CPU time at {} of {} points (at worst they had {:.0} % of it), and the records do not \
             show who had the rest. Figures and percentages of these may be too low: try again when the machine is idle.",
            disturbed.len(),
            records.len(),
            worst * 100.0
        );
        text += &wrap(&note, WIDTH, 0);
        text.push('\n');
    }
    text
}

fn next_steps(output: &Path, program: &str) -> String {
    let file = output.display();
    let mut text = heading("Saved, and what to run next");
    for line in [
        format!("{file} holds every figure with its configuration."),
        format!("{program} show {file}"),
        format!(
            "{program} transfer --engine shm --op write-imm --ranks 2 --sizes 8,4k --ping-pong"
        ),
        format!(
            "{program} transfer --engine fabric:tcp --op read --ranks 2 --sizes 8..1M --batch 128"
        ),
        format!("{program} verify --ranks 2"),
        format!("{program} devices"),
    ] {
        text += &format!("  {line}\n");
    }
    text
}

#[cfg(test)]
mod tests;
