//! The title of a table: the configuration that all its rows share.

use tonnage_engine::paths::{Division, Rails};
use tonnage_plan::roles::Roles;
use tonnage_plan::transfer::{
    Background, BackgroundPair, BatchMerge, BatchOf, Batching, CallsPerBatch, CqMode, Pacing,
    SessionUse, Slots, TargetFootprint, TransferApi, TransferPoint, TrialLength, Verification,
};
use tonnage_record::histogram::Latency;
use tonnage_record::{LatencyKind, TransferRecord};
use tonnage_units::quantity::human::{exact_duration, exact_size, number, size};

use super::paced;
use crate::text::{counted, distinct};
use crate::{engine, place};

/// One line about records that share a table: operation, engine, ranks and hosts, depth and trials, and options that
/// differ from their defaults.
pub fn configuration(point: &TransferPoint, records: &[TransferRecord<'_>]) -> Vec<String> {
    let operation = match same(records, |point| point.engine.clone()) {
        Some(_) => format!(
            "{} {}",
            engine::name(&point.engine, &point.engine_options),
            point.op.name()
        ),
        None => point.op.name().to_owned(),
    };
    let ends = [operation, participants(records, point)].into_iter();
    let ends = ends.chain(background(point)).chain(paths(records, point));
    let options = ends.chain(batches(records)).chain(library(records));
    let pacing = paced::words(point).unwrap_or_else(|| pacing(records, point));
    options.chain([pacing, length(point)]).collect()
}

/// The rest of the configuration, for a line below the table.
pub fn setup(point: &TransferPoint, records: &[TransferRecord<'_>]) -> String {
    let place = place::describe_all(records.iter().map(|record| record.record));
    let parts = [
        memory(point),
        format!("footprint {}{}", footprint(records), shared_by(point)),
        access(point),
    ];
    let all = place.into_iter().chain(parts).chain(slot_gap(records));
    let all = all.chain(latency(records)).chain(verified(point));
    format!("setup: {}", all.collect::<Vec<_>>().join("; "))
}

/// Number of hosts; `None` if no record lists hosts, or if the numbers differ.
fn hosts(records: &[TransferRecord<'_>]) -> Option<u32> {
    let hosts = records.iter().map(|record| {
        let groups = record.environment.iter();
        groups.map(|group| group.hosts.len() as u32).sum::<u32>()
    });
    let counts = distinct(hosts.filter(|hosts| *hosts > 0));
    match counts[..] {
        [hosts] => Some(hosts),
        _ => None,
    }
}

/// Pacing, with the depths of a stream.
fn pacing(records: &[TransferRecord<'_>], point: &TransferPoint) -> String {
    let Pacing::Stream { .. } = point.pacing else {
        return point.pacing.name().to_owned();
    };
    let depths = records.iter().map(|record| record.body.point.depth());
    let (least, most) = (depths.clone().min(), depths.max());
    match least.zip(most) {
        Some((least, most)) if least < most => format!("stream, depth {least} to {most}"),
        _ => format!("stream, {}", point.pacing),
    }
}

/// Which operations were verified, and when.
fn verified(point: &TransferPoint) -> Option<String> {
    let words = match (point.verify, point.op.is_atomic()) {
        (Verification::Off, _) => return None,
        (Verification::Last, false) => "last visit of each slot compared after each trial",
        (Verification::Last, true) => "every answer checked after each trial",
        (Verification::Each, false) => {
            "verify=each: every operation compared inside the trial, so these figures do not measure speed"
        }
        (Verification::Each, true) => {
            "verify=each: every answer checked after each trial, and not compared with other figures"
        }
    };
    Some(words.to_owned())
}

fn participants(records: &[TransferRecord<'_>], point: &TransferPoint) -> String {
    let pattern = match &point.loads {
        Some(loads) => {
            let total = size(loads.total());
            let pairs = counted(loads.pairs().count() as u64, "pair");
            format!(
                "{total} of {pairs} of a traffic file among {} ranks at once",
                point.roles.ranks
            )
        }
        None => point.roles.title(),
    };
    let hosts = hosts(records).map(|hosts| format!(" on {}", counted(hosts, "host")));
    let pattern = pattern + &hosts.unwrap_or_default();
    match same(records, TransferPoint::measuring_threads) {
        Some(threads) => format!("{pattern}, {} each", counted(threads, "thread")),
        None => pattern,
    }
}

/// The background load shared by all rows, without its rate.
fn background(point: &TransferPoint) -> Option<String> {
    let Background {
        op,
        size_bytes,
        depth,
        pair,
        threads,
        ..
    } = point.background?;
    let (op, size) = (op.name(), exact_size(size_bytes.into()));
    let by = counted(threads, "more thread");
    let to = match pair {
        BackgroundPair::Same => "the same ranks",
        BackgroundPair::Other => "the next initiator's target",
    };
    Some(format!(
        "background {op} {size}, depth {depth}, to {to} by {by} of each"
    ))
}

/// Rails, queue pairs and chunking, if all rows agree and they are not the defaults.
fn paths(records: &[TransferRecord<'_>], point: &TransferPoint) -> Vec<String> {
    let rails = same(records, |point| point.division.rails).and_then(|rails| match rails {
        Rails::Single => None,
        Rails::Stripe => Some("operations striped over all devices of a rank".to_owned()),
        Rails::RoundRobin => Some("a device for each peer in turn".to_owned()),
    });
    let shift = (point.rail_shift > 0)
        .then(|| format!("devices of the targets turned by {}", point.rail_shift));
    let several =
        same(records, |point| point.division.queue_pairs).filter(|&queue_pairs| queue_pairs > 1);
    let several =
        several.map(|queue_pairs| format!("{queue_pairs} queue pairs for each thread and peer"));
    let cut = same(records, |point| point.division.cut).and(point.division.cut);
    let cut = cut.map(|cut| {
        let (bytes, most) = (exact_size(cut.chunk_bytes.into()), cut.chunks_max);
        format!("operations cut into parts of {bytes}, at most {most}")
    });
    let sleeps = same(records, |point| point.cq == CqMode::Event) == Some(true);
    let sleeps = sleeps.then(|| "threads sleep until there is something".to_owned());
    let rails = rails.into_iter().chain(shift).chain(sleeps);
    rails.chain(several).chain(cut).collect()
}

/// Batch options, if all rows agree and they are not the defaults.
fn batches(records: &[TransferRecord<'_>]) -> Vec<String> {
    let shared = same(records, |point| point.batching.of) == Some(BatchOf::Rank);
    let shared = shared.then(|| "each batch shared by the threads of a rank".to_owned());
    let in_flight = same(records, |point| point.batching.in_flight).filter(|&number| number > 1);
    let in_flight = in_flight.map(|number| format!("{number} batches in flight"));
    let calls = same(records, |point| point.batching.call) == Some(CallsPerBatch::Many);
    let calls = calls.then(|| "a call for each operation of a batch".to_owned());
    let merged = same(records, |point| point.batching.merge) == Some(BatchMerge::On);
    let merged = merged.then(|| "neighbours of a batch merged".to_owned());
    let batches = shared.into_iter().chain(in_flight);
    batches.chain(calls).chain(merged).collect()
}

/// Library calls, if all rows agree. Direct engine calls are not mentioned.
fn library(records: &[TransferRecord<'_>]) -> Option<String> {
    let session = same(records, |point| point.session).flatten();
    let lanes = session.map(|session| match session {
        SessionUse::On => "lanes resolved once",
        SessionUse::Off => "memory and peer looked up for each operation",
        SessionUse::Fresh => "a lane made for each operation",
        SessionUse::Register => "memory registered and a lane made for each operation",
    });
    let calls = match same(records, |point| point.api) {
        None if lanes.is_none() => return None,
        Some(TransferApi::Engine) => return None,
        None => "library",
        Some(TransferApi::Poll) => "library polled",
        Some(TransferApi::Async) => "library awaited",
    };
    Some(match lanes {
        Some(lanes) => format!("{calls}, {lanes}"),
        None => calls.to_owned(),
    })
}

/// The value shared by all rows; `None` if they differ.
pub fn same<T: PartialEq>(
    records: &[TransferRecord<'_>],
    value: fn(&TransferPoint) -> T,
) -> Option<T> {
    let mut all = records.iter().map(|record| value(&record.body.point));
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

/// Whether rows differ in a value.
pub fn differ<T: PartialEq>(
    records: &[TransferRecord<'_>],
    value: fn(&TransferPoint) -> T,
) -> bool {
    same(records, value).is_none()
}

fn footprint(records: &[TransferRecord<'_>]) -> String {
    let of = |value: fn(&TransferPoint) -> u64| {
        let all = records.iter().map(|record| value(&record.body.point));
        (all.clone().min().unwrap_or(0), all.max().unwrap_or(0))
    };
    let (least, most) = of(|point| point.slots.footprint_bytes);
    if least == most {
        return exact_size(least);
    }
    let range = format!("{} to {}", exact_size(least), exact_size(most));
    match of(|point| point.slots.count()) {
        (1, 1) => format!("{range} (1 slot)"),
        (slots, same) if slots == same => format!("{range} ({slots} slots)"),
        _ => range,
    }
}

fn memory(point: &TransferPoint) -> String {
    let options = point.memories.memory_options.iter();
    let options: String = options
        .map(|(name, value)| format!(", {name}={value}"))
        .collect();
    match &point.memories.target_memory {
        None => format!("{} memory{options}", point.memories.memory),
        Some(target) => format!(
            "{} memory, {target} memory at the targets{options}",
            point.memories.memory
        ),
    }
}

fn shared_by(point: &TransferPoint) -> &'static str {
    match point.slots.target_footprint {
        TargetFootprint::Own => "",
        TargetFootprint::Shared => " (a target's shared by all its initiators)",
    }
}

fn access(point: &TransferPoint) -> String {
    let (local, remote) = point.slots.orders();
    match point.slots.local_access {
        None => format!("{} access", remote.name()),
        Some(_) => format!(
            "{} access, {} at the initiator",
            remote.name(),
            local.name()
        ),
    }
}

/// Gap between slots; `None` if all gaps only result from alignment, or if rows differ.
fn slot_gap(records: &[TransferRecord<'_>]) -> Option<String> {
    let mut points = records.iter().map(|record| &record.body.point);
    if points.clone().all(|point| point.slots.has_own_stride()) {
        return None;
    }
    if let Some(gap_bytes) = same(records, |point| point.slots.gap_bytes()) {
        let words = match gap_bytes {
            0 => "nothing between slots".to_owned(),
            _ => format!("{} between slots", exact_size(gap_bytes)),
        };
        return Some(words);
    }
    let stride_bytes = points.next()?.slots.stride_bytes;
    let even = points.all(|point| point.slots.stride_bytes == stride_bytes);
    even.then(|| format!("slots {} apart", exact_size(stride_bytes)))
}

/// Whether rows have different slot gaps or strides that the title cannot express.
pub fn has_different_gaps(records: &[TransferRecord<'_>]) -> bool {
    let mut points = records.iter().map(|record| &record.body.point);
    slot_gap(records).is_none() && !points.all(|point| point.slots.has_own_stride())
}

fn length(point: &TransferPoint) -> String {
    let length = &point.length;
    let one = match length.trial {
        TrialLength::Iterations(1) if point.loads.is_some() => "of one execution".to_owned(),
        TrialLength::DurationNs(length_ns) => match point.iterations_max() {
            Some(most) => format!(
                "of {} or {most} operations of a thread",
                exact_duration(length_ns)
            ),
            None => format!("of at least {}", exact_duration(length_ns)),
        },
        TrialLength::Iterations(count) => format!("of {}", counted(count, "iteration")),
    };
    let Some(fraction) = length.until_ci else {
        return format!("{} {one}", counted(length.trials, "trial"));
    };
    let bound = length
        .max_duration_ns
        .map(|bound_ns| format!(" or {} are over", exact_duration(bound_ns)));
    let percent = number(fraction * 100.0);
    let what = match point.background {
        None => "CI95 is",
        Some(_) => "the interval of p50 / idle is within",
    };
    format!(
        "trials {one} until {what} {percent} %{}",
        bound.unwrap_or_default()
    )
}

/// Meaning of the latencies; `None` if nothing was measured.
pub fn latency(records: &[TransferRecord<'_>]) -> Option<String> {
    let summaries = records
        .iter()
        .filter_map(|record| record.body.summary.as_ref());
    let mut latencies = summaries.map(|summary| summary.latency.as_ref()).peekable();
    latencies.peek()?;
    let Some(latency) = latencies.flatten().next() else {
        return Some("no latencies recorded".to_owned());
    };
    let local_only = |latency: &Latency| latency.delivered == Some(false);
    let mut all = records
        .iter()
        .filter_map(|record| record.body.summary.as_ref()?.latency.as_ref());
    let (local, but) = match (all.clone().all(local_only), all.any(local_only)) {
        (true, _) => (
            "local ",
            " (its bytes may still be on their way)".to_owned(),
        ),
        (false, true) => ("", local_of(records)),
        (false, false) => ("", String::new()),
    };
    let what = match latency.kind {
        LatencyKind::Operation => format!("from post to {local}completion of one operation"),
        LatencyKind::Batch => format!("from first post to last {local}completion of one batch"),
        LatencyKind::Step => "of one step of setting up connections".to_owned(),
        LatencyKind::Call => "of one call on its slowest rank".to_owned(),
        LatencyKind::OneWay => "one way, half a round trip".to_owned(),
        LatencyKind::Response => {
            format!("from when an operation was due to its {local}completion")
        }
    };
    Some(format!("latency {what}{but}"))
}

/// Names the rows whose latencies end with a local completion. Called if only some rows have such latencies.
fn local_of(records: &[TransferRecord<'_>]) -> String {
    if same(records, |point| point.engine.clone()).is_some() {
        return " (of a lane that stays, local: its bytes may still be on their way)".to_owned();
    }
    let local = records.iter().filter(|record| {
        let summary = record.body.summary.as_ref();
        let latency = summary.and_then(|summary| summary.latency.as_ref());
        latency.is_some_and(|latency| latency.delivered == Some(false))
    });
    let engines = distinct(local.map(|record| record.body.point.engine.as_str()));
    let engines = engines.join(" and ");
    format!(" (of {engines}, local: its bytes may still be on their way)")
}

/// Whether two records belong in one table: same plan, same placement, and the same point except for values that vary
/// between rows.
pub fn same_table(left: TransferRecord<'_>, right: TransferRecord<'_>) -> bool {
    left.plan == right.plan
        && place::may_share_table(left.record, right.record)
        && shared(&left.body.point) == shared(&right.body.point)
}

fn shared(point: &TransferPoint) -> TransferPoint {
    let pacing = match point.pacing {
        Pacing::PingPong => Pacing::PingPong,
        Pacing::Stream { .. } => Pacing::Stream { depth: 0 },
        Pacing::Batch { .. } => Pacing::Batch { batch: 0 },
        Pacing::Paced { rate, .. } => Pacing::Paced {
            depth: 0,
            rate: rate.without_speed(),
        },
    };
    TransferPoint {
        // Rows of several engines can share a table. If an engine has options, the title names it, so its rows stay
        // separate.
        engine: match point.engine_options.is_empty() {
            true => String::new(),
            false => point.engine.clone(),
        },
        threads: 0,
        cq: CqMode::Busy,
        division: Division::NONE,
        batching: Batching::default(),
        api: TransferApi::Engine,
        session: None,
        background: point.background.map(|background| Background {
            rate_per_s: None,
            ..background
        }),
        roles: Roles {
            initiators: point.roles.initiators.map(|_| 0),
            ..point.roles
        },
        slots: Slots {
            size_bytes: 0,
            footprint_bytes: 0,
            stride_bytes: 0,
            seed: 0,
            ..point.slots
        },
        pacing,
        ..point.clone()
    }
}
